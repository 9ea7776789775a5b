"""Work on many records in Produce and ListOffsets: slices, order, limits of responses, and repeated look-ups."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.apis import list_offsets, produce
from odradek.broker.apis.produce import ENTRIES_PER_TURN
from odradek.broker.fetch.produce_checks import keep_last_batches
from odradek.broker.fetch.record_jobs import JOBS_MAX
from odradek.broker.requests.api import Ordered
from odradek.broker.requests.session import Session
from odradek.broker.requests.splitting import ELEMENTS_PER_PART
from odradek.protocol.batch import Compression, build_batch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.record import scan_records
from odradek.protocol.special_values import MAX_TIMESTAMP
from odradek.storage.batches import record_checks
from odradek.storage.batches.record_checks import SLICE_UNITS
from odradek.storage.batches.record_errors import RECORD_ERRORS_MAX
from odradek.storage.config import LogConfig
from odradek.storage.log import timestamp_tables
from odradek.storage.producers.entry import Origin
from tests.support import broker_context
from tests.support.crafted import KEYLESS, crafted, tiny_records
from tests.support.data_rig import NOW_MS, Rig, batch, outcome
from tests.support.running_node import running

E = ErrorCode
COMPACTED = LogConfig(cleanup_policy=("compact",))


def request(*rows: tuple[int, bytes], acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index, records) for index, records in rows]
    return ProduceRequest(None, acks, 60_000, [TopicProduceData("t", partition_data=data)])


def results(response: Any) -> list[Any]:
    return [partition for topic in response.responses for partition in topic.partition_responses]


class Turns:
    """Counts the records that are scanned in each turn of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scanned = [0]
        for module in (record_checks, timestamp_tables):
            monkeypatch.setattr(module, "scan_records", self._scan)

    def _scan(self, body: Any, count: int) -> Iterator[tuple[int, int, bool] | None]:
        for record in scan_records(body, count):
            self.scanned[-1] += 1
            yield record

    async def during(self, work: Any) -> Any:
        task = asyncio.ensure_future(work)
        while not task.done():
            self.scanned.append(0)
            await asyncio.sleep(0)
        return task.result()


@pytest.mark.parametrize("codec", list(Compression))
async def test_event_loop_runs_between_slices_of_a_check(
    tmp_path: Path, codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, config=COMPACTED)
    rig.topic("t")
    turns = Turns(monkeypatch)
    handled = produce.handle(rig.context(0, 12), request((0, tiny_records(30_000, codec))))
    assert isinstance(handled, Ordered), "the connection waits"
    (result,) = results(await turns.during(outcome(handled)))
    assert (result.error_code, result.base_offset) == (E.NONE, 0)
    assert rig.partition().log.log_end_offset == 30_000
    assert sum(turns.scanned) == 30_000
    assert max(turns.scanned) <= SLICE_UNITS
    assert rig.services.record_jobs._budget.used_bytes == 0


async def test_partitions_of_a_request_are_appended_in_order_after_their_checks(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=COMPACTED)
    rig.topic("t", 5)
    rows = [
        (3, tiny_records(20_000)),
        (1, tiny_records(1)),
        (4, tiny_records(30_000)),
        (2, crafted(KEYLESS, 1)),
        (0, tiny_records(1)),
    ]
    appended: list[int] = []
    sending = asyncio.ensure_future(outcome(produce.handle(rig.context(0, 12), request(*rows))))
    while not sending.done():
        await asyncio.sleep(0)
        ends = [index for index, _ in rows if rig.partition("t", index).log.log_end_offset]
        appended += [index for index in ends if index not in appended]
    assert [(result.error_code, result.base_offset) for result in results(await sending)] == [
        (E.NONE, 0), (E.NONE, 0), (E.NONE, 0), (E.INVALID_RECORD, -1), (E.NONE, 0),
    ]  # fmt: skip
    assert appended == [3, 1, 4, 0]


async def test_event_loop_runs_between_the_appends_of_many_partitions(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    count = 3 * ENTRIES_PER_TURN + 1
    rig.topic("t", count)
    logs, appended = [rig.partition("t", index).log for index in range(count)], [0]
    rows = [(index, batch()) for index in range(count)]
    sending = asyncio.ensure_future(outcome(produce.handle(rig.context(0, 12), request(*rows))))
    while not sending.done():
        appended.append(sum(log.log_end_offset for log in logs))
        await asyncio.sleep(0)
    assert [(result.error_code, result.base_offset) for result in results(await sending)] == [(E.NONE, 0)] * count
    assert appended[-1] > 0
    assert max(after - before for before, after in pairwise(appended)) <= ENTRIES_PER_TURN


@pytest.mark.parametrize("partitions", [0, 1])
def test_combination_of_many_topics_pauses_in_both_passes(partitions: int) -> None:
    count = 5 * ELEMENTS_PER_PART
    data = [
        TopicProduceData(f"t{number}", partition_data=[PartitionProduceData(0, batch())] * partitions)
        for number in range(count)
    ]
    pauses = sum(1 for _ in keep_last_batches(ProduceRequest(None, 1, 60_000, data)))
    assert pauses >= 2 * count // ELEMENTS_PER_PART


@pytest.mark.parametrize("resigns", [False, True])
async def test_commit_or_resignation_during_the_check_of_a_later_partition_counts(
    tmp_path: Path, *, resigns: bool
) -> None:
    rig = Rig(tmp_path, config=COMPACTED, manual_commits=True)
    rig.topic("t", 2)
    handled = produce.handle(rig.context(0, 12), request((0, tiny_records(1)), (1, tiny_records(5_000)), acks=-1))
    sending = asyncio.ensure_future(outcome(handled))
    while rig.partition("t", 1).log.log_end_offset == 0:
        await asyncio.sleep(0)
        if resigns:
            rig.partition("t", 0).follow(9)
        else:
            rig.partition("t", 0).watermarks.advance_high_watermark(1)
    rig.partition("t", 1).watermarks.advance_high_watermark(5_000)
    async with asyncio.timeout(10):
        sent = results(await sending)
    assert [result.error_code for result in sent] == [E.NOT_LEADER_OR_FOLLOWER if resigns else E.NONE, E.NONE]


async def test_connection_that_ends_before_a_check_leaves_no_wait_behind(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=COMPACTED, manual_commits=True)
    rig.topic("t", 2)
    for _ in range(JOBS_MAX):
        await rig.services.record_jobs.start(1, 1, Session(2, broker_context.LISTENER, "127.0.0.1", 6))
    sent = request((0, tiny_records(1)), (1, tiny_records(5_000)), acks=-1)
    sent.timeout_ms = 0
    sending = asyncio.ensure_future(outcome(produce.handle(rig.context(0, 12), sent)))
    await asyncio.sleep(0)
    waiters = rig.partition("t", 0).watermarks.committed
    assert len(waiters) == 1
    rig.session.end()
    with pytest.raises(asyncio.CancelledError):
        await sending
    async with asyncio.timeout(10):
        while len(waiters):
            await asyncio.sleep(0)
    assert rig.partition("t", 1).log.log_end_offset == 0


async def test_leader_change_during_a_check_refuses_the_batch(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=COMPACTED)
    rig.topic("t")
    sending = asyncio.ensure_future(outcome(produce.handle(rig.context(0, 12), request((0, tiny_records(5_000))))))
    await asyncio.sleep(0)
    rig.partition().follow(9)
    assert results(await sending)[0].error_code == E.NOT_LEADER_OR_FOLLOWER
    assert rig.partition().log.log_end_offset == 0


async def test_record_errors_of_one_response_are_bounded_over_its_partitions(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=COMPACTED)
    rig.topic("t", 3)
    bad = crafted(KEYLESS * 5_000, 5_000, Compression.ZSTD)
    sent = results(await outcome(produce.handle(rig.context(0, 12), request((0, bad), (1, bad), (2, bad)))))
    assert [result.error_code for result in sent] == [E.INVALID_RECORD] * 3
    assert [len(result.record_errors) for result in sent] == [RECORD_ERRORS_MAX, 0, 0]


async def test_record_errors_of_one_response_are_bounded_over_the_parts_of_the_request(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=COMPACTED)
    rig.topic("t", 2)
    bad = crafted(KEYLESS * 5_000, 5_000, Compression.ZSTD)
    context = rig.context(0, 12)
    sent = [results(await outcome(produce.handle(context, request((index, bad)))))[0] for index in range(2)]
    assert [result.error_code for result in sent] == [E.INVALID_RECORD] * 2
    assert [len(result.record_errors) for result in sent] == [RECORD_ERRORS_MAX, 0]


async def test_shortest_check_starts_first_and_a_closed_connection_waits_for_none(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=COMPACTED)
    rig.topic("t")
    jobs = rig.services.record_jobs

    def connection() -> Session:
        return Session(1, broker_context.LISTENER, "127.0.0.1", 5)

    running_jobs = [connection() for _ in range(JOBS_MAX)]
    for session in running_jobs:
        await jobs.start(10, 100, session)
    started: list[int] = []

    async def start(records: int, session: Session) -> None:
        await jobs.start(records, 100, session)
        started.append(records)

    closing = connection()
    waiting = [asyncio.ensure_future(start(records, connection())) for records in (3_000, 1_000)]
    lost = asyncio.ensure_future(start(5, closing))
    await asyncio.sleep(0)
    closing.end()
    for _ in waiting:
        jobs.end(100)
    await asyncio.gather(*waiting)
    assert started == [1_000, 3_000]
    assert lost.cancelled()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(start(5, closing))
    assert jobs._budget.used_bytes == 2 * 100


async def test_later_requests_of_a_connection_wait_for_the_check_and_other_connections_do_not(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        compact = [CreatableTopicConfig("cleanup.policy", "compact")]
        created = await node.call(CreateTopicsRequest([CreatableTopic("t", 1, 1, [], compact)], 10_000), 5)
        assert created.topics[0].error_code == E.NONE
        await node.metadata("t")
        many = tiny_records(60_000, Compression.GZIP)
        one = build_batch([(b"k", b"v", NOW_MS, ())])
        order: list[str] = []

        def note(name: str) -> Callable[[Any], None]:
            return lambda _: order.append(name)

        futures = []
        for name, data in (("many", many), ("one", one), ("more", many)):
            future = node.client.send(request((0, data)), 12)
            future.add_done_callback(note(name))
            futures.append(future)
        other = await type(node.client).connect("127.0.0.1", node.node.listeners[0].port)
        while not futures[0].done():
            await other.call(ListOffsetsRequest(-1, 0, []), 9)
            order.append("other")
        sent = [results(await future)[0] for future in futures]
        other.close()
        assert [(result.error_code, result.base_offset) for result in sent] == [(0, 0), (0, 60_000), (0, 60_001)]
        assert [name for name in order if name != "other"] == ["many", "one", "more"]
        assert order.index("many") > 3, "other connections were served during the check"


# ---- ListOffsets ----------------------------------------------------------------------------------------------------


async def look_up(rig: Rig, timestamp: int) -> tuple[ErrorCode, int, int]:
    topics = [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, timestamp)])]
    response = await outcome(list_offsets.handle(rig.context(2, 9), ListOffsetsRequest(-1, 0, topics)))
    partition = response.topics[0].partitions[0]
    return ErrorCode(partition.error_code), partition.timestamp, partition.offset


@pytest.mark.parametrize("codec", list(Compression))
async def test_large_batch_is_decoded_once_in_slices_for_all_look_ups(
    tmp_path: Path, codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    rows = [(b"", b"", NOW_MS + index // 10, ()) for index in range(20_000)]
    produced = produce.handle(rig.context(0, 12), request((0, build_batch(rows, compression=codec))))
    assert results(await outcome(produced))[0].error_code == E.NONE
    turns = Turns(monkeypatch)
    for timestamp in (NOW_MS + 1_500, NOW_MS, NOW_MS + 1, NOW_MS + 1_999):
        expected = (E.NONE, timestamp, (timestamp - NOW_MS) * 10)
        assert await turns.during(look_up(rig, timestamp)) == expected
    assert await turns.during(look_up(rig, MAX_TIMESTAMP)) == (E.NONE, NOW_MS + 1_999, 19_990)
    assert sum(turns.scanned) == 20_000, "the batch was decoded once"
    assert max(turns.scanned) <= SLICE_UNITS


async def test_concurrent_look_ups_decode_a_large_batch_once_per_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    assert (
        results(await outcome(produce.handle(rig.context(0, 12), request((0, tiny_records(20_000))))))[0].error_code
        == 0
    )
    turns = Turns(monkeypatch)
    found = await turns.during(asyncio.gather(*(look_up(rig, NOW_MS) for _ in range(20))))
    assert found == [(E.NONE, NOW_MS, 0)] * 20
    assert sum(turns.scanned) <= JOBS_MAX * 20_000
    assert max(turns.scanned) <= JOBS_MAX * SLICE_UNITS


async def test_look_up_beyond_the_bounds_of_records_returns_the_start_of_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header of a batch passes the check of a topic that does not check records."""
    rig = Rig(tmp_path)
    rig.topic("t")
    bomb = crafted(KEYLESS * 1_000_000, 1_000_000, Compression.GZIP, max_timestamp=NOW_MS + 9)
    for data in (batch(), bomb):
        assert results(await outcome(produce.handle(rig.context(0, 12), request((0, data)))))[0].error_code == E.NONE
    turns = Turns(monkeypatch)
    assert await look_up(rig, NOW_MS + 5) == (E.NONE, NOW_MS + 9, 1)
    assert sum(turns.scanned) == 0


async def test_look_up_ends_after_a_bounded_number_of_records_if_headers_are_false(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    false_header = tiny_records(100_000, Compression.ZSTD, max_timestamp=NOW_MS + 9)
    for _ in range(6):
        sent = results(await outcome(produce.handle(rig.context(0, 12), request((0, false_header)))))
        assert sent[0].error_code == E.NONE
    turns = Turns(monkeypatch)
    assert await turns.during(look_up(rig, NOW_MS + 5)) == (E.NONE, NOW_MS + 9, 300_000)
    assert sum(turns.scanned) == 300_000
    for _ in range(3):
        assert await turns.during(look_up(rig, NOW_MS + 4)) == (E.NONE, -1, -1)
    assert sum(turns.scanned) == 600_000, "each batch was decoded once"
    assert max(turns.scanned) <= SLICE_UNITS


async def test_concurrent_look_ups_with_false_headers_go_on_one_per_turn(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    false_header = tiny_records(1, max_timestamp=NOW_MS + 9)
    partition = rig.partition("t")
    for _ in range(200):
        partition.append(false_header, origin=Origin.CLIENT, now_ms=NOW_MS)
    waiting: list[asyncio.Future[None]] = []

    async def next_turn(_: Session) -> None:
        waiting.append(asyncio.get_running_loop().create_future())
        await waiting[-1]

    rig.session.on_next_turn = next_turn
    tasks = [asyncio.ensure_future(look_up(rig, NOW_MS + 5)) for _ in range(20)]
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(waiting) == len(tasks), "no look-up goes on without its turn"
    while waiting:
        waiting.pop().set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)
    assert await asyncio.gather(*tasks) == [(E.NONE, -1, -1)] * len(tasks)


async def test_look_up_in_a_damaged_batch_is_an_error_of_its_partition(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    for codec in (Compression.NONE, Compression.ZSTD):
        data = crafted(b"\xff" * 70_000, 500, codec, max_timestamp=NOW_MS + 9)
        assert results(await outcome(produce.handle(rig.context(0, 12), request((0, data)))))[0].error_code == E.NONE
        assert (await look_up(rig, NOW_MS + 5))[0] is E.CORRUPT_MESSAGE
