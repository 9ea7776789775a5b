"""All producers of one partition: duplicates, sequences, epochs, open transactions, first unstable offset. Pure.

An append goes `plan` -> bytes into the log -> `commit`: a plan that is thrown away has changed nothing.

Two maps answer for the last stable offset. `_ongoing` (first offset -> producer id) holds transactions without a marker.
`_undecided` (first offset -> marker offset) holds those whose marker the high watermark has not passed yet: they stay
unstable, so that the last stable offset never runs ahead of what is committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

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

    from odradek.protocol.batch import BatchHeader

NO_GUARD = 0  # never verifies
VERIFICATIONS_MAX = 100_000  # requests of one partition that wait for the coordinator's word
PRODUCERS_MAX = 100_000  # of one partition; beyond, who has been idle longest makes room. Kafka has no limit
IDLE_MS_MIN = (
    900_000  # nobody who was heard of since makes room: three times the delivery time-out of librdkafka, the longest
)
FOLLOWED = 2  # times PRODUCERS_MAX are kept by a follower: it hears no repetitions, and expires at moments of its own
EXAMINED_MAX = 1_000  # producers that are looked at for one that may go


@dataclass(slots=True)
class AppendPlan:
    """What an append will change, once its bytes are in the log."""

    origin: Origin
    now_ms: int = 0
    updates: dict[int, ProducerUpdate] = field(default_factory=dict)
    completed: list[CompletedTransaction] = field(default_factory=list)
    verified: list[tuple[int, int, bool]] = field(default_factory=list)  # producer id, epoch, is a marker


class ProducerState:
    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.end_offset = 0  # everything below has been applied
        self._verifications: dict[int, Verification] = {}
        self._last_guard = NO_GUARD
        self._ongoing: dict[int, int] = {}
        self._undecided: dict[int, int] = {}

    # -- one append -------------------------------------------------------------------------------------------------

    def duplicate_of(self, batch: BatchHeader) -> CachedBatch | None:
        """The cached batch that `batch` repeats: same producer, epoch, first and last sequence."""
        entry = self.producers.get(batch.producer_id)
        if entry is None:
            return None
        return entry.duplicate_of(batch.producer_epoch, batch.base_sequence, batch.last_sequence)

    def heard_of(self, producer_id: int, now_ms: int) -> None:
        """A repetition: nothing has changed, but it is not silent."""
        entry = self.producers.pop(producer_id)
        entry.seen_ms = now_ms
        self.producers[producer_id] = entry

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
        """Check a batch that has a producer id and add its effect to `plan`.

        `first_offset` is where it will lie, whatever its header says by now; `marker` is the content of a control batch.

        Raises:
            Refusal: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE, NOT_ENOUGH_REPLICAS (no room for one
                more producer), TRANSACTION_COORDINATOR_FENCED; never for Origin.REPLICATION.
        """
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        transactional = batch.is_transactional
        if transactional and (plan.origin is Origin.CLIENT or plan.origin is Origin.COORDINATOR):
            self._check_transaction(batch, guard, verification_enabled=verification_enabled)
        update = plan.updates.pop(producer_id, None)
        if update is None:
            known = self.producers.get(producer_id)
            if known is None and plan.origin is Origin.CLIENT:
                self._check_room(plan.now_ms)
            update = ProducerUpdate(producer_id, known, plan.origin, self._verifications.get(producer_id))
        plan.updates[producer_id] = update  # the last: merged in the order in which they were heard of last
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
            completed = update.emptied_marker(epoch=epoch, offset=first_offset, timestamp=batch.max_timestamp)
        if completed is not None:
            plan.completed.append(completed)
        if transactional:
            plan.verified.append((producer_id, epoch, marker is not None))

    def _check_transaction(self, batch: BatchHeader, guard: int, *, verification_enabled: bool) -> None:
        """A transactional batch needs an open transaction of its epoch, or the coordinator's word (KIP-890)."""
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        entry = self.producers.get(producer_id)
        if entry is not None:
            if entry.transaction_first_offset is not None and entry.epoch == epoch:
                return
            if epoch < entry.epoch:
                # Before the guard: after a transaction was aborted by time-out its guard is gone too, and the producer can
                # recover from this error but not from INVALID_TXN_STATE (KAFKA-19690).
                raise Refusal(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"epoch {epoch} of producer {producer_id} is below the current one, {entry.epoch}",
                )
        if verification_enabled and not batch.is_control and not self._verifies(producer_id, guard):
            raise Refusal(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} writes to a transaction that its coordinator has not confirmed",
            )

    def commit(self, plan: AppendPlan) -> None:
        """The bytes are in the log: merge the plan. Completed transactions are settled one by one by `complete`."""
        if not plan.updates:
            return
        started: list[tuple[int, int]] = []
        for producer_id, update in plan.updates.items():
            started += [(first_offset, producer_id) for first_offset in update.started_at]
            entry = self.producers.pop(producer_id, None)
            if entry is None:
                most = PRODUCERS_MAX * (FOLLOWED if plan.origin is Origin.REPLICATION else 1)
                if len(self.producers) >= most and not self._take_place(update):
                    continue
                entry = ProducerEntry(producer_id)
            entry.merge(update.entry)
            entry.seen_ms = plan.now_ms
            self.producers[producer_id] = entry  # the last: who is first has been silent longest
        # A follower appends many batches at once: producers come in the order of their first batch, transactions must not.
        self._ongoing.update(sorted(started))
        for producer_id, epoch, is_marker in plan.verified:
            self._forget_verification(producer_id, epoch, is_marker=is_marker)

    # -- room for one more ----------------------------------------------------------------------------------------------
    # Who is forgotten is like one that was never heard of: its next batch is taken as it is, were it a repetition. So only
    # those make room of whom no repetition can be on its way any more, and where there are none a new producer has to wait.

    def _check_room(self, now_ms: int) -> None:
        if len(self.producers) < PRODUCERS_MAX:
            return
        oldest = self._oldest()
        if oldest is None or now_ms - oldest.seen_ms < IDLE_MS_MIN:
            # Of all errors of Produce the one that every client takes for "the same again in a while".
            raise Refusal(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.producers)} producers have written here within {IDLE_MS_MIN // 60_000} minutes: no room for another",
            )

    def _take_place(self, update: ProducerUpdate) -> bool:
        """Room for what has been appended; False when it is a marker that leaves nothing but an epoch.

        Followers forget in the same order, and later.
        """
        if not update.entry.batches and update.entry.transaction_first_offset is None:
            return False
        oldest = self._oldest()
        if oldest is not None:
            del self.producers[oldest.producer_id]
        return True

    def _oldest(self) -> ProducerEntry | None:
        """Who has been silent longest and has no transaction open."""
        entries = list(islice(self.producers.values(), EXAMINED_MAX))
        for entry in entries:
            if entry.transaction_first_offset is None:
                return entry
        # All of these come last as soon as their transactions end. Until then they are in nobody's way there either: in front they
        # would hide for ever who may go, and whoever asks next looks behind them.
        for entry in entries:
            self.producers[entry.producer_id] = self.producers.pop(entry.producer_id)
        return None

    def stable_offset_after(self, completed: CompletedTransaction) -> int:
        """The last stable offset just after this transaction: the first other one that was open then, else past its marker."""
        behind = completed.marker_offset + 1
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                # A follower appends many batches at once: it may have begun behind the marker. Told of that offset, a search for
                # aborted transactions would end here, in front of those that come between.
                return min(first_offset, behind)
        return behind

    def complete(self, completed: CompletedTransaction) -> None:
        self._ongoing.pop(completed.first_offset, None)
        self._undecided[completed.first_offset] = completed.marker_offset

    # -- last stable offset -----------------------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open or not yet decided below the high watermark."""
        ongoing = next(iter(self._ongoing), None)
        if not self._undecided:
            return ongoing
        undecided = min(self._undecided)
        return undecided if ongoing is None else min(ongoing, undecided)

    def high_watermark_moved(self, high_watermark: int) -> bool:
        """Let go of transactions whose marker is committed; whether there were any."""
        done = []
        for first_offset, marker_offset in self._undecided.items():  # in the order of their markers
            if marker_offset >= high_watermark:
                break
            done.append(first_offset)
        for first_offset in done:
            del self._undecided[first_offset]
        return bool(done)

    def ongoing_transactions(self) -> list[tuple[int, int]]:
        """(producer id, first offset), ordered by first offset."""
        return [(producer_id, first_offset) for first_offset, producer_id in self._ongoing.items()]

    # -- verification (KIP-890 part 1) --------------------------------------------------------------------------------

    def start_verification(self, producer_id: int, epoch: int, sequence: int, *, supports_epoch_bump: bool) -> int:
        """The guard that the append after verification must show; NO_GUARD when the transaction is already open here.

        Raises:
            Refusal: INVALID_PRODUCER_EPOCH, at once instead of after asking the coordinator.
        """
        entry = self.producers.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise Refusal(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {producer_id} is below the current one, {entry.epoch}",
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
        entry = self.producers.get(producer_id)
        return entry is not None and entry.transaction_first_offset is not None and entry.epoch == epoch

    def verification_guard(self, producer_id: int) -> int:
        verification = self._verifications.get(producer_id)
        return NO_GUARD if verification is None else verification.guard

    def _verifies(self, producer_id: int, guard: int) -> bool:
        return guard != NO_GUARD and guard == self.verification_guard(producer_id)

    def _forget_verification(self, producer_id: int, epoch: int, *, is_marker: bool) -> None:
        verification = self._verifications.get(producer_id)
        if verification is None:
            return
        # A TV2 marker carries the epoch of the *next* transaction, whose first append may be under verification already
        # (KAFKA-18654): the marker of transaction n must not take away the guard of n + 1.
        if is_marker and verification.supports_epoch_bump and verification.epoch == epoch:
            return
        del self._verifications[producer_id]

    # -- expiry, snapshots, truncation ----------------------------------------------------------------------------------

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget idle producers and abandoned verifications; how many producers went."""
        expired = [pid for pid, entry in self.producers.items() if entry.expired(now_ms, expiration_ms)]
        for producer_id in expired:
            del self.producers[producer_id]
        for producer_id, verification in list(self._verifications.items()):
            if verification.seen_ms is None:
                verification.seen_ms = now_ms
            elif now_ms - verification.seen_ms >= expiration_ms:
                del self._verifications[producer_id]
        return len(expired)

    def clear(self, end_offset: int) -> None:
        """Know nothing, as of `end_offset`; verifications under way stay."""
        self.producers.clear()
        self._ongoing.clear()
        self._undecided.clear()
        self.end_offset = end_offset

    def load(self, entries: Iterable[ProducerEntry], end_offset: int, *, now_ms: int, expiration_ms: int) -> None:
        """Start from a snapshot, without those that have expired meanwhile."""
        self.clear(end_offset)
        for entry in entries:
            if not entry.expired(now_ms, expiration_ms):
                entry.seen_ms = now_ms
                self.producers[entry.producer_id] = entry
        opened = [
            (entry.transaction_first_offset, entry.producer_id)
            for entry in self.producers.values()
            if entry.transaction_first_offset is not None
        ]
        self._ongoing.update(sorted(opened))

    def log_start_moved(self, log_start_offset: int) -> None:
        self.high_watermark_moved(log_start_offset)
        self.end_offset = max(self.end_offset, log_start_offset)
