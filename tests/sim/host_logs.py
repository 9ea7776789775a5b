"""The logs of one host as its files say, followed write by write, and read again from what a crash has left."""

import re
from collections.abc import Callable
from typing import Final

from tests.sim.checkers.batches import Batch, Identity, Unreadable, read_batches
from tests.sim.checkers.replica_log import ReplicaLog
from tests.sim.history import Partition
from tests.sim.medium import Directory, Inode, Medium
from tests.sim.world import COORDINATED, METADATA

LOG_PATH: Final = re.compile(r"^(?P<root>.*)/(?P<topic>[^/]+)-(?P<index>\d+)/(?P<base>\d{20})\.log$")
DIRECTORY_PATH: Final = re.compile(r"^(?P<root>.*)/(?P<topic>[^/]+)-(?P<index>\d+)$")

Known = dict[Partition, dict[Identity, Batch]]
OnBatch = Callable[["HostLogs", Partition, Batch, int, bool], None]
"""told(host, partition, batch, base offset of its segment, whether nobody has written it before)."""


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
                if log.placed and batch.base_offset != log.end:
                    self._violations.append(
                        f"I13 {path} of broker {self.number}: offset {batch.base_offset} follows {log.end - 1}"
                    )
                offset += batch.size
                log.add(batch, base, offset)
                born = batch.identity not in known
                known[batch.identity] = batch
                self._told(self, partition, batch, base, born)
        except Unreadable as error:
            self._violations.append(f"{path}: {len(data)} bytes were written at {offset} that are no batches: {error}")

    def on_truncate(self, path: str, size: int) -> None:
        match = LOG_PATH.match(path)
        if match is not None and (match["topic"], int(match["index"])) in self.logs:
            partition = (match["topic"], int(match["index"]))
            self._cut(partition, self.logs[partition], int(match["base"]), size)

    def on_removed(self, path: str) -> None:
        match = LOG_PATH.match(path)
        if match is not None:
            self.on_truncate(path, -1)
            self._without_segment((match["topic"], int(match["index"])))
            return
        directory = DIRECTORY_PATH.match(path)
        if directory is not None and directory["root"] == self._root:
            partition = (directory["topic"], int(directory["index"]))
            if partition in self.logs:
                self._removed[partition] = self.logs.pop(partition)

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
        if lost:
            self.durable[partition] = min(self.durable.get(partition, 0), log.end)
            if self.truncated is not None:
                self.truncated(self, partition, lost)

    def _without_segment(self, partition: Partition) -> None:
        """Where a power cut has emptied the last segments, they go, and the log goes on behind what is left."""
        log = self.logs.get(partition)
        directory = self.medium.entry(f"{self._root}/{partition[0]}-{partition[1]}")
        if log is None or not log.placed or not isinstance(directory, Directory):
            return
        bases = [int(name.removesuffix(".log")) for name in directory.live if name.endswith(".log")]
        log.end = min(log.end, max(log.placed[-1].batch.last_offset + 1, *bases, 0))

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
            log = self.logs[partition] = ReplicaLog()
            found, end = self.survivors(partition)
            known = self._known.get(partition, {})
            for batch, segment, file_end in found:
                log.add(known.get(batch.identity, batch), segment, file_end)
            if not found or end > log.end:
                log.end = end
            if partition in before:
                log.end_ever = max(log.end_ever, before[partition].end_ever)
            self.durable[partition] = log.end

    def survivors(self, partition: Partition) -> tuple[list[tuple[Batch, int, int]], int]:
        """The batches of the longest valid prefix, each with its segment and the position of its end there, and where the log goes on.

        It begins at the offset that names the first segment: where a power cut has emptied that one, those behind it follow a gap. Only
        where the cleaner works (the coordinators' topics) offsets may be missing, also those before a segment that has lost all records.
        """
        path = f"{self._root}/{partition[0]}-{partition[1]}"
        entry = self.medium.entry(path)
        found: list[tuple[Batch, int, int]] = []
        if not isinstance(entry, Directory):
            return found, 0
        names = [name for name in sorted(entry.live) if name.endswith(".log")]
        end = int(names[0].removesuffix(".log")) if names else 0
        gaps = partition[0] in COORDINATED
        for name in names:
            base = int(name.removesuffix(".log"))
            if gaps:
                end = max(end, base)
            size = 0
            data = self.medium.contents(f"{path}/{name}")
            try:
                for batch in read_batches(data, check_crc=True):
                    if batch.base_offset < end or (batch.base_offset > end and not gaps):
                        return found, end
                    size += batch.size
                    found.append((batch, base, size))
                    end = batch.last_offset + 1
            except Unreadable:
                return found, end
            if size < len(data):
                return found, end
        return found, end

    def batches(self, partition: Partition) -> list[Batch]:
        """What the files hold, read anew."""
        return [batch for batch, _, _ in self.survivors(partition)[0]]

    def durable_end(self, partition: Partition) -> int:
        """The end of what a power cut would leave for certain."""
        end = 0
        directory = self.medium.directory(f"{self._root}/{partition[0]}-{partition[1]}")
        for name in sorted(directory.durable):
            inode = directory.durable[name]
            if name.endswith(".log") and isinstance(inode, Inode):
                try:
                    for batch in read_batches(bytes(inode.durable)):
                        end = batch.last_offset + 1
                except Unreadable:
                    return end
        return end
