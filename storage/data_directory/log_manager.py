"""The logs of a data directory: load, create, delete, flush, checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from odradek.protocol.internal_topics import CLUSTER_METADATA, CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.storage.config import CLEANUP_COMPACT, LogConfig
from odradek.storage.data_directory.checkpoints import Checkpoints
from odradek.storage.data_directory.directory import DataDirectory
from odradek.storage.data_directory.set_aside import SetAsideDirectories
from odradek.storage.files import checkpoint, names
from odradek.storage.files.checkpoint import ZERO_UUID, CorruptCheckpoint
from odradek.storage.log.log import PartitionLog
from odradek.storage.recovery.loaded_log import OpenOptions

if TYPE_CHECKING:
    import uuid

    from odradek.storage.disk.port import Disk
    from odradek.storage.files.checkpoint import TopicPartition

log = structlog.get_logger(__name__)

COMPACTED_TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE)
FLUSHED_TOPICS = (CLUSTER_METADATA,)
"""Topics written by Raft, which commits only what is durable: a crash loses nothing below their high watermark."""
ConfigFor = Callable[[str], LogConfig]


class StaleCheckpoint(Exception):
    """A checkpoint on the disk may have an entry for a deleted log of that name, until `remove_stale_entries` has run."""


class LogManager:
    """The open logs of one data directory."""

    def __init__(self, disk: Disk, log_dir: str, default_config: LogConfig) -> None:
        self.disk = disk
        self.directory = DataDirectory(disk, log_dir)
        self._default_config = default_config
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._refused: dict[TopicPartition, OSError] = {}
        self._set_aside = SetAsideDirectories(disk, self.directory)
        self._checkpoints = Checkpoints(disk, self.directory, self._logs)
        self._durable_at_stop: dict[TopicPartition, int] = {}

    # -- start ------------------------------------------------------------------------------------------------------------

    def load_all(
        self, now_ms: int, config_for: ConfigFor | None = None, *, refuse_loss: Sequence[str] = FLUSHED_TOPICS
    ) -> None:
        """Open every log of the directory, and recover it after an unclean shutdown; wait for the disk.

        A log of `refuse_loss` that ends below its high watermark is not opened: no other node has what it lost. A log that the
        disk refuses to open is left out; `create` raises its error.

        Raises:
            OSError: The disk refuses to list the directory, or to read or write a checkpoint.
        """
        offsets = self._checkpoints.read()
        self._durable_at_stop = offsets.durable_ends()
        for name in self.disk.list(self.directory.path):
            path = self.directory.path_of(name)
            if not self.disk.is_directory(path):
                continue
            if name.endswith(names.DELETED_DIRECTORY_SUFFIX):
                self._set_aside.add_deleted(path, self._default_config.file_delete_delay_ms)
                continue
            key = names.parse_partition_directory(name)
            if key is None:
                log.warning("directory is no partition's and is left alone", path=path)
                continue
            config = (config_for or self._assumed_config)(key[0])
            if key in offsets.cleaned:
                config = _with_gaps(config)
            options = offsets.open_options(
                key, now_ms=now_ms, clean=self.directory.clean_start, refuse_loss=key[0] in refuse_loss
            )
            try:
                self._logs[key] = self._open(path, key, self._read_topic_id(path), config, options)
            except OSError as error:
                log.error("log cannot be opened", path=path, error=str(error))  # noqa: TRY400  # the reason says it all
                self._refused[key] = error
                self._checkpoints.keep(key)
        # Not the metadata log: Raft must see what it has lost, until it has reported that.
        ends = {key: each.log_end_offset for key, each in self._logs.items() if key[0] not in FLUSHED_TOPICS}
        self._checkpoints.limit(ends)

    def durable_at_stop(self, topic: str, partition: int) -> int:
        """Return the offset below which the log was known to be durable when this node stopped; 0 if it is not known.

        This holds only for a log that is flushed before its records are committed. The log may end below that offset now.
        """
        return self._durable_at_stop.get((topic, partition), 0)

    def _assumed_config(self, topic: str) -> LogConfig:
        """Return the configuration of a topic before the metadata is known. Topics that are always compacted may have gaps."""
        return _with_gaps(self._default_config) if topic in COMPACTED_TOPICS else self._default_config

    def _open(
        self, path: str, key: TopicPartition, topic_id: uuid.UUID, config: LogConfig, options: OpenOptions
    ) -> PartitionLog:
        return PartitionLog.open(self.disk, path, config, options, topic=key[0], partition=key[1], topic_id=topic_id)

    def _read_topic_id(self, directory: str) -> uuid.UUID:
        path = f"{directory}/{checkpoint.PARTITION_METADATA}"
        if not self.disk.exists(path):
            return ZERO_UUID
        try:
            return checkpoint.decode_partition_metadata(self.disk.read_file(path))
        except CorruptCheckpoint as error:
            log.warning("topic id is damaged; the metadata log will tell", path=path, reason=str(error))
            return ZERO_UUID

    # -- logs ---------------------------------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the open log of the partition, None if there is none."""
        return self._logs.get((topic, partition))

    def __iter__(self) -> Iterator[PartitionLog]:
        """Return an iterator over a copy of the list of open logs."""
        return iter(list(self._logs.values()))

    def create(self, topic: str, partition: int, topic_id: uuid.UUID, config: LogConfig, now_ms: int) -> PartitionLog:
        """Return the log of the partition; create it if it does not exist.

        A log without a topic id takes this one. A log with another topic id is set aside: it was found at the start, and the
        metadata does not know it. Either its topic was deleted just before a crash, or the metadata has been damaged. So its files
        are kept for an operator to decide on, as Kafka does.

        Raises:
            StaleCheckpoint: `remove_stale_entries` must run first.
            OSError: The disk refuses.
            ValueError: `topic` is not a topic name.
        """
        key = topic, partition
        refused = self._refused.get(key)
        if refused is not None:
            raise OSError(refused.errno, f"the log could not be opened: {refused}")
        present = self._logs.get(key)
        if present is not None:
            if present.topic_id == ZERO_UUID != topic_id:
                present.set_topic_id(topic_id)
            if present.topic_id == topic_id:
                present.update_config(config)
                return present
            self._keep_as_stray(present)
        path = self.directory.path_of(names.partition_directory(topic, partition))
        # The entries of a log that Raft has written must stay: if the log is missing, they record what was durable.
        if topic not in FLUSHED_TOPICS and self._checkpoints.may_name(key):
            raise StaleCheckpoint(path)
        self._delete_leftover(path, topic, partition, topic_id)
        created = self._open(path, key, topic_id, config, OpenOptions(now_ms, clean=True))
        self._logs[key] = created
        return created

    def _keep_as_stray(self, present: PartitionLog) -> None:
        del self._logs[present.topic, present.partition]
        present.close(clean=False)
        path = self._set_aside.keep_as_stray(present.directory, present.topic, present.partition, present.topic_id)
        log.warning("log of a topic that the metadata does not know is set aside", path=path)

    def _delete_leftover(self, path: str, topic: str, partition: int, topic_id: uuid.UUID) -> None:
        """Give a directory that a failed deletion has left its deleted name: it must not become the log of a new topic."""
        if self.disk.is_directory(path):
            leftover_id = self._read_topic_id(path)
            if leftover_id not in {ZERO_UUID, topic_id}:
                delay_ms = self._default_config.file_delete_delay_ms
                self._set_aside.delete(path, topic, partition, leftover_id, delay_ms=delay_ms)

    def delete(self, topic: str, partition: int) -> Coroutine[Any, Any, None]:
        """Take the log out of the manager immediately. The returned coroutine makes that durable, and raises OSError.

        `remove_deleted` removes the files.
        """
        present = self._logs.get((topic, partition))
        failure: OSError | None = None
        if present is not None:
            try:
                self._delete(present)
            except OSError as error:
                failure = error
        return self._deleted_durably(failure)

    def _delete(self, present: PartitionLog) -> None:
        """Give the directory its deleted name. The log is out of the manager even if that fails."""
        del self._logs[present.topic, present.partition]
        present.close(clean=False)
        delay_ms = present.config.file_delete_delay_ms
        self._set_aside.delete(present.directory, present.topic, present.partition, present.topic_id, delay_ms=delay_ms)

    async def _deleted_durably(self, failure: OSError | None) -> None:
        if failure is not None:
            raise failure
        await self.disk.sync_directory(self.directory.path)
        await self.remove_stale_entries()

    async def remove_stale_entries(self) -> None:
        """Remove the entries of deleted logs from the checkpoints. Raise OSError if the disk refuses.

        Otherwise, after a crash, the offsets of a deleted log count for the next log of the same name. Then that log returns records
        that are not committed, trusts batches that were not flushed, and hides records.
        """
        await self._checkpoints.remove_stale_entries(self._logs)

    async def remove_deleted(self, now_ms: int) -> None:
        """Remove the files of logs and segments that were deleted at least file.delete.delay.ms ago.

        The delay counts from the first call that finds the files.
        """
        for each in self:
            each.remove_deleted(now_ms)
        await self._set_aside.remove_deleted(now_ms)

    # -- upkeep -------------------------------------------------------------------------------------------------------------

    async def flush_sealed(self) -> list[tuple[PartitionLog, OSError]]:
        """Flush rolled segments, so that a recovery reads little. Return the logs that the disk refused."""
        failures = []
        for each in self:
            if each.sealed_unflushed and not each.failed and not each.closed:
                try:
                    await each.flush(each.segments.active.base_offset)
                except OSError as error:
                    failures.append((each, error))
        return failures

    async def checkpoint_recovery_points(self) -> None:
        """Write `recovery-point-offset-checkpoint`. Raise OSError if the disk refuses."""
        await self._checkpoints.recovery_points.replace()

    async def checkpoint_log_starts(self) -> None:
        """Write `log-start-offset-checkpoint`. Raise OSError if the disk refuses."""
        await self._checkpoints.log_starts.replace()

    async def checkpoint_high_watermarks(self) -> None:
        """Write `replication-offset-checkpoint`. Raise OSError if the disk refuses."""
        await self._checkpoints.high_watermarks.replace()

    async def checkpoint_cleaned(self) -> None:
        """Write `cleaner-offset-checkpoint`. Raise OSError if the disk refuses."""
        await self._checkpoints.cleaned.replace()

    async def lower_recovery_point(self, topic: str, partition: int, offset: int) -> None:
        """Lower the checkpoints of a log before it is truncated to `offset`. Raise OSError if the disk refuses.

        Otherwise, after a crash, records appended in place of truncated ones would be below the recovery point, and trusted.
        """
        present = self._logs[topic, partition]
        if offset < present.recovery_point:
            present.local.lower_recovery_point(offset)
            await self.checkpoint_recovery_points()
        if present.cleaned_to is not None and offset < present.cleaned_to:
            # Otherwise compaction could remove a tombstone appended there before the records that it deletes.
            present.lower_cleaned_to(offset)
            await self.checkpoint_cleaned()

    def close(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """Close every log and release the directory; wait for the disk.

        The clean-shutdown marker is written only if every log was closed cleanly. Errors of the disk are logged, and the next start
        recovers.
        """
        all_clean = clean and not self._refused
        for each in self:
            try:
                each.close(clean=clean)
            except OSError as error:
                log.error("log did not close cleanly", path=each.directory, error=str(error))  # noqa: TRY400  # as above
                all_clean = False
            all_clean = all_clean and not each.failed
        try:
            if all_clean and self.directory.claimed:
                self._checkpoints.write()
                self.directory.mark_clean_shutdown(broker_epoch)
        except OSError as error:
            log.error("no clean-shutdown marker", path=self.directory.path, error=str(error))  # noqa: TRY400  # as above
        finally:
            self._logs.clear()
            self.directory.release()


def _with_gaps(config: LogConfig) -> LogConfig:
    return replace(config, cleanup_policy=(CLEANUP_COMPACT,))
