"""What survives a crash: files as durable bytes plus the ordered operations that were not yet synced, directories in the same way.

- A process that is killed loses nothing: the page cache is the kernel's.
- A machine that loses power keeps, drops or tears (by sectors of 512 bytes) each un-synced operation on a file, in any combination; the gaps read as zeros.
- The entries of a directory are durable on their own, once that directory is synced; until then a crash keeps a drawn prefix of the changes to it.
"""

import posixpath
from dataclasses import dataclass, field
from random import Random
from typing import Final

SECTOR_BYTES: Final = 512
KEEP, DROP, TEAR = "keep", "drop", "tear"


@dataclass(slots=True)
class Operation:
    """A write of `data` at `offset`, or a truncation to `offset` when data is None."""

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
    """`live` is what the running system reads; `durable` plus a choice of `unsynced` is what a power cut leaves."""

    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[Operation] = field(default_factory=list)
    synced_count: int = 0
    poisoned: bool = False

    def change(self, operation: Operation) -> None:
        apply_operation(self.live, operation)
        self.unsynced.append(operation)

    def mark(self) -> int:
        """Position in the history of operations: a sync started now covers everything before it."""
        return self.synced_count + len(self.unsynced)

    def make_durable(self, mark: int) -> None:
        count = max(0, mark - self.synced_count)
        for operation in self.unsynced[:count]:
            apply_operation(self.durable, operation)
        del self.unsynced[:count]
        self.synced_count += count

    def forget_dirty(self, mark: int) -> None:
        """A failed fsync marks the pages clean without having written them: later syncs succeed, the data is not there."""
        count = max(0, mark - self.synced_count)
        del self.unsynced[:count]
        self.synced_count += count
        self.poisoned = True

    def lose_power(self, rng: Random, fates: tuple[str, ...]) -> tuple[int, int, int]:
        """Decide the fate of each un-synced operation; returns how many were kept, dropped, torn."""
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
        # The file's length may have been made durable although not all of its sectors were.
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
    """`pending` holds (name, entry or None) in order; a rename inside one directory is one change of two names."""

    live: dict[str, "Inode | Directory"] = field(default_factory=dict)
    durable: dict[str, "Inode | Directory"] = field(default_factory=dict)
    pending: list[tuple[tuple[str, "Inode | Directory | None"], ...]] = field(default_factory=list)
    settled: int = 0

    def change(self, *changes: tuple[str, "Inode | Directory | None"]) -> None:
        self._apply(self.live, changes)
        self.pending.append(changes)

    def make_durable(self, count: int | None = None) -> None:
        """The first `count` pending changes (all, without it) survive from now on."""
        for changes in self.pending[:count]:
            self._apply(self.durable, changes)
            self.settled += 1
        del self.pending[:count]

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
class PowerCut:
    """What a power cut did, for the trace and the counters."""

    kept: int = 0
    dropped: int = 0
    torn: int = 0


class Medium:
    """A tree of directories and files that outlives the nodes which use it."""

    def __init__(self) -> None:
        self.root = Directory()

    # -- look-up

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
        """All files below `path` with their full paths, in name order."""
        found: list[tuple[str, Inode]] = []
        entry = self.entry(path)
        if isinstance(entry, Inode):
            return [(path, entry)]
        if entry is not None:
            for name in sorted(entry.live):
                found.extend(self.walk(posixpath.join(path, name)))
        return found

    def contents(self, path: str) -> bytes:
        return bytes(self.file(path).live)

    # -- crashes

    def lose_power(self, rng: Random) -> PowerCut:
        """What was not synced is kept, dropped or torn, by a mix that is drawn for this power cut."""
        fates = rng.choice(((DROP,), (KEEP, DROP, TEAR), (KEEP, KEEP, KEEP, TEAR, DROP), (KEEP, TEAR)))
        result = PowerCut()
        self._lose_power(self.root, rng, fates, result)
        return result

    def _lose_power(self, directory: Directory, rng: Random, fates: tuple[str, ...], result: PowerCut) -> None:
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
        """Flip one bit at rest; False when the file is empty."""
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
    """Flip a bit where one replica can repair it: in a producer snapshot, or in an index of the last segment of a log.

    Those carry checksums, or are derived anew after an unclean stop. Against rot in a log itself only replication helps.
    """
    last: dict[str, str] = {}
    candidates = []
    for path, inode in medium.walk(root):
        directory, _, name = path.rpartition("/")
        if name.endswith(".log"):
            last[directory] = name.removesuffix(".log")
        elif name.endswith(".snapshot") and inode.live:
            candidates.append(path)
    for directory, base in last.items():
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
