"""Keep the state of all producers of one partition (Kafka's `ProducerStateManager`). This module is pure.

An append calls `plan`, writes the bytes to the log, then calls `commit`. A plan that is not committed changes nothing.

Two maps determine the last stable offset. `_ongoing` (first offset -> producer id) holds transactions without a marker.
`_unreplicated` (first offset -> marker offset) holds transactions whose marker is not below the high watermark. They
stay unstable, so the last stable offset never exceeds the high watermark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from odradek.client_shares import ClientShares
from odradek.frozen import frozen_dataclass
from odradek.invariants.invariant import CHECKS
from odradek.invariants.storage import (
    COMPLETED_TRANSACTION_ORDER,
    OPEN_TRANSACTION_ORDER,
    PRODUCER_EPOCH,
    PRODUCER_SEQUENCE,
)
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.producers.entry import (
    CachedBatch,
    CompletedTransaction,
    EndMarker,
    Origin,
    ProducerEntry,
    ProducerUpdate,
    Verification,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.client_shares import Client
    from odradek.protocol.batch import BatchHeader

NO_GUARD = 0
"""Verification guard that verifies no append."""
VERIFICATIONS_MAX = 100_000
"""Maximum Produce requests per partition that wait for a verification by the transaction coordinator."""
PRODUCERS_MAX = 100_000
"""Maximum producers per partition, without those of open transactions. Followers keep up to twice as many.

Kafka has no limit.
"""
EVICTION_IDLE_MS_MIN = 900_000
"""Minimum idle time of a producer before eviction, in ms.

It is three times the delivery time-out of librdkafka, which is the longest of the known clients.
"""
FOLLOWER_FACTOR = 2
"""Maximum producers per partition on a follower, as a multiple of PRODUCERS_MAX.

A follower can have more producers than its leader: it expires and evicts them at other times.
"""
EXAMINED_MAX = 1_000
"""Maximum producers checked per search for one to evict. It bounds the time of an append."""


@frozen_dataclass(frozen=True, slots=True)
class ActiveProducer:
    """Producer in the form of DescribeProducers. -1 means none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
    seen_ms: int
    client: Client | None


@dataclass(slots=True)
class AppendPlan:
    """Changes of producer state by one append. They are applied after its bytes are in the log."""

    origin: Origin
    monotonic_ms: int = 0
    client: Client | None = None
    """Client of a Produce request; None for other appends, and if the client is not known."""
    updates: dict[int, ProducerUpdate] = field(default_factory=dict)
    completed: list[CompletedTransaction] = field(default_factory=list)
    verified: list[tuple[int, int, bool]] = field(default_factory=list)  # producer id, epoch, is a marker


class ProducerState:
    """State of all producers of one partition: sequences, epochs, open transactions, first unstable offset."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        """Producer id -> entry, longest idle first."""
        self.shares = ClientShares()
        """Number of producers that each client has added."""
        self.client_characters = 0
        """Characters of the client ids and addresses of all producers. A client counts for each of its producers."""
        self.end_offset = 0
        """All batches below this offset have been applied."""
        self._verifications: dict[int, Verification] = {}
        self._last_guard = NO_GUARD
        self._ongoing: dict[int, int] = {}
        self._unreplicated: dict[int, int] = {}

    # ---- one append -------------------------------------------------------------------------------------------------

    def duplicate_of(self, batch: BatchHeader) -> CachedBatch | None:
        """Return the cached batch that `batch` duplicates: same producer, epoch, first and last sequence."""
        entry = self.entries.get(batch.producer_id)
        if entry is None:
            return None
        return entry.duplicate_of(batch.producer_epoch, batch.base_sequence, batch.last_sequence)

    def touch(self, producer_id: int, monotonic_ms: int) -> None:
        """Note that the producer has sent a duplicate, so it is not idle."""
        entry = self.entries.pop(producer_id)
        entry.seen_ms = monotonic_ms
        self.entries[producer_id] = entry

    def plan(
        self,
        plan: AppendPlan,
        batch: BatchHeader,
        first_offset: int,
        *,
        marker: EndMarker | None,
        guard: int = NO_GUARD,
        transaction_version: int = -1,
        verification_enabled: bool = False,
    ) -> None:
        """Check a batch with a producer id, and add its effect to `plan`.

        `first_offset` is the first offset that the batch will have; its header may not have it yet. `marker` is the
        content of a transaction marker, None for other batches.

        Raises:
            Refusal: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE, NOT_ENOUGH_REPLICAS (no
                capacity for one more producer) or TRANSACTION_COORDINATOR_FENCED. Origin.REPLICATION is never refused.
        """
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        transactional = batch.is_transactional
        if transactional and (plan.origin is Origin.CLIENT or plan.origin is Origin.COORDINATOR):
            self._check_transaction(batch, guard, verification_enabled=verification_enabled)
        update = plan.updates.pop(producer_id, None)
        if update is None:
            known = self.entries.get(producer_id)
            if known is None and plan.origin is Origin.CLIENT:
                self._check_capacity(plan)
            update = ProducerUpdate(producer_id, known, plan.origin, self._verifications.get(producer_id))
        plan.updates[producer_id] = update  # moved to the end: `commit` keeps `entries` in the order of last activity
        completed = None
        if marker is not None:
            completed = update.marker(marker, epoch=epoch, offset=first_offset, transaction_version=transaction_version)
        elif not batch.is_control:
            update.data_batch(
                epoch=epoch,
                first_sequence=batch.base_sequence,
                last_sequence=batch.last_sequence,
                first_offset=first_offset,
                last_offset=first_offset + batch.last_offset_delta,
                timestamp=batch.max_timestamp,
                transactional=transactional,
            )
        elif batch.record_count == 0:
            completed = update.empty_marker(epoch=epoch, offset=first_offset, timestamp=batch.max_timestamp)
        if completed is not None:
            plan.completed.append(completed)
        if transactional:
            plan.verified.append((producer_id, epoch, marker is not None))

    def _check_transaction(self, batch: BatchHeader, guard: int, *, verification_enabled: bool) -> None:
        """Refuse a transactional batch unless a transaction of its epoch is open or was verified (KIP-890)."""
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        entry = self.entries.get(producer_id)
        if entry is not None:
            if entry.transaction_first_offset is not None and entry.epoch == epoch:
                return
            if epoch < entry.epoch:
                # The epoch is checked before the guard (KAFKA-19690). The time-out of a transaction removes its guard,
                # too. A producer can recover from this error, but not from INVALID_TXN_STATE.
                raise Refusal(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"epoch {epoch} of producer {producer_id} is stale; its last epoch is {entry.epoch}",
                )
        if verification_enabled and not batch.is_control and not self._verifies(producer_id, guard):
            raise Refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction of producer {producer_id} was not verified with its transaction coordinator",
            )

    def commit(self, plan: AppendPlan) -> None:
        """Apply a plan after its bytes are in the log.

        The caller then passes each completed transaction to `complete`, in their order.
        """
        if not plan.updates:
            return
        opened: list[tuple[int, int]] = []
        for producer_id, update in plan.updates.items():
            opened += [(first_offset, producer_id) for first_offset in update.opened_offsets]
            entry = self.entries.pop(producer_id, None)
            if entry is None:
                if not self._has_capacity(plan) and not self._evict_for(update):
                    continue
                entry = ProducerEntry(producer_id)
                if plan.client is not None:
                    entry.client = self.shares.add(plan.client)
                    self.client_characters += _characters_of(plan.client)
            if update.entry.epoch < entry.epoch and plan.origin is not Origin.REPLICATION:
                raise PRODUCER_EPOCH.violated(producer_id=producer_id, epoch=entry.epoch, update=update.entry.epoch)
            if CHECKS.expensive and plan.origin is Origin.CLIENT and not update.entry.follows(entry):
                raise PRODUCER_SEQUENCE.violated(last=entry, added=update.entry)
            entry.merge(update.entry)
            entry.seen_ms = plan.monotonic_ms
            self.entries[producer_id] = entry  # moved to the end: it is the last active one
        # A follower appends many batches in one call. `updates` has producers in the order of their last batch, but
        # `_ongoing` must have transactions in the order of their first offset.
        if opened:
            opened.sort()
            last_open = next(reversed(self._ongoing), -1)
            if opened[0][0] <= last_open:
                raise OPEN_TRANSACTION_ORDER.violated(opened=opened[0], last_open=last_open)
            self._ongoing.update(opened)
        for producer_id, epoch, is_marker in plan.verified:
            self._forget_verification(producer_id, epoch, is_marker=is_marker)

    # ---- capacity ---------------------------------------------------------------------------------------------------
    # An evicted producer has no state: its next batch is accepted, even if it is a duplicate. So only a producer that
    # was idle for EVICTION_IDLE_MS_MIN is evicted: no duplicate arrives later. Without one, a new producer is refused.
    # A client that exceeds its share of the capacity (`odradek.client_shares`) finds a full table, too.

    def _has_capacity(self, plan: AppendPlan) -> bool:
        if plan.origin is Origin.REPLICATION:
            return len(self.entries) < PRODUCERS_MAX * FOLLOWER_FACTOR
        free = PRODUCERS_MAX - len(self.entries)
        return free > 0 and (plan.client is None or self.shares.allows(plan.client, free))

    def _check_capacity(self, plan: AppendPlan) -> None:
        if self._has_capacity(plan):
            return
        oldest = self._longest_idle()
        if oldest is None or plan.monotonic_ms - oldest.seen_ms < EVICTION_IDLE_MS_MIN:
            # Every client handles this error of Produce by sending the same request again after a delay.
            raise Refusal(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"the partition accepts no new producer of this client: {len(self.entries)} producers were active"
                f" within the last {EVICTION_IDLE_MS_MIN // 60_000} minutes; use fewer producers or more partitions",
            )

    def _evict_for(self, update: ProducerUpdate) -> bool:
        """Evict a producer to make capacity for `update`.

        Return False if `update` needs no entry: it has only a marker.

        A follower evicts in the same order as the leader, but later.
        """
        if not update.entry.batches and update.entry.transaction_first_offset is None:
            return False
        oldest = self._longest_idle()
        if oldest is not None:
            self._remove(oldest.producer_id)
        return True

    def _remove(self, producer_id: int) -> None:
        entry = self.entries.pop(producer_id)
        if entry.client is not None:
            self.shares.remove(entry.client)
            self.client_characters -= _characters_of(entry.client)

    def _longest_idle(self) -> ProducerEntry | None:
        """Return the longest idle producer without an open transaction; None if the search finds none."""
        entries = list(islice(self.entries.values(), EXAMINED_MAX))
        for entry in entries:
            if entry.transaction_first_offset is None:
                return entry
        # Move the checked producers to the end, so that the next search starts after them. Each moves there anyway when
        # its transaction ends.
        for entry in entries:
            self.entries[entry.producer_id] = self.entries.pop(entry.producer_id)
        return None

    def stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset just after the marker of the transaction.

        It is the first offset of the earliest other transaction that was open then, else the offset after the marker.
        """
        after_marker = completed.marker_offset + 1
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                # A follower appends many batches in one call, so the other transaction may begin after the marker. With
                # its first offset in the index entry, a search would miss aborted transactions between the two.
                return min(first_offset, after_marker)
        return after_marker

    def complete(self, completed: CompletedTransaction) -> None:
        """End a transaction after its marker is in the log.

        It is unstable until the high watermark passes the marker.
        """
        last_marker = next(reversed(self._unreplicated.values()), completed.first_offset)
        if completed.marker_offset <= max(last_marker, completed.first_offset):
            raise COMPLETED_TRANSACTION_ORDER.violated(completed=completed, last_marker=last_marker)
        self._ongoing.pop(completed.first_offset, None)
        self._unreplicated[completed.first_offset] = completed.marker_offset

    # ---- last stable offset -----------------------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open, or whose marker is not committed; None without one."""
        ongoing = next(iter(self._ongoing), None)
        if not self._unreplicated:
            return ongoing
        unreplicated = min(self._unreplicated)
        return unreplicated if ongoing is None else min(ongoing, unreplicated)

    def inconsistent_transactions(self) -> dict[str, object]:
        """Return the values that contradict FIRST_UNSTABLE_OFFSET, or an empty dict if it holds.

        The check examines all producers.
        """
        opened = {
            entry.transaction_first_offset: entry.producer_id
            for entry in self.entries.values()
            if entry.transaction_first_offset is not None
        }
        unstable = self.first_unstable_offset
        missing = {
            first: producer_id for first, producer_id in self._ongoing.items() if opened.get(first) != producer_id
        }
        if missing or (opened and (unstable is None or min(opened) < unstable)):
            return {"first_unstable_offset": unstable, "open": opened, "listed_without_producer": missing}
        return {}

    def high_watermark_moved(self, high_watermark: int) -> bool:
        """Remove the transactions whose marker is committed. Return True if there was one."""
        done = []
        for first_offset, marker_offset in self._unreplicated.items():  # in the order of their markers
            if marker_offset >= high_watermark:
                break
            done.append(first_offset)
        for first_offset in done:
            del self._unreplicated[first_offset]
        return bool(done)

    # ---- descriptions -----------------------------------------------------------------------------------------------

    def active(self, producer_ids: Iterable[int] | None = None) -> list[ActiveProducer]:
        """Return all producers, or those of `producer_ids` that are known, for DescribeProducers."""
        entries = self.entries
        return [
            ActiveProducer(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                -1 if entry.transaction_first_offset is None else entry.transaction_first_offset,
                entry.seen_ms,
                entry.client,
            )
            for entry in (entries.values() if producer_ids is None else filter(None, map(entries.get, producer_ids)))
        ]

    def ongoing_transactions(self) -> list[tuple[int, int, int]]:
        """Return (producer id, first offset, last timestamp) of all open transactions, by first offset."""
        return [
            (producer_id, first_offset, self.entries[producer_id].last_timestamp)
            for first_offset, producer_id in self._ongoing.items()
        ]

    # ---- verification (KIP-890 part 1) ------------------------------------------------------------------------------

    def start_verification(self, producer_id: int, epoch: int, sequence: int, *, supports_epoch_bump: bool) -> int:
        """Begin the verification of a transaction, and return the guard for the append after it (KIP-890).

        Return NO_GUARD if the transaction is open in this partition: it needs no verification.

        Raises:
            Refusal: INVALID_PRODUCER_EPOCH. This check saves a request to the transaction coordinator.
        """
        entry = self.entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise Refusal(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {producer_id} is stale; its last epoch is {entry.epoch}",
            )
        if self.has_ongoing_transaction(producer_id, epoch):
            return NO_GUARD
        verification = self._verifications.get(producer_id)
        if verification is None:
            if len(self._verifications) >= VERIFICATIONS_MAX:
                del self._verifications[next(iter(self._verifications))]
            self._last_guard += 1
            verification = Verification(self._last_guard, sequence, epoch, supports_epoch_bump)
            self._verifications[producer_id] = verification
        else:
            verification.note_attempt(sequence, epoch)
        return verification.guard

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return True if the producer has an open transaction of that epoch."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset is not None and entry.epoch == epoch

    def verification_guard(self, producer_id: int) -> int:
        """Return the guard of the verification under way; NO_GUARD if there is none."""
        verification = self._verifications.get(producer_id)
        return NO_GUARD if verification is None else verification.guard

    def _verifies(self, producer_id: int, guard: int) -> bool:
        return guard != NO_GUARD and guard == self.verification_guard(producer_id)

    def _forget_verification(self, producer_id: int, epoch: int, *, is_marker: bool) -> None:
        verification = self._verifications.get(producer_id)
        if verification is None:
            return
        # KAFKA-18654: a TV2 marker has the epoch of the next transaction, whose first append may be under verification.
        # The marker of transaction n must not remove the guard of transaction n + 1.
        if is_marker and verification.supports_epoch_bump and verification.epoch == epoch:
            return
        del self._verifications[producer_id]

    # ---- expiry, snapshots, truncation ------------------------------------------------------------------------------

    def expire(self, monotonic_ms: int, expiration_ms: int) -> int:
        """Remove expired producers and verifications. Return the number of producers removed."""
        expired = [pid for pid, entry in self.entries.items() if entry.expired(monotonic_ms, expiration_ms)]
        for producer_id in expired:
            self._remove(producer_id)
        for producer_id, verification in list(self._verifications.items()):
            if verification.seen_ms is None:
                verification.seen_ms = monotonic_ms
            elif monotonic_ms - verification.seen_ms >= expiration_ms:
                del self._verifications[producer_id]
        return len(expired)

    def remove_unused(self, unused: Iterable[tuple[int, int, int]]) -> int:
        """Remove producers by (producer id, epoch, last sequence). Return the number of producers removed.

        A producer stays if it has an open transaction, or another epoch or sequence: it was used meanwhile.
        """
        before = len(self.entries)
        for producer_id, epoch, last_sequence in unused:
            entry = self.entries.get(producer_id)
            if (
                entry is not None
                and entry.transaction_first_offset is None
                and (entry.epoch, entry.last_sequence) == (epoch, last_sequence)
            ):
                self._remove(producer_id)
        return before - len(self.entries)

    def clear(self, end_offset: int) -> None:
        """Remove all producers and set `end_offset`. Verifications under way stay."""
        self.entries.clear()
        self.shares.clear()
        self.client_characters = 0
        self._ongoing.clear()
        self._unreplicated.clear()
        self.end_offset = end_offset

    def load(self, entries: Iterable[ProducerEntry], end_offset: int, *, monotonic_ms: int) -> None:
        """Replace the state by the entries of a snapshot at `end_offset`.

        Their idle time begins at `monotonic_ms`: a snapshot has no time of the last contact with a producer.
        """
        self.clear(end_offset)
        for entry in entries:
            entry.seen_ms = monotonic_ms
            self.entries[entry.producer_id] = entry
        opened = [
            (entry.transaction_first_offset, entry.producer_id)
            for entry in self.entries.values()
            if entry.transaction_first_offset is not None
        ]
        self._ongoing.update(sorted(opened))

    def log_start_moved(self, log_start_offset: int) -> None:
        """Advance `end_offset` and the committed markers to the new log start offset."""
        self.high_watermark_moved(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)


def _characters_of(client: Client) -> int:
    return len(client.client_id) + len(client.address)
