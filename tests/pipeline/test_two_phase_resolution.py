"""Mode 2pc of the sink against a broker: which driver ends the transactions of tasks, and what needs an operator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from odradek.client import (
    Cluster,
    Fenced,
    Producer,
    ProducerRecord,
    UnsupportedRequest,
    committed_offsets,
    delete_topic,
    fence_producer,
)
from odradek.protocol.errors import ErrorCode
from odradek.spark import (
    BatchFailed,
    InvalidInput,
    SinkInUse,
    Step,
    resolution,
    resolve_sink,
    transaction,
    two_phase,
)
from odradek.spark.exactly_once import Batch
from odradek.spark.options import DEFAULT_LEDGER_TOPIC
from odradek.spark.two_phase import write_two_phase
from tests.support.running_node import running
from tests.support.sink_rig import TASKS, Killed, SinkRig, numbered, open_transactions, rows_of, thread

if TYPE_CHECKING:
    from pathlib import Path

MODE = "2pc"


@pytest.mark.parametrize("mode", ["txn", "2pc"])
def test_driver_fenced_before_it_recovers_tasks_gives_no_identity_to_a_task(
    rig: SinkRig, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """A driver stops after it read the ledger. Its successor writes the next batch in another mode, or to fewer tasks.

    No transaction is open when the driver continues. Otherwise its tasks would begin new ones, which no driver ends.
    """
    rig.write(0, rows_of(0, 40, rig.topic), "run-0")
    read_ledger, stops = transaction.read_ledger, [True]
    steps: list[Step] = []

    def succeed() -> None:
        rig.mode = mode
        if mode == "2pc":
            job = rig.task_job(rows_of(40, 40, rig.topic), 2)
            rig.write_job(job, 1, "run-b", 2)
        else:
            rig.write(1, rows_of(40, 40, rig.topic), "run-b")
        rig.mode = "2pc"

    async def read_and_stop(*arguments: Any, require_stable: bool) -> Any:
        found = await read_ledger(*arguments, require_stable=require_stable)
        if require_stable and stops:
            stops.clear()
            thread(succeed)
        return found

    monkeypatch.setattr(transaction, "read_ledger", read_and_stop)
    with pytest.raises(SinkInUse):
        rig.write_job(rig.task_job([]), 1, "run-a", on_step=steps.append)
    assert (steps, open_transactions(rig)) == ([Step.OPENED], [])
    assert rig.ledger_entry().tasks == TASKS
    rig.mode = mode
    rig.write(2, rows_of(80, 40, rig.topic), "run-b")
    assert rig.resolve() == (0, 0)
    rig.mode = "2pc"
    assert rig.visible() == numbered(0, 120)


def test_resolution_that_a_stale_driver_disturbed_is_continued(rig: SinkRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that is fenced, and does not know it yet, recovers the transactions that its successor ends."""
    rows = rows_of(0, 40, rig.topic)
    with pytest.raises(Killed):
        rig.write(0, rows, "run-a", Step.DECIDED)
    recover, disturbances = resolution.recover, [True, True]

    async def disturbed(*arguments: Any) -> Any:
        found = await recover(*arguments)
        if disturbances:
            disturbances.pop()
            await recover(*arguments)
        return found

    monkeypatch.setattr(resolution, "recover", disturbed)
    rig.write(0, rows, "run-b")
    assert disturbances == []
    assert rig.visible() == numbered(0, 40)
    assert open_transactions(rig) == []


def test_completion_on_brokers_that_no_longer_permit_it_is_a_failed_batch(
    rig: SinkRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is decided, so its rows become visible later. InvalidInput would say that they do not."""
    rows = rows_of(0, 40, rig.topic)

    async def fenced(*_: Any) -> None:
        raise Fenced("a newer producer", code=ErrorCode.PRODUCER_FENCED)

    async def unsupported(*_: Any) -> None:
        raise UnsupportedRequest("no version")

    with monkeypatch.context() as patch:

        def on_step(step: Step) -> None:
            if step is Step.DECIDED:
                patch.setattr(Producer, "commit", fenced)
                patch.setattr(Producer, "recover", unsupported)

        with pytest.raises(BatchFailed, match="the batch is decided, and 4 of its 4 transactions are not"):
            rig.write_job(rig.task_job(rows), 0, "run-a", on_step=on_step)
    assert rig.resolve() == (TASKS, 0)
    assert rig.visible() == numbered(0, 40)


def test_second_dataframe_of_a_batch_is_refused_after_a_restart(rig: SinkRig) -> None:
    """The first one is visible, and the next run skips it. The second one was never written."""
    one, two = rows_of(0, 10, rig.topic), rows_of(10, 10, rig.topic)
    for mode in ("txn", "2pc"):
        rig.mode = mode
        for run in (f"{mode}-a", f"{mode}-b", f"{mode}-c"):
            rig.write(0, one, run)
            for _ in range(2):
                with pytest.raises(SinkInUse, match="has batch 0 of this run already; a function of foreachBatch"):
                    rig.write(0, two, run)


def test_batch_with_too_many_tasks_does_not_raise_the_number_of_identities(
    rig: SinkRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_phase, "TASKS_MAX", TASKS - 1)
    with pytest.raises(InvalidInput, match=f"has {TASKS} tasks"):
        rig.write_job(rig.task_job(rows_of(0, 40, rig.topic)), 0, "run")
    job = rig.task_job(rows_of(0, 40, rig.topic), TASKS - 1)
    rig.write_job(job, 0, "run")
    assert rig.ledger_entry().tasks == TASKS - 1
    assert rig.visible() == numbered(0, 40)


def test_abandoned_sink_reports_what_was_ended(rig: SinkRig) -> None:
    with pytest.raises(Killed):
        rig.write(0, rows_of(0, 40, rig.topic), "run-a", Step.CHECKED)
    assert rig.resolve() == (0, TASKS)
    with pytest.raises(Killed):
        rig.write(0, rows_of(0, 40, rig.topic), "run-b", Step.DECIDED)
    assert rig.resolve() == (TASKS, 0)
    assert rig.visible() == numbered(0, 40)


async def test_sink_without_a_ledger_is_not_resolved(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        bootstrap = f"127.0.0.1:{node.node.listeners[0].port}"
        options = {"kafka.bootstrap.servers": bootstrap, "sink": "unknown"}
        with pytest.raises(InvalidInput, match="the sink unknown has no ledger; check the option sink"):
            await asyncio.to_thread(resolve_sink, options)
        async with Cluster(bootstrap) as cluster:
            topics = (await cluster.fetch_metadata(None)).topics
            assert (DEFAULT_LEDGER_TOPIC in topics, await committed_offsets(cluster, "spark.unknown")) == (False, {})


def test_lost_ledger_is_an_error_while_transactions_of_tasks_are_open(rig: SinkRig) -> None:
    topic = f"{rig.topic}-ledger"
    options = rig.options(ledgerTopic=topic)
    rows = rows_of(0, 40, rig.topic)

    def kill(step: Step) -> None:
        if step is Step.DECIDED:
            raise Killed

    async def delete_ledger() -> None:
        async with Cluster(rig.bootstrap) as cluster:
            await delete_topic(cluster, topic)
            while await committed_offsets(cluster, options.transactional_id):
                await asyncio.sleep(0.01)  # brokers do not notify clients of removed offsets

    with pytest.raises(Killed):
        write_two_phase(rig.task_job(rows), options, Batch(0, "query", "run-a"), TASKS, kill)
    still_open = open_transactions(rig)
    asyncio.run(delete_ledger())
    named = rf"the ledger of the sink {rig.topic} is lost, .* odradek txns abort ID: {', '.join(still_open)}"
    with pytest.raises(InvalidInput, match=named):
        resolve_sink({"kafka.bootstrap.servers": rig.bootstrap, "sink": rig.topic, "ledgerTopic": topic})
    with pytest.raises(InvalidInput, match=named):
        write_two_phase(rig.task_job(rows), options, Batch(0, "query", "run-b"), TASKS)
    assert open_transactions(rig) == still_open


def test_open_transaction_of_a_task_that_the_ledger_does_not_have_is_named(rig: SinkRig) -> None:
    rig.write(0, rows_of(0, 40, rig.topic), "run")
    stray = rig.options().task_id(TASKS + 3)

    async def begin() -> None:
        async with Cluster(rig.bootstrap) as cluster:
            producer = Producer(cluster, stray, two_phase_commit=True)
            await producer.begin()
            await producer.send(rig.topic, [ProducerRecord(b"key", b"stray")])

    async def abort() -> None:
        async with Cluster(rig.bootstrap) as cluster:
            await fence_producer(cluster, stray)

    asyncio.run(begin())
    try:
        with pytest.raises(InvalidInput, match=rf"end each with odradek txns abort ID: {stray}"):
            rig.resolve()
    finally:
        asyncio.run(abort())
