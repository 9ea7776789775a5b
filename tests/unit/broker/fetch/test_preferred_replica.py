"""Consumers and followers: the preferred replica (KIP-392), and what a follower gives to read."""

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


def racked(folder: Path, *assignments: str) -> Rig:
    """Leader 1 in rack a; followers 2 in b, 3 and 4 in c. Three records, all replicas have them."""
    rig = Rig(folder, *assignments)
    for broker_id, rack in ((1, "a"), (2, "b"), (3, "c"), (4, "c")):
        register(rig, broker_id, rack)
    rig.topic("t", replicas=(1, 2, 3, 4))
    append(rig, b"x", b"y", b"z")
    for follower in (2, 3, 4):
        fetched(rig, follower, 3)
        leading = rig.partition().leader_term
        assert leading is not None
        leading.replicas.followers[follower].log_start = 0
    return rig


def pick(rig: Rig, rack: str, offset: int = 1, listener: str = "PLAINTEXT") -> int:
    brokers: dict[int, BrokerImage] = rig.metadata.image.brokers
    return preferred_replica(rig.partition(), offset, rack, brokers, listener)


async def test_a_follower_in_the_readers_rack_is_named(tmp_path: Path) -> None:
    rig = racked(tmp_path)
    assert [pick(rig, rack) for rack in ("a", "b", "c", "d", "")] == [-1, 2, 4, -1, -1]
    assert pick(rig, "b", listener="OTHER") == -1, "it must have an address there"


async def test_only_who_has_the_offset_and_is_in_sync_and_alive_is_named(tmp_path: Path) -> None:
    rig = racked(tmp_path)
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
async def test_the_leader_names_it_instead_of_giving_records(
    tmp_path: Path, selector: str | None, version: int, rack: str, named: int
) -> None:
    rig = racked(tmp_path, *([f"replica.selector.class={selector}"] if selector else []))
    answer = partition_responses(await read(rig, request(("t", 0, 1), rack_id=rack, max_wait_ms=60_000), version))[0]
    assert (answer.error_code, answer.preferred_read_replica, bool(answer.records)) == (0, named, named < 0)
    assert answer.high_watermark == 3


async def test_consumers_before_v11_are_never_sent_elsewhere(tmp_path: Path) -> None:
    rig = racked(tmp_path, f"replica.selector.class={RACK_AWARE}")
    answer = partition_responses(await read(rig, request(("t", 0, 0), rack_id="b"), 10))[0]
    assert offsets(answer) == [0]


# ---- reading from a follower


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    made = Brokers(tmp_path)
    made.topic()
    made[1].append(b"a", b"b")
    await made.until(lambda: made[1].committed() == 2)
    made[1].append(b"c")
    await made.until(lambda: made[2].end() == 3 and made[2].committed() == 2)
    yield made
    await made.close()


async def get(rig: Rig, asked: FetchRequest, version: int = V11) -> FetchResponse:
    answered: FetchResponse = await outcome(fetch.handle(rig.context(1, version), asked))
    return answered


async def test_a_follower_gives_what_it_knows_to_be_committed(brokers: Brokers) -> None:
    answer = partition_responses(await get(brokers[2], request(("t", 0, 0))))[0]
    assert (answer.error_code, answer.high_watermark, offsets(answer)) == (0, 2, [0])
    beyond = partition_responses(await get(brokers[2], request(("t", 0, 2))))[0]
    assert (beyond.error_code, beyond.records) == (0, b"")
    ahead = partition_responses(await get(brokers[2], request(("t", 0, 4))))[0]
    assert ahead.error_code == E.OFFSET_NOT_AVAILABLE, "no reason to give up the position"


@pytest.mark.usefixtures("reads_from_file")
async def test_a_reader_keeps_its_position_while_the_log_is_cut_behind_it(brokers: Brokers) -> None:
    follower = brokers[2]
    follower.disk.failing["cold"] = 0
    reading = asyncio.ensure_future(get(follower, request(("t", 0, 0))))
    await asyncio.sleep(0)
    follower.partition("t").log.truncate_to(2, now_ms=NOW_MS)
    answer = partition_responses(await reading)[0]
    assert answer.error_code == E.OFFSET_NOT_AVAILABLE, "what it asks for is there, and committed"
    assert offsets(partition_responses(await get(follower, request(("t", 0, 0))))[0]) == [0]


@pytest.mark.usefixtures("reads_from_file")
@pytest.mark.parametrize("version", [10, V11])
async def test_a_reader_of_a_leader_that_is_deposed_and_cut_meanwhile_is_told_so_if_it_reads_from_leaders_only(
    brokers: Brokers, version: int
) -> None:
    leader = brokers[1]
    leader.disk.failing["cold"] = 0
    reading = asyncio.ensure_future(get(leader, request(("t", 0, 0)), version))
    await asyncio.sleep(0)
    brokers.change(leader=2, isr=[2, 3])
    leader.partition("t").log.truncate_to(2, now_ms=NOW_MS)
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
async def test_a_follower_answers_in_its_epoch_and_only_readers_that_know_of_it(
    brokers: Brokers, epoch: int, version: int, error: ErrorCode
) -> None:
    answer = partition_responses(await get(brokers[2], request(("t", 0, 0), leader_epoch=epoch), version))[0]
    assert answer.error_code == error


async def test_a_reader_of_a_follower_is_woken_by_its_watermark(brokers: Brokers) -> None:
    waiting = fetch.handle(brokers[2].context(1, V11), request(("t", 0, 2), max_wait_ms=60_000))
    brokers[1].append(b"d")
    answer = partition_responses(await outcome(waiting))[0]
    assert offsets(answer)[:1] == [2]


async def test_the_follower_that_acknowledges_last_hears_of_the_commit_at_once(tmp_path: Path) -> None:
    """Its own fetch is what commits, and must not be parked with the news."""
    hours = "replica.fetch.wait.max.ms=7200000"
    brokers = Brokers(tmp_path, settings=(f"replica.selector.class={RACK_AWARE}", hours))
    brokers.topic()
    for count in (1, 2):
        brokers[1].append(b"a")
        await brokers.until_in_rounds(
            lambda count=count: [brokers[node].committed() for node in (1, 2, 3)] == [count] * 3, 300
        )
    await brokers.close()


async def test_offsets_are_told_by_the_leader_alone_but_for_tools(brokers: Brokers) -> None:
    found = []
    for replica_id in (-1, -2):
        topics = [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, special_values.LATEST)])]
        handled = list_offsets.handle(brokers[2].context(2, 8), ListOffsetsRequest(replica_id, 0, topics))
        answer = (await outcome(handled)).topics[0].partitions[0]
        found.append((answer.error_code, answer.offset))
    assert found == [(E.NOT_LEADER_OR_FOLLOWER, -1), (E.NONE, 3)]
