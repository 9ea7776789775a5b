"""Leaders and followers: real logs, handlers and wire format. The test replaces the controller."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.fetch.sessions import INITIAL_EPOCH
from odradek.broker.partition.partition import Partition
from odradek.broker.quorum.peers import Channel
from odradek.broker.replication import follower_session, leader_fetch
from odradek.broker.replication.follower_fetcher import FETCH_VERSION
from odradek.broker.replication.follower_session import FollowerSession
from odradek.broker.replication.leader_fetch import LINGER_ROUNDS, WATERMARKS_EVERY_MS, Gathering
from odradek.broker.replication.leader_sessions import ReplicaSlot
from odradek.cluster.metadata.records import RemoveTopicRecord
from odradek.protocol.batch import iter_batches, iter_records
from odradek.protocol.errors import ErrorCode
from odradek.storage.config import LogConfig
from odradek.storage.log.reads import ReadResult
from odradek.storage.producers.entry import Origin
from tests.support.data_rig import NOW_MS, batch
from tests.support.replication_rig import TOPIC_ID, Brokers, Controller, FakePeers

E = ErrorCode


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    cluster = Brokers(tmp_path, config=LogConfig(min_insync_replicas=2))
    yield cluster
    await cluster.close()


def values_of(content: bytes) -> list[bytes | None]:
    return [
        record.value
        for _, batch in iter_batches(content)
        for record in iter_records(batch, max_decompressed_bytes=len(content))
    ]


async def test_append_reaches_every_replica_and_commits_without_a_timer(brokers: Brokers) -> None:
    brokers.topic()
    brokers[1].append(b"a", b"b")
    await brokers.until(lambda: brokers[1].committed() == 2)
    assert brokers[1].content() == brokers[2].content() == brokers[3].content()
    brokers[1].append(b"c")
    await brokers.until(lambda: brokers[1].committed() == 3)
    assert brokers[2].committed() >= 2, "the high watermark is in the next response"


async def test_slow_replica_holds_the_high_watermark_until_it_leaves_the_isr(brokers: Brokers) -> None:
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    brokers.isolated[3] = None
    brokers[1].append(b"b")
    await brokers.until(lambda: brokers[1].acknowledged_by(2) == 2)
    assert brokers[1].committed() == 1
    brokers.fence(3, isr=[1, 2])
    assert brokers[1].committed() == 2, "immediately with the metadata"


async def test_replica_that_has_caught_up_joins_the_isr_again(brokers: Brokers) -> None:
    brokers.topic()
    brokers.isolated[3] = None
    brokers.fence(3, isr=[1, 2])
    for _ in range(5):
        brokers[1].append(b"x" * 100)
    await brokers.until(lambda: brokers[1].committed() == 5)
    await brokers.reconnect(3)
    assert brokers[3].content() == brokers[1].content()


async def test_running_broker_that_registers_again_joins_the_isr_again(brokers: Brokers) -> None:
    """`kafka-cluster unregister` does this.

    The broker keeps its fetch session, whose requests no longer name an idle partition.
    """
    brokers.topic(2)
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[3].committed() == 1)
    brokers.unregister(3, isr=[1, 2])
    brokers.restart(3)
    brokers[1].append(b"b", index=1)
    leader_term = brokers[1].partition().leader_term
    assert leader_term is not None
    await brokers.until_in_rounds(lambda: leader_term.replicas.isr == (1, 2, 3), 300)


async def test_records_of_the_former_leader_alone_are_truncated(brokers: Brokers) -> None:
    """Truncation follows leader epochs, not the high watermark: committed records above a known high watermark stay."""
    brokers.topic()
    brokers[1].append(b"a", b"b")
    await brokers.until(lambda: brokers[1].committed() == 2)
    brokers.isolated[1] = None
    brokers[1].append(b"lost", acks=1)
    brokers.fence(1, leader=2, isr=[2, 3])
    brokers[2].append(b"new")
    await brokers.until(lambda: brokers[2].committed() == 3)
    del brokers.isolated[1]
    await brokers.until(lambda: brokers[1].end() == 3 and brokers[1].content() == brokers[2].content())
    assert brokers[1].partition().log.epochs.entries() == [(0, 0), (1, 2)]


async def test_leader_epoch_without_records_causes_no_repeated_divergence(brokers: Brokers) -> None:
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    brokers.change(leader=2)
    brokers.change(leader=3)
    brokers[3].append(b"b")
    await brokers.until(lambda: brokers[3].committed() == 2)
    assert brokers[2].partition().log.epochs.entries() == [(0, 0), (2, 1)]


async def test_partitions_share_one_fetch_and_idle_partitions_are_not_named(brokers: Brokers) -> None:
    brokers.topic(40)
    await brokers.until(lambda: all(len(brokers[1].partition("t", i).watermarks.followers) == 2 for i in range(40)))
    brokers[1].append(b"a", index=7)
    await brokers.until(lambda: brokers[1].committed(7) == 1)
    assert [[p.partition for topic in last.topics for p in topic.partitions] for last in brokers[2].fetches[-1:]] == [
        [7]
    ]


async def test_new_partition_is_fetched_immediately_although_a_fetch_is_parked(brokers: Brokers) -> None:
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    brokers.add_partitions(1, first=1)
    brokers[1].append(b"b", index=1)
    await brokers.until_in_rounds(lambda: brokers[1].committed(1) == 1, 500)
    assert brokers[1].content(1) == brokers[2].content(1) == brokers[3].content(1) != b""


async def test_partition_forgotten_before_its_election_is_returned_once(brokers: Brokers) -> None:
    """The leader does not know a partition yet.

    A follower fetches it, forgets it, and fetches it again: one slot waits for it.
    """
    brokers.topic()
    brokers.lagging[1] = None
    brokers.add_partitions(1, first=1)
    for _ in range(3):
        sent = len(brokers[2].fetches)
        gave_up = lambda: any(fetch.forgotten_topics_data for fetch in brokers[2].fetches[sent:])  # noqa: E731, B023
        await brokers.until(gave_up)
    waiting = [slot for slots in brokers[1].sessions._awaiting_election.values() for slot in slots]
    assert len(waiting) <= 2, "at most one for each follower"
    brokers.receive_metadata(1)
    brokers[1].append(b"a", index=1)
    await brokers.until(lambda: brokers[1].committed(1) == 1)


async def test_response_to_a_fetch_of_an_older_leader_epoch_does_not_fence_the_follower(brokers: Brokers) -> None:
    """1. A fetch is parked in epoch 0. 2. The leader is elected again in epoch 1. 3. The fetch ends with an outdated
    epoch.
    """
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    brokers.change(leader=1)
    brokers[1].append(b"b")
    await brokers.until(lambda: brokers[1].committed() == 2)
    leader_term = brokers[1].partition().leader_term
    assert leader_term is not None
    assert (leader_term.replicas.isr, brokers.controller.requests) == ((1, 2, 3), [])
    assert brokers[1].content() == brokers[2].content() == brokers[3].content()


async def test_late_fetch_on_another_connection_does_not_take_over_the_partitions(brokers: Brokers) -> None:
    """The fetch was in a connection that the follower closed. It opens a session that no later request continues."""
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    late = next(fetch for fetch in brokers[2].fetches if fetch.session_epoch == INITIAL_EPOCH)
    await FakePeers(brokers, 2).request(1, Channel.REPLICA_FETCH, late, FETCH_VERSION, timeout_ms=1_000)
    brokers[1].append(b"b")
    await brokers.until(lambda: brokers[1].committed() == 2)
    leader_term = brokers[1].partition().leader_term
    assert leader_term is not None
    own = [session for session in brokers[1].sessions if session.replica_id == 2]
    assert leader_term.replicas.followers[2].activity is max(own, key=lambda session: session.epoch)


async def test_change_of_the_high_watermark_alone_is_deferred_while_other_partitions_have_records(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower receives it with records of the partition, or at most once per WATERMARKS_EVERY_MS: not with each
    response.
    """
    brokers.topic(2)
    leader = brokers[1]
    sent: list[tuple[int, bool]] = []
    add = Gathering._add

    def recorded(self: Gathering, slot: ReplicaSlot, data: ReadResult | None) -> None:
        sent.append((slot.index, data is not None))
        add(self, slot, data)

    leader.append(b"a", index=0)
    await brokers.until(lambda: leader.committed(0) == 1)
    for follower in leader.partition("t", 0).watermarks.followers.values():
        assert isinstance(follower, ReplicaSlot)
        follower.session.watermarks_sent_ms = leader.clock.monotonic_ms()
    monkeypatch.setattr(Gathering, "_add", recorded)
    for count in (1, 2, 3):
        leader.append(b"b", index=1)
        await brokers.until(lambda count=count: leader.committed(1) == count)
    assert sent == [(1, True)] * 6
    leader.clock.now_ms += WATERMARKS_EVERY_MS
    leader.append(b"b", index=1)
    await brokers.until(lambda: brokers[2].committed(0) == brokers[3].committed(0) == 1)
    assert sent[6:] == [(1, True), (0, False)] * 2


async def test_deferred_records_are_sent_with_the_next_records(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.topic(2)
    leader = brokers[1]
    await brokers.until(lambda: sum(session.parked is not None for session in leader.sessions) == 2)
    monkeypatch.setattr("odradek.broker.replication.leader_fetch.DEFERRED_S", 3_600)
    sent: list[list[int]] = []
    finish = Gathering.finish

    def recorded(self: Gathering, context: Any) -> Any:
        sent.append([slot.index for slot, row in self.rows if row.records])
        return finish(self, context)

    monkeypatch.setattr(Gathering, "finish", recorded)
    deferred = batch(b"a")
    leader.partition("t", 0).append(deferred, origin=Origin.COORDINATOR, now_ms=NOW_MS, deferred=True)
    leader.append(b"b", index=1)
    await brokers.until(lambda: leader.committed(0) == leader.committed(1) == 1)
    assert [sorted(indexes) for indexes in sent if indexes] == [[0, 1]] * 2


async def test_appends_within_the_linger_rounds_leave_in_one_response(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.topic(2)
    leader = brokers[1]
    await brokers.until(lambda: sum(session.parked is not None for session in leader.sessions) == 2)
    sent: list[list[int]] = []
    finish = Gathering.finish

    def recorded(self: Gathering, context: Any) -> Any:
        sent.append([slot.index for slot, row in self.rows if row.records])
        return finish(self, context)

    monkeypatch.setattr(Gathering, "finish", recorded)
    leader.append(b"a", index=0)
    for _ in range(LINGER_ROUNDS - 1):
        await asyncio.sleep(0)
    leader.append(b"b", index=1)
    await brokers.until(lambda: leader.committed(0) == leader.committed(1) == 1)
    assert [indexes for indexes in sent if indexes] == [[0, 1]] * 2


@pytest.mark.parametrize("append_first", [True, False])
async def test_fetches_of_many_partitions_are_divided(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, append_first: bool
) -> None:
    """No request and no response has more partitions than its maximum, and each partition is committed."""
    monkeypatch.setattr(follower_session, "PARTITIONS_PER_REQUEST_MAX", 4)
    monkeypatch.setattr(leader_fetch, "SLOTS_PER_RESPONSE_MAX", 3)
    requested: list[int] = []
    next_request = FollowerSession.next_request

    def recorded_request(self: FollowerSession, *arguments: Any) -> Any:
        request = next_request(self, *arguments)
        requested.append(sum(len(topic.partitions) for topic in request.topics))
        return request

    sent: list[int] = []
    finish = Gathering.finish

    def recorded_response(self: Gathering, context: Any) -> Any:
        sent.append(len(self.rows))
        return finish(self, context)

    monkeypatch.setattr(FollowerSession, "next_request", recorded_request)
    monkeypatch.setattr(Gathering, "finish", recorded_response)
    brokers.topic(10)
    leader = brokers[1]
    if not append_first:
        await brokers.until(lambda: sum(len(session.slots) for session in leader.sessions) == 20)
    for index in range(10):
        leader.append(b"a", index=index)
    await brokers.until(lambda: all(leader.committed(index) == 1 for index in range(10)))
    await brokers.until(lambda: all(brokers[2].committed(index) == 1 for index in range(10)))
    assert max(requested) == 4
    assert max(sent) == 3


async def test_deferred_records_are_replicated_without_later_records(brokers: Brokers) -> None:
    brokers.topic()
    leader = brokers[1]
    await brokers.until(lambda: sum(session.parked is not None for session in leader.sessions) == 2)
    leader.partition().append(batch(b"a"), origin=Origin.COORDINATOR, now_ms=NOW_MS, deferred=True)
    await brokers.until(lambda: leader.committed() == 1)


@pytest.mark.usefixtures("reads_from_file")
async def test_append_during_a_disk_read_of_another_partition_is_sent(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response began without records of one partition, and waits for the disk because of another partition."""
    brokers.topic(2)
    leader = brokers[1]
    for index in (0, 1):
        leader.append(b"a", index=index)
    await brokers.until(lambda: leader.committed(0) == leader.committed(1) == 1)
    reading, go_on = asyncio.Event(), asyncio.Event()
    complete_read = Partition.complete_read

    async def slow(partition: Partition, read: Awaitable[Any]) -> Any:
        reading.set()
        await go_on.wait()
        return await complete_read(partition, read)

    monkeypatch.setattr(Partition, "complete_read", slow)
    for follower in leader.partition("t", 0).watermarks.followers.values():
        assert isinstance(follower, ReplicaSlot)
        follower.session.due[follower] = None
    leader.disk.failing["cold"] = 0
    leader.append(b"b", index=1)
    await reading.wait()
    leader.append(b"c", index=0)
    go_on.set()
    await brokers.until(lambda: leader.committed(0) == leader.committed(1) == 2)
    del leader.disk.failing["cold"]
    assert [values_of(brokers[node].content(index)) for node in (1, 2, 3) for index in (0, 1)] == [
        [b"a", b"c"],
        [b"a", b"b"],
    ] * 3


async def lose_log_prefix(brokers: Brokers, *, trusted: bool) -> Partition:
    """Remove the first two of three batches of the replica on broker 2, and start the check of its log start."""
    brokers.topic()
    for value in (b"a", b"b", b"c"):
        brokers[1].append(value)
    await brokers.until(lambda: brokers[1].committed() == 3 and brokers[2].committed() == 3)
    follower = brokers[2].partition()
    brokers.fence(2, isr=[1, 3])
    brokers[2].replication.stop_following(follower)
    follower.log.truncate_fully_and_start_at(2, now_ms=NOW_MS)
    follower.log.append_as_follower(
        brokers[1].content()[-(len(brokers[1].content()) // 3) :], now_ms=NOW_MS, monotonic_ms=NOW_MS
    )
    brokers[2].log_start_checks.begin([follower.log], brokers[2].metadata.image, 2, trusted=trusted)
    return follower


@pytest.mark.parametrize(("trusted", "content"), [(False, 3), (True, 1)])
async def test_replica_that_may_have_lost_its_prefix_is_replicated_again(
    brokers: Brokers, trusted: bool, content: int
) -> None:
    """Its log starts above its leader's.

    Only after a start with untrusted logs is that a reason to replicate all of it.
    """
    follower = await lose_log_prefix(brokers, trusted=trusted)
    checks = brokers[2].log_start_checks
    assert (bool(checks), brokers[2].log_start_check_count) == (not trusted, int(trusted))
    brokers.restart(2)
    brokers[2].replication.follow(follower, 1)
    leader_term = brokers[1].partition().leader_term
    assert leader_term is not None
    await brokers.until(lambda: leader_term.replicas.isr == (1, 3, 2))
    assert len(list(iter_batches(brokers[2].content()))) == content
    assert (bool(checks), brokers[2].log_start_check_count) == (False, 1)


async def test_disk_error_at_the_log_start_mark_is_reported_and_replication_continues(
    brokers: Brokers,
) -> None:
    follower = await lose_log_prefix(brokers, trusted=False)
    disk_error = OSError(ENOSPC, "No space left on device")
    brokers[2].log_start_check_error = disk_error
    brokers.restart(2)
    brokers[2].replication.follow(follower, 1)
    leader_term = brokers[1].partition().leader_term
    assert leader_term is not None
    await brokers.until(lambda: leader_term.replicas.isr == (1, 3, 2))
    assert (brokers[2].log_start_failures, brokers[2].log_start_check_count) == ([disk_error], 0)


async def test_deleted_partition_ends_its_log_start_check(brokers: Brokers) -> None:
    await lose_log_prefix(brokers, trusted=False)
    brokers.play(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert (bool(brokers[2].log_start_checks), brokers[2].log_start_check_count) == (False, 1)


async def test_unexpected_exception_pauses_only_its_partition(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers.topic(2)
    broken = brokers[2].partition("t", 0)
    replicate = Partition.replicate
    failures: list[ValueError] = []

    def fail_twice(partition: Partition, *arguments: Any, **named: Any) -> bool:
        if partition is broken and len(failures) < 2:
            failures.append(ValueError("unforeseen"))
            raise failures[-1]
        return replicate(partition, *arguments, **named)

    monkeypatch.setattr(Partition, "replicate", fail_twice)
    brokers[1].append(b"a", index=0)
    brokers[1].append(b"b", index=1)
    await brokers.until(lambda: brokers[1].committed(0) == brokers[1].committed(1) == 1)
    reported = [task.exception() for task in brokers[2].tasks if task.done() and not task.cancelled()]
    assert [error for error in reported if error is not None] == failures
    assert len(failures) == 2


async def test_isr_change_is_sent_again_after_an_unexpected_exception(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter_partition = Controller.alter_partition
    failures: list[ValueError] = []

    async def fail_once(controller: Controller, *arguments: Any) -> Any:
        if not failures:
            failures.append(ValueError("unforeseen"))
            raise failures[-1]
        return await alter_partition(controller, *arguments)

    monkeypatch.setattr(Controller, "alter_partition", fail_once)
    brokers.topic()
    brokers.isolated[3] = None
    brokers.fence(3, isr=[1, 2])
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    await brokers.reconnect(3)
    assert len(failures) == 1
    assert brokers[3].content() == brokers[1].content()


async def test_fetcher_goes_on_after_an_unexpected_exception(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers.topic()
    next_request = FollowerSession.next_request
    failures: list[ValueError] = []

    def fail_once(session: FollowerSession, *arguments: Any) -> Any:
        if not failures:
            failures.append(ValueError("unforeseen"))
            raise failures[-1]
        return next_request(session, *arguments)

    monkeypatch.setattr(FollowerSession, "next_request", fail_once)
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    assert len(failures) == 1
