"""Mode 2pc of the sink against a broker, with the tasks of a batch in this process: kills at each step, fencing."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from odradek.client import (
    Cluster,
    ConnectionLost,
    Fenced,
    Producer,
    Refused,
    TopicPartition,
    committed_offsets,
)
from odradek.pipeline.cluster.demo_cluster import DemoCluster
from odradek.protocol.errors import ErrorCode
from odradek.spark import (
    STEPS,
    BatchFailed,
    InvalidInput,
    OdradekDataSource,
    SinkInUse,
    Step,
    exactly_once,
    resolution,
    transaction,
    two_phase,
)
from odradek.spark.exactly_once import Batch
from odradek.spark.ledger import NO_BATCH
from odradek.spark.options import sink_options
from odradek.spark.two_phase import write_two_phase
from odradek.spark.writer import Writer
from tests.support.running_node import running
from tests.support.sink_rig import (
    PARTITIONS,
    TASKS,
    Killed,
    SinkRig,
    numbered,
    open_transactions,
    rows_of,
    thread,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from odradek.client import ProducerIdentity
    from odradek.spark.task_transactions import TaskReports

MODE = "2pc"


def test_driver_killed_after_each_step_neither_loses_nor_repeats_rows(rig: SinkRig) -> None:
    expected: list[bytes] = []
    steps = STEPS["2pc"]
    for batch_id, step in enumerate(steps):
        rows = rows_of(batch_id * 3_000, 2_500, rig.topic)
        values = [row.value or b"" for row in rows]
        with pytest.raises(Killed):
            rig.write(batch_id, rows, f"run-{batch_id}", step)
        found = rig.visible()
        if step is Step.COMMITTED:
            assert found == expected + values
        elif step is Step.ONE_COMPLETED:
            assert set(expected) <= set(found) <= {*expected, *values}
        else:
            assert found == expected
        rig.write(batch_id, rows, f"run-{batch_id}-again")
        expected += values
        assert rig.visible() == expected
        assert rig.ledger_entry().batch_id == batch_id
        assert open_transactions(rig) == []
    rig.write(len(steps) - 1, rows_of(0, 50, rig.topic), "replay")
    assert rig.visible() == expected


@pytest.mark.parametrize("completed", range(TASKS))
def test_driver_killed_between_two_completions_shows_the_whole_batch_after_a_restart(
    rig: SinkRig, monkeypatch: pytest.MonkeyPatch, completed: int
) -> None:
    commit, calls = Producer.commit, 0

    async def commit_some(producer: Producer) -> None:
        nonlocal calls
        calls += 1
        if calls > completed:
            raise Killed
        await commit(producer)

    rows = rows_of(0, 100, rig.topic)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Producer, "commit", commit_some)
        rig.write(0, rows, "run-a")
    assert len(open_transactions(rig)) == TASKS - completed
    rig.write(0, rows, "run-b")
    assert rig.visible() == numbered(0, 100)
    rig.write(1, rows_of(100, 100, rig.topic), "run-b")
    assert rig.visible() == numbered(0, 200)


def test_batches_of_one_run_follow_each_other(rig: SinkRig) -> None:
    for batch_id in range(4):
        rig.write(batch_id, rows_of(batch_id * 10, 10 if batch_id != 2 else 0, rig.topic), "run")
        assert rig.ledger_entry().batch_id == batch_id
    assert rig.visible() == numbered(0, 20) + numbered(30, 10)


@pytest.mark.parametrize("step", STEPS["2pc"][1:-2])
def test_driver_that_another_one_fences_in_a_batch_does_not_repeat_rows(rig: SinkRig, step: Step) -> None:
    rows = rows_of(0, 40, rig.topic)

    def on_step(done: Step) -> None:
        if done is step:
            thread(lambda: rig.write(0, rows, "run-b"))

    # From DECIDED on, the ledger has the batch of run-a, and run-b skips it without an entry of its own.
    other = "another" if step is Step.DECIDED else "run run-b of query"
    with pytest.raises(SinkInUse, match=f"^{other} query uses the sink name {rig.topic}"):
        rig.write_job(rig.task_job(rows), 0, "run-a", on_step=on_step)
    rig.write(1, rows_of(40, 40, rig.topic), "run-b")
    assert rig.visible() == numbered(0, 80)


def test_interrupted_driver_does_not_abort_a_transaction_that_its_successor_decided(
    rig: SinkRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver stops after it read the ledger. Its successor decides the next batch, and fails before completion."""
    rig.write(0, rows_of(0, 40, rig.topic), "run-0")
    rows = rows_of(40, 40, rig.topic)
    read_ledger, calls = transaction.read_ledger, 0

    async def read_and_stop(*arguments: Any, require_stable: bool) -> Any:
        nonlocal calls
        found = await read_ledger(*arguments, require_stable=require_stable)
        calls += require_stable
        if require_stable and calls == 1:
            with pytest.raises(Killed):
                thread(lambda: rig.write(1, rows, "run-b", Step.DECIDED))
        return found

    monkeypatch.setattr(transaction, "read_ledger", read_and_stop)
    with pytest.raises(SinkInUse):
        rig.write(1, rows, "run-a")
    assert len(open_transactions(rig)) == TASKS
    rig.write(1, rows, "run-c")
    assert rig.visible() == numbered(0, 80)


def test_completion_that_a_stale_driver_disturbed_is_continued(rig: SinkRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that is fenced, and does not know it yet, recovers the transactions of its successor."""

    def on_step(step: Step) -> None:
        if step is Step.DECIDED:
            thread(lambda: asyncio.run(recover_all()))

    async def recover_all() -> None:
        async with Cluster(rig.bootstrap) as cluster:
            await resolution.recover(cluster, rig.options(), range(TASKS))

    rig.write_job(rig.task_job(rows_of(0, 40, rig.topic)), 0, "run", on_step=on_step)
    assert rig.visible() == numbered(0, 40)
    rig.write(1, rows_of(40, 40, rig.topic), "run")
    assert rig.visible() == numbered(0, 80)


def test_completion_without_responses_is_continued(rig: SinkRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first commit of each task gets no response. Every second one is carried out."""
    commit, calls = Producer.commit, 0

    async def lose_response(producer: Producer) -> None:
        nonlocal calls
        calls += 1
        number = calls
        if number > TASKS or number % 2:
            await commit(producer)
        if number <= TASKS:
            raise ConnectionLost("the coordinator does not respond")

    monkeypatch.setattr(Producer, "commit", lose_response)
    rig.write(0, rows_of(0, 40, rig.topic), "run")
    assert calls == TASKS + TASKS // 2
    assert rig.visible() == numbered(0, 40)
    assert open_transactions(rig) == []


def test_decided_batch_whose_completion_fails_is_completed_by_the_next_run(
    rig: SinkRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise Refused("no permission", code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    rows = rows_of(0, 40, rig.topic)
    with monkeypatch.context() as patch:
        patch.setattr(Producer, "commit", fail)
        with pytest.raises(BatchFailed, match=f"the batch is decided, and {TASKS} of its {TASKS} transactions are not"):
            rig.write(0, rows, "run-a")
    assert rig.visible() == []
    rig.write(0, rows, "run-b")
    assert rig.visible() == numbered(0, 40)


def test_stray_attempt_that_writes_to_another_partition_aborts_the_batch(rig: SinkRig) -> None:
    rows = [row._replace(partition=0) for row in rows_of(0, 40, rig.topic)]
    job = rig.task_job(rows)
    calls: list[int] = []

    async def stray(identity: ProducerIdentity) -> None:
        async with Cluster(rig.bootstrap) as cluster:
            await Writer(cluster, identity).write({TopicPartition(rig.topic, 1): rows[:3]})

    def with_stray(identities: Mapping[int, ProducerIdentity], counts: Mapping[str, int]) -> TaskReports:
        reports = job(identities, counts)
        if not calls:
            asyncio.run(stray(identities[1]))
        calls.append(identities[1].epoch)
        return reports

    rig.write_job(with_stray)
    assert len(calls) == 2
    assert rig.visible() == numbered(0, 40)


def test_stray_attempt_after_the_preparation_is_fenced(rig: SinkRig) -> None:
    rows = [row._replace(partition=0) for row in rows_of(0, 40, rig.topic)]
    job = rig.task_job(rows)
    given: dict[int, ProducerIdentity] = {}

    def remember(identities: Mapping[int, ProducerIdentity], counts: Mapping[str, int]) -> TaskReports:
        given.update(identities)
        return job(identities, counts)

    async def stray() -> None:
        async with Cluster(rig.bootstrap) as cluster:
            with pytest.raises(Fenced):
                await Writer(cluster, given[1]).write({TopicPartition(rig.topic, 1): rows[:3]})

    def on_step(step: Step) -> None:
        if step is Step.PREPARED:
            thread(lambda: asyncio.run(stray()))

    rig.write_job(remember, 0, "run", on_step=on_step)
    assert rig.visible() == numbered(0, 40)


def test_second_attempt_of_a_task_reads_its_input_and_does_not_write(rig: SinkRig) -> None:
    with pytest.raises(BatchFailed, match="task 0 was interrupted, and its attempt 1 did not write"):
        rig.write_job(rig.task_job(rows_of(0, 10, rig.topic), attempt=1))
    assert rig.visible() == []


def test_batch_with_more_tasks_is_repeated_with_more_identities(rig: SinkRig) -> None:
    rows = rows_of(0, 40, rig.topic)
    rig.write_job(rig.task_job(rows), tasks=1)
    assert rig.ledger_entry().tasks == TASKS
    assert rig.visible() == numbered(0, 40)
    rig.write_job(rig.task_job(rows_of(40, 40, rig.topic), 2), batch_id=1)
    assert rig.ledger_entry().tasks == TASKS
    assert rig.visible() == numbered(0, 80)


def test_sink_whose_first_batch_failed_can_be_used_by_another_query(rig: SinkRig) -> None:
    with pytest.raises(Killed):
        rig.write(0, rows_of(0, 40, rig.topic), "run-a", Step.CHECKED)
    assert (rig.ledger_entry().batch_id, rig.ledger_entry().tasks) == (NO_BATCH, TASKS)
    job = rig.task_job(rows_of(40, 40, rig.topic))
    write_two_phase(job, rig.options(), Batch(0, "another query", "run-b"), TASKS)
    assert rig.visible() == numbered(40, 40)
    assert open_transactions(rig) == []


def test_too_many_tasks_are_refused(rig: SinkRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_phase, "TASKS_MAX", TASKS - 1)
    with pytest.raises(InvalidInput, match=rf"has {TASKS} tasks, and mode 2pc supports {TASKS - 1}; reduce them by df"):
        rig.write_job(rig.task_job(rows_of(0, 40, rig.topic)))
    assert rig.visible() == []
    assert open_transactions(rig) == []


def test_invalid_row_leaves_no_transaction_open(rig: SinkRig) -> None:
    rows = [*rows_of(0, 40, rig.topic), rows_of(0, 1, rig.topic)[0]._replace(partition=PARTITIONS)]
    with pytest.raises(InvalidInput, match=f"has no partition {PARTITIONS}"):
        rig.write(0, rows, "run")
    assert rig.visible() == []
    assert open_transactions(rig) == []


@pytest.mark.parametrize(("step", "rows"), [(Step.CHECKED, 0), (Step.DECIDED, 40)])
def test_abandoned_sink_is_resolved_as_the_ledger_decides(rig: SinkRig, step: Step, rows: int) -> None:
    with pytest.raises(Killed):
        rig.write(0, rows_of(0, 40, rig.topic), "run-a", step)
    assert len(open_transactions(rig)) == TASKS
    rig.resolve()
    assert open_transactions(rig) == []
    assert rig.visible() == numbered(0, rows)


def test_mode_can_change_while_a_decided_batch_is_incomplete(rig: SinkRig) -> None:
    rows = rows_of(0, 40, rig.topic)
    with pytest.raises(Killed):
        rig.write(0, rows, "run-a", Step.DECIDED)
    rig.mode = "txn"
    rig.write(0, rows, "run-b")
    rig.write(1, rows_of(40, 40, rig.topic), "run-b")
    assert (rig.ledger_entry().tasks, open_transactions(rig)) == (TASKS, [])
    rig.mode = "2pc"
    rig.write(2, rows_of(80, 40, rig.topic), "run-c")
    assert rig.visible() == numbered(0, 120)


def test_data_source_refuses_the_mode_by_name() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "sink": "s", "topic": "t", "mode": "2pc"}
    with pytest.raises(InvalidInput, match="option mode: format odradek has no mode 2pc; use write_batch"):
        OdradekDataSource(options).streamWriter(StructType([StructField("value", StringType())]), overwrite=False)


async def test_broker_that_does_not_permit_two_phase_commits_is_named(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        bootstrap = f"127.0.0.1:{node.node.listeners[0].port}"
        options = sink_options({"kafka.bootstrap.servers": bootstrap, "sink": "s", "topic": "t", "mode": "2pc"})
        await node.metadata("t")
        write = partial(write_two_phase, lambda *_: pytest.fail("no job"), options, Batch(0, "query", "run"), TASKS)
        for _ in range(2):
            with pytest.raises(InvalidInput, match="the brokers do not permit mode 2pc; start them with"):
                await asyncio.to_thread(write)
        async with Cluster(bootstrap) as cluster:
            assert await committed_offsets(cluster, options.transactional_id) == {}


@pytest.mark.full
def test_coordinator_killed_between_decision_and_completion_completes_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broker is the coordinator of each transaction. Its restart loses the responses, and no decision."""
    monkeypatch.setattr(exactly_once, "_sessions", {})
    options = ["--two-phase-commit"]
    cluster = DemoCluster(tmp_path / "data", tmp_path / "broker.log", brokers=1, options=options)
    try:
        rig = SinkRig(cluster.access.bootstrap, monkeypatch, "2pc")
        for batch_id, step in enumerate((Step.DECIDED, Step.ONE_COMPLETED)):

            def restart(done: Step, step: Step = step) -> None:
                if done is step:
                    cluster.kill(1, cluster.pids())
                    cluster.restart(1)

            job = rig.task_job(rows_of(batch_id * 40, 40, rig.topic))
            rig.write_job(job, batch_id, "run", on_step=restart)
            assert rig.visible() == numbered(0, (batch_id + 1) * 40)
            assert open_transactions(rig) == []
    finally:
        running = cluster.pids()
        cluster.stop()
        for pid in running.values():  # `odradek up` has ended with its only broker, and the next one is not its own
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
