"""Compact the logs of this broker: select the next log, and limit the share of the event loop that compaction takes.

Leaders and followers compact their own logs, as in Kafka. One log is compacted at a time, the one with the highest
ratio of dirty bytes first (LogCleanerManager.grabFilthiestCompactedLog). Compaction works in slices of about half a
millisecond. After each slice it sleeps for three times as long, so the latency of concurrent requests hardly rises.
"""

from asyncio import get_running_loop, sleep
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from odradek.broker.config.properties import PROPERTIES
from odradek.broker.config.topics import TopicSettings
from odradek.broker.partition.partition import Partition
from odradek.broker.partition.registry import Partitions
from odradek.protocol.errors import Malformed
from odradek.runtime.clock import Clock
from odradek.runtime.repeated_tasks import report
from odradek.runtime.rest import Pace
from odradek.runtime.tasks import Spawn
from odradek.storage.compaction.cleaner import (
    CleanerLimits,
    Cleaning,
    CleaningInterrupted,
    cleanable,
    read_first_timestamps,
)
from odradek.storage.data_directory.log_manager import LogManager
from odradek.storage.log.log import PartitionLog

_logger = structlog.get_logger(__name__)
RECHECK_SECONDS: Final = 15.0
"""Maximum seconds of a pause before the configuration is read again. A client can set a pause of years."""
PAUSE_FACTOR: Final = 3
"""Length of the pause after a slice of work, as a multiple of the slice: compaction takes at most a quarter of the
event loop."""
LOGS_PER_SLICE: Final = 16
"""Maximum logs that are examined before the event loop runs other tasks."""


class CompactionJob:
    """The compaction task of one broker. `run` never returns; the owner of the task cancels it."""

    def __init__(
        self, settings: TopicSettings, clock: Clock, partitions: Partitions, logs: LogManager, spawn: Spawn
    ) -> None:
        """Prepare the job. The owner of `spawn` reports the unexpected exceptions of a compaction."""
        self._settings = settings
        self._clock = clock
        self._partitions = partitions
        self._logs = logs
        self._spawn = spawn
        self._damaged: dict[PartitionLog, None] = {}
        """Logs with a malformed batch, or whose compaction raised an unexpected exception.

        They are not compacted until the next start of the broker, as in Kafka.
        """

    async def run(self) -> None:
        """Compact all due logs, sleep for log.cleaner.backoff.ms, and repeat."""
        while True:
            await self.clean_due()
            await self._back_off()

    async def _back_off(self) -> None:
        """Sleep for log.cleaner.backoff.ms. A lower value takes effect within RECHECK_SECONDS."""
        begin = get_running_loop().time()
        # Kafka permits a backoff of 0. The minimum of 1 ms keeps the event loop responsive.
        await _sleep_until(lambda: begin + max(self._current("log.cleaner.backoff.ms"), 1) / 1_000)

    async def clean_due(self) -> None:
        """Compact logs until no log is due, except logs whose compaction failed in this call."""
        failed: dict[PartitionLog, None] = {}
        self._damaged = {log: None for log in self._damaged if not log.closed}
        while (partition := await self._dirtiest(failed)) is not None:
            if not await self._clean(partition):
                failed[partition.log] = None

    async def _dirtiest(self, failed: dict[PartitionLog, None]) -> Partition | None:
        best: Partition | None = None
        ratio = 0.0
        examined = 0
        for partition in self._partitions:
            log = partition.log
            if not (partition.online and log.config.compacted) or log in failed or log in self._damaged:
                continue
            examined += 1
            if examined % LOGS_PER_SLICE == 0:
                await sleep(0)
            try:
                await read_first_timestamps(log)
            except OSError as error:
                _logger.warning("log not read for compaction", directory=log.directory, reason=str(error))
                continue
            plan = cleanable(log, self._clock.expiry_ms())
            if plan.due(log.config) and (best is None or plan.ratio > ratio):
                best, ratio = partition, plan.ratio
        return best

    async def _clean(self, partition: Partition) -> bool:
        """Compact one log. Return True if the compaction completed."""
        log, expiry_ms = partition.log, self._clock.expiry_ms()
        limits = CleanerLimits(
            self._current("log.cleaner.dedupe.buffer.size"),
            self._current("log.cleaner.io.buffer.load.factor"),
            self._current("log.cleaner.io.buffer.size"),
        )
        pace = pacing(lambda: self._current("log.cleaner.io.max.bytes.per.second"))
        # Plan before the flush: a truncation during the flush must interrupt this cleaning.
        plan = cleanable(log, expiry_ms)
        cleaning = Cleaning(log, plan, limits, pace, expiry_ms=expiry_ms, wall_ms=self._clock.wall_ms())
        try:
            self._logs.disk.check_resources()
            # 1. Compaction can remove records at the end of a segment: the next segment then starts after a gap.
            # 2. Recovery after a crash reads a gap as lost records, unless the recovery point lies beyond it.
            # So the recovery point moves to the end of the cleaned part first.
            await log.flush(plan.bound)
            await self._logs.checkpoint_recovery_points()
            result = await cleaning.run()
            await self._logs.checkpoint_cleaned()
        except CleaningInterrupted:
            return False
        except Malformed as error:
            # The reason names the damage; a traceback adds nothing to it.
            _logger.error("damaged log not compacted", directory=log.directory, reason=str(error))  # noqa: TRY400
            self._damaged[log] = None
            return False
        except OSError as error:
            if log.closed:
                return False
            if log.failed:
                partition.take_offline(error)
            _logger.warning("compaction failed", directory=log.directory, reason=str(error))
            return False
        except Exception as error:  # noqa: BLE001  it is reported, and other logs are compacted
            report(error, self._spawn, f"compaction of {partition.topic}-{partition.index}")
            self._damaged[log] = None
            return False
        _logger.debug(
            "log compacted",
            directory=log.directory,
            end_offset=result.end_offset,
            bytes_before=result.bytes_before,
            bytes_after=result.bytes_after,
        )
        return True

    def _current(self, name: str) -> Any:
        return self._settings.current(PROPERTIES[name])


def pacing(bytes_per_second: Callable[[], float]) -> Callable[[int], Awaitable[None]]:
    """Return the pause between two slices of compaction.

    Its argument is the number of bytes that the slice moved. The pause keeps the share of PAUSE_FACTOR, and the rate
    below `bytes_per_second()`. A higher rate takes effect within RECHECK_SECONDS.
    """
    loop, pace = get_running_loop(), Pace(PAUSE_FACTOR)

    async def pause(moved_bytes: int) -> None:
        ended = loop.time()
        await pace.rest()
        await _sleep_until(lambda: ended + moved_bytes / bytes_per_second())
        pace.resume()

    return pause


async def _sleep_until(end_s: Callable[[], float]) -> None:
    """Sleep until the time `end_s()` of the event loop's clock, which is evaluated again each RECHECK_SECONDS."""
    loop = get_running_loop()
    while True:
        left_s = end_s() - loop.time()
        if left_s <= 0:
            return
        await sleep(min(left_s, RECHECK_SECONDS))
