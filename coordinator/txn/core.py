"""Decide the commands of the transaction coordinator for one partition of `__transaction_state`. This module is pure.

The state is derived from the log. Three parts are in memory only and are lost when the coordinator changes: the fields
of `Transaction` that the record format lacks, the set of stopped completions, and the clients that have created ids.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from odradek.coordinator.append_errors import APPEND_ERRORS
from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn.add_partitions import decide_add, decide_verify
from odradek.coordinator.txn.changes import check_step
from odradek.coordinator.txn.end_txn import decide_complete, decide_end, decide_time_out, send_markers
from odradek.coordinator.txn.expiry import batches, decide_removal, is_expired
from odradek.coordinator.txn.id_shares import IdShares
from odradek.coordinator.txn.init_producer_id import decide_init, decide_recovery
from odradek.coordinator.txn.ports import FeatureLevels, TxnConfig
from odradek.coordinator.txn.records import decode_key, decode_value, tombstone
from odradek.coordinator.txn.state import ProducerIdentity, Transaction
from odradek.coordinator.txn.stats import TxnStats
from odradek.coordinator.txn.table import TransactionTable
from odradek.coordinator.unreadable import UnreadableRecords
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.txn_state import TxnState
from odradek.runtime.shard import Decision, Effect, Loaded, Marker, RetryAfter, ShardRecord, Timer

ABORTED_PER_TURN_MAX: Final = 100
"""Maximum timed-out transactions that one turn of the event loop aborts, per partition of `__transaction_state`. An
abort takes about 25 µs."""
EXPIRED_PER_TURN_MAX: Final = 250
"""Maximum transactional ids that one turn of the event loop expires, per partition of `__transaction_state`. An id
takes about 20 µs."""
SWEPT_PER_TURN_MAX: Final = 5_000
"""Maximum transactional ids that one turn of the event loop checks for time-out or expiration, per partition of
`__transaction_state`. An id takes up to 1 µs."""

_SWEEP_TIMED_OUT: Final = "sweep for timed-out transactions"
_SWEEP_EXPIRED: Final = "sweep for expired ids"


class TransactionShard:
    """Core of one partition of `__transaction_state`. It implements `odradek.runtime.shard.Shard`."""

    def __init__(
        self,
        config: TxnConfig,
        features: FeatureLevels,
        take_producer_id: Callable[[], int],
        stats: TxnStats | None = None,
    ) -> None:
        """Create a core without state.

        `take_producer_id` returns a new producer id, or raises Refusal(COORDINATOR_LOAD_IN_PROGRESS) if none is
        available.
        """
        self.shares = IdShares()
        """Clients that have created the ids."""
        self.transactions = TransactionTable(self.shares)
        self.skipped_records = 0
        """Number of log records with a version that this broker does not know."""
        self.unreadable = UnreadableRecords()
        self.leader_epoch = -1
        self._config = config
        self._features = features
        self._take_producer_id = take_producer_id
        self._stats = stats or TxnStats()
        self._offsets: dict[str, int] = {}
        self._committed = 0
        self._ongoing: dict[str, None] = {}
        self._tombstones: deque[tuple[int, str]] = deque()
        self._stopped_completions: dict[str, ProducerIdentity] = {}
        self._decisions: dict[type[Any], Callable[[Any, int], Decision[Any] | RetryAfter]] = {
            c.InitProducerId: lambda command, now_ms: decide_init(command, self._context(command, now_ms)),
            c.RecoverProducer: lambda command, now_ms: decide_recovery(command, self._context(command, now_ms)),
            c.AddPartitions: lambda command, now_ms: decide_add(command, self._context(command, now_ms)),
            c.VerifyPartitions: lambda command, now_ms: decide_verify(command, self._context(command, now_ms)),
            c.EndTransaction: lambda command, now_ms: decide_end(command, self._context(command, now_ms)),
            c.AbortTimedOut: lambda command, now_ms: decide_time_out(command, self._context(command, now_ms)),
            c.CompleteTransaction: lambda command, now_ms: decide_complete(command, self._context(command, now_ms)),
            c.ExpireIds: self._expire,
            c.ExpireId: lambda command, now_ms: decide_removal(command, self._context(command, now_ms)),
            c.SweepTimedOut: self._sweep_timed_out,
            c.SweepExpired: self._sweep_expired,
            c.Describe: self._describe,
            c.ListAll: self._list,
        }

    # ---- the contract of a shard ------------------------------------------------------------------------------------

    def decide(self, command: c.Command, now_ms: int) -> Decision[Any] | RetryAfter:
        """Decide one command without a change of state. Raise Refusal if it is refused."""
        if self.unreadable:
            self.unreadable.check(getattr(command, "transactional_id", None))
        decision = self._decisions[type(command)](command, now_ms)
        if isinstance(decision, Decision):
            for record in decision.records:
                after = record.memo
                if after is not None:
                    before = self.transactions.get(after.transactional_id)
                    if before is not None:
                        check_step(before, after)
        return decision

    def apply(self, offset: int, record: ShardRecord, leader_epoch: int) -> None:
        """Apply one record to the state. A record that cannot be decoded blocks its id."""
        txn: Transaction | None = record.memo
        if txn is None:
            txn = self._decoded(offset, record)
            if txn is None:
                return
        else:
            self._stats.decided(self.transactions.get(txn.transactional_id), txn)
        transactional_id = txn.transactional_id
        self.transactions[transactional_id] = txn
        self._offsets[transactional_id] = offset
        self._stopped_completions.pop(transactional_id, None)
        if txn.state is TxnState.ONGOING:
            self._ongoing[transactional_id] = None
        else:
            self._ongoing.pop(transactional_id, None)

    def _decoded(self, offset: int, record: ShardRecord) -> Transaction | None:
        """Decode a record of the log. None: it is a tombstone, has an unknown type, or is unreadable."""
        transactional_id = None
        try:
            transactional_id = decode_key(record.key)
            if transactional_id is None:
                self.unreadable.ignore(record.key)
                return None
            txn = None if record.value is None else decode_value(transactional_id, record.value)
        except Malformed as malformed:
            self._block(transactional_id, record.key, offset, malformed)
            return None
        if self.unreadable:
            self.unreadable.replaced(transactional_id, record.key)
        if record.value is None:
            self._mark_dead(transactional_id, offset)
        return txn

    def _block(self, transactional_id: str | None, key: bytes | None, offset: int, reason: Malformed) -> None:
        """Refuse commands for the id, and forget its earlier state: its transaction may be prepared to commit since."""
        self.unreadable.add(transactional_id, key, offset, reason)
        if transactional_id is not None and transactional_id in self.transactions:
            del self.transactions[transactional_id]
            self._offsets.pop(transactional_id, None)
            self._ongoing.pop(transactional_id, None)

    def apply_marker(self, offset: int, marker: Marker, leader_epoch: int) -> None:
        """Count the marker as skipped: no transaction includes `__transaction_state`."""
        self.skipped_records += 1

    def on_committed(self, high_watermark: int) -> None:
        """Remove the ids whose tombstone is committed."""
        self._committed = high_watermark
        while self._tombstones and self._tombstones[0][0] < high_watermark:
            offset, transactional_id = self._tombstones.popleft()
            if self._offsets.get(transactional_id) == offset:
                del self._offsets[transactional_id]
                del self.transactions[transactional_id]
                self.shares.release(transactional_id)

    def on_loaded(self, leader_epoch: int, now_ms: int) -> Loaded:
        """Return the sweep timers, and the markers of prepared transactions with the new coordinator epoch."""
        self.leader_epoch = leader_epoch
        effects = tuple(send_markers(txn, leader_epoch) for txn in self.transactions.values() if txn.state.is_prepared)
        return Loaded(timers=(self._next_timeout_sweep(), self._next_expiry_sweep()), effects=effects)

    def append_refusal(self, error: ErrorCode) -> ErrorCode:
        """Return the error for the client if the log refuses a batch with `error`."""
        return APPEND_ERRORS.get(error, error)

    # ---- state in memory only ---------------------------------------------------------------------------------------

    def stop_completion(self, transactional_id: str, producer_id: int, producer_epoch: int) -> None:
        """Note that a partition leader has refused a marker: a newer producer epoch or coordinator exists.

        The id stays prepared on this broker until its shard is loaded again. Requests use the Prepare rows of the
        table.
        """
        txn = self.transactions.get(transactional_id)
        identity = ProducerIdentity(producer_id, producer_epoch)
        if txn is not None and txn.state.is_prepared and txn.own_identity == identity:
            self._stopped_completions[transactional_id] = identity

    # ---- decisions over many ids ------------------------------------------------------------------------------------

    def _sweep_timed_out(self, command: c.SweepTimedOut, now_ms: int) -> Decision[None]:
        """Abort the timed-out transactions, at most ABORTED_PER_TURN_MAX in this turn of the event loop."""
        ids = tuple(self._ongoing) if command.ids is None else command.ids
        due, end = self._find(ids, command.position, ABORTED_PER_TURN_MAX, lambda txn: txn.timed_out(now_ms))
        effects: list[Effect] = [
            c.Post(c.AbortTimedOut(txn.transactional_id, txn.producer_id, txn.start_ms)) for txn in due
        ]
        if end < len(ids):
            effects.append(c.PostNextTurn(c.SweepTimedOut(ids, end)))
        return Decision(None, effects=tuple(effects), timers=(self._next_timeout_sweep(),))

    def _sweep_expired(self, command: c.SweepExpired, now_ms: int) -> Decision[None]:
        """Expire the ids that are due, at most EXPIRED_PER_TURN_MAX in this turn of the event loop."""
        ids = tuple(self.transactions) if command.ids is None else command.ids
        due, end = self._find(ids, command.position, EXPIRED_PER_TURN_MAX, lambda txn: self._may_expire(txn, now_ms))
        groups = batches((txn.transactional_id for txn in due), self._config.tombstone_batch_bytes_max)
        effects: list[Effect] = [c.Post(c.ExpireIds(group)) for group in groups]
        if end < len(ids):
            effects.append(c.PostNextTurn(c.SweepExpired(ids, end)))
        return Decision(None, effects=tuple(effects), timers=(self._next_expiry_sweep(),))

    def _find(
        self, ids: tuple[str, ...], position: int, found_max: int, is_due: Callable[[Transaction], bool]
    ) -> tuple[list[Transaction], int]:
        """Check the next SWEPT_PER_TURN_MAX of `ids`, from `position` on, until `found_max` transactions are due.

        Return those transactions, and the position of the first id that was not checked.
        """
        found: list[Transaction] = []
        end = min(position + SWEPT_PER_TURN_MAX, len(ids))
        for checked in range(position, end):
            txn = self.transactions.get(ids[checked])
            if txn is not None and is_due(txn):
                found.append(txn)
                if len(found) == found_max:
                    return found, checked + 1
        return found, end

    def _expire(self, command: c.ExpireIds, now_ms: int) -> Decision[int]:
        """Write tombstones for the expired ids. Each id is checked again: it may have been used since the sweep."""
        ids = tuple(
            transactional_id
            for transactional_id in command.transactional_ids
            if (txn := self.transactions.get(transactional_id)) is not None and self._may_expire(txn, now_ms)
        )
        return Decision(len(ids), records=tuple(tombstone(transactional_id) for transactional_id in ids), keys=ids)

    def _may_expire(self, txn: Transaction, now_ms: int) -> bool:
        if self._is_uncommitted(txn.transactional_id):
            return False
        return is_expired(txn, now_ms, self._config.id_expiration_ms)

    def _describe(self, command: c.Describe, now_ms: int) -> Decision[Transaction]:
        txn = self.transactions.get(command.transactional_id)
        if txn is None or txn.state is TxnState.DEAD:
            raise Refusal(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return Decision(txn)

    def _list(self, command: c.ListAll, now_ms: int) -> Decision[tuple[Transaction, ...]]:
        return Decision(tuple(txn for txn in self.transactions.values() if txn.state is not TxnState.DEAD))

    # ---- helpers ----------------------------------------------------------------------------------------------------

    def _context(self, command: Any, now_ms: int) -> c.DecisionContext:
        transactional_id: str = command.transactional_id
        txn = self.transactions.get(transactional_id)
        completing = txn is not None and txn.state.is_prepared and transactional_id not in self._stopped_completions
        return c.DecisionContext(
            txn,
            self._is_uncommitted(transactional_id),
            completing,
            now_ms,
            self.leader_epoch,
            self._features.transaction_version(),
            self._config,
            self._take_producer_id,
            self.transactions,
            self.shares,
        )

    def _is_uncommitted(self, transactional_id: str) -> bool:
        return self._offsets.get(transactional_id, -1) >= self._committed

    def _mark_dead(self, transactional_id: str, offset: int) -> None:
        """Set the state Dead until the tombstone is committed. Until then, requests wait and get no new producer id."""
        txn = self.transactions.get(transactional_id)
        if txn is None:
            return
        self.transactions[transactional_id] = Transaction(
            transactional_id=transactional_id,
            producer_id=txn.producer_id,
            producer_epoch=txn.producer_epoch,
            timeout_ms=txn.timeout_ms,
            state=TxnState.DEAD,
            update_ms=txn.update_ms,
        )
        self._offsets[transactional_id] = offset
        self._ongoing.pop(transactional_id, None)
        self._tombstones.append((offset, transactional_id))

    def _next_timeout_sweep(self) -> Timer:
        interval_ms = self._config.abort_timed_out_interval_ms
        return Timer(_SWEEP_TIMED_OUT, command=c.SweepTimedOut(), delay_ms=interval_ms)

    def _next_expiry_sweep(self) -> Timer:
        interval_ms = self._config.remove_expired_interval_ms
        return Timer(_SWEEP_EXPIRED, command=c.SweepExpired(), delay_ms=interval_ms)
