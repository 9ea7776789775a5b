"""Run the transaction coordinator: one shard for each partition of `__transaction_state` that this broker leads.

This driver makes the checks that need no state, finds the shard of a transactional id, and carries out effects. The
core makes all decisions about transactions.
"""

from asyncio import Future, get_running_loop, sleep
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Final

import structlog

from odradek.client_shares import Client, client_of
from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn.core import TransactionShard
from odradek.coordinator.txn.marker_driver import MarkerDriver
from odradek.coordinator.txn.markers import Completion, CompletionResult, FinishedCompletion
from odradek.coordinator.txn.ports import FeatureLevels, Leaders, MarkerSender, TopicPartition, TxnConfig
from odradek.coordinator.txn.producer_ids import ProducerIdPool
from odradek.coordinator.txn.state import Partitions, ProducerIdentity, Transaction
from odradek.coordinator.txn.stats import TxnStats
from odradek.frozen import frozen_dataclass
from odradek.protocol.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.hashing import partition_for
from odradek.protocol.internal_topics import TRANSACTION_STATE
from odradek.protocol.txn_state import NEVER_TIMES_OUT_MS
from odradek.runtime.clock import Clock
from odradek.runtime.engine import Engine
from odradek.runtime.log_port import ShardLog
from odradek.runtime.shard import Effect, EngineLimits, EngineState, FailureHandler
from odradek.runtime.shards import LedShard, LedShards
from odradek.runtime.tasks import Spawn

COMPLETE_RETRY_BACKOFF_S: Final = 0.05
"""Delay in seconds before a Complete record is written again, if the log has refused it or not committed it in time."""
DESCRIBED_TRANSACTION_BYTES: Final = 8_000
"""Maximum bytes of one transaction in a DescribeTransactions response, without its partitions.

Its client id has up to 255 characters. The request has the transactional id.
"""
DESCRIBED_TOPIC_BYTES: Final = 1_500
"""Maximum bytes of one topic of a described transaction, with a name of 249 characters."""
DESCRIBED_PARTITION_BYTES: Final = 150
"""Maximum bytes of one partition of a described transaction: entries in two containers, and its encoded form."""
LISTED_TRANSACTION_BYTES: Final = 600
"""Maximum bytes of one transaction in a ListTransactions response, in addition to LISTED_COPIES of its id.

They are the object, its places in lists, and the pieces of its encoded form.
"""
LISTED_COPIES: Final = 3
"""Copies of a transactional id that exist while a ListTransactions response is encoded."""
SEARCHED_PER_TURN: Final = 10_000
"""Maximum transactions that a search for producers visits per turn of the event loop, unless one shard has more.

The visit of one takes about 0.2 µs. A shard has at most TRANSACTIONAL_IDS_MAX of them.
"""
CLIENT_ID_LENGTH_MAX: Final = 255
"""Maximum characters of a client id that are kept with a transaction, for display. A client can send up to 32 KiB."""

_logger = structlog.get_logger(__name__)


@frozen_dataclass(frozen=True, slots=True)
class TransactionDescription:
    """Transaction with its coordinator, for operators.

    `partitions` are those of the transaction; after Prepare, those that lack the marker.
    """

    transaction: Transaction
    partitions: Partitions
    shard: int
    coordinator_epoch: int
    client: Client | None = None
    """Client that has created the id; None if it is not known."""


@frozen_dataclass(frozen=True, slots=True)
class TransactionListing:
    """Transactions of some producers, in the shards that a coordinator has loaded."""

    shards: tuple[int, ...]
    """Shards that were searched. One that has failed, or whose leadership is not applied yet, is missing."""
    transactions: tuple[TransactionDescription, ...]


class TransactionCoordinator:
    """Transaction coordinator of one broker.

    Calls return a Future. It is done on return if there is nothing to wait for. Refusal is raised by the call or by its
    future.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        config: TxnConfig,
        producer_ids: ProducerIdPool,
        leaders: Leaders,
        sender: MarkerSender,
        features: FeatureLevels,
        shard_count: Callable[[], int],
        is_assigned: Callable[[int], bool],
        spawn: Spawn,
        on_failure: FailureHandler,
    ) -> None:
        """Create a coordinator without shards.

        `shard_count` returns the number of partitions of `__transaction_state`, which is fixed when the topic exists.
        For `is_assigned`, `spawn` and `on_failure` see `odradek.runtime.shards.LedShards`.
        """
        self.stats = TxnStats()
        self._config = config
        self._features = features
        self._producer_ids = producer_ids
        self._shard_count = shard_count
        self._on_failure = on_failure
        self._shards = LedShards(
            TRANSACTION_STATE,
            lambda: TransactionShard(config, features, producer_ids.take, self.stats),
            clock=clock,
            spawn=spawn,
            is_assigned=is_assigned,
            on_effect=self._on_effect,
            # Markers have the coordinator epoch: those of the former epoch are dropped before new ones are sent.
            on_lost=self._on_lost,
            on_failure=on_failure,
            take_reports=lambda core: core.unreadable.take_reports(),
            limits=EngineLimits(wait_ms_max=config.wait_ms_max),
        )
        self._markers = MarkerDriver(leaders, sender, on_finished=self._on_finished, on_failure=on_failure)

    # ---- leadership -------------------------------------------------------------------------------------------------

    def on_leadership(self, shard: int, leader_epoch: int, log: ShardLog) -> Coroutine[Any, Any, None]:
        """Load the shard that this broker leads now. See `odradek.runtime.shards.LedShards.on_leadership`."""
        return self._shards.on_leadership(shard, leader_epoch, log)

    def on_resignation(self, shard: int, leader_epoch: int | None = None) -> None:
        """Unload the shard that another broker leads now. See `odradek.runtime.shards.LedShards.on_resignation`."""
        self._shards.on_resignation(shard, leader_epoch)

    def leaders_changed(self, changed: Partitions) -> None:
        """Note that the metadata of these partitions has changed: another leader, or a deleted topic."""
        self._markers.leaders_changed(changed)

    def stop(self) -> None:
        """Unload all shards and send no more markers. Requests are refused with NOT_COORDINATOR from now on."""
        self._shards.stop()
        self._markers.stop()

    @property
    def shards(self) -> dict[int, Engine[c.Command, Any]]:
        """Engines of this broker by partition, for metrics, inspection and tests."""
        return {led.shard: led.engine for led in self._shards}

    def partition_of(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` whose leader coordinates the id."""
        return partition_for(transactional_id, self._shard_count())

    # ---- requests ---------------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        *,
        two_phase_commit: bool = False,
        client_id: str | None = None,
        address: str | None = None,
    ) -> "Future[ProducerIdentity]":
        """Return the identity of a producer. Without a transactional id, it is a new producer id with epoch 0.

        With `two_phase_commit`, the transactions of the producer never time out, and `timeout_ms` is ignored. A new
        transactional id counts for the client with this address and client id. Without an address it counts for no
        client.

        Raises:
            Refusal: INVALID_REQUEST or INVALID_TRANSACTION_TIMEOUT; TRANSACTIONAL_ID_AUTHORIZATION_FAILED or
                UNSUPPORTED_VERSION for `two_phase_commit`, if the broker or the cluster does not permit it; the future
                raises the errors of `decide_init`.
        """
        if transactional_id is None:
            _expected(producer_id, producer_epoch)
            identity = ProducerIdentity(self._producer_ids.take(), 0)
            future: Future[ProducerIdentity] = get_running_loop().create_future()
            future.set_result(identity)
            return future
        command = self._init_command(
            transactional_id,
            timeout_ms,
            _expected(producer_id, producer_epoch),
            two_phase_commit=two_phase_commit,
            client_id=client_id,
            address=address,
        )
        return self._submit(transactional_id, command)

    def recover_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        *,
        two_phase_commit: bool = False,
        client_id: str | None = None,
        address: str | None = None,
    ) -> "Future[c.RecoveredProducer]":
        """Return the identity of a producer as `init_producer_id`, but keep an ongoing transaction for it (KIP-939).

        Raises:
            Refusal: The errors of `init_producer_id`; UNSUPPORTED_VERSION below transaction.version 2.
        """
        command = self._init_command(
            transactional_id,
            timeout_ms,
            _expected(producer_id, producer_epoch),
            two_phase_commit=two_phase_commit,
            client_id=client_id,
            address=address,
        )
        self._check_tv2()
        return self._submit(transactional_id, c.RecoverProducer(command))

    def _init_command(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        *,
        two_phase_commit: bool,
        client_id: str | None,
        address: str | None,
    ) -> c.InitProducerId:
        if not transactional_id:
            raise Refusal(ErrorCode.INVALID_REQUEST)
        if two_phase_commit:
            if not self._config.two_phase_commit:
                raise Refusal(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    "two-phase commit is disabled on this broker (transaction.two.phase.commit.enable)",
                )
            self._check_tv2()
            timeout_ms = NEVER_TIMES_OUT_MS
        elif not 0 < timeout_ms <= self._config.max_timeout_ms:
            raise Refusal(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        client = None if address is None else client_of(address, client_id)
        return c.InitProducerId(transactional_id, timeout_ms, expected, _limited(client_id), client)

    def _check_tv2(self) -> None:
        if self._features.transaction_version() < c.TV2:
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, "two-phase commit needs transaction.version 2")

    def add_partitions(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        client_version: int = 0,
        client_id: str | None = None,
        wait_ms: int | None = None,
    ) -> "Future[c.PartitionErrors]":
        """Add partitions to the transaction of the id. The reply is NONE for each, or a Refusal for all.

        `wait_ms` bounds the time that the request waits for a pending id; the default is `TxnConfig.wait_ms_max`.
        """
        added = _partitions(partitions)
        command = c.AddPartitions(
            _checked(transactional_id), producer_id, producer_epoch, added, client_version, _limited(client_id)
        )
        return self._submit(command.transactional_id, command, wait_ms)

    def add_partitions_for_produce(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[tuple[str, int]]
    ) -> "Future[c.PartitionErrors]":
        """Add the partitions of a TV2 request: Produce v12 and later, TxnOffsetCommit v5 and later."""
        return self.add_partitions(transactional_id, producer_id, producer_epoch, partitions, client_version=c.TV2)

    def verify_partitions(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        wait_ms: int | None = None,
    ) -> "Future[c.PartitionErrors]":
        """Return NONE for each partition that belongs to the transaction, TRANSACTION_ABORTABLE for the others."""
        checked = _partitions(partitions)
        command = c.VerifyPartitions(_checked(transactional_id), producer_id, producer_epoch, checked)
        return self._submit(command.transactional_id, command, wait_ms)

    def end_txn(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        client_version: int = 0,
    ) -> "Future[ProducerIdentity]":
        """Commit or abort a transaction. Return the next identity of the producer, which EndTxn v5 and later use.

        `client_version` is TV2 for EndTxn v5 and later, 0 below.
        """
        command = c.EndTransaction(_checked(transactional_id), producer_id, producer_epoch, commit, client_version)
        return self._submit(command.transactional_id, command)

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """Return one transaction. Raise Refusal(TRANSACTIONAL_ID_NOT_FOUND) if the id is unknown."""
        txn = await self._submit(_checked(transactional_id), c.Describe(transactional_id))
        return self._described(self._led_for(transactional_id), txn)

    def described_bytes_max(self, transactional_id: str) -> int:
        """Return the maximum memory of a transaction in a DescribeTransactions response, in bytes."""
        led = self._shards.get(self.partition_of(transactional_id))
        txn = None if led is None else led.core.transactions.get(transactional_id)
        partitions = {} if txn is None else txn.partitions
        topics = len(dict.fromkeys(partition.topic for partition in partitions))
        return (
            DESCRIBED_TRANSACTION_BYTES + DESCRIBED_TOPIC_BYTES * topics + DESCRIBED_PARTITION_BYTES * len(partitions)
        )

    def all_shards(self) -> list[LedShard[TransactionShard]]:
        """Return the shards with all transactions of this coordinator.

        Raise Refusal(COORDINATOR_LOAD_IN_PROGRESS) if a shard is loading.
        """
        return self._shards.all_active()

    def listed_bytes_max(self, shard: LedShard[TransactionShard]) -> int:
        """Return the maximum memory of the transactions of this shard in a ListTransactions response, in bytes."""
        transactions = shard.core.transactions
        return LISTED_TRANSACTION_BYTES * len(transactions) + LISTED_COPIES * transactions.keys_bytes

    async def list_transactions(
        self, shards: Sequence[LedShard[TransactionShard]]
    ) -> list[tuple[LedShard[TransactionShard], tuple[Transaction, ...]]]:
        """Return the transactions of each of `shards`, which `all_shards` has returned. Closed shards are left out."""
        return await self._shards.submit_to_all(c.ListAll(), shards, timeout_ms=self._config.request_timeout_ms)

    async def describe_producers(self, producer_ids: Collection[int]) -> TransactionListing:
        """Describe the transactions of these producers. Raise Refusal as `all_shards`.

        With more than SEARCHED_PER_TURN transactions, other work runs between the shards.
        """
        shards: list[int] = []
        found: list[TransactionDescription] = []
        for number, run in enumerate(_runs(self.all_shards())):
            if number:
                await sleep(0)
            for led, transactions in await self.list_transactions(run):
                shards.append(led.shard)
                found += [self._described(led, txn) for txn in transactions if txn.producer_id in producer_ids]
        return TransactionListing(tuple(shards), tuple(found))

    def expire_id(self, transactional_id: str, producer_id: int, producer_epoch: int) -> "Future[None]":
        """Remove a transactional id without an open transaction, if its producer has this identity."""
        command = c.ExpireId(_checked(transactional_id), ProducerIdentity(producer_id, producer_epoch))
        return self._submit(command.transactional_id, command)

    # ---- shards -----------------------------------------------------------------------------------------------------

    def _submit(self, transactional_id: str, command: c.Command, wait_ms: int | None = None) -> "Future[Any]":
        engine = self._led_for(transactional_id).engine
        return engine.submit(command, timeout_ms=self._config.request_timeout_ms, wait_ms=wait_ms)

    def _led_for(self, transactional_id: str) -> LedShard[TransactionShard]:
        return self._shards.find(self.partition_of(transactional_id))

    def _described(self, led: LedShard[TransactionShard], txn: Transaction) -> TransactionDescription:
        outstanding = self._markers.outstanding(txn.transactional_id) if txn.state.is_prepared else None
        partitions = txn.partitions if outstanding is None else outstanding
        client = led.core.shares.client_of(txn.transactional_id)
        return TransactionDescription(txn, dict(partitions), led.shard, led.leader_epoch, client)

    # ---- effects and markers ----------------------------------------------------------------------------------------

    def _on_lost(self, shard: int) -> None:
        self._markers.drop(shard)

    def _on_effect(self, led: LedShard[TransactionShard], effect: Effect) -> None:
        if isinstance(effect, c.SendMarkers):
            self._markers.start(led.shard, effect)
        elif isinstance(effect, c.PostNextTurn):
            get_running_loop().call_soon(led.engine.post, effect.command)
        else:
            assert isinstance(effect, c.Post), effect
            led.engine.post(effect.command)

    def _on_finished(self, finished: FinishedCompletion) -> None:
        completion = finished.completion
        led = self._shards.get(completion.shard)
        if led is None or led.leader_epoch != completion.marker.coordinator_epoch:
            return
        if finished.result is CompletionResult.DONE:
            self._complete(completion)
            return
        marker = completion.marker
        _logger.warning(
            "transaction markers refused",
            transactional_id=completion.transactional_id,
            producer_id=marker.producer_id,
            reason=finished.error.name,
        )
        if finished.result is CompletionResult.FATAL:
            failure = AssertionError(f"a partition leader has refused a marker with {finished.error.name}")
            self._on_failure(led.engine.name, failure)
        led.core.stop_completion(completion.transactional_id, marker.producer_id, marker.producer_epoch)

    def _complete(self, completion: Completion) -> None:
        led = self._shards.get(completion.shard)
        marker = completion.marker
        if led is None or led.leader_epoch != marker.coordinator_epoch:
            return
        command = c.CompleteTransaction(completion.transactional_id, marker.producer_id, marker.producer_epoch)
        future = led.engine.submit(command, timeout_ms=self._config.request_timeout_ms)
        if future.done():
            self._completed(completion, future)
        else:
            future.add_done_callback(partial(self._completed, completion))

    def _completed(self, completion: Completion, future: "Future[Any]") -> None:
        failure = None if future.cancelled() else future.exception()
        if failure is None:
            return
        # A dropped shard sends all markers again when it is loaded. In all other cases the Complete record is written
        # again: the id must not stay prepared because the log has refused one record (KAFKA-5416).
        led = self._shards.get(completion.shard)
        if led is None or led.engine.state is not EngineState.ACTIVE:
            return
        get_running_loop().call_later(COMPLETE_RETRY_BACKOFF_S, self._complete, completion)


def _runs(shards: Sequence[LedShard[TransactionShard]]) -> Iterator[list[LedShard[TransactionShard]]]:
    """Divide shards into runs: one shard, or at most SEARCHED_PER_TURN transactions."""
    run: list[LedShard[TransactionShard]] = []
    total = 0
    for led in shards:
        count = len(led.core.transactions)
        if run and total + count > SEARCHED_PER_TURN:
            yield run
            run, total = [], 0
        run.append(led)
        total += count
    if run:
        yield run


def _expected(producer_id: int, producer_epoch: int) -> ProducerIdentity | None:
    if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_PRODUCER_EPOCH):
        raise Refusal(ErrorCode.INVALID_REQUEST)
    return None if producer_id == NO_PRODUCER_ID else ProducerIdentity(producer_id, producer_epoch)


def _limited(client_id: str | None) -> str | None:
    return None if client_id is None else client_id[:CLIENT_ID_LENGTH_MAX]


def _checked(transactional_id: str | None) -> str:
    if not transactional_id:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    return transactional_id


def _partitions(partitions: Sequence[tuple[str, int]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, partition) for topic, partition in partitions)
