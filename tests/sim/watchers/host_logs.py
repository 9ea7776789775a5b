"""Logs of one host from its files: followed write by write, and read again after a crash."""

import re
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from odradek.simulation.environment.medium import Directory, Inode, Medium
from tests.sim.checkers.batches import Batch, Identity, Unreadable, read_batches
from tests.sim.checkers.compaction import Cleaned
from tests.sim.checkers.replica_log import Placed, ReplicaLog
from tests.sim.history import Partition
from tests.sim.world import COMPACTED, METADATA

LOG_PATH: Final = re.compile(r"^(?P<root>.*)/(?P<topic>[^/]+)-(?P<index>\d+)/(?P<base>\d{20})\.log$")
ABORTED_ENDING: Final = ".txnindex"
ABORTED_ENTRY: Final = struct.Struct(">hqqqq")
"""Version, producer id, first offset, offset of the marker, last stable offset after the marker."""
SWAP_ENDING: Final = ".log.swap"
CLEANED_ENDING: Final = ".cleaned"
DIRECTORY_PATH: Final = re.compile(r"^(?P<root>.*)/(?P<topic>[^/]+)-(?P<index>\d+)$")

Known = dict[Partition, dict[Identity, Batch]]
OnBatch = Callable[["HostLogs", Partition, Batch, int, bool], None]
"""Called with (host, partition, batch, base offset of its segment, True if no host wrote the batch before)."""


class OnReloaded(Protocol):
    """Called for each compacted log that was read again; `swapping` is True if a segment swap was in progress."""

    def __call__(self, host: "HostLogs", partition: Partition, *, swapping: bool) -> None: ...


OnTaken = Callable[["HostLogs", Partition, Placed, Batch | None], None]
"""Called with (host, partition, batch, the part that compaction leaves of it)."""


class HostLogs:
    """Logs of one host, which follow the operations on its disk.

    All hosts share `known`: a batch is parsed once, and the first host that writes it is its partition's leader.
    """

    def __init__(
        self,
        number: int,
        medium: Medium,
        root: str,
        watched: Callable[[str], bool],
        known: Known,
        on_batch: OnBatch,
        violations: list[str],
    ) -> None:
        self.number = number
        self.medium = medium
        self.logs: dict[Partition, ReplicaLog] = {}
        self.durable: dict[Partition, int] = {}
        """End of the part of the metadata log that is on stable storage."""
        self.truncated: Callable[[HostLogs, Partition, int], None] | None = None
        self.metadata_synced: Callable[[], None] | None = None
        self.taken: OnTaken | None = None
        self.swapped: Callable[[HostLogs, Partition], None] = lambda *_: None
        self.reloaded: OnReloaded | None = None
        self.gap_fetched: Callable[[], None] = lambda: None
        self.cleaned: dict[Partition, Cleaned] = {}
        """Batches removed by compaction on any host; shared like `known`."""
        self._removed: dict[Partition, ReplicaLog] = {}
        self._root = root
        self._watched = watched
        self._known = known
        self._on_batch = on_batch
        self._violations = violations

    def log(self, partition: Partition) -> ReplicaLog:
        placed = self.logs.get(partition)
        if placed is None:
            placed = self.logs[partition] = ReplicaLog()
        return placed

    def last_log(self, partition: Partition) -> ReplicaLog:
        """Return the log, or the last state of a log that was just removed: late responses may still refer to it."""
        return self.logs.get(partition) or self._removed.get(partition) or self.log(partition)

    # ---- disk.DiskWatcher -------------------------------------------------------------------------------------------

    def on_write(self, path: str, offset: int, data: bytes) -> None:
        if path.endswith(ABORTED_ENDING):
            self._check_aborted_index(path, data)
            return
        match = LOG_PATH.match(path)
        if match is None or match["root"] != self._root or not self._watched(match["topic"]):
            return
        partition, base = (match["topic"], int(match["index"])), int(match["base"])
        known = self._known.setdefault(partition, {})
        log = self.log(partition)
        if log.placed and log.placed[-1].segment == base and offset < log.placed[-1].file_end:
            self._truncate(partition, log, base, offset)
        try:
            for batch in read_batches(data, known=known):
                self._fill_gap(partition, log, batch, base, offset)
                if log.placed and batch.base_offset != log.end:
                    self._violations.append(
                        f"I13 {path} of broker {self.number}: offset {batch.base_offset} follows {log.end - 1}"
                    )
                offset += batch.size
                original = self._cleaned(partition).original(batch)
                log.add(original, base, offset, batch)
                is_new = original.identity not in known
                known[original.identity] = original
                self._on_batch(self, partition, original, base, is_new)
        except Unreadable as error:
            self._violations.append(f"{path}: {len(data)} bytes were written at {offset} that are no batches: {error}")

    def _check_aborted_index(self, path: str, data: bytes) -> None:
        """I5: check entries of the aborted-transaction index.

        A reader stops at an entry whose last stable offset is above its range. So that offset must not be above the
        marker of the entry.
        """
        for _, producer_id, first, marker, stable in ABORTED_ENTRY.iter_unpack(data):
            if not first < marker or stable > marker + 1:
                self._violations.append(
                    f"I5 {path} of broker {self.number}: producer {producer_id} from {first}, ended at {marker}, "
                    f"stable up to {stable}"
                )

    def _cleaned(self, partition: Partition) -> Cleaned:
        return self.cleaned.setdefault(partition, Cleaned())

    def _fill_gap(self, partition: Partition, log: ReplicaLog, batch: Batch, segment: int, file_end: int) -> None:
        """Add batches that compaction removed on the leader before this follower fetched: it counts as holding them."""
        if partition[0] not in COMPACTED or batch.base_offset == log.end:
            return
        if batch.base_offset < log.end:
            log.drop_removed(batch.base_offset)
        missing = self._cleaned(partition).between(log.end, batch.base_offset)
        if missing:
            self.gap_fetched()
        for batch_placed in missing or ():
            log.add(batch_placed, segment, file_end, None)
            self._on_batch(self, partition, batch_placed, segment, False)

    def on_truncate(self, path: str, size: int) -> None:
        match = LOG_PATH.match(path)
        if match is not None and (match["topic"], int(match["index"])) in self.logs:
            partition = (match["topic"], int(match["index"]))
            self._truncate(partition, self.logs[partition], int(match["base"]), size)

    def on_removed(self, path: str) -> None:
        match = LOG_PATH.match(path)
        if match is not None:
            partition = (match["topic"], int(match["index"]))
            if not self._retired(partition, int(match["base"])):
                self.on_truncate(path, -1)
                self._adjust_log_end(partition)
            return
        directory = DIRECTORY_PATH.match(path)
        if directory is not None and directory["root"] == self._root:
            partition = (directory["topic"], int(directory["index"]))
            if partition in self.logs:
                self._removed[partition] = self.logs.pop(partition)

    # ---- compaction -------------------------------------------------------------------------------------------------

    def on_renamed(self, old: str, new: str) -> None:
        """Handle the steps of a segment swap.

        `.cleaned` to `.swap`: the result of compaction is complete. `.swap` to `.log`: it is part of the log.
        """
        match = LOG_PATH.match(new.removesuffix(".swap"))
        if match is None or match["root"] != self._root or match["topic"] not in COMPACTED:
            return
        partition, base = (match["topic"], int(match["index"])), int(match["base"])
        if new.endswith(SWAP_ENDING):
            # A start-up that finds the `.swap` file replaces all segments that begin below its end.
            left = self._read(new)
            reaches = left[-1].last_offset + 1 if left else base + 1
            bases = [other for other in self._segments(partition)[0] if other >= reaches]
            self._report_taken(partition, base, min(bases, default=self.log(partition).end), left)
        elif old.endswith(SWAP_ENDING):
            self._swapped_in(partition, base, self._read(new))

    def _read(self, path: str) -> list[Batch]:
        return list(read_batches(self.medium.contents(path)))

    def _report_taken(self, partition: Partition, first: int, end: int, left: list[Batch]) -> None:
        """Report that compaction leaves `left` of the batches from offset `first` to `end` (excluded)."""
        by_base = {batch.base_offset: batch for batch in left}
        for batch_placed in self.log(partition).within(first, end):
            now = by_base.get(batch_placed.batch.base_offset)
            before = None if batch_placed.held is None else batch_placed.held.identity
            if self.taken is not None and before != (None if now is None else now.identity):
                self.taken(self, partition, batch_placed, now)

    def _retired(self, partition: Partition, base: int) -> bool:
        """Return True if a removed segment was replaced by a segment whose swap is in progress."""
        bases, swaps, _ = self._segments(partition)
        candidates = [swap for swap in swaps if swap <= base]
        if partition not in self.logs or not candidates or not bases or max(bases) < base:
            return False
        left = self._read(f"{self._directory(partition)}/{max(candidates):020}{SWAP_ENDING}")
        end = min((other for other in bases if other > base), default=base)
        self._report_taken(partition, base, end, left)
        return True

    def _swapped_in(self, partition: Partition, base: int, left: list[Batch]) -> None:
        log = self.log(partition)
        bases, _, _ = self._segments(partition)
        end = min((other for other in bases if other > base), default=log.end)
        self._report_taken(partition, base, end, left)
        by_base = {batch.base_offset: batch for batch in left}
        file_end = 0
        for batch_placed in log.within(base, end):
            batch_placed.held = by_base.get(batch_placed.batch.base_offset)
            file_end += 0 if batch_placed.held is None else batch_placed.held.size
            batch_placed.segment, batch_placed.file_end = base, file_end
        self.swapped(self, partition)

    def _directory(self, partition: Partition) -> str:
        return f"{self._root}/{partition[0]}-{partition[1]}"

    def _segments(self, partition: Partition) -> tuple[list[int], list[int], list[int]]:
        """Return the base offsets of `.log` files, of `.swap` files, and of incomplete `.cleaned` files."""
        entry = self.medium.entry(self._directory(partition))
        names = sorted(entry.live) if isinstance(entry, Directory) else []
        endings = (".log", SWAP_ENDING, CLEANED_ENDING)
        logs, swaps, cleaned = (
            [int(name.partition(".")[0]) for name in names if name.endswith(ending)] for ending in endings
        )
        return logs, swaps, cleaned

    def on_synced(self, path: str, size: int) -> None:
        match = LOG_PATH.match(path)
        if match is None or match["topic"] != METADATA:
            return
        partition = (match["topic"], int(match["index"]))
        ends = [
            batch_placed.batch.last_offset + 1
            for batch_placed in self.log(partition).placed
            if batch_placed.segment < int(match["base"])
            or (batch_placed.segment == int(match["base"]) and batch_placed.file_end <= size)
        ]
        self.durable[partition] = max(ends, default=0)
        if self.metadata_synced is not None:
            self.metadata_synced()

    def _truncate(self, partition: Partition, log: ReplicaLog, base: int, size: int) -> None:
        lost = log.truncate(base, size)
        if partition[0] in COMPACTED:
            log.drop_removed(0, self._segments(partition)[0])
        if lost:
            self.durable[partition] = min(self.durable.get(partition, 0), log.end)
            if self.truncated is not None:
                self.truncated(self, partition, lost)

    def _adjust_log_end(self, partition: Partition) -> None:
        """Set the log end after the removal of empty segments at the end, which a power cut may have left."""
        log = self.logs.get(partition)
        directory = self.medium.entry(f"{self._root}/{partition[0]}-{partition[1]}")
        if log is None or not isinstance(directory, Directory):
            return
        ends = [int(name.removesuffix(".log")) for name in directory.live if name.endswith(".log")]
        if log.placed:
            ends.append(log.placed[-1].batch.last_offset + 1)
        log.end = min(log.end, max(ends, default=log.end))

    # ---- after a crash ----------------------------------------------------------------------------------------------

    def reload(self, medium: Medium) -> None:
        """Read all logs again from the files that a crash left."""
        self.medium = medium
        before, self.logs = self.logs, {}
        root = medium.entry(self._root)
        names = sorted(root.live) if isinstance(root, Directory) else []
        for name in names:
            match = DIRECTORY_PATH.match(f"/{name}")
            if match is None or not self._watched(match["topic"]):
                continue
            partition = (match["topic"], int(match["index"]))
            placed, end = self.survivors(partition, before.get(partition))
            log = self.logs[partition] = ReplicaLog()
            known = self._known.get(partition, {})
            for batch_placed in placed:
                log.add(
                    known.get(batch_placed.batch.identity, batch_placed.batch),
                    batch_placed.segment,
                    batch_placed.file_end,
                    batch_placed.held,
                )
            if not placed or end > log.end:
                log.end = end
            if partition in before:
                log.end_ever = max(log.end_ever, before[partition].end_ever)
            self.durable[partition] = log.end
            if self.reloaded is not None and partition[0] in COMPACTED:
                self.reloaded(self, partition, swapping=bool(self._segments(partition)[1]))

    def survivors(self, partition: Partition, before: ReplicaLog | None = None) -> tuple[list[Placed], int]:
        """Return the batches of the longest valid prefix, each with its position, and the log end offset.

        The log begins at the base offset of its first segment, even if a power cut has emptied that segment. Gaps are
        valid only in compacted topics, and only for batches that compaction removed here: `before` is the log before
        the crash (the log until now, if omitted). Behind any other gap before an empty segment, no batch counts: a
        power cut emptied the segments between. Until recovery removes the segments, the log seems to continue at the
        last base offset.
        """
        placed: list[Placed] = []
        files = self._files(partition)
        end = files[0][0] if files else 0
        gaps = partition[0] in COMPACTED
        is_removed = _removal_check(before or self.logs.get(partition), files)
        for base, path in files:
            size = 0
            data = self.medium.contents(path)
            next_offset = end
            try:
                for batch in read_batches(data, check_crc=True):
                    missing = self._cleaned(partition).between(next_offset, batch.base_offset)
                    if missing is None or not all(is_removed(batch_placed) for batch_placed in missing):
                        return placed, end
                    placed += [Placed(batch_placed, base, size, None) for batch_placed in missing]
                    size += batch.size
                    placed.append(Placed(self._cleaned(partition).original(batch), base, size, batch))
                    next_offset = end = batch.last_offset + 1
            except Unreadable:
                return placed, end
            if size < len(data):
                return placed, end
            if gaps and not data and end < base:
                missing = self._cleaned(partition).between(end, base)
                if missing is None or not all(is_removed(batch_placed) for batch_placed in missing):
                    return placed, files[-1][0]
                placed += [Placed(batch_placed, base, 0, None) for batch_placed in missing]
                end = base
        return placed, end

    def _files(self, partition: Partition) -> list[tuple[int, str]]:
        """Return base offset and path of each segment.

        A complete `.swap` file stands for the segments that it replaces.
        """
        bases, swaps, cleaned = self._segments(partition)
        directory = self._directory(partition)
        paths = {base: f"{directory}/{base:020}.log" for base in bases}
        for swap in swaps:
            if any(base <= swap for base in cleaned):
                continue
            path = f"{directory}/{swap:020}{SWAP_ENDING}"
            end = max((batch.last_offset + 1 for batch in self._read(path)), default=swap)
            paths = {base: batch_placed for base, batch_placed in paths.items() if not swap <= base < end}
            paths[swap] = path
        return sorted(paths.items())

    def batches(self, partition: Partition) -> list[Batch]:
        """Return the original batches of the files, which are read again."""
        return [batch_placed.batch for batch_placed in self.survivors(partition)[0]]

    def durable_end(self, partition: Partition) -> int:
        """Return the log end that would be left after a power cut."""
        directory = self.medium.directory(self._directory(partition))
        for name in sorted((name for name in directory.durable if name.endswith(".log")), reverse=True):
            inode = directory.durable[name]
            end = 0
            if isinstance(inode, Inode):
                with suppress(Unreadable):
                    for batch in read_batches(bytes(inode.durable), known=self._known.get(partition)):
                        end = batch.last_offset + 1
            if end:
                return end
        return 0


def _removal_check(log: ReplicaLog | None, files: list[tuple[int, str]]) -> Callable[[Batch], bool]:
    """Return a function: True if compaction removed a batch on this disk, or was replacing its segment."""
    swapped = [
        (base, files[number][0] if number < len(files) else base + 1)
        for number, (base, path) in enumerate(files, 1)
        if path.endswith(SWAP_ENDING)
    ]
    known = (
        None
        if log is None
        else {batch_placed.batch.base_offset: None for batch_placed in log.placed if batch_placed.held is None}
    )

    def is_removed(batch: Batch) -> bool:
        offset = batch.base_offset
        return known is None or offset in known or any(first <= offset < end for first, end in swapped)

    return is_removed
