"""From the files of a directory to a log: what a clean stop left is trusted, the rest is checked batch by batch.

After an unclean stop every segment that reaches to or above the recovery point is read: sizes, CRC, offsets. The log ends
at the first batch that is not right, later segments go, and everything derived (indexes, aborted transactions, leader
epochs, producer state) is derived again from the batches that stay. Nothing in the files can make this raise or go on for
ever: every step either takes a batch or ends the walk. Only the disk itself may refuse (OSError).
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from odradek.protocol.batch import HEADER_BYTES, read_header, verify_crc
from odradek.protocol.errors import Malformed, Refusal
from odradek.storage.batches.scan import Scan
from odradek.storage.batches.validation import read_marker
from odradek.storage.files import checkpoint, names
from odradek.storage.files.leader_epochs import LeaderEpochs
from odradek.storage.producers.entry import EndMarker, Origin
from odradek.storage.producers.snapshot import SnapshotFiles
from odradek.storage.producers.state import AppendPlan, ProducerState
from odradek.storage.recovery import cuts
from odradek.storage.recovery.sweep import sweep
from odradek.storage.segment.index import (
    OFFSET_ENTRY_BYTES,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY_BYTES,
    CorruptIndex,
    TimeIndex,
    TxnIndex,
)
from odradek.storage.segment.segment import Segment, settle_aborted
from odradek.storage.segment.segments import Segments

if TYPE_CHECKING:
    from odradek.protocol.batch import BatchHeader
    from odradek.storage.config import LogConfig, OpenOptions
    from odradek.storage.disk.port import Disk

log = structlog.get_logger(__name__)


class Loader:
    """Opens one log; `load` leaves the parts in the attributes."""

    def __init__(self, disk: Disk, directory: str, config: LogConfig, options: OpenOptions) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._options = options
        self.log_start_offset = max(0, options.log_start_offset)
        self.log_end_offset = 0
        self.segments = Segments()
        self.epochs = LeaderEpochs()
        self.state = ProducerState()
        self.flushed_offset = 0
        self.recovered_bytes = 0
        self.gaps_noted = False

    def load(self) -> None:
        """Raises OSError, and nothing else: the disk refuses, or what was durable (`durable_end`) is not there any more."""
        self._disk.make_directory(self._directory)
        sweep(self._disk, self._directory)
        self.gaps_noted = self._disk.exists(f"{self._directory}/{names.GAPS_MARK}")
        self._open_segments()
        self.snapshots = SnapshotFiles(self._disk, self._directory)
        self.snapshots.remove_strays([segment.base_offset for segment in self.segments])
        epochs_intact = self._read_epochs()
        damaged = self._first_damaged()
        recovered_from = None if damaged is None else self.segments.at(damaged).base_offset
        if damaged is None:
            self._replay(self.log_end_offset, at_clean_start=self._options.clean)
        else:
            self._recover(damaged)
        self._refuse_loss("the log ends there")
        if self.log_end_offset < self.log_start_offset:
            self._start_over()
        self.log_start_offset = max(self.log_start_offset, self.segments.first.base_offset)
        self.flushed_offset = self.log_end_offset
        if not self._options.clean:
            self.flushed_offset = min(self._options.recovery_point, self.log_end_offset)
        if recovered_from is not None:
            self.flushed_offset = min(self.flushed_offset, recovered_from)
        if not epochs_intact and damaged != 0:
            self._derive_epochs()
        self.epochs.truncate_from_end(self.log_end_offset + 1)  # an epoch may begin at the end, before its first record
        self.epochs.truncate_from_start(self.log_start_offset)
        cuts.finish(self._disk, self._directory, self.segments.active)

    # -- what is there --------------------------------------------------------------------------------------------------

    def _open_segments(self) -> None:
        parsed = [names.parse_offset_file(name) for name in self._disk.list(self._directory)]
        bases = sorted(entry[0] for entry in parsed if entry is not None and entry[1] == names.LOG_SUFFIX)
        for base in bases:
            segment = Segment(self._disk, self._directory, base, created_ms=self._options.now_ms, create=False)
            self.segments.add(segment)
        if not bases:
            self._add_empty(self.log_start_offset)
        self.log_end_offset = self.segments.active.base_offset

    def _add_empty(self, base_offset: int) -> None:
        now_ms = self._options.now_ms
        self.segments.add(Segment(self._disk, self._directory, base_offset, created_ms=now_ms, create=True))

    def _read_epochs(self) -> bool:
        path = f"{self._directory}/{checkpoint.LEADER_EPOCHS}"
        if not self._disk.exists(path):
            return self.segments.active.size == 0 and len(self.segments) == 1
        try:
            self.epochs = LeaderEpochs(checkpoint.decode_leader_epochs(self._disk.read_file(path)))
        except checkpoint.CorruptCheckpoint as error:
            log.warning("leader epochs are damaged and derived again", path=path, reason=str(error))
            return False
        return True

    def _derive_epochs(self) -> None:
        self.epochs = LeaderEpochs()
        for segment in self.segments:
            for _, header, _ in Scan(segment.file, 0, segment.size):
                self._note_epoch(header)
        self.epochs.dirty = True

    def _note_epoch(self, header: BatchHeader) -> None:
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, header.base_offset)

    def _first_damaged(self) -> int | None:
        """Position in the list of the first segment that has to be recovered, None when all can be trusted."""
        must = None if self._options.clean else self.segments.number_for(self._options.recovery_point)
        last = len(self.segments) - 1
        for number, segment in enumerate(self.segments):
            if segment.offset_index is not None:
                break  # made just now
            if number == must:
                return number
            try:
                self._trust(segment, active=number == last)
            except CorruptIndex as error:
                log.warning("segment has to be recovered", path=segment.path(names.LOG_SUFFIX), reason=str(error))
                return number
        return None

    def _trust(self, segment: Segment, *, active: bool) -> None:
        """Take over the index files of a segment. Raises CorruptIndex where they cannot belong to the log file."""
        txn_path = segment.path(names.TXN_INDEX_SUFFIX)
        if self._disk.exists(txn_path):
            segment.txn_index = TxnIndex(segment.base_offset, self._disk.read_file(txn_path))
        # Of a sealed segment only the last entries are looked at: the rest is read when somebody looks for it.
        offsets = self._index_file(segment, names.OFFSET_INDEX_SUFFIX, OFFSET_ENTRY_BYTES, whole=active)
        times = self._index_file(segment, names.TIME_INDEX_SUFFIX, TIME_ENTRY_BYTES, whole=active)
        newest = TimeIndex(segment.base_offset, times[-TIME_ENTRY_BYTES:])
        segment.max_timestamp, segment.offset_of_max_timestamp = newest.last_timestamp, newest.last_offset
        if active:
            segment.load_indexes(offsets, times)
            self._trust_tail(segment)
        elif offsets and int.from_bytes(offsets[-4:], "big") >= segment.size:
            raise CorruptIndex("the offset index points behind the end of the log file")

    def _index_file(self, segment: Segment, suffix: str, entry_bytes: int, *, whole: bool) -> bytes:
        path = segment.path(suffix)
        if not self._disk.exists(path):
            raise CorruptIndex(f"{path} is missing")
        file = self._disk.open(path, create=False)
        try:
            if file.size % entry_bytes:
                raise CorruptIndex(f"{path} has {file.size} bytes, no whole number of entries")
            start = 0 if whole else max(0, file.size - entry_bytes)
            return bytes(file.read(start, file.size - start))
        finally:
            file.close()

    def _trust_tail(self, segment: Segment) -> None:
        """Find the end of the active segment from its last index entry on."""
        index = segment.offset_index
        assert index is not None
        scan = Scan(segment.file, index.last_position, segment.size)
        end_offset = segment.base_offset
        for _, header, _ in scan:
            if header.base_offset < end_offset:
                raise CorruptIndex(f"offset {header.base_offset} at byte {scan.position} is out of order")
            end_offset = header.last_offset + 1
        if scan.position != segment.size:
            raise CorruptIndex(f"byte {scan.position}: {scan.stopped}")
        self.log_end_offset = end_offset
        segment.bytes_since_index_entry = segment.size - index.last_position
        segment.first_batch_timestamp = first_timestamp(segment)

    # -- recovery ---------------------------------------------------------------------------------------------------------

    def _recover(self, first: int) -> None:
        start = self.segments.at(first).base_offset
        self._replay(start, at_clean_start=False)
        self.epochs.truncate_from_end(start)
        self.log_end_offset = start
        for segment in self.segments.from_offset(start):
            if segment.base_offset != self.log_end_offset and not self._gap_allowed(segment):
                self._refuse_loss(f"the next segment begins at {segment.base_offset}")
                self._drop_from(segment.base_offset)
                break
            self.state.end_offset = self.log_end_offset = segment.base_offset
            self._snapshot(segment.base_offset)
            if not self._recover_segment(segment):
                self._drop_from(segment.base_offset + 1)
                break
        self.state.end_offset = self.log_end_offset
        self._snapshot(self.log_end_offset)

    def _gap_allowed(self, segment: Segment) -> bool:
        """Between two segments, as between two batches, only the cleaner leaves a gap.

        Not in what was never flushed: there a power cut may have taken an older segment and left a newer one.
        """
        flushed = self._options.clean or segment.base_offset <= self._options.recovery_point
        return self._gaps and flushed and segment.base_offset > self.log_end_offset

    @property
    def _gaps(self) -> bool:
        return self.gaps_noted or self._config.compacted

    def _recover_segment(self, segment: Segment) -> bool:
        """Derive everything about the segment from its batches; False when it had to be cut."""
        segment.reset_indexes()
        scan = Scan(segment.file, 0, segment.size)
        for position, header, batch in scan:
            marker, wrong = self._examine(segment, header, batch)
            if wrong:
                scan.stopped = wrong
                break
            segment.note_batch(header, position, self._config.index_interval_bytes)
            self._note_epoch(header)
            if header.has_producer:
                self._apply(header, marker, segment)
            self.log_end_offset = header.last_offset + 1
        self.recovered_bytes += scan.position
        intact = scan.position == segment.size
        if not intact:
            self._refuse_loss(f"byte {scan.position} of {segment.path(names.LOG_SUFFIX)}: {scan.stopped}")
            log.warning(
                "log is cut at the first batch that is not right",
                path=segment.path(names.LOG_SUFFIX),
                byte=scan.position,
                offset=self.log_end_offset,
                dropped_bytes=segment.size - scan.position,
                reason=scan.stopped,
            )
            cuts.announce(self._disk, self._directory)
            segment.file.truncate(scan.position)
            segment.size = scan.position
        segment.seal()
        return intact

    def _examine(self, segment: Segment, header: BatchHeader, batch: memoryview) -> tuple[EndMarker | None, str]:
        """The batch's transaction marker, if it is one, and what is wrong with the batch ('' if nothing is).

        Offsets have gaps only where the cleaner has been; elsewhere a gap is a base offset gone bad, which the checksum
        does not cover.
        """
        expected = self.log_end_offset
        if header.base_offset < expected or (header.base_offset > expected and not self._gaps):
            return None, f"base offset {header.base_offset} instead of {expected}"
        if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return None, f"offset {header.last_offset} is too far from the segment's base offset"
        if not verify_crc(batch, 0, header):
            return None, "the checksum does not match"
        if not header.is_control:
            return None, ""
        try:
            return read_marker(batch, header), ""
        except Refusal as refusal:
            return None, refusal.message or "control record"

    def _refuse_loss(self, reason: str) -> None:
        """Before anything is cut: what was durable must not go."""
        if self.log_end_offset < self._options.durable_end:
            told = f"damaged at offset {self.log_end_offset} ({reason}), but {self._options.durable_end} were committed"
            raise OSError(errno.EIO, told, self._directory)

    def _drop_from(self, base_offset: int) -> None:
        for later in self.segments.remove_from(base_offset):
            log.warning("segment behind the cut is dropped", path=later.path(names.LOG_SUFFIX), bytes=later.size)
            self._remove(later)

    def _remove(self, segment: Segment) -> None:
        cuts.announce(self._disk, self._directory)
        for path in segment.rename_away():
            self._disk.remove(path)
        segment.close()
        if segment.base_offset in self.snapshots.offsets:
            self.snapshots.remove(segment.base_offset)

    def _start_over(self) -> None:
        """The log ends below the log start that was checkpointed: none of it is to be seen again."""
        log.warning(
            "log ends below its checkpointed start and begins anew",
            directory=self._directory,
            log_end_offset=self.log_end_offset,
            log_start_offset=self.log_start_offset,
        )
        for segment in self.segments.remove_from(-1):
            self._remove(segment)
        self.snapshots.remove_outside(0, 0)
        self._add_empty(self.log_start_offset)
        self.log_end_offset = self.log_start_offset
        self.state.clear(self.log_start_offset)
        self.epochs.clear()

    # -- producer state -----------------------------------------------------------------------------------------------------

    def _replay(self, end_offset: int, *, at_clean_start: bool) -> None:
        options = self._options
        replay_producers(
            self.state,
            self.snapshots,
            self.segments,
            self._config,
            Replay(self.log_start_offset, options.high_watermark, end_offset, at_clean_start, options.now_ms),
        )

    def _apply(self, header: BatchHeader, marker: EndMarker | None, segment: Segment) -> None:
        apply_batch(self.state, header, marker, segment, self._options.now_ms)

    def _snapshot(self, offset: int) -> None:
        if offset > 0:
            self.snapshots.take(self.state.producers.values(), offset)


@dataclass(frozen=True)
class Replay:
    """Up to where producer state is to be brought, and from where records count."""

    log_start_offset: int
    high_watermark: int
    end_offset: int
    at_clean_start: bool
    now_ms: int


def replay_producers(
    state: ProducerState, snapshots: SnapshotFiles, segments: Segments, config: LogConfig, replay: Replay
) -> None:
    """Bring `state` to what it is at `replay.end_offset`: a snapshot, then the batches behind it (kafka-facts 6.9).

    A snapshot does not say which transactions have ended only above the high watermark, and are unstable still. Kafka
    takes the newest one and forgets them, and who wrote below the log start; here it is the newest one not above the high
    watermark, or all from the first segment's base on. Where neither is to be had (the beginning is gone), it is as in Kafka.
    """
    first, end = segments.first.base_offset, replay.end_offset
    had_snapshot = bool(snapshots.offsets)
    snapshots.remove_outside(max(first - 1, 0), end)
    bases = [segment.base_offset for segment in segments if segment.base_offset < end]
    marks = [offset for offset in [*bases[-2:], end] if offset > replay.log_start_offset]
    state.clear(first)
    found = snapshots.load_newest(replay.high_watermark)
    if found is None and first > 0:
        found = snapshots.load_newest(end)
    if found is not None:
        state.load(found[1], found[0], now_ms=replay.now_ms, expiration_ms=config.producer_id_expiration_ms)
    elif replay.at_clean_start and not had_snapshot:
        # Files of a broker that kept no producer state, stopped cleanly: there is none to find in them.
        for offset in marks:
            snapshots.take((), offset)
        state.end_offset = end
        return
    for segment in segments.from_offset(state.end_offset):
        if max(segment.base_offset, state.end_offset) >= end:
            break
        if segment.base_offset in marks:
            snapshots.take(state.producers.values(), segment.base_offset)
        index = segment.offset_index
        position = 0 if index is None else index.position_for(state.end_offset)[0]
        for _, header, batch in Scan(segment.file, position, segment.size):
            if header.last_offset >= end:
                break
            if header.has_producer and header.last_offset >= state.end_offset:
                try:
                    marker = read_marker(batch, header) if header.is_control else None
                    apply_batch(state, header, marker, None, replay.now_ms)
                except Refusal as refusal:
                    log.warning("control batch is passed over", offset=header.base_offset, reason=refusal.message)
    state.end_offset = end
    if end in marks:
        snapshots.take(state.producers.values(), end)


def apply_batch(
    state: ProducerState, header: BatchHeader, marker: EndMarker | None, segment: Segment | None, now_ms: int
) -> None:
    """Keep the books of a batch that is in the log already; with `segment` its aborted transactions are indexed."""
    plan = AppendPlan(Origin.REPLICATION, now_ms)
    state.plan(plan, header, header.base_offset, marker=marker)
    state.commit(plan)
    for completed in plan.completed:
        if segment is not None:
            settle_aborted(segment, completed, state.stable_offset_after(completed))
        state.complete(completed)


def first_timestamp(segment: Segment) -> int | None:
    """Maximum timestamp of the segment's first batch, None when it has none."""
    try:
        return read_header(segment.file.read(0, HEADER_BYTES)).max_timestamp
    except Malformed:
        return None
