"""Archive of the coordinators' segments before compaction, by hard links.

A hard link keeps the file of a segment that compaction replaces. `log.cleaner.min.compaction.lag.ms` is much longer
than the scan interval, so each segment is linked before it is compacted. The checkers read the linked files at the end.
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

SCAN_SECONDS: Final = 0.5
"""Interval between two scans for new segments, in seconds."""


class SegmentArchive:
    """Hard links of all segments of `topics`. `replicas` are the data directories by node id.

    Cancel `run` at the end, and call `link_new_segments` once more after all brokers have stopped.
    """

    def __init__(self, directory: Path, replicas: Mapping[int, Path], topics: tuple[str, ...]) -> None:
        self.cleaned_segments = 0
        self._directory = directory
        self._replicas = dict(replicas)
        self._topics = topics
        self._linked: dict[int, None] = {}
        self._inodes: dict[Path, int] = {}
        """Inode at each path at the last scan."""

    async def run(self) -> None:
        while True:
            await asyncio.to_thread(self.link_new_segments)
            await asyncio.sleep(SCAN_SECONDS)

    def link_new_segments(self) -> None:
        for data in self._replicas.values():
            for topic in self._topics:
                for path in data.glob(f"{topic}-*/*.log"):
                    with suppress(FileNotFoundError):  # compaction or retention removed it after the listing
                        self._link(path)

    def _link(self, path: Path) -> None:
        inode = path.stat().st_ino
        if self._inodes.get(path, inode) != inode:
            self.cleaned_segments += 1
        self._inodes[path] = inode
        if inode not in self._linked:
            directory = self._directory / path.parent.name
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{len(self._linked):08}.log").hardlink_to(path)
            self._linked[inode] = None

    def batches_of(self, partition: Partition) -> OriginalBatches:
        """Return all batches of a partition without compacted records that any node has had."""
        batches: dict[int, dict[int, Batch]] = {}
        for path in sorted((self._directory / f"{partition[0]}-{partition[1]}").glob("*.log")):
            with suppress(Unreadable):  # the replica checkers report invalid batches
                for batch in read_batches(path.read_bytes()):
                    if len(batch.records) == batch.last_offset - batch.base_offset + 1:
                        batches.setdefault(batch.base_offset, {}).setdefault(batch.leader_epoch, batch)
        return OriginalBatches(batches)


@dataclass(frozen=True)
class OriginalBatches:
    """Original batches of one partition, by base offset and leader epoch."""

    batches: dict[int, dict[int, Batch]]

    def restore(self, log: list[Batch]) -> tuple[list[Placed], list[str]]:
        """Return the log of one replica before compaction, and the violations in its compacted log."""
        placed: list[Placed] = []
        findings: list[str] = []
        end = 0
        for batch in log:
            for removed in self._between(end, batch):
                placed.append(Placed(removed, 0, 0, None))
                end = removed.last_offset + 1
            if end < batch.base_offset:
                findings.append(f"offsets {end} to {batch.base_offset - 1} are missing in the log and in the archive")
            original = self.batches.get(batch.base_offset, {}).get(batch.leader_epoch, batch)
            if original.crc != batch.crc and not is_part(batch, original):
                findings.append(f"the batch at offset {batch.base_offset} is not a part of the original batch")
            placed.append(Placed(original, 0, 0, batch))
            end = batch.last_offset + 1
        return placed, findings

    def _between(self, first: int, following: Batch) -> Iterator[Batch]:
        """Yield the removed batches from offset `first` to the batch `following`.

        If the archive has several batches at an offset, the one with the highest leader epoch is committed. Followers
        truncated the other ones.
        """
        while first < following.base_offset:
            epochs = [epoch for epoch in self.batches.get(first, ()) if epoch <= following.leader_epoch]
            if not epochs:
                return
            batch = self.batches[first][max(epochs)]
            yield batch
            first = batch.last_offset + 1


def expand(
    name: str, written: OriginalBatches, logs: Mapping[int, list[Batch]]
) -> tuple[dict[int, list[Batch]], list[str]]:
    """Return the logs of the replicas before compaction, by node id, and the violations of I10 by compaction."""
    originals: dict[int, list[Batch]] = {}
    findings: list[str] = []
    held: dict[int, list[Placed]] = {}
    contents: dict[int, Content] = {}
    for node, log in logs.items():
        held[node], violations = written.restore(log)
        originals[node] = [placed.batch for placed in held[node]]
        content = contents[node] = Content()
        for batch in originals[node]:
            content.add(batch)
        findings += [f"I10 {name} on node {node}: {violation}" for violation in violations]
    cleaned = Cleaned()
    for content in contents.values():
        for offsets in content.newest.values():
            cleaned.later.update((old, max(new, cleaned.later.get(old, -1))) for old, new in pairwise(offsets))
    for node, content in contents.items():
        findings += [f"I10 {name} on node {node}: {finding}" for finding in check_held(held[node], content, cleaned)]
    return originals, findings
