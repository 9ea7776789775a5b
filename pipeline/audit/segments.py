"""Read the segment files of stopped or copied brokers: Odradek's or Apache Kafka's. Nothing is written."""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.client import TopicPartition
from odradek.pipeline.audit.evidence import PartitionScan
from odradek.protocol.batch import HEADER_BYTES, read_header
from odradek.protocol.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from odradek.pipeline.audit.evidence import LogRange
    from odradek.pipeline.audit.sources import Listed
    from odradek.protocol.batch import BatchHeader

PARTITION_DIRECTORY: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
SEGMENT: Final = re.compile(r"(?P<base>[0-9]{20})\.log")
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
"""File in a log directory with the offset up to which each partition was compacted."""
CLEANER_LINE: Final = re.compile(r"(?P<topic>\S+) (?P<partition>[0-9]+) (?P<offset>[0-9]+)")
GAPS_MARK: Final = "odradek.gaps"
"""Empty file in a partition directory of Odradek: compaction, there or on the leader, has removed offsets."""
EVERYWHERE: Final = 2**63 - 1


class LogDirectoryUnusable(ValueError):
    """A path is not the log directory of a broker. The message contains the reason."""


class LogDirectories:
    """The log directories of all brokers of a cluster, or copies of them that were made while the brokers were stopped.

    Each partition is read once, from its most recent replica: that of the highest leader epoch, then of the highest
    offset.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories

    def partitions(self) -> list[Listed]:
        """Return the partitions, each with the directories of its replicas.

        Raise LogDirectoryUnusable if a directory cannot be read, or has no partitions.
        """
        replicas: dict[TopicPartition, list[str]] = {}
        compacted: dict[TopicPartition, int] = {}
        for directory in self._directories:
            found = _partitions(directory)
            if not found:
                remedy = "name the directory that contains directories such as topic-0 (log.dirs)"
                raise LogDirectoryUnusable(f"{directory} has no partitions: {remedy}")
            for key, path in found.items():
                replicas.setdefault(key, []).append(str(path))
                if (path / GAPS_MARK).exists():
                    compacted[key] = EVERYWHERE
            for key, offset in _cleaned(directory).items():
                compacted[key] = max(offset, compacted.get(key, 0))
        return [
            {**key._asdict(), "directories": paths, "compacted_below": compacted.get(key, 0)}
            for key, paths in sorted(replicas.items())
        ]

    @staticmethod
    def scan(listed: Listed) -> tuple[PartitionScan, LogRange]:
        """Read the most recent replica of a partition."""
        segments = _segments(max((Path(each) for each in listed["directories"]), key=_recency))
        start = segments[0][0] if segments else 0
        scan = PartitionScan(listed["topic"], listed["partition"], start, listed["compacted_below"])
        try:
            for _, path in segments:
                for header, batch in read_segment(path, is_last=path == segments[-1][1]):
                    scan.add(header, batch)
        except Malformed as error:
            scan.damaged(str(error))
        return scan, scan.finish()


def _partitions(directory: Path) -> dict[TopicPartition, Path]:
    try:
        children = sorted(directory.iterdir())
    except OSError as error:
        raise LogDirectoryUnusable(f"{directory} cannot be read: {error.strerror}") from error
    matches = [(PARTITION_DIRECTORY.fullmatch(child.name), child) for child in children]
    return {
        TopicPartition(match["topic"], int(match["partition"])): child.resolve()
        for match, child in matches
        if match is not None and child.is_dir()
    }


def _cleaned(directory: Path) -> Mapping[TopicPartition, int]:
    path = directory / CLEANER_OFFSETS
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()[2:]  # a version and a count come first
    matches = [CLEANER_LINE.fullmatch(line) for line in lines]
    return {
        TopicPartition(match["topic"], int(match["partition"])): int(match["offset"])
        for match in matches
        if match is not None
    }


def _recency(directory: Path) -> tuple[int, int]:
    """Return the leader epoch and the offset of the last batch, or (-1, first offset) of a log without batches."""
    segments = _segments(directory)
    for _, path in reversed(segments):
        last = (-1, -1)
        try:
            for header, _ in read_segment(path, is_last=True):
                last = header.leader_epoch, header.last_offset
        except Malformed:
            pass  # `scan` reports the damage if this replica is the most recent one
        if last != (-1, -1):
            return last
    return -1, segments[-1][0] if segments else -1


def _segments(directory: Path) -> list[tuple[int, Path]]:
    """Return the base offsets and paths of the segment files, in order."""
    matches = [(SEGMENT.fullmatch(path.name), path) for path in directory.iterdir()]
    return sorted((int(match["base"]), path) for match, path in matches if match is not None)


def read_segment(path: Path, *, is_last: bool) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a segment file.

    The last segment of a log may end within a batch, if the broker was killed or the file was copied during a write.

    Raises:
        Malformed: The bytes are no batch, or a segment before the last one is incomplete.
    """
    with path.open("rb") as file:
        size = path.stat().st_size
        if size == 0:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            position = 0
            while position < size:
                header = read_header(view, position) if size - position >= HEADER_BYTES else None
                if header is None or position + header.size > size:
                    if is_last:
                        return
                    raise Malformed(f"{path.name} ends within the batch at byte {position}")
                with view[position : position + header.size] as batch:
                    yield header, batch
                position += header.size
