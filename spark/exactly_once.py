"""Write a batch in one transaction: begin, run the job that writes, check, add the ledger entry, commit."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from odradek.client import ClientError, Fenced
from odradek.spark import ledger, resolution, transaction
from odradek.spark.blocking import run
from odradek.spark.errors import BatchFailed, Doubtful, InvalidInput, SinkError, SinkInUse
from odradek.spark.ledger import LedgerEntry
from odradek.spark.options import Mode
from odradek.spark.outcome import Failure
from odradek.spark.transaction import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from odradek.client import Cluster, ProducerIdentity
    from odradek.spark.options import SinkOptions
    from odradek.spark.outcome import Outcome
    from odradek.spark.transaction import Session

    Job = Callable[[ProducerIdentity, Mapping[str, int]], Outcome]
    """Writes the rows with an identity and the partition counts of known topics. Raises Doubtful if it failed."""
    OnStep = Callable[["Step"], None]

ATTEMPTS_MAX: Final = 3
"""Maximum attempts to write a batch. Each has a new producer epoch, and the attempts before it are aborted."""

_busy: dict[tuple[str, str, str], object] = {}
"""Bootstrap servers, sink and run of the batches that threads of this process write now. An epoch fences other runs."""
BATCH_ID_END: Final = 2**63 - 1
"""End of the batch ids. The committed offset of the ledger is the id + 1, a number of 64 bits."""
SESSIONS_MAX: Final = 256
"""Maximum sessions that a process keeps. One with 256 tasks takes about 50 kB. A process runs few queries at a time."""
_sessions: dict[tuple[str, str, str], Session] = {}
"""Sessions of this process by bootstrap servers, sink and run, the last used at the end.

Fenced queries stay, so that they remain fenced.
"""


class Step(Enum):
    """A step of a batch that is complete. STEPS has those of each mode."""

    OPENED = "earlier runs are fenced"
    BEGUN = "the epoch of each transaction is known"
    WRITTEN = "the job wrote all rows"
    PREPARED = "the transactions of the tasks accept no other partition"
    CHECKED = "the reports of the tasks agree with the cluster"
    LEDGER_SENT = "the ledger entry is part of a transaction"
    DECIDED = "the ledger entry is committed, and the transactions of the tasks are still open"
    ONE_COMPLETED = "the transaction of one task is committed"
    COMMITTED = "the batch is visible"


STEPS: Final[Mapping[str, tuple[Step, ...]]] = {
    Mode.TRANSACTION: tuple(step for step in Step if step not in {Step.PREPARED, Step.DECIDED, Step.ONE_COMPLETED}),
    Mode.TWO_PHASE: tuple(Step),
}
"""Steps of a batch in their order, by the value of the option `mode`."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Identity of a batch. Without a `batch_id`, it has no ledger entry and only one attempt.

    `plan` is the fingerprint of its source offsets, or None if it is not known. Raise InvalidInput if the ledger cannot
    have the batch id.
    """

    batch_id: int | None
    query_id: str | None
    run_id: str
    plan: str | None = None

    def __post_init__(self) -> None:
        if self.batch_id is not None and not 0 <= self.batch_id < BATCH_ID_END:
            raise InvalidInput(f"batch id {self.batch_id} is invalid; use 0, and a higher one for each batch")


def ignore(_step: Step) -> None:
    """Do nothing after a step."""


def write_exactly_once(
    job: Job, sink: SinkOptions, batch: Batch, on_step: OnStep = ignore, *, keep_session: bool = True
) -> None:
    """Write a batch in one transaction, unless the ledger shows that it is visible. See `write_batch`.

    Without `keep_session`, the batch fences all others, and the next batch does not continue its epochs. It is for
    batches of one run in several processes, of which one would otherwise continue with an epoch that another raised.
    """
    repeated(functools.partial(_attempt, job, sink, batch, on_step), sink, batch, on_step, keep_session=keep_session)


def repeated(
    attempt: Callable[..., None], sink: SinkOptions, batch: Batch, on_step: OnStep, *, keep_session: bool = True
) -> None:
    """Call `attempt` with the session of the run, until it does not raise Doubtful, at most ATTEMPTS_MAX times.

    Raises:
        SinkInUse: Another query has fenced this one, or another thread writes to the sink.
        BatchFailed: Each attempt raised Doubtful.
    """
    key = sink.bootstrap, sink.sink, batch.run_id
    claim = object()
    if _busy.setdefault(key, claim) is not claim:  # one step, so that only one of several threads has the claim
        raise SinkInUse(f"another thread of this process writes to the sink {sink.sink}; each needs a name of its own")
    try:
        _repeated(attempt, sink, batch, on_step, keep_session=keep_session)
    except Fenced as error:
        other = run(_other_run(sink, batch, _sessions.get(key)))
        if batch.query_id is None:
            _sessions.pop(key, None)  # a later call is a new run; a fenced query must not fence its successor
        raise transaction.in_use(sink, other) from error
    finally:
        del _busy[key]


def _repeated(
    attempt: Callable[..., None], sink: SinkOptions, batch: Batch, on_step: OnStep, *, keep_session: bool
) -> None:
    key = sink.bootstrap, sink.sink, batch.run_id
    session = _sessions.get(key) if keep_session else None
    if session is None:
        session = run(_opened(sink, batch))
    if keep_session:
        _sessions.pop(key, None)
        _sessions[key] = session
        for oldest in list(_sessions)[:-SESSIONS_MAX]:
            _sessions.pop(oldest, None)
    if batch.query_id is not None and batch.batch_id is not None and session.last_batch == batch.batch_id:
        raise repeated_batch(sink, batch)  # the ledger has the run that wrote it, and not the one that skipped it
    on_step(Step.OPENED)
    attempts = 1 if batch.batch_id is None else ATTEMPTS_MAX
    problems: list[str] = []
    for number in range(attempts):
        try:
            attempt(session, is_first=number == 0)
        except Doubtful as doubt:
            problems.append(str(doubt))
        else:
            session.last_batch = batch.batch_id
            return
    name = "the batch" if batch.batch_id is None else f"batch {batch.batch_id}"
    raise BatchFailed(f"{name} failed (attempts: {attempts}): {'; '.join(dict.fromkeys(problems))}")


def _attempt(job: Job, sink: SinkOptions, batch: Batch, on_step: OnStep, session: Session, *, is_first: bool) -> None:
    """Write a batch, unless the ledger has it. An exception aborts the transaction.

    A batch whose commit had no response is not written twice: the next attempt reads the ledger first.
    """
    started = run(_begun(sink, session, batch, is_first=is_first))
    if started is None:
        return
    identity, counts = started
    on_step(Step.BEGUN)
    try:
        outcome = job(identity, counts)
        on_step(Step.WRITTEN)
        raise_failure(outcome.failures)
        run(_finished(sink, session, outcome, batch, on_step))
    except Fenced:
        raise
    except Exception as error:
        run(_aborted(sink, session))
        if isinstance(error, ClientError):
            raise Doubtful(str(error)) from error
        raise


async def _opened(sink: SinkOptions, batch: Batch) -> Session:
    """Fence earlier runs, unless the ledger shows that this query must not write to the sink.

    `_begun` reads the ledger again: an earlier run may add an entry before it is fenced.
    """
    async with transaction.connection(sink) as cluster:
        if batch.batch_id is not None:
            last = await transaction.read_ledger(cluster, sink, require_stable=False)
            ledger.is_written(last, batch.batch_id, batch.query_id, batch.plan)
        return await transaction.open_session(cluster, sink)


async def _other_run(sink: SinkOptions, batch: Batch, session: Session | None) -> LedgerEntry | None:
    """Return the ledger entry that another run wrote after the last one that this run knows. Return None without one.

    It is for a message alone, so a ledger that cannot be read is no error.
    """
    if batch.batch_id is None:
        return None
    try:
        async with transaction.connection(sink) as cluster:
            last = await transaction.read_ledger(cluster, sink, require_stable=False)
    except (ClientError, SinkError):
        return None
    known = batch.batch_id - 1 if session is None or session.last_batch is None else session.last_batch
    return last if last is not None and last.run_id != batch.run_id and last.batch_id > known else None


async def _begun(
    sink: SinkOptions, session: Session, batch: Batch, *, is_first: bool
) -> tuple[ProducerIdentity, Mapping[str, int]] | None:
    """Return the identity and the partition counts of known topics, or None if the batch is written."""
    async with transaction.connection(sink) as cluster:
        last = await resolution.settle(cluster, sink, session)
        if is_visible(sink, last, batch, is_first=is_first):
            return None
        session.state = SessionState.OPEN
        return session.identity, await partition_counts(cluster, sink)


def is_visible(sink: SinkOptions, last: LedgerEntry | None, batch: Batch, *, is_first: bool) -> bool:
    """Return True if the ledger shows that the batch is written.

    Raise SinkInUse if this run has written another DataFrame with the id of the batch: a query repeats no batch within
    a run.
    """
    if batch.batch_id is None or not ledger.is_written(last, batch.batch_id, batch.query_id, batch.plan):
        return False
    if is_first and batch.query_id is not None and last is not None and last.run_id == batch.run_id:
        raise repeated_batch(sink, batch)
    return True


def repeated_batch(sink: SinkOptions, batch: Batch) -> SinkInUse:
    """Return the exception for a batch that this run has written or skipped already."""
    return SinkInUse(
        f"the sink {sink.sink} has batch {batch.batch_id} of this run already; a function of foreachBatch "
        "that writes several DataFrames needs a sink name for each"
    )


async def partition_counts(cluster: Cluster, sink: SinkOptions) -> Mapping[str, int]:
    """Return the partition count of the topic of the options. Raise InvalidInput if it does not exist."""
    if sink.topic is None:
        return {}
    await transaction.check_topic(cluster, sink.topic)
    return {sink.topic: len((await cluster.topic(sink.topic)).partitions)}


def raise_failure(failures: Iterable[tuple[Failure, str]]) -> None:
    """Raise the exception of the failure that explains most: invalid input, then fencing, then others."""
    failures = list(failures)
    for kind in Failure:
        for problem in (problem for found, problem in failures if found is kind):
            if kind is Failure.INVALID:
                raise InvalidInput(problem)
            if kind is Failure.FENCED:
                raise Fenced(problem)
            raise Doubtful(problem)


async def _finished(sink: SinkOptions, session: Session, outcome: Outcome, batch: Batch, on_step: OnStep) -> None:
    async with transaction.connection(sink) as cluster:
        identity = session.identity
        await transaction.check(cluster, sink, identity, outcome)
        on_step(Step.CHECKED)
        if batch.batch_id is not None:
            tasks = len(session.tasks)  # an entry of mode 2pc had them; the sink may return to it
            entry = LedgerEntry(
                batch.batch_id, batch.query_id, batch.run_id, outcome.rows, outcome.checksum, tasks, batch.plan
            )
            await transaction.send_ledger(cluster, sink, identity, entry)
        on_step(Step.LEDGER_SENT)
        if batch.batch_id is not None or outcome.rows:
            await transaction.commit(cluster, sink, session)
        on_step(Step.COMMITTED)


async def _aborted(sink: SinkOptions, session: Session) -> None:
    """Abort the transaction. If that fails, the next `begin` aborts it."""
    try:
        async with transaction.connection(sink) as cluster:
            await transaction.abort(cluster, sink, session)
    except Fenced:
        raise
    except ClientError:
        return
