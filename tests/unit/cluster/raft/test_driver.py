"""Raft drivers over an in-memory network, each with its own timers and in-memory disk."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cluster.raft.batches import (
    decode_batches,
    decode_parts,
    encode_entry,
    encode_records,
    encode_snapshot_footer,
    encode_snapshot_header,
)
from odradek.cluster.raft.config import RaftConfig
from odradek.cluster.raft.delivery import RECORDS_PER_PART, TURN_BYTES_MAX
from odradek.cluster.raft.driver import RaftDriver
from odradek.cluster.raft.errors import DifferentVoters, LostCommitted
from odradek.cluster.raft.messages import (
    BeginQuorumEpochRequest,
    Entry,
    EpochEnd,
    FetchReply,
    FetchRequest,
    HardState,
    LeaderChange,
    VoteRequest,
)
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shard import ShardRecord
from odradek.runtime.tasks import Tasks
from tests.support.controller_node import LoopClock
from tests.support.raft_memory import MemoryRaftStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.cluster.raft.batches import LogBatch
    from odradek.cluster.raft.messages import Leadership, Message

FAST = RaftConfig(election_timeout_ms=40, fetch_timeout_ms=80, election_backoff_max_ms=40, fetch_wait_ms_max=20)


class Cluster:
    """In-memory network. The event loop delivers messages in order. Nodes in `isolated` neither send nor receive."""

    def __init__(self) -> None:
        self.drivers: dict[int, RaftDriver] = {}
        self.storages: dict[int, MemoryRaftStorage] = {}
        self.values: dict[int, list[bytes | None]] = {}
        self.leadership: dict[int, Leadership] = {}
        self.isolated: list[int] = []
        self.failures: list[BaseException] = []
        self.tasks = Tasks(lambda _, error: self.failures.append(error))
        self.changed = asyncio.Event()
        self.config = FAST

    async def start(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            await self.start_node(node, nodes)

    async def start_node(self, node: int, voters: Sequence[int]) -> None:
        storage = self.storages.setdefault(node, MemoryRaftStorage())
        driver = self.drivers[node] = RaftDriver(
            node,
            voters,
            storage,
            self,
            clock=LoopClock(),
            rng=random.Random(node),
            tasks=self.tasks,
            on_failure=lambda _, error: self.failures.append(error),
            config=self.config,
        )
        self.values[node] = []
        driver.on_committed(lambda batches: self.committed(node, batches))
        driver.on_leadership(lambda leadership: self.lead(node, leadership))
        self.prepare(node)
        await driver.start()

    def prepare(self, node: int) -> None:
        """Do nothing. Subclasses attach further components to the driver before it starts."""

    def committed(self, node: int, batches: Sequence[LogBatch]) -> None:
        self.values[node] += [value for batch in batches for _, value in batch.records]
        self.changed.set()

    def lead(self, node: int, leadership: Leadership) -> None:
        self.leadership[node] = leadership
        self.changed.set()

    def send(self, message: Message) -> None:
        asyncio.get_running_loop().call_soon(self.deliver, message)

    def deliver(self, message: Message) -> None:
        if message.source not in self.isolated and message.target not in self.isolated:
            self.drivers[message.target].step(message)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def leader(self) -> RaftDriver:
        def leaders() -> list[int]:
            return [
                node
                for node, leadership_of_node in self.leadership.items()
                if leadership_of_node.is_leader and node not in self.isolated
            ]

        await self.until(lambda: bool(leaders()))
        return self.drivers[max(leaders(), key=lambda node: self.leadership[node].epoch)]

    async def stop(self) -> None:
        for driver in self.drivers.values():
            await driver.stop()
        await self.tasks.cancel_all()
        assert self.failures == []


async def test_quorum_elects_a_new_leader_after_the_partition_of_the_old_one() -> None:
    cluster = Cluster()
    await cluster.start([1, 2, 3])
    first = await cluster.leader()
    first.append([ShardRecord(None, b"a"), ShardRecord(None, b"b")], 1_000)
    await cluster.until(lambda: all(values == [b"a", b"b"] for values in cluster.values.values()))

    cluster.isolated = [first.node_id]
    first.append([ShardRecord(None, b"lost")], 1_000)
    second = await cluster.leader()
    assert second is not first
    second.append([ShardRecord(None, b"c")], 1_000)
    majority = [node for node in cluster.drivers if node != first.node_id]
    await cluster.until(lambda: all(cluster.values[node] == [b"a", b"b", b"c"] for node in majority))

    cluster.isolated = []
    await cluster.until(lambda: cluster.values[first.node_id] == [b"a", b"b", b"c"])
    with pytest.raises(Refusal) as refused:
        first.append([ShardRecord(None, b"late")], 1_000)
    assert refused.value.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await cluster.stop()


async def make_snapshot(driver: RaftDriver) -> EpochEnd:
    """Make a snapshot of `driver` without records, whose end is that of its log."""
    snapshot = EpochEnd(driver.core.epoch, driver.core.log.end_offset)
    writer = driver.begin_snapshot(snapshot)
    writer.append(encode_snapshot_header(epoch=1, last_contained_ms=0, now_ms=0))
    writer.append(encode_snapshot_footer(base_offset=1, epoch=1, now_ms=0))
    await writer.finish()
    driver.snapshot_made(snapshot)
    return snapshot


async def test_snapshot_of_the_leader_replaces_uncommitted_batches_of_a_deposed_leader() -> None:
    cluster = Cluster()
    await cluster.start([1, 2, 3])
    first = await cluster.leader()
    first.append([ShardRecord(None, b"a")], 1_000)
    await cluster.until(lambda: all(values == [b"a"] for values in cluster.values.values()))

    cluster.isolated = [first.node_id]
    for _ in range(3):
        first.append([ShardRecord(None, b"lost")], 1_000)
    second = await cluster.leader()
    for _ in range(5):
        second.append([ShardRecord(None, b"b")], 1_000)
    await cluster.until(lambda: cluster.values[second.node_id] == [b"a", *[b"b"] * 5])
    await make_snapshot(second)
    second.append([ShardRecord(None, b"c")], 1_000)
    await cluster.until(lambda: cluster.values[second.node_id][-1] == b"c")
    latest = await make_snapshot(second)  # the log begins at the snapshot before the latest one
    async with asyncio.timeout(20):
        while cluster.storages[second.node_id].start == 0:
            await asyncio.sleep(0.01)

    cluster.isolated = []
    await cluster.until(lambda: first.node_id in cluster.leadership and not cluster.leadership[first.node_id].is_leader)
    second = await cluster.leader()
    second.append([ShardRecord(None, b"after")], 1_000)
    await cluster.until(lambda: cluster.values[first.node_id][-1] == b"after")
    assert cluster.values[first.node_id] == [b"a", b"after"]
    assert cluster.storages[first.node_id].start == latest.end_offset
    await cluster.stop()


async def test_replica_with_an_empty_log_gets_all_entries() -> None:
    cluster = Cluster()
    await cluster.start([1, 2, 3])
    leader = await cluster.leader()
    for number in range(50):
        leader.append([ShardRecord(None, b"%d" % number)], 1_000)
    expected: list[bytes | None] = [b"%d" % number for number in range(50)]
    await cluster.until(lambda: all(values == expected for values in cluster.values.values()))
    restarted = next(node for node in cluster.drivers if node != leader.node_id)
    await cluster.drivers[restarted].stop()
    cluster.storages[restarted] = MemoryRaftStorage(hard_state=cluster.storages[restarted].hard_state)
    await cluster.start_node(restarted, [1, 2, 3])
    await cluster.until(lambda: cluster.values[restarted] == expected)
    assert cluster.drivers[restarted].log_end_offset == leader.log_end_offset
    assert not cluster.leadership[restarted].is_leader
    await cluster.stop()


async def test_batch_above_the_limit_is_refused_before_the_write() -> None:
    cluster = Cluster()
    await cluster.start([1])
    leader = await cluster.leader()
    end = leader.log_end_offset
    with pytest.raises(Refusal) as refused:
        leader.append([ShardRecord(None, bytes(9 * 1024 * 1024))], 1_000)
    assert refused.value.error is ErrorCode.RECORD_LIST_TOO_LARGE
    assert leader.log_end_offset == end
    await cluster.stop()


class PreparingCluster(Cluster):
    """Cluster of one node that notes prepared batches, and the calls of its listener."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared: list[LogBatch] = []
        self.calls: list[Sequence[LogBatch]] = []
        self.since_turn = self.largest = 0

    def prepare(self, node: int) -> None:
        self.drivers[node].on_committed(self.calls.append, self.take_part)

    def take_part(self, batches: Sequence[LogBatch]) -> None:
        self.prepared += batches
        self.since_turn += sum(len(batch.records) for batch in batches)
        self.largest = max(self.largest, self.since_turn)

    async def start_leader(self) -> RaftDriver:
        await self.start([1])
        leader = await self.leader()
        leader.subscribe(lambda _: self.changed.set())
        await self.until(lambda: leader.high_watermark == leader.log_end_offset)
        self.calls.clear()
        return leader

    async def other_work(self) -> None:
        while True:
            self.since_turn = 0
            await asyncio.sleep(0)


async def test_large_batch_is_prepared_in_parts_and_delivered_in_one_call() -> None:
    cluster = PreparingCluster()
    leader = await cluster.start_leader()
    announced: list[tuple[int, int]] = []
    leader.subscribe(lambda end: announced.append((end, cluster.calls[-1][-1].last_offset)))
    values = [b"%200d" % number for number in range(3 * RECORDS_PER_PART + 1)]
    other = asyncio.create_task(cluster.other_work())
    for batch in ([b"before"], values, [b"after"]):
        leader.append([ShardRecord(None, value) for value in batch], 1_000)
    await cluster.until(lambda: leader.high_watermark == leader.log_end_offset)
    other.cancel()
    assert cluster.values[1] == [b"before", *values, b"after"]
    assert [value for batch in cluster.prepared for _, value in batch.records] == values
    assert 0 < cluster.largest <= RECORDS_PER_PART
    assert cluster.prepared in [list(call) for call in cluster.calls]
    assert announced[-1] == (leader.log_end_offset, leader.log_end_offset - 1)
    assert all(end <= delivered + 1 for end, delivered in announced)
    await cluster.stop()


async def test_many_small_batches_are_delivered_in_several_turns() -> None:
    cluster = PreparingCluster()
    leader = await cluster.start_leader()
    for _ in range(5):
        leader.append([ShardRecord(None, bytes(TURN_BYTES_MAX // 3))], 1_000)
    await cluster.until(lambda: leader.high_watermark == leader.log_end_offset)
    assert max(sum(batch.size for batch in call) for call in cluster.calls) <= TURN_BYTES_MAX
    assert sum(len(call) for call in cluster.calls) == 5
    await cluster.stop()


@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(1, 6))
def test_parts_of_batches_have_all_records_at_their_offsets(counts: list[int], records_max: int) -> None:
    data, offset = b"", 5
    for count in counts:
        rows = [(b"k", b"%d" % index) for index in range(count)]
        data += encode_records(rows, base_offset=offset, epoch=3, now_ms=9)
        offset += count
    data += encode_entry(Entry(offset, offset, 3, LeaderChange(1, (1,), (1,))), 9)
    parts, whole = list(decode_parts(data, records_max)), list(decode_batches(data))
    assert [row for part in parts for row in part.records] == [row for batch in whole for row in batch.records]
    assert [part.base_offset for part in parts] == [5, *(part.last_offset + 1 for part in parts[:-1])]
    assert all(len(part.records) in {0, 1 + part.last_offset - part.base_offset} for part in parts)
    assert max(len(part.records) for part in parts) <= records_max
    assert sum(part.size for part in parts) == sum(batch.size for batch in whole)
    assert {(part.epoch, part.timestamp_ms) for part in parts} == {(3, 9)}


# ---- durable before the response ------------------------------------------------------------------------------------


class RecordedNode:
    """One of three nodes. It records the order of its disk operations and sent messages."""

    def __init__(self, node_id: int = 1, voters: Sequence[int] = (1, 2, 3)) -> None:
        self.failures: list[BaseException] = []
        self.tasks = Tasks(lambda _, error: self.failures.append(error))
        self.storage = MemoryRaftStorage(
            batches=[encode_records([(None, b"a")], base_offset=0, epoch=1, now_ms=1)],
            synced=1,
            hard_state=HardState(1),
        )
        self.driver = RaftDriver(
            node_id,
            voters,
            self.storage,
            self,
            clock=LoopClock(),
            rng=random.Random(1),
            tasks=self.tasks,
            on_failure=lambda _, error: self.failures.append(error),
            config=RaftConfig(),
        )
        self.messages: list[Message] = []

    def send(self, message: Message) -> None:
        self.messages.append(message)
        self.storage.done.append(type(message).__name__)

    async def rest(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def end(self) -> None:
        await self.tasks.cancel_all()
        assert self.failures == []


async def test_vote_is_durable_before_the_response() -> None:
    node = RecordedNode()
    await node.driver.start()
    await node.rest()
    node.storage.done.clear()
    node.storage.sync_allowed = asyncio.Event()
    node.driver.step(VoteRequest(2, 1, 5, 1, 1, pre_vote=False))
    await node.rest()
    assert node.storage.done == []
    assert node.storage.hard_state == HardState(1)
    node.storage.sync_allowed.set()
    await node.rest()
    assert node.storage.done == ["saved", "VoteReply"]
    assert node.storage.hard_state == HardState(5, -1, 2)
    await node.end()


async def test_entries_are_synced_before_the_acknowledgment() -> None:
    node = RecordedNode()
    await node.driver.start()
    node.driver.step(BeginQuorumEpochRequest(2, 1, 3))
    await node.rest()
    fetch = next(message for message in node.messages if isinstance(message, FetchRequest))
    node.storage.done.clear()
    node.storage.sync_allowed = asyncio.Event()
    data = encode_records([(None, b"b")], base_offset=1, epoch=3, now_ms=1)
    node.driver.step(FetchReply(2, 1, 3, 2, 1, 1, 0, (Entry(1, 1, 3, data),), request_id=fetch.request_id))
    await node.rest()
    assert node.storage.done == ["written"]
    node.storage.sync_allowed.set()
    await node.rest()
    assert node.storage.done == ["written", "synced", "FetchRequest"]
    assert node.messages[-1].fetch_offset == 2  # type: ignore[union-attr]
    await node.end()


async def test_leader_with_different_voters_ends_the_node() -> None:
    node = RecordedNode()
    await node.driver.start()
    node.driver.step(BeginQuorumEpochRequest(2, 1, 3))
    await node.rest()
    fetch = next(message for message in node.messages if isinstance(message, FetchRequest))
    data = encode_entry(Entry(1, 1, 3, LeaderChange(2, (1, 2, 4), (2, 4))), 1)
    node.driver.step(FetchReply(2, 1, 3, 2, 1, 0, 0, (Entry(1, 1, 3, data),), request_id=fetch.request_id))
    await node.rest()
    (failure,) = node.failures
    assert isinstance(failure, DifferentVoters)
    assert "[1, 2, 4]" in str(failure)
    assert "controller.quorum.voters" in str(failure)
    assert node.storage.log_end_offset == 1
    await node.tasks.cancel_all()


async def test_leader_outside_the_configured_voters_ends_the_node() -> None:
    node = RecordedNode(4, [1, 2])
    await node.driver.start()
    await node.rest()
    [fetch] = [message for message in node.messages if isinstance(message, FetchRequest)]
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    node.driver.step(FetchReply(fetch.target, 4, 3, 3, 1, error=refused, request_id=fetch.request_id))
    await node.rest()
    (failure,) = node.failures
    assert isinstance(failure, DifferentVoters)
    assert str(failure) == (
        "node 3 leads the metadata log, but the voters of this node are [1, 2]: set controller.quorum.voters to the"
        " same value on every node"
    )
    await node.driver.stop()
    await node.tasks.cancel_all()


async def test_leader_that_lacks_committed_entries_ends_the_node() -> None:
    node = RecordedNode()
    await node.driver.start()
    node.driver.step(BeginQuorumEpochRequest(2, 1, 3))
    await node.rest()
    fetch = next(message for message in node.messages if isinstance(message, FetchRequest))
    node.driver.step(FetchReply(2, 1, 3, 2, 1, 1, request_id=fetch.request_id))
    await node.rest()
    fetch = [message for message in node.messages if isinstance(message, FetchRequest)][-1]
    node.driver.step(FetchReply(2, 1, 3, 2, 1, 0, diverging=EpochEnd(0, 0), request_id=fetch.request_id))
    await node.rest()
    (failure,) = node.failures
    assert isinstance(failure, LostCommitted)
    await node.driver.stop()
    await node.tasks.cancel_all()


async def test_suspicion_starts_an_election_before_the_timeout() -> None:
    """Time-outs are minutes, so every election within this test follows from the suspicion."""
    cluster = Cluster()
    cluster.config = RaftConfig(election_timeout_ms=100_000, fetch_timeout_ms=200_000)
    await cluster.start([1, 2, 3])
    first = await cluster.leader()
    await cluster.until(
        lambda: all(leadership_of_node.leader_id == first.node_id for leadership_of_node in cluster.leadership.values())
    )
    first.append([ShardRecord(None, b"a")], 1_000)
    await cluster.until(lambda: all(values == [b"a"] for values in cluster.values.values()))
    cluster.isolated = [first.node_id]
    for node, driver in cluster.drivers.items():
        if node != first.node_id:
            driver.suspect(first.node_id)
            driver.suspect(99)
    second = await cluster.leader()
    assert second is not first
    await cluster.stop()
