"""Periodic jobs of a broker on its logs: retention, compaction, checkpoints, producer expiry, flushes by time.

Each job is one task that sleeps for its interval and then does a bounded piece of work, so two runs of a job never
overlap. Intervals use monotonic time. The age of records and producers uses the expiry time, which a jump of the wall
clock does not move.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

from odradek.broker.config.properties import Config
from odradek.broker.config.topics import TopicSettings
from odradek.broker.partition.compaction_job import CompactionJob
from odradek.broker.partition.partition import Partition, log_postponed
from odradek.broker.partition.registry import Partitions
from odradek.runtime.clock import Clock
from odradek.runtime.repeated_tasks import Work, keep_running, repeat, report
from odradek.runtime.tasks import Tasks
from odradek.storage.data_directory.log_manager import LogManager
from odradek.storage.disk.port import ResourcesExhausted
from odradek.storage.log.log import PartitionLog
from odradek.storage.log.retention import SEGMENTS_PER_STEP

_logger = structlog.get_logger(__name__)
REMOVAL_INTERVAL_MS_MIN: Final = 1_000
"""Minimum interval of the removal of deleted files, in milliseconds: it bounds the directory scans. Between this
value and REMOVAL_INTERVAL_MS_MAX the interval is log.segment.delete.delay.ms."""
REMOVAL_INTERVAL_MS_MAX: Final = 60_000
"""Maximum interval of the removal of deleted files, in milliseconds: Kafka's default of log.segment.delete.delay.ms."""
RECOVERY_STARTS_INTERVAL_MS: Final = 5_000
"""Interval in milliseconds at which recovery starts are moved. A recovery also checks what was written in it."""
LAG_SLICE: Final = 256
"""Maximum partitions that are checked for lagging replicas before the event loop runs other tasks."""
INTERVAL_MS_MAX: Final = 365 * 24 * 60 * 60 * 1000
"""Maximum interval of a job (one year), in milliseconds. A longer one means that the job does not run: Kafka's
default of log.flush.scheduler.interval.ms is 2**63 - 1."""


class BackgroundJobs:
    """The periodic jobs on the logs of one broker. Their tasks end with the `Tasks` that owns them."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        partitions: Partitions,
        logs: LogManager,
        tasks: Tasks,
        settings: TopicSettings,
    ) -> None:
        """Prepare the jobs; `start` starts them."""
        self._config = config
        self._clock = clock
        self._partitions = partitions
        self._logs = logs
        self._tasks = tasks
        self._compaction = CompactionJob(settings, clock, partitions, logs, tasks.spawn)
        self._unflushed_since_ms: dict[Partition, int] = {}

    def start(self) -> None:
        """Start all jobs that the configuration enables. Call it once."""
        config = self._config
        initial_ms = config.log_initial_task_delay_ms
        self._every("retention", config.log_retention_check_interval_ms, self.delete_expired, initial_ms)
        self._every("flush by time", config.log_flush_scheduler_interval_ms, self.flush_by_time, initial_ms)
        self._every("recovery points", config.log_flush_offset_checkpoint_interval_ms, self.flush_sealed, initial_ms)
        self._every("recovery starts", RECOVERY_STARTS_INTERVAL_MS, self.move_recovery_starts)
        starts_ms = config.log_flush_start_offset_checkpoint_interval_ms
        self._every("log starts", starts_ms, self._checkpoint(self._logs.checkpoint_log_starts), initial_ms)
        watermarks_ms = config.replica_high_watermark_checkpoint_interval_ms
        self._every("high watermarks", watermarks_ms, self._checkpoint(self._logs.checkpoint_high_watermarks))
        removal_ms = min(max(config.log_segment_delete_delay_ms, REMOVAL_INTERVAL_MS_MIN), REMOVAL_INTERVAL_MS_MAX)
        self._every("deleted files", removal_ms, self._checkpoint(self._remove_deleted))
        # Half of replica.lag.time.max.ms, as in Kafka: a lagging replica leaves the ISR after at most 1.5 times that
        # value.
        self._every("lagging replicas", max(config.replica_lag_time_max_ms // 2, 1), self.check_replica_lag)
        if config.log_cleaner_enable:
            name = "job: compaction"
            self._tasks.spawn(keep_running(self._compaction.run, self._tasks.spawn, name), name)
        self._every("producer expiry", config.producer_id_expiration_check_interval_ms, self.expire_producers)

    def _every(self, name: str, interval_ms: int, job: Work, initial_ms: int | None = None) -> None:
        if 0 < interval_ms <= INTERVAL_MS_MAX:
            first_ms = interval_ms if initial_ms is None else initial_ms
            name = f"job: {name}"
            self._tasks.spawn(repeat(job, first_ms, interval_ms, self._tasks.spawn, name), name)

    async def delete_expired(self) -> None:
        """Apply retention by time and by size to each partition."""
        for partition in self._partitions:
            await self._guarded(partition, self._delete_expired)

    async def flush_sealed(self) -> None:
        """Flush the rolled segments, then checkpoint the recovery points.

        This bounds what the next start has to recover.
        """
        self._take_offline(await self._logs.flush_sealed())
        await self._checkpoint(self._logs.checkpoint_recovery_points)()

    async def move_recovery_starts(self) -> None:
        """Flush the logs of which the next start would have to recover many bytes, also in their active segments."""
        flushed = await self._logs.move_recovery_starts()
        self._take_offline((log, error) for log, error in flushed if error is not None)
        if flushed:
            await self._checkpoint(self._logs.checkpoint_recovery_points)()

    def _take_offline(self, failures: Iterable[tuple[PartitionLog, OSError]]) -> None:
        """Take the partitions of logs offline whose flush has failed."""
        for log, error in failures:
            for partition in self._partitions:
                if partition.log is log:
                    partition.take_offline(error)

    async def check_replica_lag(self) -> None:
        """Propose ISRs without lagging replicas for all partitions that this broker leads."""
        await check_replica_lag(self._partitions, self._clock)

    async def expire_producers(self) -> None:
        """Remove the producer ids that have not written for producer.id.expiration.ms."""
        for partition in self._partitions:
            await self._guarded(partition, self._expire_producers)

    async def flush_by_time(self) -> None:
        """Flush the logs that have had unflushed records for flush.ms or longer."""
        since, self._unflushed_since_ms = self._unflushed_since_ms, {}
        for partition in self._partitions:
            now_ms = self._clock.monotonic_ms()
            log = partition.log
            if log.flushed_offset >= log.log_end_offset:
                continue
            since_ms = since.get(partition, now_ms)
            if now_ms - since_ms < log.config.flush_ms:
                self._unflushed_since_ms[partition] = since_ms
            else:
                await self._guarded(partition, _flush)

    async def _guarded(self, partition: Partition, work: Callable[[Partition], Awaitable[None]]) -> None:
        """Run `work` on an online partition. A disk error takes only that partition offline, and the job continues.

        An unexpected exception is reported, and the job continues with the next partition.
        """
        if not partition.online:
            return
        try:
            await work(partition)
        except ResourcesExhausted as error:
            log_postponed("background job", partition.topic, partition.index, error)
        except OSError as error:
            partition.take_offline(error)
        except Exception as error:  # noqa: BLE001  it is reported
            report(error, self._tasks.spawn, f"background job of {partition.topic}-{partition.index}")
        await asyncio.sleep(0)

    def _checkpoint(self, work: Callable[[], Awaitable[None]]) -> Work:
        """Return a job that runs `work` and logs a disk error instead of raising it: the next run tries again."""

        async def checkpoint() -> None:
            try:
                await work()
            except OSError as error:
                _logger.warning("checkpoint failed", reason=str(error))

        return checkpoint

    async def _remove_deleted(self) -> None:
        await self._logs.remove_deleted(self._clock.monotonic_ms())

    async def _expire_producers(self, partition: Partition) -> None:
        partition.log.expire_producers(self._clock.monotonic_ms())

    async def _delete_expired(self, partition: Partition) -> None:
        now_ms = self._clock.expiry_ms()
        while apply_retention(partition, now_ms):
            await asyncio.sleep(0)
            if partition.log.closed:
                return


async def check_replica_lag(partitions: Iterable[Partition], clock: Clock) -> None:
    """Propose ISRs without the replicas that did not catch up for replica.lag.time.max.ms."""
    now_ms = clock.monotonic_ms()
    for number, partition in enumerate(partitions, 1):
        if partition.leader_term is not None:
            partition.leader_term.check_replica_lag(now_ms)
        if number % LAG_SLICE == 0:
            await asyncio.sleep(0)


def apply_retention(partition: Partition, now_ms: int) -> bool:
    """Delete segments of one partition that exceed retention.ms or retention.bytes: at most SEGMENTS_PER_STEP.

    Return True if there may be more. Raise OSError if the disk fails.
    """
    log = partition.log
    start = log.log_start_offset
    deleted = log.delete_expired_segments(now_ms)
    if partition.leader_term is not None and log.log_start_offset > start:
        partition.leader_term.log_start_moved()
    return deleted == SEGMENTS_PER_STEP


async def _flush(partition: Partition) -> None:
    await partition.log.flush()
