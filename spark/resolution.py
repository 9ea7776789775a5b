"""Transactions of tasks in mode 2pc: end those of earlier batches as the ledger decides, and complete new ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.client import (
    ClientError,
    Fenced,
    Producer,
    UnsupportedRequest,
    describe_transaction,
    list_transactions,
    producers_by_partition,
)
from odradek.client.network.fan_out import gathered
from odradek.client.network.retry import recovery_of
from odradek.protocol.errors import ErrorCode
from odradek.spark import transaction
from odradek.spark.errors import BatchFailed, InvalidInput
from odradek.spark.outcome import Kept
from odradek.spark.task_transactions import TaskTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from odradek.client import Cluster, PreparedTransaction
    from odradek.spark.ledger import LedgerEntry
    from odradek.spark.options import SinkOptions
    from odradek.spark.transaction import Session

Recovered = dict[int, tuple[Producer, "PreparedTransaction | None"]]
"""Producers of the driver by task, with the transaction that was open. The former owner of each is fenced."""
MILLISECONDS = 1_000


async def settle(cluster: Cluster, options: SinkOptions, session: Session) -> LedgerEntry | None:
    """Begin a transaction of the sink, and end the open transactions of tasks as the ledger decides. Return its entry.

    Raises:
        Fenced: Another query has fenced this one.
        InvalidInput: The ledger is in another topic, or the brokers no longer permit two-phase commits.
        ClientError: A coordinator refused, or did not respond in time. Transactions may be open.
    """
    await transaction.begin(cluster, options, session)
    last = await transaction.read_ledger(cluster, options, require_stable=True)
    if last is not None:
        await resolve(cluster, options, session, set(range(last.tasks)) - session.tasks.keys(), last.decision)
    return last


async def resolve(
    cluster: Cluster,
    options: SinkOptions,
    session: Session,
    tasks: Collection[int],
    decision: Mapping[int, PreparedTransaction],
) -> None:
    """Commit the open transactions of tasks that are in the decision, and abort all others.

    Raises:
        Fenced: Another query has fenced this one.
        ClientError: A coordinator refused, or stale drivers disturbed each round until the transaction time-out.
    """
    deadline = _deadline(options)
    while (disturbance := await _round(cluster, options, session, tasks, decision)) is not None:
        if _is_over(deadline):
            raise ClientError(f"the transactions of tasks were not ended: {disturbance}")


def _deadline(options: SinkOptions) -> float:
    return asyncio.get_running_loop().time() + options.transaction_timeout_ms / MILLISECONDS


def _is_over(deadline: float) -> bool:
    return asyncio.get_running_loop().time() > deadline


async def _round(
    cluster: Cluster,
    options: SinkOptions,
    session: Session,
    tasks: Collection[int],
    decision: Mapping[int, PreparedTransaction],
) -> Fenced | None:
    """Recover and end the transactions of tasks. Return the exception of a fenced EndTxn: the round must be repeated.

    A driver that was interrupted for long must not use a transactional id of a task any more:
    1. This driver reads the ledger. 2. Its successor fences it, and writes batches. 3. This driver recovers the ids.
    It could then abort a transaction that its successor has decided to commit, or begin one that no later ledger entry
    has. So it renews its own epoch between recovery and use. A successor that fences it later also fences the use.

    A stale driver can recover the ids between the recovery and an EndTxn of this driver, which then is fenced.
    """
    if not tasks:
        return None
    recovered = await recover(cluster, options, tasks)
    await transaction.renew(cluster, options, session)
    try:
        await gathered(
            *(_end(session, producer, found, decision.get(task)) for task, (producer, found) in recovered.items())
        )
    except Fenced as error:
        return error
    session.tasks |= {task: producer.identity for task, (producer, _) in recovered.items()}
    return None


async def _end(
    session: Session, producer: Producer, found: PreparedTransaction | None, decided: PreparedTransaction | None
) -> None:
    if found is None:
        return
    if found == decided:
        await producer.commit()
        session.committed += 1
    else:
        await producer.abort()
        session.aborted += 1


async def require_none_open(cluster: Cluster, options: SinkOptions) -> None:
    """Require that no transaction of a task is ongoing, for a sink whose ledger names none.

    Raises:
        InvalidInput: Such transactions are ongoing. The ledger expired, or was deleted.
        ClientError: A broker did not list its transactions.
    """
    attempts = cluster.attempts()
    while (listed := await list_transactions(cluster, ["Ongoing"])).unreachable:  # it may load its transactions
        if await attempts.prepare(ErrorCode.COORDINATOR_NOT_AVAILABLE) is None:
            brokers = ", ".join(f"{node_id} ({problem})" for node_id, problem in listed.unreachable.items())
            raise ClientError(f"brokers did not list their transactions: {brokers}", "try again")
    ids = (row.transactional_id for row in listed.rows)
    if found := sorted(each for each in ids if each.startswith(options.task_prefix)):
        raise InvalidInput(
            f"the ledger of the sink {options.sink} is lost, and transactions of its tasks are open; "
            f"end each with odradek txns abort ID: {', '.join(found)}"
        )


async def recover(cluster: Cluster, options: SinkOptions, tasks: Collection[int]) -> Recovered:
    """Fence the former producer of each task, and keep its open transaction."""
    producers = {task: Producer(cluster, options.task_id(task), two_phase_commit=True) for task in tasks}
    try:
        found = await gathered(*(producer.recover() for producer in producers.values()))
    except UnsupportedRequest as error:
        raise InvalidInput(
            "option mode: the brokers do not permit mode 2pc; start them with "
            "transaction.two.phase.commit.enable=true (odradek up --two-phase-commit). Mode txn works without it, "
            "unless a batch of the sink was written in mode 2pc."
        ) from error
    return dict(zip(producers, zip(producers.values(), found, strict=True), strict=True))


async def open_transactions(cluster: Cluster, recovered: Recovered) -> dict[int, TaskTransaction]:
    """Describe the open transactions of recovered producers by task. The partitions of each no longer change."""
    ongoing = {task: (producer, found) for task, (producer, found) in recovered.items() if found is not None}
    described = await gathered(
        *(describe_transaction(cluster, producer.identity.transactional_id) for producer, _ in ongoing.values())
    )
    added = {task: each.partitions for task, each in zip(ongoing, described, strict=True)}
    producers = await producers_by_partition(cluster, {key for keys in added.values() for key in keys})
    states = {
        (row.producer_id, row.producer_epoch, key): Kept(row.transaction_start, row.last_sequence)
        for key, rows in producers.items()
        for row in rows
    }
    found = {}
    for task, (_, prepared) in ongoing.items():
        pair = prepared.producer_id, prepared.producer_epoch
        kept = {key: states[*pair, key] for key in added[task] if (*pair, key) in states}
        found[task] = TaskTransaction(prepared, added[task], kept)
    return found


async def complete(
    cluster: Cluster,
    options: SinkOptions,
    session: Session,
    recovered: Recovered,
    decision: Mapping[int, PreparedTransaction],
    on_first: Callable[[], None],
) -> None:
    """Commit the transactions of a decision, all at the same time. Call `on_first` after the first one.

    Raises:
        Fenced: Another query has fenced this one, and commits them.
        BatchFailed: A coordinator refused, or did not respond within the transaction time-out. The next run commits
            the transactions.
    """
    missing = dict.fromkeys(decision)
    failure: ClientError | InvalidInput | None = None
    for committed in asyncio.as_completed([_committed(task, recovered[task][0]) for task in decision]):
        task, error = await committed
        if error is not None:
            failure = error
            continue
        session.tasks[task] = recovered[task][0].identity
        if len(missing) == len(decision):
            on_first()
        del missing[task]
    deadline = _deadline(options)
    while missing:
        try:
            failure = await _round(cluster, options, session, missing, decision)
        except Fenced:
            raise
        except (ClientError, InvalidInput) as error:
            failure = error
        if failure is None:
            return
        if _is_permanent(failure) or _is_over(deadline):
            raise BatchFailed(
                f"the batch is decided, and {len(missing)} of its {len(decision)} transactions are not committed yet: "
                f"{failure}; the next run of the query commits them"
            ) from failure


def _is_permanent(failure: ClientError | InvalidInput) -> bool:
    if isinstance(failure, InvalidInput):
        return True
    return not isinstance(failure, Fenced) and recovery_of(failure.code or failure) is None


async def _committed(task: int, producer: Producer) -> tuple[int, ClientError | None]:
    try:
        await producer.commit()
    except ClientError as error:
        return task, error
    return task, None
