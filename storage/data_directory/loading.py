"""Open the logs of a data directory at the start of a node: first the metadata log, then all others in threads.

A node takes part in the metadata quorum while its other logs are recovered. So the recovery of a large log delays
neither elections of the quorum nor its other members. The node registers as a broker when all logs are open: only then
is it known whether records were lost.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from odradek.protocol.internal_topics import CLUSTER_METADATA, CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.storage.config import CLEANUP_COMPACT
from odradek.storage.disk.port import ResourcesExhausted
from odradek.storage.files import names
from odradek.storage.log.log import PartitionLog
from odradek.storage.recovery.loaded_log import RecoveryProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from odradek.storage.config import LogConfig
    from odradek.storage.data_directory.checkpoints import CheckpointedOffsets, Checkpoints
    from odradek.storage.data_directory.deleted_and_stray import DeletedAndStrayDirectories
    from odradek.storage.data_directory.directory import DataDirectory
    from odradek.storage.disk.port import Disk
    from odradek.storage.files.checkpoint import TopicPartition

_logger = structlog.get_logger(__name__)

COMPACTED_TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE)
"""Topics that brokers always compact."""
FLUSHED_TOPICS = (CLUSTER_METADATA,)
"""Topics that Raft writes. It commits only durable records, so a crash loses no record below their high watermark."""
RECOVERY_THREADS = 2
"""Threads per data directory that open and recover logs: Kafka's default of num.recovery.threads.per.data.dir.

More threads would delay the event loop, because all of them use the interpreter.
"""
LOGS_PER_JOB = 8
"""Logs that a thread opens before it returns to the event loop. It divides the cost of the return."""
MISSING_NAMED_MAX = 10
"""Maximum missing partition directories that a log event names."""
PROGRESS_INTERVAL_S = 5.0
"""Seconds between two log events about the progress of the recovery."""

Opened = list[tuple[tuple[str, int], PartitionLog | OSError]]
"""Topic and partition of each log, and the open log or the error of its opening."""


class Loading:
    """The logs of a data directory that are not open yet."""

    def __init__(
        self,
        disk: Disk,
        directory: DataDirectory,
        default_config: LogConfig,
        checkpoints: Checkpoints,
        deleted_and_stray: DeletedAndStrayDirectories,
        logs: dict[TopicPartition, PartitionLog],
        errors: dict[TopicPartition, OSError],
        disk_of: Callable[[str], Disk],
    ) -> None:
        """Prepare; `scan` finds the logs. Opened logs are added to `logs`, and the errors of the others to `errors`.

        `disk_of` returns the disk of the logs of a topic.
        """
        self._disk = disk
        self._disk_of = disk_of
        self._directory = directory
        self._default_config = default_config
        self._checkpoints = checkpoints
        self._deleted_and_stray = deleted_and_stray
        self._logs = logs
        self._errors = errors
        self._offsets: CheckpointedOffsets | None = None
        self._remaining: dict[TopicPartition, None] = {}
        self._now_ms = self._monotonic_ms = 0
        self._on_flushed_loss: Callable[[str], None] | None = None
        self._progress = [RecoveryProgress() for _ in range(RECOVERY_THREADS)]
        self.total = 0
        """Logs that `scan` has found."""
        self.is_scanned = False
        """`scan` was complete: `remaining` and the checkpoints in memory are those of the directory."""

    @property
    def remaining(self) -> int:
        """Number of logs that are not open yet."""
        return len(self._remaining)

    @property
    def remaining_segments(self) -> list[int]:
        """Number of segments to recover in the log that each thread recovers now."""
        return [progress.remaining_segments for progress in self._progress]

    def scan(
        self,
        now_ms: int,
        monotonic_ms: int,
        refuse_loss: Sequence[str],
        on_flushed_loss: Callable[[str], None] | None,
    ) -> CheckpointedOffsets:
        """Read the checkpoints, find all logs, and open those of FLUSHED_TOPICS. The call blocks.

        A log whose topic is in `refuse_loss` is not opened if it ends below its high watermark: no other node has the
        lost records. `on_flushed_loss` is `OpenOptions.on_loss` of these logs.

        Raises:
            ResourcesExhausted: No descriptor is left.
            OSError: The directory cannot be listed, or a checkpoint cannot be read.
        """
        self._now_ms, self._monotonic_ms = now_ms, monotonic_ms
        self._on_flushed_loss = on_flushed_loss
        self._offsets = self._checkpoints.read()
        for name in self._disk.list_directories(self._directory.path):
            if name.endswith(names.DELETED_DIRECTORY_SUFFIX):
                path = self._directory.path_of(name)
                self._deleted_and_stray.add_deleted(path, self._default_config.file_delete_delay_ms)
                continue
            key = names.parse_partition_directory(name)
            if key is None:
                _logger.warning("unknown directory ignored", path=self._directory.path_of(name))
                continue
            self._remaining[key] = None
            self._checkpoints.keep_entries(key)
        self.total = len(self._remaining)
        self._note_missing()
        flushed = [key for key in self._remaining if key[0] in FLUSHED_TOPICS]
        self._add(self._open_each(flushed, self._progress[0], refuse_loss))
        self.is_scanned = True
        return self._offsets

    def _note_missing(self) -> None:
        """Count each log as lost whose directory is missing after a clean shutdown, if it had committed records.

        Otherwise the replica would begin an empty log, as a member of the ISR. After an unclean shutdown, a missing
        directory can be that of a partition that was deleted after the last checkpoint.
        """
        assert self._offsets is not None
        if not self._directory.clean_start:
            return
        missing = [
            f"{topic}-{partition}"
            for (topic, partition), offset in self._offsets.high_watermarks.items()
            if offset > 0 and (topic, partition) not in self._remaining and topic not in FLUSHED_TOPICS
        ]
        if missing:
            named = ", ".join(missing[:MISSING_NAMED_MAX]) + (", ..." if len(missing) > MISSING_NAMED_MAX else "")
            self._directory.note_loss(f"{len(missing)} partition directories are missing: {named}")

    async def open_remaining(self) -> None:
        """Open all other logs in threads. After an unclean shutdown, recover them.

        A log that cannot be opened is skipped; `LogManager.create` raises its error.

        Raises:
            ResourcesExhausted: The descriptors do not suffice for all logs.
            OSError: A checkpoint cannot be written.
        """
        start_s = asyncio.get_running_loop().time()
        queue = list(reversed(self._remaining))
        workers = asyncio.gather(*(self._work(queue, progress) for progress in self._progress), return_exceptions=True)
        reporter = asyncio.ensure_future(self._report())
        try:
            results = await asyncio.shield(workers)
        except asyncio.CancelledError:
            queue.clear()
            await workers  # threads that change files: the lock of the directory must be held until they end
            raise
        finally:
            reporter.cancel()
        for result in results:
            if result is not None:
                raise result
        # The entries of the metadata log stay: Raft compares them with the log end to detect and report a loss.
        ends = {key: log.log_end_offset for key, log in self._logs.items() if key[0] not in FLUSHED_TOPICS}
        await self._checkpoints.cap(ends)
        seconds = round(asyncio.get_running_loop().time() - start_s, 3)
        _logger.info("logs loaded", logs=self.total, seconds=seconds, clean=self._directory.clean_start)

    async def _work(self, queue: list[TopicPartition], progress: RecoveryProgress) -> None:
        while queue:
            keys = [queue.pop() for _ in range(min(LOGS_PER_JOB, len(queue)))]
            try:
                self._add(await self._disk.in_thread(partial(self._open_each, keys, progress, ())))
            except OSError:
                queue.clear()
                raise

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_INTERVAL_S)
            _logger.info(
                "log recovery progress",
                loaded=self.total - self.remaining,
                logs=self.total,
                segments_remaining=sum(self.remaining_segments),
            )

    def _add(self, opened: Opened) -> None:
        for key, log in opened:
            del self._remaining[key]
            if isinstance(log, PartitionLog):
                self._logs[key] = log
                self._checkpoints.release_entries(key)
            else:
                self._errors[key] = log

    def _open_each(
        self, keys: Iterable[TopicPartition], progress: RecoveryProgress, refuse_loss: Sequence[str]
    ) -> Opened:
        """Open logs. This function runs in a thread, and changes nothing that the event loop uses."""
        opened: Opened = []
        for key in keys:
            path = self._directory.path_of(names.partition_directory(*key))
            try:
                opened.append((key, self._open(path, key, progress, refuse_loss)))
            except ResourcesExhausted:
                for _, log in opened:
                    if isinstance(log, PartitionLog):
                        log.close(clean=False)
                raise
            except OSError as error:
                _logger.error("log not opened", path=path, reason=str(error))  # noqa: TRY400  # the error names the cause
                opened.append((key, error))
        return opened

    def _open(
        self, path: str, key: TopicPartition, progress: RecoveryProgress, refuse_loss: Sequence[str]
    ) -> PartitionLog:
        offsets = self._offsets
        assert offsets is not None
        config = self._assumed_config(key[0])
        if key in offsets.cleaned:
            config = allowing_gaps(config)
        options = offsets.open_options(
            key,
            now_ms=self._now_ms,
            monotonic_ms=self._monotonic_ms,
            clean=self._directory.clean_start,
            refuse_loss=key[0] in refuse_loss,
            on_loss=self._on_flushed_loss if key[0] in FLUSHED_TOPICS else self._directory.note_loss,
            progress=progress,
        )
        return PartitionLog.open(self._disk_of(key[0]), path, config, options, topic=key[0], partition=key[1])

    def _assumed_config(self, topic: str) -> LogConfig:
        """Return the configuration of a topic before the metadata is loaded. COMPACTED_TOPICS may have offset gaps."""
        return allowing_gaps(self._default_config) if topic in COMPACTED_TOPICS else self._default_config


def allowing_gaps(config: LogConfig) -> LogConfig:
    """Return the configuration with compaction, so that recovery accepts gaps between offsets."""
    return replace(config, cleanup_policy=(CLEANUP_COMPACT,))
