"""Manage the logs of a data directory: load, create, delete, flush and checkpoint them (Kafka's `LogManager`)."""

from __future__ import annotations

from asyncio import sleep
from typing import TYPE_CHECKING, Any, Final

import structlog

from odradek.protocol.primitives import ZERO_UUID
from odradek.storage.data_directory.checkpoints import Checkpoints
from odradek.storage.data_directory.clean_shutdown import flush_logs
from odradek.storage.data_directory.deleted_and_stray import DeletedAndStrayDirectories
from odradek.storage.data_directory.directory import DataDirectory
from odradek.storage.data_directory.loading import FLUSHED_TOPICS, Loading
from odradek.storage.disk.port import ResourcesExhausted
from odradek.storage.files import names
from odradek.storage.files.shared_run import SharedRun
from odradek.storage.log.log import PartitionLog
from odradek.storage.log.removal import FILES_PER_STEP
from odradek.storage.recovery.loaded_log import OpenOptions
from odradek.storage.recovery.loader import read_topic_id

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from odradek.storage.config import LogConfig
    from odradek.storage.disk.port import Disk
    from odradek.storage.files.checkpoint import TopicPartition

_logger = structlog.get_logger(__name__)

BYTES_TO_RECOVER_MAX: Final = 16 * 1024 * 1024
"""Bytes of a log that an unclean shutdown may leave to be checked, apart from those of the last interval of the job.

A recovery checks about one million small batches in 10 s, so 16 MiB of batches of 100 bytes take 1.7 s.
"""
LOGS_PER_SLICE: Final = 256
"""Maximum logs that are examined before the event loop runs other tasks."""


class StaleCheckpoint(Exception):
    """A checkpoint may have an entry of a deleted log with the same name.

    Call `LogManager.remove_stale_entries` first.
    """


class LogManager:
    """The open logs of one data directory, by topic and partition."""

    def __init__(self, disk: Disk, log_dir: str, default_config: LogConfig) -> None:
        self.disk = disk
        self._raft_disk = disk.with_own_thread()
        """Disk of the logs of FLUSHED_TOPICS. Flushes and reads of other logs do not delay their flushes."""
        self.directory = DataDirectory(disk, log_dir)
        self._default_config = default_config
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._open_errors: dict[TopicPartition, OSError] = {}
        self._deleted_and_stray = DeletedAndStrayDirectories(disk, self.directory)
        # Raft waits for a checkpoint when it truncates the metadata log, so operations of other logs must not delay it.
        self._checkpoints = Checkpoints(disk.with_own_thread(), self.directory, self._logs)
        self._durable_at_stop: dict[TopicPartition, int] = {}
        self.loading = Loading(
            disk,
            self.directory,
            default_config,
            self._checkpoints,
            self._deleted_and_stray,
            self._logs,
            self._open_errors,
            self._disk_of,
        )
        self._syncs_of_deletions = SharedRun(self._sync_deletions)

    # ---- start ------------------------------------------------------------------------------------------------------

    def scan(
        self,
        now_ms: int,
        monotonic_ms: int,
        *,
        refuse_loss: Sequence[str] = FLUSHED_TOPICS,
        on_flushed_loss: Callable[[str], None] | None = None,
    ) -> None:
        """Find the logs of the directory, and open the metadata log. After an unclean shutdown, recover it. It blocks.

        A log whose topic is in `refuse_loss` is not opened if it ends below its high watermark: no other node has the
        lost records. A log that cannot be opened is skipped; `create` raises its error.

        `on_flushed_loss` receives a reason before the metadata log is truncated at damage that the end of a process
        does not cause. If it raises OSError, the log is not truncated, and not opened.

        Raises:
            ResourcesExhausted: No descriptor is left.
            OSError: The directory cannot be listed, or a checkpoint cannot be read.
        """
        self._durable_at_stop = self.loading.scan(now_ms, monotonic_ms, refuse_loss, on_flushed_loss).durable_ends()

    async def load(self) -> None:
        """Open all other logs in threads. After an unclean shutdown, recover them.

        A log that cannot be opened is skipped; `create` raises its error. Before this call, `create` accepts only the
        metadata log.

        Raises:
            ResourcesExhausted: The descriptors do not suffice for all logs.
            OSError: A checkpoint cannot be written.
        """
        await self.loading.open_remaining()

    def durable_at_stop(self, topic: str, partition: int) -> int:
        """Return the offset below which the log was durable when this node stopped; 0 if it is not known.

        The result is valid only for a log that is flushed before its records are committed. After a loss of data, the
        log may end below that offset.
        """
        return self._durable_at_stop.get((topic, partition), 0)

    def _disk_of(self, topic: str) -> Disk:
        return self._raft_disk if topic in FLUSHED_TOPICS else self.disk

    def _open(
        self, path: str, key: TopicPartition, topic_id: uuid.UUID | None, config: LogConfig, options: OpenOptions
    ) -> PartitionLog:
        return PartitionLog.open(
            self._disk_of(key[0]), path, config, options, topic=key[0], partition=key[1], topic_id=topic_id
        )

    # ---- logs -------------------------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the open log of the partition; None if there is none."""
        return self._logs.get((topic, partition))

    def __iter__(self) -> Iterator[PartitionLog]:
        """Iterate over the logs that are open now. The loop may create and delete logs."""
        return iter(list(self._logs.values()))

    def create(self, topic: str, partition: int, topic_id: uuid.UUID, config: LogConfig, now_ms: int) -> PartitionLog:
        """Return the log of the partition. Create it if it does not exist.

        An open log without a topic id gets `topic_id`. An open log with another topic id is a stray: the metadata does
        not contain it. Either its topic was deleted just before a crash, or the metadata is damaged. The directory of a
        stray is renamed and kept, as in Kafka; an operator decides on it.

        Raises:
            StaleCheckpoint: `remove_stale_entries` must run first.
            ResourcesExhausted: No descriptor or memory is left. Nothing was created.
            OSError: A disk operation fails, or `load` could not open the log.
            ValueError: `topic` is not a valid topic name.
        """
        key = topic, partition
        open_error = self._open_errors.get(key)
        if open_error is not None:
            raise OSError(open_error.errno, f"the log could not be opened: {open_error}")
        existing = self._logs.get(key)
        if existing is not None:
            if existing.topic_id == ZERO_UUID != topic_id:
                existing.set_topic_id(topic_id)
            if existing.topic_id == topic_id:
                existing.update_config(config)
                return existing
            self._keep_as_stray(existing)
        self.disk.check_resources()
        path = self.directory.path_of(names.partition_directory(topic, partition))
        # The entries of the metadata log stay, also for a new log: if the old log is missing, they show what was
        # durable.
        if topic not in FLUSHED_TOPICS and self._checkpoints.may_have_entry(key):
            raise StaleCheckpoint(path)
        self._delete_leftover(path, topic, partition, topic_id)
        created = self._open(path, key, topic_id, config, OpenOptions(now_ms, clean=True))
        self._logs[key] = created
        return created

    def _keep_as_stray(self, partition_log: PartitionLog) -> None:
        del self._logs[partition_log.topic, partition_log.partition]
        partition_log.close(clean=False)
        path = self._deleted_and_stray.keep_as_stray(
            partition_log.directory, partition_log.topic, partition_log.partition, partition_log.topic_id
        )
        _logger.warning("stray log renamed", path=path)

    def _delete_leftover(self, path: str, topic: str, partition: int, topic_id: uuid.UUID) -> None:
        """Rename the directory of another topic id that a failed deletion left. A new log must not use its files."""
        if self.disk.is_directory(path):
            leftover_id = read_topic_id(self.disk, path)
            if leftover_id not in {ZERO_UUID, topic_id}:
                delay_ms = self._default_config.file_delete_delay_ms
                self._deleted_and_stray.delete(path, topic, partition, leftover_id, delay_ms=delay_ms)

    def delete(self, topic: str, partition: int) -> Coroutine[Any, Any, None]:
        """Close the log, remove it from the manager, and rename its directory, all before this function returns.

        The returned coroutine makes the deletion durable, together with all other deletions at the time. It raises
        OSError if a disk operation fails or has failed before. `remove_deleted` removes the files.
        """
        partition_log = self._logs.get((topic, partition))
        failure: OSError | None = None
        if partition_log is not None:
            try:
                self._delete(partition_log)
            except OSError as error:
                failure = error
        return self._deleted_durably(failure)

    def _delete(self, partition_log: PartitionLog) -> None:
        """Remove the log from the manager, also if the disk operations fail, and rename its directory."""
        del self._logs[partition_log.topic, partition_log.partition]
        partition_log.close(clean=False)
        delay_ms = partition_log.config.file_delete_delay_ms
        self._deleted_and_stray.delete(
            partition_log.directory,
            partition_log.topic,
            partition_log.partition,
            partition_log.topic_id,
            delay_ms=delay_ms,
        )

    async def _deleted_durably(self, failure: OSError | None) -> None:
        if failure is not None:
            raise failure
        await self._syncs_of_deletions.run()

    async def _sync_deletions(self) -> None:
        await self.disk.sync_directory(self.directory.path)
        await self.remove_stale_entries()

    async def remove_stale_entries(self) -> None:
        """Remove the entries of deleted logs from the checkpoints.

        After a crash, an old entry would apply to the next log of the same name. With the old high watermark, that log
        would return uncommitted records. With the old recovery point, it would not check unflushed batches. With the
        old log start offset, it would hide records.

        Raises:
            OSError: A disk operation fails.
        """
        await self._checkpoints.remove_stale_entries(self._logs)

    async def remove_deleted(self, now_ms: int) -> None:
        """Remove the files of logs and segments that were deleted at least file.delete.delay.ms ago.

        The delay starts at the first call after the deletion. `now_ms` is monotonic: it is kept in memory only.

        Raises:
            OSError: A disk operation fails.
        """
        for partition_log in self:
            while not partition_log.closed:
                if partition_log.remove_deleted(now_ms) < FILES_PER_STEP:
                    break
                await sleep(0)
        await self._deleted_and_stray.remove_deleted(now_ms)

    # ---- upkeep -----------------------------------------------------------------------------------------------------

    async def flush_sealed(self) -> list[tuple[PartitionLog, OSError]]:
        """Flush the sealed segments of all logs. Return (log, error) of each log whose flush failed.

        A recovery after an unclean shutdown then has to check only active segments.
        """
        failures = []
        for number, partition_log in enumerate(self, 1):
            if number % LOGS_PER_SLICE == 0:
                await sleep(0)
            if partition_log.sealed_unflushed and not partition_log.failed and not partition_log.closed:
                try:
                    await partition_log.flush(partition_log.segments.active.base_offset)
                except ResourcesExhausted as error:
                    _logger.warning("flush postponed: no resources", path=partition_log.directory, reason=str(error))
                except OSError as error:
                    failures.append((partition_log, error))
        return failures

    async def move_recovery_starts(self) -> list[tuple[PartitionLog, OSError | None]]:
        """Flush all logs of which a recovery would check BYTES_TO_RECOVER_MAX or more.

        Return each of these logs, with the error if its flush failed. The caller then checkpoints the recovery points.
        """
        flushed: list[tuple[PartitionLog, OSError | None]] = []
        for number, partition_log in enumerate(self, 1):
            if number % LOGS_PER_SLICE == 0:
                await sleep(0)
            if partition_log.failed or partition_log.closed or partition_log.topic in FLUSHED_TOPICS:
                continue
            if partition_log.bytes_to_recover >= BYTES_TO_RECOVER_MAX:
                try:
                    await partition_log.flush_for_recovery()
                    flushed.append((partition_log, None))
                except ResourcesExhausted as error:
                    _logger.warning("flush postponed: no resources", path=partition_log.directory, reason=str(error))
                except OSError as error:
                    flushed.append((partition_log, error))
        return flushed

    async def checkpoint_recovery_points(self) -> None:
        """Write `recovery-point-offset-checkpoint`, and the recovery starts if they have changed.

        Raises:
            OSError: A disk operation fails.
        """
        starts = self._checkpoints.recovery_starts
        behind = await starts.is_behind_in_slices()
        await sleep(0)  # the last slice of this check and the first slice of a write take 4 ms together
        if behind:
            await starts.write()
        await self._checkpoints.recovery_points.write()

    async def checkpoint_log_starts(self) -> None:
        """Write `log-start-offset-checkpoint`. Raise OSError if a disk operation fails."""
        await self._checkpoints.log_starts.write()

    async def checkpoint_high_watermarks(self) -> None:
        """Write `replication-offset-checkpoint`. Raise OSError if a disk operation fails."""
        await self._checkpoints.high_watermarks.write()

    async def checkpoint_cleaned(self) -> None:
        """Write `cleaner-offset-checkpoint`. Raise OSError if a disk operation fails."""
        await self._checkpoints.cleaned.write()

    async def lower_recovery_point(self, topic: str, partition: int, offset: int) -> None:
        """Lower the recovery point, the recovery start and the cleaner offset of a log to `offset`.

        The caller truncates the log to there after this call, without a pause. With the old recovery point, a recovery
        would not check records that were appended in place of truncated ones. No effect if none is above `offset`.

        Raises:
            OSError: A disk operation fails.
        """
        partition_log = self._logs[topic, partition]
        while True:  # a flush can raise the offsets again during a write
            if offset < max(partition_log.flushed_offset, partition_log.recovery_start or 0):
                partition_log.local.lower_recovery_point(offset)
                await self._checkpoints.recovery_starts.lower((topic, partition), offset)
                await self._checkpoints.recovery_points.write()
            elif partition_log.cleaned_to is not None and offset < partition_log.cleaned_to:
                # With the old cleaner offset, compaction could remove a tombstone that is appended below it earlier
                # than the records that the tombstone deletes.
                partition_log.lower_cleaned_to(offset)
                await self.checkpoint_cleaned()
            else:
                return

    def close(self, *, clean: bool = True, broker_epoch: int = -1, on_step: Callable[[], None] = lambda: None) -> None:
        """Close every log and release the lock of the directory. The call blocks.

        The checkpoints and the clean-shutdown marker are written only if `scan` was complete and every log was closed
        cleanly. If `load` was not complete, the logs that are not open must be those of a clean shutdown. Disk errors
        are logged; the next start then recovers the logs. `on_step` is called after each step of the flush of a log,
        also from threads.
        """
        clean = clean and self.loading.is_scanned and self._write_recovery_starts()
        all_clean = clean and not self._open_errors
        if self.loading.remaining and not self.directory.clean_start:
            all_clean = False  # the other logs are not recovered
        logs = list(self._logs.values())
        failures = flush_logs(self.disk, self.directory.path, logs, on_step) if clean else [None] * len(logs)
        for partition_log, error in zip(logs, failures, strict=True):
            if error is not None:
                _logger.error("log not closed cleanly", path=partition_log.directory, reason=str(error))
            all_clean = all_clean and error is None and not partition_log.failed
            partition_log.close(clean=False)
        try:
            if all_clean and self.directory.claimed:
                self._checkpoints.write_now()
                self.directory.mark_clean_shutdown(broker_epoch)
        except OSError as error:
            path = self.directory.path
            _logger.error("clean-shutdown marker not written", path=path, reason=str(error))  # noqa: TRY400  # as above
        finally:
            self._logs.clear()
            self.directory.release()

    def _write_recovery_starts(self) -> bool:
        """Remove the recovery starts that this run could not use, before a stop writes snapshots there. It blocks.

        Return False if it fails.
        """
        starts = self._checkpoints.recovery_starts
        try:
            if self.directory.claimed and starts.is_behind:
                starts.write_now()
        except OSError as error:
            path = self.directory.path
            _logger.error("recovery starts not written", path=path, reason=str(error))  # noqa: TRY400  # it names the cause
            return False
        return True
