"""The driver's side of a sink: its transactions, its ledger, and the checks before a commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from odradek.client import (
    Cluster,
    NotFound,
    ProducerIdentity,
    Refused,
    SharedTransaction,
    committed_offsets,
    create_topic,
    describe_transaction,
    producers_by_partition,
)
from odradek.protocol.errors import ErrorCode
from odradek.spark import ledger
from odradek.spark.errors import Doubtful, InvalidInput, SinkInUse
from odradek.spark.outcome import Kept, inconsistencies

if TYPE_CHECKING:
    from odradek.spark.ledger import LedgerEntry
    from odradek.spark.options import SinkOptions
    from odradek.spark.outcome import Outcome


class SessionState(Enum):
    """State of the producer epoch of a session."""

    UNUSED = "no record was written with the epoch"
    OPEN = "a transaction with the epoch may be open"
    ENDED = "the transaction with the epoch has ended"


@dataclass(slots=True)
class Session:
    """Identities of a sink in one run of a query.

    Attributes:
        identity: Identity of the transactional id of the sink.
        state: State of its epoch.
        tasks: Identities of tasks in mode 2pc that have no open transaction.
        wanted_tasks: Number of tasks that need an identity.
        committed: Number of transactions of tasks that were open, and that the ledger committed.
        aborted: Number of transactions of tasks that were open, and that the ledger aborted.
        last_batch: Id of the last batch that this run wrote, or skipped because it was visible.
    """

    identity: ProducerIdentity
    state: SessionState = SessionState.UNUSED
    tasks: dict[int, ProducerIdentity] = field(default_factory=dict)
    wanted_tasks: int = 0
    committed: int = 0
    aborted: int = 0
    last_batch: int | None = None


def connection(options: SinkOptions) -> Cluster:
    """Return a cluster whose connections are not open yet."""
    return Cluster(options.bootstrap, options.settings)


def transaction_of(cluster: Cluster, options: SinkOptions, identity: ProducerIdentity | None) -> SharedTransaction:
    """Return the transactions of a sink, which continue those of `identity`."""
    return SharedTransaction(
        cluster,
        options.transactional_id,
        transaction_timeout_ms=options.transaction_timeout_ms,
        identity=identity,
    )


async def open_session(cluster: Cluster, options: SinkOptions) -> Session:
    """Fence earlier runs, and abort their open transaction.

    Raise InvalidInput if the topic does not exist, or if the brokers do not allow the transaction time-out.
    """
    if options.topic is not None:
        await check_topic(cluster, options.topic)
    await _create_ledger_topic(cluster, options.ledger_topic)
    try:
        return Session(await transaction_of(cluster, options, None).begin())
    except Refused as error:
        if error.code != ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        problem = f"option kafka.transaction.timeout.ms: {options.transaction_timeout_ms} is too high for the brokers"
        raise InvalidInput(f"{problem}; use at most their transaction.max.timeout.ms") from error


async def read_ledger(cluster: Cluster, options: SinkOptions, *, require_stable: bool) -> LedgerEntry | None:
    """Return the last written batch. With `require_stable`, wait for the end of a transaction that adds another one.

    Raise InvalidInput if the ledger of the sink is in another topic.
    """
    offsets = await committed_offsets(cluster, options.transactional_id, require_stable=require_stable)
    committed = offsets.get(options.ledger)
    if committed is not None:
        return ledger.decoded(committed)
    if offsets:
        topics = ", ".join(sorted({key.topic for key in offsets}))
        problem = f"option ledgerTopic: the ledger of the sink {options.sink} is in the topic {topics}"
        raise InvalidInput(f"{problem}, and not in {options.ledger_topic}; use that topic, or another sink name")
    return None


async def check_topic(cluster: Cluster, name: str) -> None:
    """Raise InvalidInput if a topic does not exist."""
    try:
        await cluster.topic(name, refresh=True)
    except NotFound as error:
        raise InvalidInput(f"{error.problem}; create it before the query starts") from error


async def _create_ledger_topic(cluster: Cluster, name: str) -> None:
    try:
        await cluster.topic(name)
    except NotFound:
        try:
            await create_topic(cluster, name, partitions=1)
        except Refused as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


async def begin(cluster: Cluster, options: SinkOptions, session: Session) -> ProducerIdentity:
    """Return the identity of a new transaction. Raise Fenced if another query fenced this one.

    A transaction that may be open is aborted first. Otherwise the coordinator would abort it, with an epoch that it
    raises itself, and the epoch of this session would be fenced.
    """
    if session.state is SessionState.OPEN:
        await abort(cluster, options, session)
    if session.state is SessionState.ENDED:
        await renew(cluster, options, session)
    return session.identity


async def renew(cluster: Cluster, options: SinkOptions, session: Session) -> None:
    """Raise the epoch of a session without an open transaction. Raise Fenced if another query fenced this one."""
    session.identity = await transaction_of(cluster, options, session.identity).begin()
    session.state = SessionState.UNUSED


def in_use(options: SinkOptions, other: LedgerEntry | None) -> SinkInUse:
    """Return the exception for a fenced transaction. `other` is the ledger entry of the run that fenced it, or None."""
    if other is None:
        return SinkInUse(
            f"another query uses the sink name {options.sink} and has fenced this query, or a transaction exceeded "
            f"kafka.transaction.timeout.ms ({options.transaction_timeout_ms}); "
            "each running query needs a sink name of its own"
        )
    owner = "outside of a streaming query" if other.query_id is None else f"of query {other.query_id}"
    return SinkInUse(
        f"run {other.run_id} {owner} uses the sink name {options.sink}, wrote batch {other.batch_id}, and has fenced "
        "this query; each running query needs a sink name of its own"
    )


async def check(cluster: Cluster, options: SinkOptions, identity: ProducerIdentity, outcome: Outcome) -> None:
    """Compare the reports of the tasks with the cluster. Raise Doubtful if a row may be missing or duplicated."""
    added = (await describe_transaction(cluster, options.transactional_id)).partitions
    producers = await producers_by_partition(cluster, {each.target for each in outcome.written})
    kept = {
        key: Kept(row.transaction_start, row.last_sequence)
        for key, rows in producers.items()
        for row in rows
        if (row.producer_id, row.producer_epoch) == (identity.producer_id, identity.epoch)
    }
    found = inconsistencies(outcome, added, kept)
    if found:
        raise Doubtful("; ".join(found))


async def send_ledger(cluster: Cluster, options: SinkOptions, identity: ProducerIdentity, entry: LedgerEntry) -> None:
    """Add the entry of a batch to its transaction."""
    transaction = transaction_of(cluster, options, identity)
    await transaction.send_offsets(options.transactional_id, {options.ledger: ledger.encoded(entry)})


async def commit(cluster: Cluster, options: SinkOptions, session: Session) -> None:
    """Commit the transaction of a batch, which makes its rows and its ledger entry visible together."""
    await transaction_of(cluster, options, session.identity).commit()
    session.state = SessionState.ENDED


async def abort(cluster: Cluster, options: SinkOptions, session: Session) -> None:
    """Abort the transaction of a batch. It has no effect if the transaction has ended.

    INVALID_PRODUCER_ID_MAPPING also shows that it has ended: the transactional id expired, which an ongoing transaction
    prevents, or another query initialized it after that. `renew` then gets a new producer id, or raises Fenced.
    """
    try:
        await transaction_of(cluster, options, session.identity).abort()
    except Refused as error:
        if error.code != ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            raise
    session.state = SessionState.ENDED
