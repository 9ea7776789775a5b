"""A file of the data directory that holds an offset for each log, in Kafka's format (`odradek.storage.files.checkpoint`).

The format names a log by topic and partition alone. So what it says speaks for whatever log has that name when it is read,
also for one that was made after another of the same name had been deleted. That is why it is known here what the file on the
disk may say: a name has to be gone from there before it is used again (`LogManager`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from odradek.storage.files import checkpoint
from odradek.storage.files.checkpoint import CorruptCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from odradek.storage.disk.port import Disk
    from odradek.storage.files.checkpoint import TopicPartition

log = structlog.get_logger(__name__)


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """The entries of such a file; none where it is absent or damaged. Raises OSError."""
    if not disk.exists(path):
        return {}
    try:
        return checkpoint.decode_offsets(disk.read_file(path))
    except CorruptCheckpoint as error:
        log.warning("checkpoint is damaged; every log counts as without an entry", path=path, reason=str(error))
        return {}


class OffsetCheckpoint:
    """`read` at the start; from then on this is the only one that writes the file."""

    def __init__(self, disk: Disk, path: str, current: Callable[[], dict[TopicPartition, int]]) -> None:
        """`current`: the offset of each log that is open."""
        self._disk = disk
        self._path = path
        self._current = current
        self._entries: dict[TopicPartition, int] = {}
        self._tried: dict[TopicPartition, int] = {}
        """What is being written, or was refused: any of it may be there, too."""
        self._kept: dict[TopicPartition, int] = {}
        self._asked = 0
        self._written = 0
        """All who had asked by then have what they asked for."""
        self._running: asyncio.Future[None] | None = None

    def read(self) -> dict[TopicPartition, int]:
        """What the file says (`read_offsets`). Raises OSError."""
        self._entries = read_offsets(self._disk, self._path)
        return self._entries

    def keep(self, topic_partition: TopicPartition) -> None:
        """Write the entry on as it is: its log could not be opened, and may be the next time."""
        if topic_partition in self._entries:
            self._kept[topic_partition] = self._entries[topic_partition]

    def names(self, topic_partition: TopicPartition) -> bool:
        """Whether the file may say something of a log of that name after a crash."""
        return topic_partition in self._entries or topic_partition in self._tried

    def names_others(self, topic_partitions: Container[TopicPartition]) -> bool:
        """Whether it may say something of any log but these, and those that could not be opened."""
        return any(
            each not in topic_partitions and each not in self._kept
            for entries in (self._entries, self._tried)
            for each in entries
        )

    def limit(self, ends: Mapping[TopicPartition, int]) -> None:
        """Let the file say no more of a log than there is, waiting on the spot. Raises OSError."""
        limited = {key: min(offset, ends.get(key, offset)) for key, offset in self._entries.items()}
        if limited != self._entries:
            self._write(limited)

    def write(self) -> None:
        """Write what holds, waiting on the spot. Raises OSError."""
        self._write(self._kept | self._current())

    def _write(self, offsets: dict[TopicPartition, int]) -> None:
        self._tried |= offsets
        self._disk.write_atomic(self._path, checkpoint.encode_offsets(offsets))
        self._entries, self._tried = offsets, {}

    async def replace(self) -> None:
        """Write what holds when its turn comes. Raises OSError.

        One at a time: several replicas are cut at once, and an older state must not overtake a newer one on its way to the
        disk. All who come meanwhile share the next turn.
        """
        self._asked += 1
        asked = self._asked
        while self._running is not None:
            await asyncio.shield(self._running)
            if self._written >= asked:
                return
        done = self._running = asyncio.get_running_loop().create_future()
        served, offsets = self._asked, self._kept | self._current()
        self._tried |= offsets
        try:
            await self._disk.replace_file(self._path, checkpoint.encode_offsets(offsets))
            self._entries, self._tried = offsets, {}
            self._written = served
        finally:
            self._running = None
            done.set_result(None)
