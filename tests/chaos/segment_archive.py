"""What the coordinators wrote, although their logs are compacted: each segment is linked elsewhere before a cleaner can get at it, and read from there at the end.

A link keeps the file of a segment that is replaced by another one. `log.cleaner.min.compaction.lag.ms` is far more than it takes to find a new one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tests.sim.checkers.batches import Unreadable, read_batches
from tests.sim.checkers.compaction import Cleaned, Content, check_held, is_part
from tests.sim.checkers.replica_log import Placed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.sim.checkers.batches import Batch
    from tests.sim.history import Partition

LOOK_SECONDS: Final = 0.5


class Originals:
    """`replicas`: the data directories by node. `run` until it is cancelled, then `look` once more when all brokers have stopped."""

    def __init__(self, directory: Path, replicas: Mapping[int, Path], topics: tuple[str, ...]) -> None:
        self.cleaned_segments = 0
        self._directory = directory
        self._replicas = dict(replicas)
        self._topics = topics
        self._linked: dict[int, None] = {}
        self._at: dict[Path, int] = {}
        """By path the inode that it named last."""

    async def run(self) -> None:
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Link what is new."""
        for data in self._replicas.values():
            for topic in self._topics:
                for path in data.glob(f"{topic}-*/*.log"):
                    with suppress(FileNotFoundError):  # it has just been swapped, or removed
                        self._link(path)

    def _link(self, path: Path) -> None:
        inode = path.stat().st_ino
        if self._at.get(path, inode) != inode:
            self.cleaned_segments += 1
        self._at[path] = inode
        if inode not in self._linked:
            place = self._directory / path.parent.name
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{len(self._linked):08}.log").hardlink_to(path)
            self._linked[inode] = None

    def of(self, partition: Partition) -> Written:
        """All whole batches of the partition that were ever found on any node."""
        found: dict[int, dict[int, Batch]] = {}
        for path in sorted((self._directory / f"{partition[0]}-{partition[1]}").glob("*.log")):
            with suppress(Unreadable):  # the checkers read what counts themselves
                for batch in read_batches(path.read_bytes()):
                    if len(batch.records) == batch.last_offset - batch.base_offset + 1:
                        found.setdefault(batch.base_offset, {}).setdefault(batch.leader_epoch, batch)
        return Written(found)


@dataclass(frozen=True)
class Written:
    """Batches by their first offset and leader epoch, as they were written."""

    batches: dict[int, dict[int, Batch]]

    def whole(self, log: list[Batch]) -> tuple[list[Placed], list[str]]:
        """The log of one replica with what compaction has taken from it, and what is wrong with that."""
        placed: list[Placed] = []
        findings: list[str] = []
        end = 0
        for batch in log:
            for gone in self._between(end, batch):
                placed.append(Placed(gone, 0, 0, None))
                end = gone.last_offset + 1
            if end < batch.base_offset:
                findings.append(f"offsets {end} to {batch.base_offset - 1} are gone, and nobody has seen them")
            original = self.batches.get(batch.base_offset, {}).get(batch.leader_epoch, batch)
            if original.crc != batch.crc and not is_part(batch, original):
                findings.append(f"offset {batch.base_offset}: what is there is no part of what was written")
            placed.append(Placed(original, 0, 0, batch))
            end = batch.last_offset + 1
        return placed, findings

    def _between(self, first: int, following: Batch) -> Iterator[Batch]:
        """Of several at one offset the last leader's is the one that was committed: those of others were cut."""
        while first < following.base_offset:
            epochs = [epoch for epoch in self.batches.get(first, ()) if epoch <= following.leader_epoch]
            if not epochs:
                return
            batch = self.batches[first][max(epochs)]
            yield batch
            first = batch.last_offset + 1


def expand(name: str, written: Written, logs: Mapping[int, list[Batch]]) -> tuple[dict[int, list[Batch]], list[str]]:
    """The logs of the replicas as they were written, and I10: what compaction has taken without a right."""
    found: dict[int, list[Batch]] = {}
    findings: list[str] = []
    held: dict[int, list[Placed]] = {}
    contents: dict[int, Content] = {}
    for node, log in logs.items():
        held[node], wrong = written.whole(log)
        found[node] = [each.batch for each in held[node]]
        content = contents[node] = Content()
        for batch in found[node]:
            content.add(batch)
        findings += [f"I10 {name} on node {node}: {each}" for each in wrong]
    cleaned = Cleaned()
    for content in contents.values():
        for offsets in content.newest.values():
            cleaned.later.update((one, max(other, cleaned.later.get(one, -1))) for one, other in pairwise(offsets))
    for node, content in contents.items():
        findings += [f"I10 {name} on node {node}: {each}" for each in check_held(held[node], content, cleaned)]
    return found, findings
