"""Write a batch in one transaction per task: prepare them, decide in the ledger, and complete them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from odradek.client import ClientError, Fenced, PreparedTransaction
from odradek.spark import resolution, transaction
from odradek.spark.blocking import run
from odradek.spark.errors import BatchFailed, Doubtful, InvalidInput
from odradek.spark.exactly_once import Step, ignore, is_visible, partition_counts, raise_failure, repeated
from odradek.spark.ledger import NO_BATCH, TASKS_MAX, LedgerEntry
from odradek.spark.options import sink_options
from odradek.spark.task_transactions import task_differences
from odradek.spark.transaction import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from odradek.client import Cluster, ProducerIdentity
    from odradek.spark.exactly_once import Batch, OnStep
    from odradek.spark.options import SinkOptions
    from odradek.spark.task_transactions import TaskReports
    from odradek.spark.transaction import Session

    TaskJob = Callable[[Mapping[int, ProducerIdentity], Mapping[str, int]], TaskReports]
    """Writes the rows with an identity per task, and the partition counts of known topics. Raises Doubtful if it fails.
    """


def write_two_phase(job: TaskJob, sink: SinkOptions, batch: Batch, tasks: int, on_step: OnStep = ignore) -> None:
    """Write a batch in one transaction per task, unless the ledger shows that it is decided. See `write_batch`.

    `tasks` is an estimate of the number of tasks. If a job has more, it is repeated.
    """

    def attempt(session: Session, *, is_first: bool) -> None:
        session.wanted_tasks = max(session.wanted_tasks, min(tasks, TASKS_MAX))
        while not _attempt(job, sink, session, batch, on_step, is_first=is_first):
            pass

    repeated(attempt, sink, batch, on_step)


def resolve_sink(options: Mapping[str, str]) -> tuple[int, int]:
    """End the open transactions of a sink as its ledger decides, for a query that is not started again.

    It fences a query that runs. `options` are those of `write_batch`; `ledgerTopic` must be that of the query. Return
    the numbers of transactions of tasks that were committed and aborted.

    Raises:
        InvalidInput: An option is invalid, the sink has no ledger, the ledger is in another topic, or a transaction
            of a task is still open because the ledger does not have the task.
        ClientError: The cluster is not reachable, or a coordinator refused.
    """

    async def resolve(sink: SinkOptions) -> tuple[int, int]:
        async with transaction.connection(sink) as cluster:
            if await transaction.read_ledger(cluster, sink, require_stable=False) is None:
                await resolution.require_none_open(cluster, sink)
                raise InvalidInput(f"the sink {sink.sink} has no ledger; check the option sink")
            session = await transaction.open_session(cluster, sink)
            await resolution.settle(cluster, sink, session)
            await resolution.require_none_open(cluster, sink)
            return session.committed, session.aborted

    return run(resolve(sink_options(options)))


def _attempt(
    job: TaskJob, sink: SinkOptions, session: Session, batch: Batch, on_step: OnStep, *, is_first: bool
) -> bool:
    """Write a batch, unless the ledger has it. Return False if the job has more tasks than identities.

    An exception aborts the transactions of the tasks, unless the batch is decided.
    """
    started = run(_begun(sink, session, batch, is_first=is_first))
    if started is None:
        return True
    identities, counts = started
    on_step(Step.BEGUN)
    try:
        reports = job(identities, counts)
        raise_failure(reports.failures)
        if reports.needed > TASKS_MAX:
            problem = f"the batch has {reports.needed} tasks, and mode 2pc supports {TASKS_MAX}"
            raise InvalidInput(f"{problem}; reduce them by df.coalesce({TASKS_MAX}), or use mode txn")
        session.wanted_tasks = max(session.wanted_tasks, reports.needed)
        if reports.needed > len(identities):
            run(_aborted(sink, session))
            return False
        on_step(Step.WRITTEN)
        run(_finished(sink, session, identities, reports, batch, on_step))
    except (BatchFailed, Fenced):
        raise
    except Exception as error:
        run(_aborted(sink, session))
        if isinstance(error, ClientError):
            raise Doubtful(str(error)) from error
        raise
    return True


async def _begun(
    sink: SinkOptions, session: Session, batch: Batch, *, is_first: bool
) -> tuple[Mapping[int, ProducerIdentity], Mapping[str, int]] | None:
    """Return the identities of the tasks and the partition counts of known topics, or None if the batch is written.

    The ledger has the number of identities before a task uses them, so that a later run ends their transactions.
    """
    async with transaction.connection(sink) as cluster:
        last = await resolution.settle(cluster, sink, session)
        if is_visible(sink, last, batch, is_first=is_first):
            return None
        if last is None:
            await resolution.require_none_open(cluster, sink)
            last = LedgerEntry(NO_BATCH, batch.query_id, batch.run_id, 0, 0)
        wanted = max(session.wanted_tasks, last.tasks)
        await resolution.resolve(cluster, sink, session, set(range(wanted)) - session.tasks.keys(), last.decision)
        if wanted > last.tasks:
            session.state = SessionState.OPEN
            await transaction.send_ledger(cluster, sink, session.identity, replace(last, tasks=wanted))
            await transaction.commit(cluster, sink, session)
            await transaction.begin(cluster, sink, session)
        counts = await partition_counts(cluster, sink)
    identities = {task: session.tasks[task] for task in range(wanted)}
    session.tasks.clear()  # each may have an open transaction from now on
    session.state = SessionState.ENDED  # the next attempt begins with another epoch
    return identities, counts


async def _finished(
    sink: SinkOptions,
    session: Session,
    identities: Mapping[int, ProducerIdentity],
    reports: TaskReports,
    batch: Batch,
    on_step: OnStep,
) -> None:
    assert batch.batch_id is not None, "a batch in mode 2pc has an id"
    async with transaction.connection(sink) as cluster:
        recovered = await resolution.recover(cluster, sink, range(reports.needed))
        on_step(Step.PREPARED)
        decision = await _checked(cluster, identities, reports, recovered)
        on_step(Step.CHECKED)
        entry = LedgerEntry(
            batch.batch_id, batch.query_id, batch.run_id, reports.rows, reports.checksum, len(identities), batch.plan,
            decision,
        )  # fmt: skip
        session.state = SessionState.OPEN
        await transaction.send_ledger(cluster, sink, session.identity, entry)
        on_step(Step.LEDGER_SENT)
        await transaction.commit(cluster, sink, session)
        on_step(Step.DECIDED)
        await resolution.complete(cluster, sink, session, recovered, decision, lambda: on_step(Step.ONE_COMPLETED))
        session.tasks |= {task: producer.identity for task, (producer, found) in recovered.items() if found is None}
        session.tasks |= {task: identity for task, identity in identities.items() if task >= reports.needed}
        on_step(Step.COMMITTED)


async def _checked(
    cluster: Cluster,
    identities: Mapping[int, ProducerIdentity],
    reports: TaskReports,
    recovered: resolution.Recovered,
) -> dict[int, PreparedTransaction]:
    """Return the transactions to commit. Raise Doubtful if a row may be missing or duplicated."""
    given = {task: PreparedTransaction(each.producer_id, each.epoch) for task, each in identities.items()}
    found = await resolution.open_transactions(cluster, recovered)
    problems = task_differences(reports, given, found)
    if problems:
        raise Doubtful("; ".join(problems))
    return {task: each.prepared for task, each in found.items()}


async def _aborted(sink: SinkOptions, session: Session) -> None:
    """Abort the transactions of the tasks, unless the ledger has decided otherwise.

    If that fails, the next attempt or run does it.
    """
    try:
        async with transaction.connection(sink) as cluster:
            await resolution.settle(cluster, sink, session)
    except Fenced:
        raise
    except ClientError:
        return
