"""Model of a partition from its batches: which records are committed, aborted or open, and the last stable offset.

Batches are added one at a time in log order. The same model serves the watchers of running brokers and the final
checks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.sim.checkers.batches import COMMIT, Batch, read_batches

PLAIN, OPEN, COMMITTED, ABORTED = "plain", "open", "committed", "aborted"
SEQUENCES: Final = 1 << 31


@dataclass(slots=True)
class Slot:
    """One data record of the log."""

    offset: int
    value: bytes
    producer_id: int
    producer_epoch: int
    sequence: int
    status: str
    key: bytes | None = None
    tombstone: bool = False


@dataclass(slots=True)
class Marker:
    """One end-of-transaction marker.

    `first_offset` is the first offset of its transaction, or None if none was open.
    """

    offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    first_offset: int | None
    values: tuple[bytes, ...]
    transaction_epoch: int | None


@dataclass(slots=True)
class Producer:
    """State of one producer id after a replay of the log."""

    epoch: int
    last_sequence: int = -1
    coordinator_epoch: int = -1
    open_since: int | None = None
    open_epoch: int = -1
    last_marker_epoch: int = -1
    open_slots: list[Slot] = field(default_factory=list)


class PartitionModel:
    """State of one partition after the added batches. `anomalies` lists violations of the order of a log (I13)."""

    def __init__(self) -> None:
        self.end = 0
        self.slots: dict[int, Slot] = {}
        self.markers: list[Marker] = []
        self.producers: dict[int, Producer] = {}
        self.anomalies: list[str] = []
        self.late_markers: list[str] = []
        """As `anomalies`, of markers that end no transaction. A leader whose table of producers is full writes them."""
        self.late_starts: dict[int, int] = {}
        self.timestamps: list[tuple[int, int, int]] = []
        self.batches = 0

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> "PartitionModel":
        model = cls()
        for batch in batches:
            model.add(batch)
        return model

    @classmethod
    def read(cls, segments: Iterable[bytes]) -> "PartitionModel":
        return cls.of(batch for segment in segments for batch in read_batches(segment))

    @property
    def stable_end(self) -> int:
        """Last stable offset, if the high watermark is at the log end."""
        open_since = [producer.open_since for producer in self.producers.values() if producer.open_since is not None]
        return min(open_since, default=self.end)

    def add(self, batch: Batch) -> None:
        if self.batches and batch.base_offset != self.end:
            self.anomalies.append(f"offset {batch.base_offset} follows {self.end - 1}")
        self.batches += 1
        self.end = batch.last_offset + 1
        self.timestamps.append((batch.base_offset, batch.last_offset, batch.max_timestamp))
        if batch.is_control:
            if batch.producer_id >= 0:
                self._add_marker(batch)
        else:
            self._add_data(batch)

    def _add_data(self, batch: Batch) -> None:
        status = OPEN if batch.is_transactional else PLAIN
        new = []
        for index, (value, (key, content)) in enumerate(zip(batch.values, batch.records, strict=True)):
            sequence = (batch.base_sequence + index) % SEQUENCES if batch.base_sequence >= 0 else -1
            slot = Slot(
                batch.base_offset + index,
                value,
                batch.producer_id,
                batch.producer_epoch,
                sequence,
                status,
                key,
                content is None,
            )
            self.slots[slot.offset] = slot
            new.append(slot)
        if batch.producer_id < 0:
            return
        producer = self.producers.get(batch.producer_id)
        if producer is None:
            producer = self.producers[batch.producer_id] = Producer(batch.producer_epoch)
            # A broker accepts any first sequence of an unknown producer, except under TV2. `check_grammar` knows the
            # protocol of the transaction and compares.
            expected = batch.base_sequence
            if batch.base_sequence != 0:
                self.late_starts[batch.base_offset] = batch.base_sequence
        elif producer.epoch != batch.producer_epoch:
            expected = 0
        else:
            expected = (producer.last_sequence + 1) % SEQUENCES
        where = f"offset {batch.base_offset}: producer {batch.producer_id}"
        if batch.base_sequence != expected:
            self.anomalies.append(
                f"{where} epoch {batch.producer_epoch} writes sequence {batch.base_sequence}, not {expected}"
            )
        if batch.producer_epoch < producer.epoch:
            self.anomalies.append(f"{where} epoch {batch.producer_epoch} after epoch {producer.epoch}")
        if producer.open_since is not None and (
            not batch.is_transactional or batch.producer_epoch != producer.open_epoch
        ):
            self.anomalies.append(
                f"{where} epoch {batch.producer_epoch} inside the transaction of epoch {producer.open_epoch}"
            )
        producer.epoch, producer.last_sequence = batch.producer_epoch, batch.last_sequence
        if batch.is_transactional:
            if producer.open_since is None:
                producer.open_since, producer.open_epoch = batch.base_offset, batch.producer_epoch
            producer.open_slots.extend(new)

    def _add_marker(self, batch: Batch) -> None:
        commit = batch.control_type == COMMIT
        producer = self.producers.setdefault(batch.producer_id, Producer(batch.producer_epoch))
        where = f"offset {batch.base_offset}: marker of producer {batch.producer_id}"
        anomalies = self.late_markers if producer.open_since is None else self.anomalies
        if batch.producer_epoch < producer.epoch:
            anomalies.append(f"{where} has epoch {batch.producer_epoch} after {producer.epoch}")
        if batch.coordinator_epoch < producer.coordinator_epoch:
            anomalies.append(
                f"{where} has coordinator epoch {batch.coordinator_epoch} after {producer.coordinator_epoch}"
            )
        for slot in producer.open_slots:
            slot.status = COMMITTED if commit else ABORTED
        self.markers.append(
            Marker(
                batch.base_offset,
                batch.producer_id,
                batch.producer_epoch,
                batch.coordinator_epoch,
                commit,
                producer.open_since,
                tuple(slot.value for slot in producer.open_slots),
                producer.open_epoch if producer.open_since is not None else None,
            )
        )
        if batch.producer_epoch != producer.epoch:
            producer.last_sequence = -1
        producer.epoch, producer.coordinator_epoch = batch.producer_epoch, batch.coordinator_epoch
        producer.open_since, producer.open_slots, producer.last_marker_epoch = None, [], batch.producer_epoch

    def offset_for_time(self, timestamp: int) -> int:
        """Return the offset of the first record at or after the timestamp, or -1.

        All records of a simulated batch share one timestamp.
        """
        return next((first for first, _, written in self.timestamps if written >= timestamp), -1)

    def timestamp_at(self, offset: int) -> int:
        return next((written for first, last, written in self.timestamps if first <= offset <= last), -1)

    def visible(self) -> list[Slot]:
        """Return the records that a read_committed consumer receives, in offset order."""
        return [slot for slot in self.slots.values() if slot.status in {PLAIN, COMMITTED}]

    def aborted_index(self) -> list[tuple[int, int, int]]:
        """Return (producer id, first offset, marker offset) of each non-empty aborted transaction, in marker order."""
        return [
            (marker.producer_id, marker.first_offset, marker.offset)
            for marker in self.markers
            if not marker.commit and marker.first_offset is not None
        ]


def consumer_view(
    data: bytes, aborted: Iterable[tuple[int, int]], *, fetch_offset: int, committed: bool
) -> tuple[list[tuple[int, bytes]], int]:
    """Return the (offset, value) pairs that a consumer takes from a Fetch response, and its next fetch offset."""
    pending = sorted(aborted, key=lambda transaction: transaction[1])
    skipped: dict[int, None] = {}
    records = []
    position = fetch_offset
    for batch in read_batches(data):
        if committed and batch.producer_id >= 0:
            while pending and pending[0][1] <= batch.last_offset:
                skipped[pending.pop(0)[0]] = None
        position = max(position, batch.last_offset + 1)
        if batch.is_control:
            if batch.producer_id >= 0 and batch.records and batch.control_type != COMMIT:
                skipped.pop(batch.producer_id, None)
            continue
        if committed and batch.is_transactional and batch.producer_id in skipped:
            continue
        rows = zip(batch.offsets, batch.values, strict=True)
        records += [(offset, value) for offset, value in rows if offset >= fetch_offset]
    return records, position
