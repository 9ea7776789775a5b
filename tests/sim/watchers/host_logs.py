"""The logs of one host as its files say, followed write by write, and read again from what a crash has left."""

import re
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from tests.sim.checkers.batches import Batch, Identity, Unreadable, read_batches
from tests.sim.checkers.compaction import Cleaned
from tests.sim.checkers.replica_log import Placed, ReplicaLog
from tests.sim.environment.medium import Directory, Inode, Medium
from tests.sim.history import Partition
from tests.sim.world import COMPACTED, METADATA

LOG_PATH: Final = re.compile(r"^(?P<root>.*)/(?P<topic>[^/]+)-(?P<index>\d+)/(?P<base>\d{20})\.log$")
ABORTED_ENDING: Final = ".txnindex"
ABORTED_ENTRY: Final = struct.Struct(">hqqqq")
"""Version, producer id, first offset, offset of the marker, last stable offset just after it."""
SWAP_ENDING: Final = ".log.swap"
CLEANED_ENDING: Final = ".cleaned"
DIRECTORY_PATH: Final = re.compile(r"^(?P<root>.*)/(?P<topic>[^/]+)-(?P<index>\d+)$")

Known = dict[Partition, dict[Identity, Batch]]
OnBatch = Callable[["HostLogs", Partition, Batch, int, bool], None]
"""told(host, partition, batch, base offset of its segment, whether nobody has written it before)."""


class OnReloaded(Protocol):
    """Told of each log that compaction may have been at; `swapping` where it was swapping a segment in."""

    def __call__(self, host: "HostLogs", partition: Partition, *, swapping: bool) -> None: ...


OnTaken = Callable[["HostLogs", Partition, Placed, Batch | None], None]
"""told(host, partition, a batch, what compaction leaves of it there)."""


class HostLogs:
    """See the module. `known` is shared by all hosts: a batch is read once, and who writes it first leads its partition."""

    def __init__(
        self,
        number: int,
        medium: Medium,
        root: str,
        watched: Callable[[str], bool],
        known: Known,
        told: OnBatch,
        violations: list[str],
    ) -> None:
        self.number = number
        self.medium = medium
        self.logs: dict[Partition, ReplicaLog] = {}
        self.durable: dict[Partition, int] = {}
        """End of what is on stable storage for certain, of the metadata log."""
        self.truncated: Callable[[HostLogs, Partition, int], None] | None = None
        self.metadata_synced: Callable[[], None] | None = None
        self.taken: OnTaken | None = None
        self.swapped: Callable[[HostLogs, Partition], None] = lambda *_: None
        self.reloaded: OnReloaded | None = None
        self.gap_fetched: Callable[[], None] = lambda: None
        self.cleaned: dict[Partition, Cleaned] = {}
        """What compaction has taken, on any host: as `known`."""
        self._removed: dict[Partition, ReplicaLog] = {}
        self._root = root
        self._watched = watched
        self._known = known
        self._told = told
        self._violations = violations

    def log(self, partition: Partition) -> ReplicaLog:
        found = self.logs.get(partition)
        if found is None:
            found = self.logs[partition] = ReplicaLog()
        return found

    def last_log(self, partition: Partition) -> ReplicaLog:
        """As `log`; where the replica has just been removed, what it was: its last answers may still be on their way."""
        return self.logs.get(partition) or self._removed.get(partition) or self.log(partition)

    # -- disk.DiskWatcher

    def on_write(self, path: str, offset: int, data: bytes) -> None:
        if path.endswith(ABORTED_ENDING):
            self._aborted(path, data)
            return
        match = LOG_PATH.match(path)
        if match is None or match["root"] != self._root or not self._watched(match["topic"]):
            return
        partition, base = (match["topic"], int(match["index"])), int(match["base"])
        known = self._known.setdefault(partition, {})
        log = self.log(partition)
        if log.placed and log.placed[-1].segment == base and offset < log.placed[-1].file_end:
            self._cut(partition, log, base, offset)
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
                born = original.identity not in known
                known[original.identity] = original
                self._told(self, partition, original, base, born)
        except Unreadable as error:
            self._violations.append(f"{path}: {len(data)} bytes were written at {offset} that are no batches: {error}")

    def _aborted(self, path: str, data: bytes) -> None:
        """I5: who looks for aborted transactions looks no further than an entry says that all is stable, and nothing behind its marker was yet."""
        for _, producer_id, first, marker, stable in ABORTED_ENTRY.iter_unpack(data):
            if not first < marker or stable > marker + 1:
                self._violations.append(
                    f"I5 {path} of broker {self.number}: producer {producer_id} from {first}, ended at {marker}, stable up to {stable}"
                )

    def _cleaned(self, partition: Partition) -> Cleaned:
        return self.cleaned.setdefault(partition, Cleaned())

    def _fill_gap(self, partition: Partition, log: ReplicaLog, batch: Batch, segment: int, file_end: int) -> None:
        """A follower of a log that has been compacted is not given what is gone there: it holds that as much as its leader does."""
        if partition[0] not in COMPACTED or batch.base_offset == log.end:
            return
        if batch.base_offset < log.end:
            log.drop_gone(batch.base_offset)
        missing = self._cleaned(partition).between(log.end, batch.base_offset)
        if missing:
            self.gap_fetched()
        for each in missing or ():
            log.add(each, segment, file_end, None)
            self._told(self, partition, each, segment, False)

    def on_truncate(self, path: str, size: int) -> None:
        match = LOG_PATH.match(path)
        if match is not None and (match["topic"], int(match["index"])) in self.logs:
            partition = (match["topic"], int(match["index"]))
            self._cut(partition, self.logs[partition], int(match["base"]), size)

    def on_removed(self, path: str) -> None:
        match = LOG_PATH.match(path)
        if match is not None:
            partition = (match["topic"], int(match["index"]))
            if not self._retired(partition, int(match["base"])):
                self.on_truncate(path, -1)
                self._without_segment(partition)
            return
        directory = DIRECTORY_PATH.match(path)
        if directory is not None and directory["root"] == self._root:
            partition = (directory["topic"], int(directory["index"]))
            if partition in self.logs:
                self._removed[partition] = self.logs.pop(partition)

    # -- compaction

    def on_renamed(self, old: str, new: str) -> None:
        """`.cleaned` becomes `.swap`: what compaction leaves is complete. `.swap` becomes the log's own."""
        match = LOG_PATH.match(new.removesuffix(".swap"))
        if match is None or match["root"] != self._root or match["topic"] not in COMPACTED:
            return
        partition, base = (match["topic"], int(match["index"])), int(match["base"])
        if new.endswith(SWAP_ENDING):
            # A start that finds it puts it in place of the segments that begin below its end, whatever else it was made of.
            left = self._read(new)
            reaches = left[-1].last_offset + 1 if left else base + 1
            bases = [other for other in self._segments(partition)[0] if other >= reaches]
            self._take(partition, base, min(bases, default=self.log(partition).end), left)
        elif old.endswith(SWAP_ENDING):
            self._swapped_in(partition, base, self._read(new))

    def _read(self, path: str) -> list[Batch]:
        return list(read_batches(self.medium.contents(path)))

    def _take(self, partition: Partition, first: int, end: int, left: list[Batch]) -> None:
        """Of what begins from `first` to below `end` compaction leaves that."""
        by_base = {batch.base_offset: batch for batch in left}
        for each in self.log(partition).within(first, end):
            now = by_base.get(each.batch.base_offset)
            before = None if each.held is None else each.held.identity
            if self.taken is not None and before != (None if now is None else now.identity):
                self.taken(self, partition, each, now)

    def _retired(self, partition: Partition, base: int) -> bool:
        """Whether a segment that is gone has been replaced by one that is about to be swapped in."""
        bases, swaps, _ = self._segments(partition)
        mine = [swap for swap in swaps if swap <= base]
        if partition not in self.logs or not mine or not bases or max(bases) < base:
            return False
        left = self._read(f"{self._directory(partition)}/{max(mine):020}{SWAP_ENDING}")
        end = min((other for other in bases if other > base), default=base)
        self._take(partition, base, end, left)
        return True

    def _swapped_in(self, partition: Partition, base: int, left: list[Batch]) -> None:
        log = self.log(partition)
        bases, _, _ = self._segments(partition)
        end = min((other for other in bases if other > base), default=log.end)
        self._take(partition, base, end, left)
        by_base = {batch.base_offset: batch for batch in left}
        file_end = 0
        for each in log.within(base, end):
            each.held = by_base.get(each.batch.base_offset)
            file_end += 0 if each.held is None else each.held.size
            each.segment, each.file_end = base, file_end
        self.swapped(self, partition)

    def _directory(self, partition: Partition) -> str:
        return f"{self._root}/{partition[0]}-{partition[1]}"

    def _segments(self, partition: Partition) -> tuple[list[int], list[int], list[int]]:
        """Base offsets of log files, of those that are about to be swapped in, and of files that are not ready for that."""
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
            each.batch.last_offset + 1
            for each in self.log(partition).placed
            if each.segment < int(match["base"]) or (each.segment == int(match["base"]) and each.file_end <= size)
        ]
        self.durable[partition] = max(ends, default=0)
        if self.metadata_synced is not None:
            self.metadata_synced()

    def _cut(self, partition: Partition, log: ReplicaLog, base: int, size: int) -> None:
        lost = log.cut(base, size)
        if partition[0] in COMPACTED:
            log.drop_gone(0, self._segments(partition)[0])
        if lost:
            self.durable[partition] = min(self.durable.get(partition, 0), log.end)
            if self.truncated is not None:
                self.truncated(self, partition, lost)

    def _without_segment(self, partition: Partition) -> None:
        """Where a power cut has emptied the last segments, they go, and the log goes on behind what is left."""
        log = self.logs.get(partition)
        directory = self.medium.entry(f"{self._root}/{partition[0]}-{partition[1]}")
        if log is None or not isinstance(directory, Directory):
            return
        ends = [int(name.removesuffix(".log")) for name in directory.live if name.endswith(".log")]
        if log.placed:
            ends.append(log.placed[-1].batch.last_offset + 1)
        log.end = min(log.end, max(ends, default=log.end))

    # -- after a crash

    def reload(self, medium: Medium) -> None:
        """Read everything again: what a crash left, as far as it can be read."""
        self.medium = medium
        before, self.logs = self.logs, {}
        root = medium.entry(self._root)
        names = sorted(root.live) if isinstance(root, Directory) else []
        for name in names:
            match = DIRECTORY_PATH.match(f"/{name}")
            if match is None or not self._watched(match["topic"]):
                continue
            partition = (match["topic"], int(match["index"]))
            found, end = self.survivors(partition, before.get(partition))
            log = self.logs[partition] = ReplicaLog()
            known = self._known.get(partition, {})
            for each in found:
                log.add(known.get(each.batch.identity, each.batch), each.segment, each.file_end, each.held)
            if not found or end > log.end:
                log.end = end
            if partition in before:
                log.end_ever = max(log.end_ever, before[partition].end_ever)
            self.durable[partition] = log.end
            if self.reloaded is not None and partition[0] in COMPACTED:
                self.reloaded(self, partition, swapping=bool(self._segments(partition)[1]))

    def survivors(self, partition: Partition, before: ReplicaLog | None = None) -> tuple[list[Placed], int]:
        """The batches of the longest valid prefix, each with its segment and the position of its end there, and where the log goes on.

        It begins at the offset that names the first segment: where a power cut has emptied that one, those behind it follow a gap. Only
        where the cleaner works offsets may be missing, and none but those that it has taken: here, as the log says that was there `before`
        (unless it is given: up to now). Behind others that are missing before a segment without records nothing counts any more,
        whatever has been taken there: a power cut has emptied them, and until recovery removes them the log seems to go on where the
        last one begins.
        """
        found: list[Placed] = []
        files = self._files(partition)
        end = files[0][0] if files else 0
        gaps = partition[0] in COMPACTED
        gone = _gone(before or self.logs.get(partition), files)
        for base, path in files:
            size = 0
            data = self.medium.contents(path)
            at = end
            try:
                for batch in read_batches(data, check_crc=True):
                    missing = self._cleaned(partition).between(at, batch.base_offset)
                    if missing is None or not all(gone(each) for each in missing):
                        return found, end
                    found += [Placed(each, base, size, None) for each in missing]
                    size += batch.size
                    found.append(Placed(self._cleaned(partition).original(batch), base, size, batch))
                    at = end = batch.last_offset + 1
            except Unreadable:
                return found, end
            if size < len(data):
                return found, end
            if gaps and not data and end < base:
                missing = self._cleaned(partition).between(end, base)
                if missing is None or not all(gone(each) for each in missing):
                    return found, files[-1][0]
                found += [Placed(each, base, 0, None) for each in missing]
                end = base
        return found, end

    def _files(self, partition: Partition) -> list[tuple[int, str]]:
        """Base offsets and paths of the segments. One that was about to be swapped in, and is complete, is taken for those that it replaces."""
        bases, swaps, cleaned = self._segments(partition)
        directory = self._directory(partition)
        paths = {base: f"{directory}/{base:020}.log" for base in bases}
        for swap in swaps:
            if any(base <= swap for base in cleaned):
                continue
            path = f"{directory}/{swap:020}{SWAP_ENDING}"
            end = max((batch.last_offset + 1 for batch in self._read(path)), default=swap)
            paths = {base: each for base, each in paths.items() if not swap <= base < end}
            paths[swap] = path
        return sorted(paths.items())

    def batches(self, partition: Partition) -> list[Batch]:
        """What the files hold, read anew: as it was written, where compaction has been."""
        return [each.batch for each in self.survivors(partition)[0]]

    def durable_end(self, partition: Partition) -> int:
        """The end of what a power cut would leave for certain."""
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


def _gone(log: ReplicaLog | None, files: list[tuple[int, str]]) -> Callable[[Batch], bool]:
    """Whether a cleaner has been at a batch on this disk: nothing was left of it, or its segment was about to be replaced."""
    swapped = [
        (base, files[number][0] if number < len(files) else base + 1)
        for number, (base, path) in enumerate(files, 1)
        if path.endswith(SWAP_ENDING)
    ]
    known = None if log is None else {each.batch.base_offset: None for each in log.placed if each.held is None}

    def gone(batch: Batch) -> bool:
        offset = batch.base_offset
        return known is None or offset in known or any(first <= offset < end for first, end in swapped)

    return gone
