import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.apis import fetch
from broker.fetch_read import FetchPass
from broker.ports import AclOperation
from protocol.batch import end_txn_marker, iter_batches, iter_records
from protocol.errors import ErrorCode, Refusal
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from protocol.records.metadata import PartitionChangeRecord, RemoveTopicRecord
from storage.producer_entry import Origin
from tests.support import broker_context
from tests.support.data_rig import EIO, NOW_MS, Gate, Rig, batch, outcome

E = ErrorCode
VERSION = 12


def request(*rows: tuple[str, int, int], **fields: Any) -> FetchRequest:
    """`rows`: (topic, partition, offset)."""
    limit = fields.pop("partition_bytes", 1_000_000)
    epoch = fields.pop("leader_epoch", -1)
    fetched_epoch = fields.pop("fetched_epoch", -1)
    topics = [
        FetchTopic(topic, partitions=[FetchPartition(index, epoch, offset, fetched_epoch, partition_max_bytes=limit)])
        for topic, index, offset in rows
    ]
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "topics": topics, **fields})


def answers(response: FetchResponse) -> list[PartitionData]:
    return [answer for topic in response.responses for answer in topic.partitions]


def errors(response: FetchResponse) -> list[ErrorCode]:
    return [ErrorCode(answer.error_code) for answer in answers(response)]


def offsets(answer: PartitionData) -> list[int]:
    assert answer.records is not None
    return [header.base_offset for header, _ in iter_batches(answer.records)]


async def read(rig: Rig, asked: FetchRequest, version: int = VERSION) -> FetchResponse:
    answered: FetchResponse = await outcome(fetch.handle(rig.context(1, version), asked))
    return answered


def append(rig: Rig, *values: bytes, index: int = 0, **producer: Any) -> None:
    rig.partition("t", index).append(batch(*values, **producer), origin=Origin.CLIENT, now_ms=NOW_MS)


def end(rig: Rig, producer_id: int, *, commit: bool, epoch: int = 0, index: int = 0) -> None:
    marker = end_txn_marker(
        producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0, commit=commit, timestamp=NOW_MS
    )
    rig.partition("t", index).append(marker, origin=Origin.COORDINATOR, now_ms=NOW_MS, transaction_version=0)


def in_transaction(rig: Rig, producer_id: int, sequence: int, index: int = 0) -> None:
    partition = rig.partition("t", index)
    guard = partition.log.start_verification(producer_id, 0, sequence, False)
    data = batch(b"t", producer_id=producer_id, epoch=0, sequence=sequence, transactional=True)
    partition.append(data, origin=Origin.CLIENT, now_ms=NOW_MS, guard=guard)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


# ---- reading


async def test_a_warm_read_is_answered_without_a_task(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, b"a", b"b")
    append(rig, b"c")
    response = fetch.handle(rig.context(1, VERSION), request(("t", 0, 1)))
    assert isinstance(response, FetchResponse)
    answer = answers(response)[0]
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (3, 3, 0)
    assert offsets(answer) == [0, 2]  # whole batches: the first one begins below the offset
    assert answer.aborted_transactions is None


async def test_an_empty_read_says_where_the_log_ends(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, b"a")
    answer = answers(await read(rig, request(("t", 0, 1))))[0]
    assert (answer.error_code, answer.records, answer.high_watermark) == (0, b"", 1)


@pytest.mark.parametrize("offset", [-1, 2, 100])
async def test_offsets_outside_of_the_log_are_refused(tmp_path: Path, offset: int) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, b"a")
    answer = answers(await read(rig, request(("t", 0, offset))))[0]
    assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (E.OFFSET_OUT_OF_RANGE, -1, -1)


async def test_between_high_watermark_and_log_end_there_is_nothing_yet(tmp_path: Path) -> None:
    rig = Rig(tmp_path, gate=Gate)
    rig.topic("t")
    append(rig, b"a")
    for offset in (0, 1):
        answer = answers(await read(rig, request(("t", 0, offset))))[0]
        assert (answer.error_code, answer.records, answer.high_watermark) == (0, b"", 0)
    debug = answers(await read(rig, request(("t", 0, 0), replica_id=-2)))[0]
    assert offsets(debug) == [0]


async def test_byte_limits_hold_but_for_the_first_batch(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 3)
    size = len(batch(b"x" * 100))
    for index in range(3):
        for _ in range(3):
            append(rig, b"x" * 100, index=index)
    everything = ("t", 0, 0), ("t", 1, 0), ("t", 2, 0)

    async def read_counts(**limits: Any) -> list[int]:
        response = await read(rig, request(*everything, **limits))
        return [len(offsets(answer)) for answer in answers(response)]

    assert await read_counts() == [3, 3, 3]
    assert await read_counts(partition_bytes=2 * size) == [2, 2, 2]
    assert await read_counts(max_bytes=4 * size) == [3, 1, 0]
    assert await read_counts(max_bytes=1) == [1, 0, 0]  # larger than every limit, and yet whole
    assert await read_counts(partition_bytes=1) == [1, 0, 0]
    assert await read_counts(max_bytes=0, min_bytes=0) == [1, 0, 0]


async def test_errors_are_told_partition_by_partition(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.services.authorizer = broker_context.Deny((AclOperation.READ, "secret"))
    rig.topic("t", 2)
    rig.topic("secret", number=101)
    rig.topic("elsewhere", leader=2, replicas=(2,), number=102)
    append(rig, b"a")
    rig.partition("t", 1).take_offline(OSError(EIO, "injected"))
    rows = ("t", 0, 0), ("t", 1, 0), ("t", 5, 0), ("secret", 0, 0), ("elsewhere", 0, 0), ("nothing", 0, 0)
    response = await read(rig, request(*rows), 16 - 4)
    assert errors(response) == [
        E.NONE,
        E.KAFKA_STORAGE_ERROR,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert errors(await read(rig, request(("t", 1, 0)), 5)) == [E.NOT_LEADER_OR_FOLLOWER]


async def test_leader_epochs_fence_and_hint(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1))
    for epoch, error in ((0, E.FENCED_LEADER_EPOCH), (1, E.NONE), (2, E.UNKNOWN_LEADER_EPOCH), (-1, E.NONE)):
        asked = request(("t", 0, 0), leader_epoch=epoch)
        assert errors(await read(rig, asked)) == [error]
    asked = request(("", 0, 0), leader_epoch=0)
    asked.topics[0].topic_id = topic_id
    hinted = answers(await read(rig, asked, 16))[0]
    assert (hinted.current_leader.leader_id, hinted.current_leader.leader_epoch) == (1, 1)


async def test_topics_are_found_by_id(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    append(rig, b"a")
    asked = request(("", 0, 0), ("", 0, 0))
    asked.topics[0].topic_id, asked.topics[1].topic_id = topic_id, UUID(int=999)
    response = await read(rig, asked, 13)
    assert errors(response) == [E.NONE, E.UNKNOWN_TOPIC_ID]
    assert [topic.topic_id for topic in response.responses] == [topic_id, UUID(int=999)]


async def test_divergence_is_told_instead_of_data(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    append(rig, b"a", b"b")
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1))
    append(rig, b"c")
    same = answers(await read(rig, request(("t", 0, 2), fetched_epoch=0)))[0]
    assert (same.diverging_epoch.epoch, offsets(same)) == (-1, [2])
    beyond = answers(await read(rig, request(("t", 0, 3), fetched_epoch=0)))[0]
    assert (beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset, beyond.records) == (0, 2, b"")
    unknown = answers(await read(rig, request(("t", 0, 1), fetched_epoch=7)))[0]
    assert unknown.error_code == E.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(("epoch", "error"), [(-1, E.NOT_LEADER_OR_FOLLOWER), (0, E.UNKNOWN_LEADER_EPOCH)])
async def test_replicas_are_unknown_here(tmp_path: Path, epoch: int, error: ErrorCode) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    assert errors(await read(rig, request(("t", 0, 0), replica_id=2, leader_epoch=epoch, max_wait_ms=60_000))) == [
        error
    ]
    asked = request(("", 0, 0), leader_epoch=epoch, replica_state=ReplicaState(2, 1))
    asked.topics[0].topic_id = rig.partition().topic_id
    assert errors(await read(rig, asked, 17)) == [error]


async def test_replicas_need_the_cluster_permission(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.services.authorizer = broker_context.Deny((AclOperation.CLUSTER_ACTION, "kafka-cluster"))
    with pytest.raises(Refusal) as refused:
        fetch.handle(rig.context(1, VERSION), request(("t", 0, 0), replica_id=2))
    assert refused.value.error is E.CLUSTER_AUTHORIZATION_FAILED
    assert fetch.refuse(rig.context(1, 7), request(), E.CLUSTER_AUTHORIZATION_FAILED, None).error_code
    assert errors(fetch.refuse(rig.context(1, 6), request(("t", 0, 0)), E.UNKNOWN_SERVER_ERROR, None)) == [
        E.UNKNOWN_SERVER_ERROR
    ]


async def test_cold_data_is_read_in_stage_two(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    append(rig, b"a")
    append(rig, b"b", index=1)
    rig.disk.failing["cold"] = 0
    response = await read(rig, request(("t", 0, 0), ("t", 1, 0)))
    assert [offsets(answer) for answer in answers(response)] == [[0], [0]]


@pytest.mark.parametrize("operation", ["read", "read_cold"])
async def test_a_failed_read_takes_the_partition_offline(tmp_path: Path, operation: str) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    append(rig, b"a")
    append(rig, b"b", index=1)
    rig.disk.failing.update({"cold": 0, operation: EIO})
    assert errors(await read(rig, request(("t", 0, 0)))) == [E.KAFKA_STORAGE_ERROR]
    rig.disk.failing.clear()
    assert errors(await read(rig, request(("t", 0, 0), ("t", 1, 0)))) == [E.KAFKA_STORAGE_ERROR, E.NONE]


# ---- sessions


async def test_a_session_carries_what_is_new(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    opened = await read(rig, request(("t", 0, 0), ("t", 1, 0), session_epoch=0))
    assert opened.session_id > 0
    assert len(answers(opened)) == 2
    again = request(session_id=opened.session_id, session_epoch=1)
    assert answers(await read(rig, again)) == []
    append(rig, b"a", index=1)
    again.session_epoch = 2
    assert [answer.partition_index for answer in answers(await read(rig, again))] == [1]
    last = request(session_id=opened.session_id, session_epoch=3)
    last.forgotten_topics_data = [ForgottenTopic("t", partitions=[0, 1])]
    assert (await read(rig, last)).session_id == 0
    with pytest.raises(Refusal) as refused:
        fetch.handle(rig.context(1, VERSION), last)
    assert refused.value.error is E.FETCH_SESSION_ID_NOT_FOUND
    told = fetch.refuse(rig.context(1, VERSION), last, refused.value.error, None)
    assert (told.error_code, told.responses) == (E.FETCH_SESSION_ID_NOT_FOUND, [])


async def test_before_version_seven_there_are_no_sessions(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    assert (await read(rig, request(("t", 0, 0), session_epoch=0), 6)).session_id == 0
    assert len(rig.services.fetch_sessions) == 0


# ---- waiting


async def park(rig: Rig, asked: FetchRequest) -> "asyncio.Task[FetchResponse]":
    task = asyncio.ensure_future(read(rig, asked))
    await settle()
    assert not task.done()
    return task


async def test_a_parked_fetch_is_woken_by_data(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    task = await park(rig, request(("t", 0, 0), ("t", 1, 0), max_wait_ms=60_000))
    append(rig, b"a", index=1)
    assert [len(offsets(answer)) for answer in answers(await task)] == [0, 1]
    assert len(rig.partition("t", 0).fetch_watchers) == 0


async def test_min_bytes_are_waited_for(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig, b"a")
    size = len(batch(b"a"))
    task = await park(rig, request(("t", 0, 0), max_wait_ms=60_000, min_bytes=3 * size))
    append(rig, b"b")
    await settle()
    assert not task.done()
    append(rig, b"c")
    assert offsets(answers(await task)[0]) == [0, 1, 2]


async def test_nothing_is_read_while_bytes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    passes: list[FetchPass] = []
    advance = FetchPass.advance

    def counted(each: FetchPass) -> Any:
        passes.append(each)
        return advance(each)

    monkeypatch.setattr(FetchPass, "advance", counted)
    task = await park(rig, request(("t", 0, 0), max_wait_ms=60_000, min_bytes=10 * len(batch())))
    for _ in range(9):
        append(rig)
        await settle()
    assert len(passes) == 1
    append(rig)
    await task
    assert len(passes) == 2


async def test_a_reader_of_uncommitted_data_waits_for_the_high_watermark(tmp_path: Path) -> None:
    gates: list[Gate] = []

    def gate(topic: str, index: int, advance: Any) -> Gate:
        gates.append(Gate(topic, index, advance))
        return gates[-1]

    rig = Rig(tmp_path, gate=gate)
    rig.topic("t")
    task = await park(rig, request(("t", 0, 0), max_wait_ms=60_000))
    append(rig, b"a")
    await settle()
    assert not task.done()
    gates[0].open()
    assert offsets(answers(await task)[0]) == [0]


async def test_a_reader_of_committed_data_waits_for_the_last_stable_offset(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    task = await park(rig, request(("t", 0, 0), max_wait_ms=60_000, isolation_level=1))
    in_transaction(rig, 7, 0)
    append(rig, b"plain")
    await settle()
    assert not task.done()  # two batches behind the high watermark, none of them stable
    end(rig, 7, commit=True)
    answer = answers(await task)[0]
    assert offsets(answer) == [0, 1, 2]
    assert answer.aborted_transactions == []


async def test_time_ends_the_wait_with_an_empty_answer(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    response = await read(rig, request(("t", 0, 0), max_wait_ms=1))
    assert (errors(response), answers(response)[0].records) == ([E.NONE], b"")


async def test_the_next_request_of_the_connection_ends_the_wait(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    task = await park(rig, request(("t", 0, 0), max_wait_ms=60_000))
    rig.session.wake_waiting()
    assert answers(await task)[0].records == b""
    assert rig.session._waiting == {}
    assert len(rig.partition().fetch_watchers) == 0


async def test_a_fetch_that_is_answered_is_forgotten_by_its_session(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    task = await park(rig, request(("t", 0, 0), max_wait_ms=60_000))
    append(rig, b"a")
    await task
    assert rig.session._waiting == {}


@pytest.mark.parametrize("loss", ["leadership", "disk", "topic"])
async def test_the_loss_of_a_partition_ends_the_wait(tmp_path: Path, loss: str) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t", replicas=(1, 2))
    task = await park(rig, request(("t", 0, 0), max_wait_ms=60_000))
    if loss == "leadership":
        rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2))
    elif loss == "disk":
        rig.partition().take_offline(OSError(EIO, "injected"))
    else:
        rig.play(RemoveTopicRecord(topic_id=topic_id))
    expected = {
        "leadership": E.NOT_LEADER_OR_FOLLOWER,
        "disk": E.KAFKA_STORAGE_ERROR,
        "topic": E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert errors(await task) == [expected[loss]]


async def test_an_unknown_partition_does_not_end_the_wait_of_the_others_but_an_error_does(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    task = await park(rig, request(("t", 0, 0), ("nothing", 0, 0), max_wait_ms=60_000))
    append(rig, b"a")
    assert errors(await task) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    for rows, error in (([("nothing", 0, 0)], E.UNKNOWN_TOPIC_OR_PARTITION), ([("t", 0, 50)], E.OFFSET_OUT_OF_RANGE)):
        response = await asyncio.wait_for(read(rig, request(*rows, max_wait_ms=60_000)), 5)
        assert errors(response) == [error]


# ---- read_committed against a model


class Model:
    """What the log holds, record by record, and who ended how."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int]] = []  # ("data" | "plain" | "commit" | "abort", producer)
        self.open: dict[int, int] = {}

    def visible(self) -> tuple[int, list[int]]:
        """(last stable offset, offsets of the records that a committed reader may see below it)."""
        stable = min(self.open.values(), default=len(self.rows))
        ends: dict[int, str] = {}
        visible = []
        for offset in range(len(self.rows) - 1, -1, -1):
            kind, producer = self.rows[offset]
            if kind in {"commit", "abort"}:
                ends[producer] = kind
            elif offset < stable and (kind == "plain" or ends.get(producer) == "commit"):
                visible.append(offset)
        return stable, visible[::-1]


def as_a_consumer(answer: PartitionData, position: int) -> list[int]:
    """What a read_committed consumer makes of an answer: the aborted list, markers, whole batches."""
    assert answer.records is not None
    assert answer.aborted_transactions is not None
    pending = sorted(answer.aborted_transactions, key=lambda each: each.first_offset)
    aborted: dict[int, None] = {}
    seen: list[int] = []
    for header, view in iter_batches(answer.records):
        while pending and pending[0].first_offset <= header.last_offset:
            aborted[pending.pop(0).producer_id] = None
        if header.is_control:
            kind = next(iter(iter_records(view, max_decompressed_bytes=1_000)))
            if kind.key is not None and kind.key[3] == 0:
                aborted.pop(header.producer_id, None)
        elif not (header.is_transactional and header.producer_id in aborted):
            records = iter_records(view, max_decompressed_bytes=100_000)
            seen.extend(record.offset for record in records if record.offset >= position)
    return seen


STEP = st.tuples(st.sampled_from(["data", "data", "plain", "commit", "abort"]), st.integers(1, 3))


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(STEP, max_size=25), size=st.integers(1, 800))
def test_a_committed_reader_sees_exactly_what_is_committed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], size: int
) -> None:
    async def play() -> None:
        rig = Rig(tmp_path_factory.mktemp("logs"))
        rig.topic("t")
        model, sequences = Model(), dict.fromkeys(range(4), 0)
        for kind, producer in steps:
            if kind == "data":
                in_transaction(rig, producer, sequences[producer])
                sequences[producer] += 1
                model.open.setdefault(producer, len(model.rows))
            elif kind == "plain":
                append(rig, b"p")
            elif producer not in model.open:
                continue
            else:
                end(rig, producer, commit=kind == "commit")
                del model.open[producer]
            model.rows.append((kind, producer))
        stable, expected = model.visible()
        position, seen = 0, list[int]()
        while position < stable:
            asked = request(("t", 0, position), isolation_level=1, partition_bytes=size)
            answer = answers(await read(rig, asked))[0]
            assert (answer.last_stable_offset, answer.high_watermark) == (stable, len(model.rows))
            seen += as_a_consumer(answer, position)
            whole = offsets(answer)
            assert whole
            position = whole[-1] + 1
        assert (seen, position) == (expected, stable)
        end_answer = answers(await read(rig, request(("t", 0, stable), isolation_level=1)))[0]
        assert (end_answer.records, end_answer.aborted_transactions) == (b"", [])

    asyncio.run(play())
