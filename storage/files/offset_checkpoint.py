"""A file of the data directory that holds one offset per log, in Kafka's format (`odradek.storage.files.checkpoint`).

The format names a log by topic and partition only. After a crash, an entry counts for the log that has the name then, even if that log
was created after another of the same name was deleted. So this class tracks which names the file on the disk may contain. `LogManager`
removes a name from the file before it uses the name again.
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
    """Return the entries of a checkpoint file; none if it is absent or damaged. Raise OSError if the disk refuses."""
    if not disk.exists(path):
        return {}
    try:
        return checkpoint.decode_offsets(disk.read_file(path))
    except CorruptCheckpoint as error:
        log.warning("checkpoint is damaged; every log counts as without an entry", path=path, reason=str(error))
        return {}


class OffsetCheckpoint:
    """One checkpoint file. `read` is called at the start; afterwards no other code writes the file."""

    def __init__(self, disk: Disk, path: str, current: Callable[[], dict[TopicPartition, int]]) -> None:
        """Create the object. `current` returns the offset of each open log."""
        self._disk = disk
        self._path = path
        self._current = current
        self._entries: dict[TopicPartition, int] = {}
        """The entries of the last completed write."""
        self._uncertain: dict[TopicPartition, int] = {}
        """The entries of a write that is under way or was refused: the file may have any of them."""
        self._kept: dict[TopicPartition, int] = {}
        """The entries of logs that could not be opened."""
        self._requested = 0
        """Calls of `replace` so far."""
        self._written = 0
        """Calls of `replace` that the last completed write includes."""
        self._running: asyncio.Future[None] | None = None

    def read(self) -> dict[TopicPartition, int]:
        """Return the entries of the file (see `read_offsets`). Raise OSError if the disk refuses."""
        self._entries = read_offsets(self._disk, self._path)
        return self._entries

    def keep(self, topic_partition: TopicPartition) -> None:
        """Keep the entry of a log that could not be opened: the next start may open it."""
        if topic_partition in self._entries:
            self._kept[topic_partition] = self._entries[topic_partition]

    def may_name(self, topic_partition: TopicPartition) -> bool:
        """Determine whether the file may have an entry for that name after a crash."""
        return topic_partition in self._entries or topic_partition in self._uncertain

    def may_name_other_than(self, topic_partitions: Container[TopicPartition]) -> bool:
        """Determine whether the file may have an entry for a name that is neither in `topic_partitions` nor kept."""
        return any(
            each not in topic_partitions and each not in self._kept
            for entries in (self._entries, self._uncertain)
            for each in entries
        )

    def limit(self, log_ends: Mapping[TopicPartition, int]) -> None:
        """Cap the entries at the log ends; wait for the disk. Raise OSError if the disk refuses."""
        limited = {key: min(offset, log_ends.get(key, offset)) for key, offset in self._entries.items()}
        if limited != self._entries:
            self._write(limited)

    def write(self) -> None:
        """Write the current offsets; wait for the disk. Raise OSError if the disk refuses."""
        self._write(self._kept | self._current())

    def _write(self, offsets: dict[TopicPartition, int]) -> None:
        self._uncertain |= offsets
        self._disk.write_atomic(self._path, checkpoint.encode_offsets(offsets))
        self._entries, self._uncertain = offsets, {}

    async def replace(self) -> None:
        """Write the offsets that are current when the write begins.

        One write runs at a time: if several replicas truncate together, an older state must not overwrite a newer one. All calls
        during a write share the next one.

        Raises:
            OSError: The disk refuses.
        """
        self._requested += 1
        request = self._requested
        while self._running is not None:
            await asyncio.shield(self._running)
            if self._written >= request:
                return
        done = self._running = asyncio.get_running_loop().create_future()
        included, offsets = self._requested, self._kept | self._current()
        self._uncertain |= offsets
        try:
            await self._disk.replace_file(self._path, checkpoint.encode_offsets(offsets))
            self._entries, self._uncertain = offsets, {}
            self._written = included
        finally:
            self._running = None
            done.set_result(None)
