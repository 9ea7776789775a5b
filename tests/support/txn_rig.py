"""The transaction core on a fake log: commands in, what became of them out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn.core import TransactionShard
from odradek.coordinator.txn.ports import TopicPartition, TxnConfig
from odradek.coordinator.txn.records import decode_key, decode_value, to_record
from odradek.coordinator.txn.state import ProducerIdentity, Transaction
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.txn_state import TxnState
from odradek.runtime.engine import Engine
from odradek.runtime.shard import Decision, EngineLimits, RetryAfter
from tests.support.fake_shard_log import FakeClock, FakeShardLog
from tests.support.pure_decisions import PureDecisions, PureShard

if TYPE_CHECKING:
    from collections.abc import Sequence

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
ID = "my-txn"
PID = 1000
NOW_MS = 1_700_000_000_000
FRESH_PID = 5000


class Level:
    """FeatureLevels with one level, which tests change."""

    def __init__(self, level: int = 2) -> None:
        self.level = level

    def transaction_version(self) -> int:
        return self.level


class Ids:
    """Fresh producer ids from `first` on; `empty` makes the pool run dry."""

    def __init__(self, first: int = FRESH_PID) -> None:
        self.next = first
        self.empty = False

    def take(self) -> int:
        if self.empty:
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self.next += 1
        return self.next - 1


def transaction(
    state: TxnState = TxnState.EMPTY, *, epoch: int = 5, partitions: Sequence[TopicPartition] | None = None, **more: Any
) -> Transaction:
    """A plausible transaction of ID in `state`."""
    busy = state in {TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT}
    values: dict[str, Any] = {
        "transactional_id": ID,
        "producer_id": PID,
        "prev_producer_id": PID,
        "timeout_ms": 60_000,
        "partitions": dict.fromkeys((T0,) if busy and partitions is None else partitions or ()),
        "start_ms": -1 if state is TxnState.EMPTY else NOW_MS - 1_000,
        "update_ms": NOW_MS - 500,
    }
    return Transaction(state=state, producer_epoch=epoch, **(values | more))


class CoreRig:
    """A transaction core without an engine. Its records are committed immediately unless `lag`."""

    def __init__(self, stored: Transaction | None = None, *, level: int = 2, config: TxnConfig | None = None) -> None:
        self.level = Level(level)
        self.ids = Ids()
        self.config = config or TxnConfig()
        self.core = TransactionShard(self.config, self.level, self.ids.take)
        self.pure = PureDecisions()
        self.now_ms = NOW_MS
        self.offset = 0
        self.lag = False
        self.log: list[Any] = []
        self.core.on_loaded(7, NOW_MS)
        if stored is not None:
            self.store(stored)

    def store(self, txn: Transaction) -> None:
        self._apply(to_record(txn, self.level.level))
        self.commit()

    def commit(self) -> None:
        self.core.on_committed(self.offset)

    def do(self, command: c.Command) -> Any:
        """Return the reply, the name of the error, or "RETRY". Before RETRY the core may have written records."""
        try:
            decision = self.pure.decide(self.core, command, self.now_ms)
        except Refusal as refusal:
            return refusal.error.name
        if isinstance(decision, RetryAfter):
            return "RETRY"
        self.take(decision)
        return "RETRY" if isinstance(decision.reply, RetryAfter) else decision.reply

    def take(self, decision: Decision[Any]) -> None:
        for change in decision.soft:
            change()
        for record in decision.records:
            self._apply(record)
        self.effects = decision.effects
        if not self.lag:
            self.commit()

    def _apply(self, record: Any) -> None:
        self.log.append(record)
        self.core.apply(self.offset, record, 7)
        self.offset += 1

    @property
    def txn(self) -> Transaction:
        return self.core.transactions[ID]

    def replayed(self) -> TransactionShard:
        """Return a core that has replayed the same log, without memos."""
        core = TransactionShard(self.config, self.level, self.ids.take)
        for offset, record in enumerate(self.log):
            core.apply(offset, replace(record, memo=None), 7)
        core.on_committed(self.offset)
        return core


class EngineRig:
    """The core in an engine on a log whose high watermark may lag."""

    def __init__(
        self, log: FakeShardLog | None = None, *, lag: bool = False, level: int = 2, wait_ms: int = 50
    ) -> None:
        self.log = log or FakeShardLog(lag=lag)
        self.level = Level(level)
        self.ids = Ids()
        self.clock = FakeClock(NOW_MS)
        self.effects: list[Any] = []
        self.failures: list[BaseException] = []
        self.core = TransactionShard(TxnConfig(), self.level, self.ids.take)
        self.engine: Engine[c.Command, Any] = Engine(
            PureShard(self.core),
            self.log,
            clock=self.clock,
            on_effect=self._on_effect,
            on_failure=lambda _name, failure: self.failures.append(failure),
            name="__transaction_state-0",
            limits=EngineLimits(wait_ms_max=wait_ms),
        )

    def _on_effect(self, effect: Any) -> None:
        if isinstance(effect, c.Post):
            self.engine.post(effect.command)
        elif isinstance(effect, c.PostNextTurn):
            asyncio.get_running_loop().call_soon(self.engine.post, effect.command)
        else:
            self.effects.append(effect)

    async def loaded(self) -> EngineRig:
        await self.engine.load(self.log.leader_epoch)
        return self

    def submit(self, command: c.Command, timeout_ms: int = 60_000) -> asyncio.Future[Any]:
        return self.engine.submit(command, timeout_ms=timeout_ms)

    def begin(self, *partitions: TopicPartition) -> tuple[int, int]:
        """Begin a TV2 transaction of a new producer with `partitions`. Return its producer id and epoch."""
        producer_id, epoch = self.submit(c.InitProducerId(ID, 60_000)).result()
        self.submit(c.AddPartitions(ID, producer_id, epoch, partitions, 2)).result()
        return producer_id, epoch

    def complete(self) -> None:
        """Write all markers of all prepared transactions."""
        for effect in self.effects:
            marker = effect.marker
            self.engine.post(c.CompleteTransaction(effect.transactional_id, marker.producer_id, marker.producer_epoch))
        self.effects.clear()


def shown(outcome: Any) -> str:
    """Return an error name, the producer id and epoch of a reply, or NONE."""
    if isinstance(outcome, ProducerIdentity):
        return f"{outcome.producer_id}/{outcome.producer_epoch}"
    return "NONE" if outcome is None else str(outcome)


def read_back(record: Any) -> Transaction | None:
    """Return the transaction in the bytes of a record. Return None for a tombstone."""
    transactional_id = decode_key(record.key)
    assert transactional_id is not None
    return None if record.value is None else decode_value(transactional_id, record.value)
