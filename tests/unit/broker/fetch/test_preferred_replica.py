"""Preferred read replicas (KIP-392): selection at the leader, and fetches of consumers from a follower."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.broker.apis import fetch, list_offsets
from odradek.broker.fetch.preferred_replica import RACK_AWARE, preferred_replica
from odradek.protocol import special_values
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.records.metadata import PartitionChangeRecord, RegisterBrokerRecord
from odradek.protocol.records.metadata.register_broker_record import BrokerEndpoint
from tests.support.data_rig import NOW_MS, Rig, fetched, outcome
from tests.support.fetching import append, offsets, partition_responses, read, request
from tests.support.replication_rig import Brokers

if TYPE_CHECKING:
    from odradek.cluster.metadata.image import BrokerImage

E = ErrorCode
V11 = 11


def register(rig: Rig, broker_id: int, rack: str | None, *, fenced: bool = False) -> None:
    address = BrokerEndpoint("PLAINTEXT", "host", 9092, 0)
    rig.play(RegisterBrokerRecord(broker_id, broker_epoch=1, rack=rack, fenced=fenced, end_points=[address]))


def brokers_in_racks(folder: Path, *assignments: str) -> Rig:
    """Make leader 1 in rack a, followers 2 in b, 3 and 4 in c, with three records on all replicas."""
    rig = Rig(folder, *assignments)
    for broker_id, rack in ((1, "a"), (2, "b"), (3, "c"), (4, "c")):
        register(rig, broker_id, rack)
    rig.topic("t", replicas=(1, 2, 3, 4))
    append(rig, b"x", b"y", b"z")
    for follower in (2, 3, 4):
        fetched(rig, follower, 3)
        leader_term = rig.partition().leader_term
        assert leader_term is not None
        leader_term.replicas.followers[follower].log_start = 0
    return rig


def pick(rig: Rig, rack: str, offset: int = 1, listener: str = "PLAINTEXT") -> int:
    brokers: dict[int, BrokerImage] = rig.metadata.image.brokers
    return preferred_replica(rig.partition(), offset, rack, brokers, listener)


async def test_follower_in_the_rack_of_the_consumer_is_preferred(tmp_path: Path) -> None:
    rig = brokers_in_racks(tmp_path)
    assert [pick(rig, rack) for rack in ("a", "b", "c", "d", "")] == [-1, 2, 4, -1, -1]
    assert pick(rig, "b", listener="OTHER") == -1, "the replica has no endpoint on this listener"


async def test_only_in_sync_unfenced_replicas_with_the_offset_are_preferred(tmp_path: Path) -> None:
    rig = brokers_in_racks(tmp_path)
    append(rig, b"w")
    fetched(rig, 3, 4)
    assert pick(rig, "c", 4) == 3
    assert pick(rig, "b", 4) == -1
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=rig.partition().topic_id, isr=[1, 2, 4]))
    assert pick(rig, "c", 2) == 4
    register(rig, 4, "c", fenced=True)
    assert pick(rig, "c", 2) == -1


@pytest.mark.parametrize(
    ("selector", "version", "rack", "named"),
    [(RACK_AWARE, V11, "b", 2), (RACK_AWARE, V11, "a", -1), (RACK_AWARE, V11, "", -1), (None, V11, "b", -1)],
)
async def test_leader_returns_the_preferred_replica_instead_of_records(
    tmp_path: Path, selector: str | None, version: int, rack: str, named: int
) -> None:
    rig = brokers_in_racks(tmp_path, *([f"replica.selector.class={selector}"] if selector else []))
    response = partition_responses(await read(rig, request(("t", 0, 1), rack_id=rack, max_wait_ms=60_000), version))[0]
    assert (response.error_code, response.preferred_read_replica, bool(response.records)) == (0, named, named < 0)
    assert response.high_watermark == 3


async def test_fetch_before_v11_gets_no_preferred_replica(tmp_path: Path) -> None:
    rig = brokers_in_racks(tmp_path, f"replica.selector.class={RACK_AWARE}")
    response = partition_responses(await read(rig, request(("t", 0, 0), rack_id="b"), 10))[0]
    assert offsets(response) == [0]


# ---- fetches from a follower ----------------------------------------------------------------------------------------


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    cluster = Brokers(tmp_path)
    cluster.topic()
    cluster[1].append(b"a", b"b")
    await cluster.until(lambda: cluster[1].committed() == 2)
    cluster[1].append(b"c")
    await cluster.until(lambda: cluster[2].end() == 3 and cluster[2].committed() == 2)
    yield cluster
    await cluster.close()


async def get(rig: Rig, fetch_request: FetchRequest, version: int = V11) -> FetchResponse:
    response: FetchResponse = await outcome(fetch.handle(rig.context(1, version), fetch_request))
    return response


async def test_follower_returns_committed_records(brokers: Brokers) -> None:
    response = partition_responses(await get(brokers[2], request(("t", 0, 0))))[0]
    assert (response.error_code, response.high_watermark, offsets(response)) == (0, 2, [0])
    beyond = partition_responses(await get(brokers[2], request(("t", 0, 2))))[0]
    assert (beyond.error_code, beyond.records) == (0, b"")
    ahead = partition_responses(await get(brokers[2], request(("t", 0, 4))))[0]
    assert ahead.error_code == E.OFFSET_NOT_AVAILABLE, "the consumer keeps its position"


@pytest.mark.usefixtures("reads_from_file")
async def test_truncation_during_a_fetch_from_a_follower_returns_offset_not_available(brokers: Brokers) -> None:
    follower = brokers[2]
    follower.disk.failing["cold"] = 0
    reading = asyncio.ensure_future(get(follower, request(("t", 0, 0))))
    await asyncio.sleep(0)
    follower.partition("t").log.truncate_to(2, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    response = partition_responses(await reading)[0]
    assert response.error_code == E.OFFSET_NOT_AVAILABLE, "the requested records exist and are committed"
    assert offsets(partition_responses(await get(follower, request(("t", 0, 0))))[0]) == [0]


@pytest.mark.usefixtures("reads_from_file")
@pytest.mark.parametrize("version", [10, V11])
async def test_truncation_during_a_fetch_from_a_deposed_leader_returns_not_leader_before_v11(
    brokers: Brokers, version: int
) -> None:
    leader = brokers[1]
    leader.disk.failing["cold"] = 0
    reading = asyncio.ensure_future(get(leader, request(("t", 0, 0)), version))
    await asyncio.sleep(0)
    brokers.change(leader=2, isr=[2, 3])
    leader.partition("t").log.truncate_to(2, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    assert partition_responses(await reading)[0].error_code == (
        E.NOT_LEADER_OR_FOLLOWER if version < V11 else E.OFFSET_NOT_AVAILABLE
    )


@pytest.mark.parametrize(
    ("epoch", "version", "error"),
    [
        (0, V11, E.NONE),
        (1, V11, E.UNKNOWN_LEADER_EPOCH),
        (-1, V11, E.NONE),
        (-1, 10, E.NOT_LEADER_OR_FOLLOWER),
        (0, 10, E.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_follower_checks_the_leader_epoch_and_refuses_fetches_before_v11(
    brokers: Brokers, epoch: int, version: int, error: ErrorCode
) -> None:
    response = partition_responses(await get(brokers[2], request(("t", 0, 0), leader_epoch=epoch), version))[0]
    assert response.error_code == error


async def test_fetch_from_a_follower_wakes_on_its_high_watermark(brokers: Brokers) -> None:
    waiting = fetch.handle(brokers[2].context(1, V11), request(("t", 0, 2), max_wait_ms=60_000))
    brokers[1].append(b"d")
    response = partition_responses(await outcome(waiting))[0]
    assert offsets(response)[:1] == [2]


async def test_last_acknowledging_follower_receives_the_high_watermark_immediately(tmp_path: Path) -> None:
    """The fetch of this follower advances the high watermark.

    The leader does not park it, so that it returns the new value.
    """
    hours = "replica.fetch.wait.max.ms=7200000"
    brokers = Brokers(tmp_path, settings=(f"replica.selector.class={RACK_AWARE}", hours))
    brokers.topic()
    for count in (1, 2):
        brokers[1].append(b"a")
        await brokers.until_in_rounds(
            lambda count=count: [brokers[node].committed() for node in (1, 2, 3)] == [count] * 3, 300
        )
    await brokers.close()


async def test_list_offsets_is_refused_by_followers_except_for_debug_consumers(brokers: Brokers) -> None:
    results = []
    for replica_id in (-1, -2):
        topics = [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, special_values.LATEST)])]
        handled = list_offsets.handle(brokers[2].context(2, 8), ListOffsetsRequest(replica_id, 0, topics))
        response = (await outcome(handled)).topics[0].partitions[0]
        results.append((response.error_code, response.offset))
    assert results == [(E.NOT_LEADER_OR_FOLLOWER, -1), (E.NONE, 3)]
