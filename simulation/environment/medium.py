"""Storage that survives crashes: files as durable bytes and the ordered operations not flushed yet; directories
likewise.

- A killed process loses nothing: the kernel owns the page cache.
- A power cut keeps, drops or tears (by sectors of 512 bytes) each unflushed operation on a file, in any combination.
  Gaps read as zeros.
- Directory entries are durable once the directory is flushed. Until then, a power cut keeps a random prefix of its
  changes.
"""

import posixpath
from dataclasses import dataclass, field
from random import Random
from typing import Final

SECTOR_BYTES: Final = 512
KEEP, DROP, TEAR = "keep", "drop", "tear"


@dataclass(slots=True)
class Operation:
    """Write of `data` at `offset`, or truncation to `offset` if `data` is None."""

    offset: int
    data: bytes | None


def apply_operation(content: bytearray, operation: Operation) -> None:
    offset, data = operation.offset, operation.data
    if data is None:
        if len(content) > offset:
            del content[offset:]
        else:
            content.extend(bytes(offset - len(content)))
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


@dataclass(eq=False, slots=True)
class Inode:
    """Content of one file: `live` is the page cache; `durable` and a selection of `unsynced` survive a power cut."""

    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Operation] = field(default_factory=list)
    synced_count: int = 0
    poisoned: bool = False

    def change(self, operation: Operation) -> None:
        apply_operation(self.live, operation)
        self.unsynced.append(operation)

    def mark(self) -> int:
        """Return the current position in the history of operations.

        A flush that starts now covers all operations before it.
        """
        return self.synced_count + len(self.unsynced)

    def make_durable(self, mark: int) -> None:
        count = max(0, mark - self.synced_count)
        for operation in self.unsynced[:count]:
            apply_operation(self.durable, operation)
        del self.unsynced[:count]
        self.synced_count += count

    def forget_dirty(self, mark: int) -> None:
        """Drop unflushed operations, as a failed fsync does on Linux: pages are marked clean but were not written.

        Later flushes succeed, and the data is not on the disk.
        """
        count = max(0, mark - self.synced_count)
        del self.unsynced[:count]
        self.synced_count += count
        self.poisoned = True

    def lose_power(self, rng: Random, fates: tuple[str, ...]) -> tuple[int, int, int]:
        """Keep, drop or tear each unflushed operation. Return the counts (kept, dropped, torn)."""
        counts = {KEEP: 0, DROP: 0, TEAR: 0}
        for operation in self.unsynced:
            fate = rng.choice(fates)
            counts[fate] += 1
            if fate == KEEP or (fate == TEAR and operation.data is None):
                apply_operation(self.durable, operation)
            elif fate == TEAR:
                self._tear(rng, operation)
        self.live = bytearray(self.durable)
        self.synced_count += len(self.unsynced)
        self.unsynced.clear()
        self.poisoned = False
        return counts[KEEP], counts[DROP], counts[TEAR]

    def _tear(self, rng: Random, operation: Operation) -> None:
        assert operation.data is not None
        start, end = operation.offset, operation.offset + len(operation.data)
        # The length of the file can become durable without all of its sectors.
        if rng.random() < 0.5 and len(self.durable) < end:
            self.durable.extend(bytes(end - len(self.durable)))
        sector = start
        while sector < end:
            sector_end = min(end, (sector // SECTOR_BYTES + 1) * SECTOR_BYTES)
            if rng.random() < 0.5:
                apply_operation(self.durable, Operation(sector, operation.data[sector - start : sector_end - start]))
            sector = sector_end


@dataclass(eq=False, slots=True)
class Directory:
    """Entries of a directory. `pending` holds unflushed changes; a rename within a directory is one change."""

    live: dict[str, "Inode | Directory"] = field(default_factory=dict)
    durable: dict[str, "Inode | Directory"] = field(default_factory=dict)
    pending: list[tuple[tuple[str, "Inode | Directory | None"], ...]] = field(default_factory=list)
    settled: int = 0

    def change(self, *changes: tuple[str, "Inode | Directory | None"]) -> None:
        self._apply(self.live, changes)
        self.pending.append(changes)

    def make_durable(self, count: int | None = None) -> None:
        """Make the first `count` pending changes durable (default: all)."""
        for changes in self.pending[:count]:
            self._apply(self.durable, changes)
            self.settled += 1
        del self.pending[:count]

    def forget_pending(self, rng: Random) -> None:
        """Make a prefix of the pending changes durable and drop the others, as a failed fsync does.

        Later flushes succeed, and the dropped changes are not on the disk. They stay visible until the power fails.
        """
        self.make_durable(rng.randint(0, len(self.pending)))
        self.settled += len(self.pending)
        self.pending.clear()

    def lose_power(self, rng: Random) -> None:
        kept = rng.choice((0, len(self.pending), rng.randint(0, len(self.pending))))
        for changes in self.pending[:kept]:
            self._apply(self.durable, changes)
        self.live = dict(self.durable)
        self.pending.clear()

    @staticmethod
    def _apply(
        names: "dict[str, Inode | Directory]", changes: "tuple[tuple[str, Inode | Directory | None], ...]"
    ) -> None:
        for name, entry in changes:
            if entry is None:
                names.pop(name, None)
            else:
                names[name] = entry


@dataclass(slots=True)
class PowerLoss:
    """Effects of a power cut, for the trace and the counters."""

    kept: int = 0
    dropped: int = 0
    torn: int = 0


class Medium:
    """Tree of directories and files. It survives the nodes that use it."""

    def __init__(self) -> None:
        self.root = Directory()

    # ---- look-up ----------------------------------------------------------------------------------------------------

    def entry(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory = self.root
        for name in _parts(path):
            if not isinstance(node, Directory):
                return None
            child = node.live.get(name)
            if child is None:
                return None
            node = child
        return node

    def file(self, path: str) -> Inode:
        entry = self.entry(path)
        if entry is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        if isinstance(entry, Directory):
            raise IsADirectoryError(21, "Is a directory", path)
        return entry

    def directory(self, path: str) -> Directory:
        entry = self.entry(path)
        if entry is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        if not isinstance(entry, Directory):
            raise NotADirectoryError(20, "Not a directory", path)
        return entry

    def parent(self, path: str) -> tuple[Directory, str]:
        parts = _parts(path)
        return self.directory("/" + "/".join(parts[:-1])), parts[-1]

    def walk(self, path: str = "/") -> list[tuple[str, Inode]]:
        """Return all files below `path` with their full paths, in name order."""
        files: list[tuple[str, Inode]] = []
        entry = self.entry(path)
        if isinstance(entry, Inode):
            return [(path, entry)]
        if entry is not None:
            for name in sorted(entry.live):
                files.extend(self.walk(posixpath.join(path, name)))
        return files

    def contents(self, path: str) -> bytes:
        return bytes(self.file(path).live)

    # ---- crashes ----------------------------------------------------------------------------------------------------

    def lose_power(self, rng: Random) -> PowerLoss:
        """Keep, drop or tear all unflushed operations, by a mix generated for this power cut."""
        fates = rng.choice(((DROP,), (KEEP, DROP, TEAR), (KEEP, KEEP, KEEP, TEAR, DROP), (KEEP, TEAR)))
        result = PowerLoss()
        self._lose_power(self.root, rng, fates, result)
        return result

    def _lose_power(self, directory: Directory, rng: Random, fates: tuple[str, ...], result: PowerLoss) -> None:
        directory.lose_power(rng)
        for name in sorted(directory.live):
            entry = directory.live[name]
            if isinstance(entry, Directory):
                self._lose_power(entry, rng, fates, result)
            else:
                kept, dropped, torn = entry.lose_power(rng, fates)
                result.kept += kept
                result.dropped += dropped
                result.torn += torn

    def flip_bit(self, path: str, rng: Random) -> bool:
        """Flip one bit of the file on the medium. Return False if the file is empty."""
        inode = self.file(path)
        if not inode.live:
            return False
        position = rng.randrange(len(inode.live))
        bit = 1 << rng.randrange(8)
        inode.live[position] ^= bit
        if position < len(inode.durable):
            inode.durable[position] ^= bit
        return True


def _parts(path: str) -> list[str]:
    return [part for part in posixpath.normpath(path).split("/") if part not in {"", "."}]


def flip_rebuildable(medium: Medium, root: str, rng: Random) -> str:
    """Flip a bit in a producer snapshot or in an index of the last segment of a log. Return the path.

    A single replica can rebuild these: they have checksums, or are rebuilt after an unclean shutdown. Only replication
    repairs bit rot in a log. The indexes of a segment with a snapshot above its base offset are left out: recovery may
    start there, and then trusts the index entries before it.
    """
    last: dict[str, str] = {}
    newest_snapshots: dict[str, str] = {}
    candidates = []
    for path, inode in medium.walk(root):
        directory, _, name = path.rpartition("/")
        if name.endswith(".log"):
            last[directory] = name.removesuffix(".log")
        elif name.endswith(".snapshot"):
            newest_snapshots[directory] = max(newest_snapshots.get(directory, ""), name.removesuffix(".snapshot"))
            if inode.live:
                candidates.append(path)
    for directory, base in last.items():
        if newest_snapshots.get(directory, "") > base:
            continue
        for suffix in ("index", "timeindex", "txnindex"):
            path = f"{directory}/{base}.{suffix}"
            entry = medium.entry(path)
            if isinstance(entry, Inode) and entry.live:
                candidates.append(path)
    if not candidates:
        return "nothing"
    path = rng.choice(candidates)
    medium.flip_bit(path, rng)
    return path
