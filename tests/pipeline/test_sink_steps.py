"""The sink's protocol against a broker, with the tasks of a batch in this process: kills at each step, fencing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from odradek.client import (
    ClientError,
    Cluster,
    ConfigChange,
    ConfigKind,
    ConfigOperation,
    TopicPartition,
    alter_configs,
)
from odradek.spark import (
    BatchFailed,
    CheckpointMismatch,
    InvalidInput,
    SinkInUse,
    Step,
    exactly_once,
    transaction,
)
from odradek.spark.exactly_once import STEPS, Batch, write_exactly_once
from odradek.spark.outcome import Failure, Outcome, ReadPartition
from odradek.spark.records import CHECKSUM_MODULUS, SinkRow, checksum_of
from odradek.spark.writer import Writer
from tests.support.sink_rig import PARTITIONS, Killed, SinkRig, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.client import ProducerIdentity

MODE = "txn"
ON_KAFKA = True


def test_driver_killed_after_each_step_neither_loses_nor_repeats_rows(rig: SinkRig) -> None:
    expected: list[bytes] = []
    for batch_id, step in enumerate(STEPS["txn"]):
        rows = rows_of(batch_id * 3_000, 2_500, rig.topic)
        with pytest.raises(Killed):
            rig.write(batch_id, rows, f"run-{batch_id}", step)
        assert rig.visible() == (expected if step is not Step.COMMITTED else expected + [row.value for row in rows])
        rig.write(batch_id, rows, f"run-{batch_id}-again")
        expected += [row.value or b"" for row in rows]
        assert rig.visible() == expected
        assert rig.ledger_entry().batch_id == batch_id
    rig.write(len(STEPS["txn"]) - 1, rows_of(0, 50, rig.topic), "replay")
    assert rig.visible() == expected


def test_batches_of_one_run_follow_each_other(rig: SinkRig) -> None:
    for batch_id in range(5):
        rig.write(batch_id, rows_of(batch_id * 10, 10 if batch_id != 2 else 0, rig.topic), "run")
        assert rig.ledger_entry().batch_id == batch_id
    assert rig.visible() == [b"%06d" % number for number in range(50) if not 20 <= number < 30]


def test_processes_without_a_session_write_the_batches_of_one_run_in_turn(
    rig: SinkRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes: list[dict[tuple[str, str, str], Any]] = [{}, {}]
    for batch_id in range(4):
        monkeypatch.setattr(exactly_once, "_sessions", processes[batch_id % 2])
        job = rig.job(rows_of(batch_id * 10, 10, rig.topic))
        write_exactly_once(job, rig.options(), Batch(batch_id, "query", "run"), keep_session=False)
    assert rig.visible() == [b"%06d" % number for number in range(40)]


def test_driver_that_another_one_fenced_is_refused_with_the_sink_name(rig: SinkRig) -> None:
    rig.write(0, rows_of(0, 10, rig.topic), "run-a")
    rig.write(1, rows_of(10, 10, rig.topic), "run-b")
    for _ in range(2):
        with pytest.raises(SinkInUse, match=f"run run-b of query query uses the sink name {rig.topic}, wrote batch 1"):
            rig.write(2, rows_of(20, 10, rig.topic), "run-a")
    rig.write(2, rows_of(20, 10, rig.topic), "run-c")
    assert rig.visible() == [b"%06d" % number for number in range(30)]


def test_driver_that_a_run_without_a_batch_fenced_is_refused_without_the_name_of_an_earlier_run(rig: SinkRig) -> None:
    rig.write(0, rows_of(0, 10, rig.topic), "run-0")

    def on_step(step: Step) -> None:
        if step is Step.WRITTEN:
            with pytest.raises(Killed):
                rig.write(1, rows_of(10, 10, rig.topic), "run-b", Step.OPENED)

    job = rig.job(rows_of(10, 10, rig.topic))
    with pytest.raises(SinkInUse, match=f"another query uses the sink name {rig.topic} and has fenced this query, or"):
        write_exactly_once(job, rig.options(), Batch(1, "query", "run-a"), on_step)


def test_refused_query_does_not_fence_the_running_one(rig: SinkRig) -> None:
    rig.write(0, rows_of(0, 10, rig.topic), "run-a")
    assert rig.ledger_entry().batch_id == 0  # EndTxn does not wait for the marker of the ledger
    for keep_session in (True, False):
        with pytest.raises(CheckpointMismatch, match="was written by query query up to batch 0"):
            write_exactly_once(rig.job([]), rig.options(), Batch(0, "other", "run-b"), keep_session=keep_session)
    rig.write(1, rows_of(10, 10, rig.topic), "run-a")
    assert len(rig.visible()) == 20


def test_another_ledger_topic_is_refused(rig: SinkRig) -> None:
    rig.write(0, rows_of(0, 10, rig.topic), "run-a")
    assert rig.ledger_entry().batch_id == 0  # EndTxn does not wait for the marker of the ledger
    options = rig.options(ledgerTopic=f"{rig.topic}-ledger")
    with pytest.raises(InvalidInput, match=f"the ledger of the sink {rig.topic} is in the topic odradek-spark-ledger"):
        write_exactly_once(rig.job(rows_of(0, 10, rig.topic)), options, Batch(0, "query", "run-b"))
    rig.write(1, rows_of(10, 10, rig.topic), "run-a")
    assert len(rig.visible()) == 20


def test_transaction_timeout_that_brokers_do_not_allow_is_refused_by_its_option(rig: SinkRig) -> None:
    options = rig.options(**{"kafka.transaction.timeout.ms": "2000000000"})
    with pytest.raises(InvalidInput, match=r"option kafka\.transaction\.timeout\.ms: 2000000000 is too high"):
        write_exactly_once(rig.job([]), options, Batch(0, "query", "run"))


def test_driver_continues_after_an_abort_that_failed(rig: SinkRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt is not aborted: the next one does it, and does not fence itself."""
    rows = rows_of(0, 100, rig.topic)
    job = rig.job(rows)
    abort, calls = transaction.abort, 0

    async def fail_once(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ClientError("the coordinator does not respond")
        await abort(*arguments)

    def with_problem(identity: ProducerIdentity, counts: Mapping[str, int]) -> Outcome:
        outcome = job(identity, counts)
        if calls == 0:
            outcome.failures.append((Failure.DOUBTFUL, "a task failed"))
        return outcome

    monkeypatch.setattr(transaction, "abort", fail_once)
    for batch_id in range(2):
        write_exactly_once(with_problem, rig.options(), Batch(batch_id, "query", "run"))
    assert calls == 2
    assert rig.visible() == sorted(2 * [row.value or b"" for row in rows])


def test_fenced_call_outside_of_a_query_is_not_the_last_one(rig: SinkRig) -> None:
    def write(batch_id: int, run_id: str) -> None:
        write_exactly_once(rig.job(rows_of(batch_id * 10, 10, rig.topic)), rig.options(), Batch(batch_id, None, run_id))

    write(0, "process-a")
    write(1, "process-b")
    with pytest.raises(SinkInUse):
        write(2, "process-a")
    write(2, "process-a")
    assert rig.visible() == [b"%06d" % number for number in range(30)]


def test_driver_fenced_within_a_batch_commits_nothing(rig: SinkRig) -> None:
    def on_step(step: Step) -> None:
        if step is Step.WRITTEN:
            rig.write(0, rows_of(0, 10, rig.topic), "run-b")

    with pytest.raises(SinkInUse):
        write_exactly_once(rig.job(rows_of(0, 10, rig.topic)), rig.options(), Batch(0, "query", "run-a"), on_step)
    assert rig.visible() == [b"%06d" % number for number in range(10)]


def test_attempt_with_a_stray_writer_is_aborted_and_repeated(rig: SinkRig) -> None:
    """A second attempt of a task writes further records to a partition before the driver checks the reports."""
    rows = rows_of(0, 100, rig.topic)
    job = rig.job(rows)
    calls: list[int] = []

    def with_stray(identity: ProducerIdentity, counts: Mapping[str, int]) -> Outcome:
        outcome = job(identity, counts)
        calls.append(identity.epoch)
        if len(calls) == 1:
            longest = max(outcome.written, key=lambda each: each.rows)
            outcome.written.remove(longest)  # as if the report came from another attempt
        return outcome

    write_exactly_once(with_stray, rig.options(), Batch(0, "query", "run"))
    assert len(calls) == 2
    assert calls[0] < calls[1]
    assert rig.visible() == [row.value for row in rows]


def test_transaction_that_begins_before_the_reported_rows_is_aborted(rig: SinkRig) -> None:
    rows = rows_of(0, 100, rig.topic)
    job = rig.job(rows)
    calls: list[int] = []

    def with_stray_batch(identity: ProducerIdentity, counts: Mapping[str, int]) -> Outcome:
        outcome = job(identity, counts)
        calls.append(identity.epoch)
        if len(calls) == 1:
            first = outcome.written[0]
            outcome.written[0] = replace(first, first_offset=first.first_offset + 1)
        return outcome

    write_exactly_once(with_stray_batch, rig.options(), Batch(0, "query", "run"))
    assert len(calls) == 2
    assert rig.visible() == [row.value for row in rows]


@pytest.mark.parametrize("reported", [0, 1])
def test_two_attempts_of_a_task_at_the_same_time_are_aborted(rig: SinkRig, reported: int) -> None:
    """Two attempts have one identity, and rows in another order. Leaders acknowledge the batches of both.

    1. Both find that no other attempt has written.
    2. They write batches in turn, with equal sequence numbers. The leader keeps the first of each pair.
    3. Spark takes the report of one attempt, which has the number of rows and the checksum of the input.
    """
    rows = [row._replace(partition=0) for row in rows_of(0, 40, rig.topic)]
    job = rig.job(rows)
    key = TopicPartition(rig.topic, 0)
    shifted = [*rows[20:], *rows[:20]]
    size = 8
    calls: list[int] = []

    async def interleaved(identity: ProducerIdentity) -> Outcome:
        outcome = Outcome(read=[ReadPartition(0, len(rows), sum(map(checksum_of, rows)) % CHECKSUM_MODULUS)])
        async with Cluster(rig.bootstrap) as cluster:
            writers = [Writer(cluster, identity) for _ in range(2)]
            for writer in writers:  # each finds that no attempt has written
                await writer._check_unwritten([key])
            for turn, first in enumerate(range(0, len(rows), size)):
                orders = [rows[first : first + size], shifted[first : first + size]]
                for number in (turn % 2, 1 - turn % 2):
                    await writers[number].write({key: orders[number]}, alone=True)
            try:
                await writers[reported].verify()
            except ClientError as error:
                outcome.failures.append((Failure.DOUBTFUL, str(error)))
            outcome.written += writers[reported].reports()
        return outcome

    def twice(identity: ProducerIdentity, counts: Mapping[str, int]) -> Outcome:
        calls.append(identity.epoch)
        return asyncio.run(interleaved(identity)) if len(calls) == 1 else job(identity, counts)

    write_exactly_once(twice, rig.options(), Batch(0, "query", "run"))
    assert rig.visible() == [row.value for row in rows]
    assert len(calls) == 2


def test_second_attempt_of_a_task_does_not_write(rig: SinkRig) -> None:
    with pytest.raises(BatchFailed, match="task 0 was interrupted, and its attempt 1 did not write"):
        write_exactly_once(rig.job(rows_of(0, 10, rig.topic), attempt=1), rig.options(), Batch(0, "query", "run"))
    assert rig.visible() == []


def test_task_finds_the_records_of_an_earlier_attempt(rig: SinkRig) -> None:
    rows = rows_of(0, 100, rig.topic)
    job = rig.job(rows)
    calls: list[int] = []

    def twice(identity: ProducerIdentity, counts: Mapping[str, int]) -> Outcome:
        calls.append(identity.epoch)
        if len(calls) == 1:
            job(identity, counts)
        return job(identity, counts)

    write_exactly_once(twice, rig.options(), Batch(0, "query", "run"))
    assert len(calls) == 2
    assert rig.visible() == [row.value for row in rows]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (SinkRow("?", None, None, b"x" * 1_100_000, None, None), "MESSAGE_TOO_LARGE"),
        (SinkRow("?", None, None, b"x", [{"key": None, "value": b"x"}], None), "a header has no key"),
        (SinkRow("?", None, None, b"x", [{"key": "h", "value": b"x"}, None], None), "a header has no key"),
        (SinkRow("?", None, None, b"x", None, -1), "the timestamp -1 ms is before 1970"),
        (SinkRow("?", PARTITIONS, None, b"x", None, None), f"has no partition {PARTITIONS}"),
        (SinkRow(None, None, None, b"x", None, None), "a row has no topic"),
        (SinkRow("absent", None, None, b"x", None, None), "topic absent does not exist"),
        (SinkRow("no topic", None, None, b"x", None, None), "topic no topic: INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_invalid_row_makes_no_row_of_its_batch_visible(rig: SinkRig, row: SinkRow, message: str) -> None:
    rows = [*rows_of(0, 2_000, rig.topic), row._replace(topic=rig.topic if row.topic == "?" else row.topic)]
    with pytest.raises(InvalidInput, match=message):
        rig.write(0, rows, "run")
    assert rig.visible() == []
    rig.write(0, rows[:-1], "run")
    assert len(rig.visible()) == 2_000


def test_batches_fit_a_topic_with_a_low_limit_if_each_record_does(rig: SinkRig) -> None:
    async def lower() -> None:
        change = ConfigChange(ConfigOperation.SET, "max.message.bytes", "5000")
        async with Cluster(rig.bootstrap) as cluster:
            await alter_configs(cluster, ConfigKind.TOPIC, rig.topic, [change])

    asyncio.run(lower())
    rows = rows_of(0, 2_500, rig.topic)
    rig.write(0, rows, "run")
    assert rig.visible() == [row.value for row in rows]


def test_topic_that_does_not_exist_is_refused(rig: SinkRig) -> None:
    with pytest.raises(InvalidInput, match="topic absent does not exist"):
        write_exactly_once(rig.job([]), rig.options(topic="absent"), Batch(0, "query", "run"))
    assert rig.visible() == []


def test_batch_without_an_id_has_no_ledger_entry(rig: SinkRig) -> None:
    rig.write(None, rows_of(0, 10, rig.topic), "run-a")
    rig.write(None, rows_of(0, 10, rig.topic), "run-b")
    assert len(rig.visible()) == 20


def test_second_data_of_a_batch_in_one_run_is_refused(rig: SinkRig) -> None:
    rig.write(0, rows_of(0, 10, rig.topic), "run")
    with pytest.raises(SinkInUse, match="has batch 0 of this run already"):
        rig.write(0, rows_of(10, 10, rig.topic), "run")
    assert len(rig.visible()) == 10


def test_second_batch_of_a_sink_at_the_same_time_is_refused(rig: SinkRig) -> None:
    def on_step(step: Step) -> None:
        if step is Step.BEGUN:
            with pytest.raises(SinkInUse, match="another thread of this process"):
                rig.write(1, rows_of(10, 10, rig.topic), "run")

    write_exactly_once(rig.job(rows_of(0, 10, rig.topic)), rig.options(), Batch(0, "query", "run"), on_step)
    assert len(rig.visible()) == 10
