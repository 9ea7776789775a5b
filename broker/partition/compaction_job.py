"""Compaction of the logs here, leaders and followers alike: which log is next, and how much of the loop it may take.

One log after the other, the one with the largest dirty part first. It is worked on in slices of about half a millisecond, after each
of which the loop is left alone for three times as long: whoever sends a request meanwhile does not notice.
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
from odradek.storage.compaction.cleaner import (
    CleanerLimits,
    Cleaning,
    CleaningInterrupted,
    cleanable,
    read_first_timestamps,
)
from odradek.storage.data_directory.log_manager import LogManager
from odradek.storage.log.log import PartitionLog

LOG: Final = structlog.get_logger(__name__)
REST: Final = 3
"""Rest after work, in terms of the work: compaction takes a quarter of the loop at most."""
LOGS_AT_ONCE: Final = 16
"""Logs looked at before others have a turn."""


class Compaction:
    """`run` for as long as the node lives."""

    def __init__(self, settings: TopicSettings, clock: Clock, partitions: Partitions, logs: LogManager) -> None:
        self._settings = settings
        self._clock = clock
        self._partitions = partitions
        self._logs = logs
        self._damaged: dict[PartitionLog, None] = {}
        """Left alone until the next start, as in Kafka."""

    async def run(self) -> None:
        while True:
            await self.clean_due()
            # Kafka allows 0: it then looks again and again.
            await sleep(max(self._current("log.cleaner.backoff.ms"), 1) / 1_000)

    async def clean_due(self) -> None:
        """Clean until there is nothing that is due."""
        given_up: dict[PartitionLog, None] = {}
        self._damaged = {log: None for log in self._damaged if not log.closed}
        while (partition := await self._dirtiest(given_up)) is not None:
            if not await self._clean(partition):
                given_up[partition.log] = None

    async def _dirtiest(self, given_up: dict[PartitionLog, None]) -> Partition | None:
        best: Partition | None = None
        ratio = 0.0
        looked_at = 0
        for partition in self._partitions:
            log = partition.log
            if not (partition.online and log.config.compacted) or log in given_up or log in self._damaged:
                continue
            looked_at += 1
            if looked_at % LOGS_AT_ONCE == 0:
                await sleep(0)
            try:
                await read_first_timestamps(log)
            except OSError as error:
                LOG.warning("a log cannot be looked at for compaction", directory=log.directory, reason=str(error))
                continue
            plan = cleanable(log, self._clock.wall_ms())
            if plan.due(log.config) and (best is None or plan.ratio > ratio):
                best, ratio = partition, plan.ratio
        return best

    async def _clean(self, partition: Partition) -> bool:
        """Whether it came to an end."""
        log, now_ms = partition.log, self._clock.wall_ms()
        limits = CleanerLimits(
            self._current("log.cleaner.dedupe.buffer.size"),
            self._current("log.cleaner.io.buffer.load.factor"),
            self._current("log.cleaner.io.buffer.size"),
        )
        pace = pacing(self._current("log.cleaner.io.max.bytes.per.second"))
        # Planned here: what is cut from the log from now on, while it is flushed too, ends the cleaning.
        plan = cleanable(log, now_ms)
        cleaning = Cleaning(log, plan, limits, pace, now_ms=now_ms)
        try:
            # Between two segments that were cleaned there may be a gap. Recovery takes that for a loss, unless it knows
            # that both had been durable.
            await log.flush(plan.bound)
            await self._logs.checkpoint_recovery_points()
            done = await cleaning.run()
            await self._logs.checkpoint_cleaned()
        except CleaningInterrupted:
            return False
        except Malformed as error:
            LOG.error("log is damaged and is not compacted", directory=log.directory, reason=str(error))  # noqa: TRY400  # the reason says it all
            self._damaged[log] = None
            return False
        except OSError as error:
            if log.closed:
                return False
            if log.failed:
                partition.take_offline(error)
            LOG.warning("compaction was refused by the disk", directory=log.directory, reason=str(error))
            return False
        LOG.debug(
            "log compacted",
            directory=log.directory,
            upto=done.end_offset,
            before=done.bytes_before,
            after=done.bytes_after,
        )
        return True

    def _current(self, name: str) -> Any:
        return self._settings.current(PROPERTIES[name])


def pacing(bytes_per_second: float) -> Callable[[int], Awaitable[None]]:
    """What is awaited between two slices of work, with the bytes that were moved."""
    loop = get_running_loop()
    resumed = loop.time()

    async def pace(moved_bytes: int) -> None:
        nonlocal resumed
        await sleep(max((loop.time() - resumed) * REST, moved_bytes / bytes_per_second))
        resumed = loop.time()

    return pace
