"""The transaction coordinator: a shard for each led partition of `__transaction_state`, and the marker sender.

A driver: it checks what needs no state, finds the shard, and carries effects out. Every judgment on a transaction is
made in the core.
"""

from asyncio import Future, get_running_loop
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog

from odradek.coordinator.hashing import partition_for
from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn.core import TransactionShard
from odradek.coordinator.txn.epochs import NO_EPOCH
from odradek.coordinator.txn.marker_driver import MarkerDriver
from odradek.coordinator.txn.markers import Completion, CompletionResult, Finished
from odradek.coordinator.txn.ports import FeatureLevels, Leaders, MarkerSender, TopicPartition, TxnConfig
from odradek.coordinator.txn.producer_ids import ProducerIdPool
from odradek.coordinator.txn.state import Partitions, Transaction
from odradek.coordinator.txn.stats import TxnStats
from odradek.protocol.batch import NO_PRODUCER_ID
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.internal_topics import TRANSACTION_STATE
from odradek.runtime.clock import Clock
from odradek.runtime.engine import Engine
from odradek.runtime.log_port import ShardLog
from odradek.runtime.shard import Effect, EngineLimits, EngineState, FailureHandler
from odradek.runtime.shards import LedShard, LedShards
from odradek.runtime.tasks import Spawn

COMPLETE_RETRY_BACKOFF_S: Final = 0.05
"""Before a Complete record is tried again that the log refused, or has not committed in time."""
CLIENT_ID_LENGTH_MAX: Final = 255
"""Characters of a client's id that are kept with its transaction, for people to see: it may be 32 KiB long."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Described:
    """A transaction as shown to people. `partitions`: once prepared, only those that still lack the marker."""

    transaction: Transaction
    partitions: Partitions
    shard: int
    coordinator_epoch: int


class TransactionCoordinator:
    """Kafka's transaction coordinator.

    Calls return a Future, done already where nothing has to be waited for. They raise, or their future raises, Refusal.
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
        """`shard_count`: partitions of `__transaction_state`, which never change once the topic is there. `is_assigned`: does
        the metadata say that this broker leads the shard, so that `on_leadership` is to come? `spawn` runs a task that
        somebody owns; `on_failure` hears of bugs and broken disks.
        """
        self.stats = TxnStats()
        self._config = config
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
            # Markers carry the coordinator epoch: those of one leadership must be gone before new ones start.
            on_lost=self._on_lost,
            on_failure=on_failure,
            limits=EngineLimits(wait_ms_max=config.wait_ms_max),
        )
        self._markers = MarkerDriver(leaders, sender, on_finished=self._on_finished, on_failure=on_failure)

    # ---- leadership -------------------------------------------------------------------------------------------------

    def on_leadership(self, shard: int, leader_epoch: int, log: ShardLog) -> Coroutine[Any, Any, None]:
        """As `odradek.runtime.shards.LedShards.on_leadership`."""
        return self._shards.on_leadership(shard, leader_epoch, log)

    def on_resignation(self, shard: int, leader_epoch: int | None = None) -> None:
        """As `odradek.runtime.shards.LedShards.on_resignation`."""
        self._shards.on_resignation(shard, leader_epoch)

    def leaders_changed(self, changed: Partitions) -> None:
        """The metadata says something new about who leads these partitions, or whether they exist."""
        self._markers.leaders_changed(changed)

    def stop(self) -> None:
        """Give up every shard: requests are told to look elsewhere."""
        self._shards.stop()
        self._markers.stop()

    @property
    def shards(self) -> dict[int, Engine[c.Command, Any]]:
        """The engines of this broker by partition, for metrics, inspection and tests."""
        return {led.shard: led.engine for led in self._shards}

    def partition_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` whose leader coordinates the id."""
        return partition_for(transactional_id, self._shard_count())

    # ---- requests ---------------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str | None,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_EPOCH,
        *,
        client_id: str | None = None,
    ) -> "Future[c.ProducerIdentity]":
        """The identity of a producer (kafka-facts 5.4)."""
        if (producer_id == NO_PRODUCER_ID) != (producer_epoch == NO_EPOCH):
            raise Refusal(ErrorCode.INVALID_REQUEST)
        if transactional_id is None:
            identity = c.ProducerIdentity(self._producer_ids.take(), 0)
            future: Future[c.ProducerIdentity] = get_running_loop().create_future()
            future.set_result(identity)
            return future
        if not transactional_id:
            raise Refusal(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._config.max_timeout_ms:
            raise Refusal(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        expected = None if producer_id == NO_PRODUCER_ID else c.ProducerIdentity(producer_id, producer_epoch)
        command = c.InitProducerId(transactional_id, timeout_ms, expected, _shown(client_id))
        return self._submit(transactional_id, command)

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
        """Add partitions to the id's transaction (kafka-facts 5.5): NONE for each, or one Refusal for all.

        `wait_ms`: how long it may wait for a busy id, where the configured time is too long.
        """
        added = _partitions(partitions)
        command = c.AddPartitions(
            _checked(transactional_id), producer_id, producer_epoch, added, client_version, _shown(client_id)
        )
        return self._submit(command.transactional_id, command, wait_ms)

    def add_partitions_for_produce(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[tuple[str, int]]
    ) -> "Future[c.PartitionErrors]":
        """The implicit add of a TV2 producer: Produce v12 and later, TxnOffsetCommit v5 and later."""
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
        """NONE for partitions that are part of the transaction, TRANSACTION_ABORTABLE for the others."""
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
    ) -> "Future[c.ProducerIdentity]":
        """Commit or abort; the identity to go on with (of use from EndTxn v5 on, which is `client_version` 2)."""
        command = c.EndTransaction(_checked(transactional_id), producer_id, producer_epoch, commit, client_version)
        return self._submit(command.transactional_id, command)

    async def describe(self, transactional_id: str) -> Described:
        """One transaction. Raises Refusal (TRANSACTIONAL_ID_NOT_FOUND and what any request may meet)."""
        txn = await self._submit(_checked(transactional_id), c.Describe(transactional_id))
        return self._described(self._led_for(transactional_id), txn)

    async def list_transactions(self) -> list[Described]:
        """Every transaction coordinated here. Raises Refusal(COORDINATOR_LOAD_IN_PROGRESS) while any shard loads."""
        listed = await self._shards.submit_to_all(c.ListAll(), timeout_ms=self._config.request_timeout_ms)
        return [self._described(led, txn) for led, found in listed for txn in found]

    # ---- shards -----------------------------------------------------------------------------------------------------

    def _submit(self, transactional_id: str, command: c.Command, wait_ms: int | None = None) -> "Future[Any]":
        engine = self._led_for(transactional_id).engine
        return engine.submit(command, timeout_ms=self._config.request_timeout_ms, wait_ms=wait_ms)

    def _led_for(self, transactional_id: str) -> LedShard[TransactionShard]:
        return self._shards.find(self.partition_of(transactional_id))

    def _described(self, led: LedShard[TransactionShard], txn: Transaction) -> Described:
        outstanding = self._markers.outstanding(txn.transactional_id) if txn.state.is_prepared else None
        partitions = txn.partitions if outstanding is None else outstanding
        return Described(txn, dict(partitions), led.shard, led.leader_epoch)

    # ---- effects and markers ----------------------------------------------------------------------------------------

    def _on_lost(self, shard: int) -> None:
        self._markers.drop(shard)

    def _on_effect(self, led: LedShard[TransactionShard], effect: Effect) -> None:
        if isinstance(effect, c.SendMarkers):
            self._markers.start(led.shard, effect)
        else:
            assert isinstance(effect, c.Post), effect
            led.engine.post(effect.command)

    def _on_finished(self, finished: Finished) -> None:
        completion = finished.completion
        led = self._shards.get(completion.shard)
        if led is None or led.leader_epoch != completion.marker.coordinator_epoch:
            return
        if finished.result is CompletionResult.DONE:
            self._complete(completion)
            return
        marker = completion.marker
        _log.warning(
            "transaction markers given up",
            transactional_id=completion.transactional_id,
            producer_id=marker.producer_id,
            reason=finished.error.name,
        )
        if finished.result is CompletionResult.FATAL:
            self._on_failure(led.engine.name, AssertionError(f"a marker was answered {finished.error.name}"))
        led.core.give_up(completion.transactional_id, marker.producer_id, marker.producer_epoch)

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
        # A shard that was dropped sends all markers again when it is loaded. Anything else is tried again here: the
        # state must not stay Prepare* because a log could not take one record (KAFKA-5416).
        led = self._shards.get(completion.shard)
        if led is None or led.engine.state is not EngineState.ACTIVE:
            return
        get_running_loop().call_later(COMPLETE_RETRY_BACKOFF_S, self._complete, completion)


def _shown(client_id: str | None) -> str | None:
    return None if client_id is None else client_id[:CLIENT_ID_LENGTH_MAX]


def _checked(transactional_id: str | None) -> str:
    if not transactional_id:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    return transactional_id


def _partitions(partitions: Sequence[tuple[str, int]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, partition) for topic, partition in partitions)
