"""Checkpoint files with one offset per log, in Kafka's format (`odradek.storage.files.checkpoint`).

An entry identifies a log by topic and partition only. If a log is deleted and another of the same name is created, an
old entry would apply to the new log after a crash. So `OffsetCheckpoint` tracks which entries the file on the disk may
have, and `LogManager` removes the entry of a deleted log before it creates another of the same name.
"""

from __future__ import annotations

from asyncio import sleep
from itertools import islice
from typing import TYPE_CHECKING, Final

import structlog

from odradek.storage.files import checkpoint
from odradek.storage.files.checkpoint import CorruptCheckpoint
from odradek.storage.files.shared_run import SharedRun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Container, Mapping, Sequence

    from odradek.storage.disk.port import Disk
    from odradek.storage.files.checkpoint import TopicPartition

ENTRIES_PER_SLICE: Final = 1_000
"""Entries that are encoded in one turn of the event loop (about 0.5 ms). A broker writes one entry per log."""
LOGS_PER_SLICE: Final = 1_000
"""Logs whose offsets are collected in one turn of the event loop (about 2 ms)."""
_logger = structlog.get_logger(__name__)


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Return the entries of a checkpoint file. Return no entries if the file is absent or damaged. The call blocks.

    Raises:
        OSError: A disk operation fails.
    """
    if not disk.exists(path):
        return {}
    try:
        return checkpoint.decode_offsets(disk.read_file(path))
    except CorruptCheckpoint as error:
        _logger.warning("damaged checkpoint ignored", path=path, reason=str(error))
        return {}


class OffsetCheckpoint:
    """One checkpoint file. After `read`, only this object may write the file."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        logs: Collection[TopicPartition],
        offset_of: Callable[[TopicPartition], int | None],
    ) -> None:
        """Manage the file at `path`. `logs` has the open logs at any time.

        `offset_of` returns the present offset of a log, or None if it has none or is not open.
        """
        self._disk = disk
        self._path = path
        self._logs = logs
        self._offset_of = offset_of
        self._entries: dict[TopicPartition, int] = {}
        """Entries of the last completed write."""
        self._uncertain: dict[TopicPartition, int] = {}
        """Entries of writes that are running or failed. The file may have any of them."""
        self._kept: dict[TopicPartition, int] = {}
        """Entries of logs that are not open yet, or could not be opened."""
        self._writes = SharedRun(self._write)

    def read(self) -> dict[TopicPartition, int]:
        """Return the entries like `read_offsets`. The call blocks. Raise OSError if a disk operation fails."""
        self._entries = read_offsets(self._disk, self._path)
        return self._entries

    def keep_entry(self, topic_partition: TopicPartition) -> None:
        """Keep the entry of a log that is not open yet, or could not be opened: the next start may open the log."""
        if topic_partition in self._entries:
            self._kept[topic_partition] = self._entries[topic_partition]

    def release_entry(self, topic_partition: TopicPartition) -> None:
        """Write the offset of the log from now on, because it is open."""
        self._kept.pop(topic_partition, None)

    @property
    def is_behind(self) -> bool:
        """True if the file may have other entries than a write would write now. The call visits all logs."""
        return bool(self._uncertain) or self._entries != self._present()

    async def is_behind_in_slices(self) -> bool:
        """Return what `is_behind` returns. Other tasks run between slices of the logs."""
        offsets: dict[TopicPartition, int] = {}
        async for entries in self._slices():
            offsets |= entries
        return bool(self._uncertain) or self._entries != offsets

    def may_have_entry(self, topic_partition: TopicPartition) -> bool:
        """Return True if the file may have an entry for the partition after a crash."""
        return topic_partition in self._entries or topic_partition in self._uncertain

    def may_have_entry_outside(self, topic_partitions: Container[TopicPartition]) -> bool:
        """Return True if the file may have an entry that is neither for one of `topic_partitions` nor kept."""
        return any(
            key not in topic_partitions and key not in self._kept
            for entries in (self._entries, self._uncertain)
            for key in entries
        )

    async def lower(self, topic_partition: TopicPartition, offset: int) -> None:
        """Write the file if its entry for the partition may be above `offset`. The present offset must not be.

        Raises:
            OSError: A disk operation fails.
        """
        if any(entries.get(topic_partition, offset) > offset for entries in (self._entries, self._uncertain)):
            await self.write()

    async def cap(self, log_ends: Mapping[TopicPartition, int]) -> None:
        """Cap the entries of the file at the log ends. Raise OSError if a disk operation fails."""

        async def write_capped() -> None:
            capped = {key: min(offset, log_ends.get(key, offset)) for key, offset in self._entries.items()}
            if capped != self._entries:
                await self._replace(capped)

        await self._writes.run_alone(write_capped)

    def write_now(self) -> None:
        """Write the present offset of each log. The call blocks. Raise OSError if a disk operation fails."""
        offsets = self._present()
        self._uncertain |= offsets
        self._disk.replace_file_now(self._path, checkpoint.encode_offsets(offsets))
        self._entries, self._uncertain = offsets, {}

    async def write(self) -> None:
        """Write an offset that each log has during the write. Slices of the logs are visited one after the other.

        Only one write runs at a time: with concurrent writes, older offsets could overwrite newer ones. All calls
        during a write share the next write.

        Raises:
            OSError: A disk operation fails.
        """
        await self._writes.run()

    async def _write(self) -> None:
        offsets: dict[TopicPartition, int] = {}
        async for entries in self._slices():
            offsets |= entries
            self._uncertain |= entries  # logs of this slice can be truncated or deleted before the file is replaced
        await self._replace(offsets)

    async def _slices(self) -> AsyncIterator[dict[TopicPartition, int]]:
        """Yield the entries of a write in slices, each with the offsets of that time. Other tasks run between them."""
        keys = list(self._logs)
        yield self._kept | self._offsets(keys[:LOGS_PER_SLICE])
        for first in range(LOGS_PER_SLICE, len(keys), LOGS_PER_SLICE):
            await sleep(0)
            yield self._offsets(keys[first : first + LOGS_PER_SLICE])

    def _present(self) -> dict[TopicPartition, int]:
        """Return the entries that a write would write now."""
        return self._kept | self._offsets(list(self._logs))

    def _offsets(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {key: offset for key in keys if (offset := self._offset_of(key)) is not None}

    async def _replace(self, offsets: dict[TopicPartition, int]) -> None:
        self._uncertain |= offsets
        await self._disk.replace_file(self._path, await _encoded(offsets))
        self._entries, self._uncertain = offsets, {}


async def _encoded(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the content of the file, encoded in slices. `offsets` must not change meanwhile."""
    parts = [checkpoint.encode_header(len(offsets))]
    remaining = iter(offsets.items())
    while entries := list(islice(remaining, ENTRIES_PER_SLICE)):
        if len(parts) > 1:
            await sleep(0)
        parts.append(checkpoint.encode_rows(entries))
    return b"".join(parts)
