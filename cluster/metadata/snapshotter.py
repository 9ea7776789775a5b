"""Write snapshots of the committed metadata. The log before the snapshot can then be deleted (KIP-630)."""

from __future__ import annotations

from asyncio import sleep
from typing import TYPE_CHECKING, Final

import structlog

from odradek.cluster.metadata.snapshot import snapshot_batches
from odradek.cluster.raft.messages import EpochEnd
from odradek.frozen import frozen_dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.cluster.metadata.cache import MetadataCache
    from odradek.cluster.metadata.image import MetadataImage
    from odradek.cluster.raft.batches import LogBatch
    from odradek.cluster.raft.driver import RaftDriver
    from odradek.cluster.raft.ports import SnapshotWriter
    from odradek.runtime.clock import Clock
    from odradek.runtime.shard import FailureHandler
    from odradek.runtime.tasks import Tasks

NAME: Final = "metadata-snapshot"
_logger = structlog.get_logger(__name__)


@frozen_dataclass(frozen=True, slots=True)
class SnapshotConfig:
    """The conditions for another snapshot."""

    bytes_max: int = 20 * 1024 * 1024
    """Kafka's metadata.log.max.record.bytes.between.snapshots."""
    interval_ms: int = 3_600_000
    """Kafka's metadata.log.max.snapshot.interval.ms. 0: no time limit."""


class Snapshotter:
    """Write metadata snapshots, by the number of committed bytes and by time.

    One snapshot is written at a time, some records per turn of the event loop. A failed snapshot is deleted. The log is
    unchanged, and the next commit starts another snapshot.
    """

    def __init__(
        self,
        driver: RaftDriver,
        metadata: MetadataCache,
        clock: Clock,
        tasks: Tasks,
        on_failure: FailureHandler,
        config: SnapshotConfig,
    ) -> None:
        """Subscribe to `driver`, after `metadata`: the image must contain the batches that the snapshotter receives."""
        self._driver = driver
        self._metadata = metadata
        self._clock = clock
        self._tasks = tasks
        self._on_failure = on_failure
        self._config = config
        self._bytes = 0
        self._newest_ms = -1
        self._since_ms: int | None = None
        self._writing = False
        driver.on_committed(self._on_committed)

    def _on_committed(self, batches: Sequence[LogBatch]) -> None:
        self._bytes += sum(batch.size for batch in batches)
        self._newest_ms = max(batch.timestamp_ms for batch in batches)
        if self._since_ms is None:
            self._since_ms = self._clock.monotonic_ms()
        self._begin_if_due()

    def _begin_if_due(self) -> None:
        now_ms = self._clock.monotonic_ms()
        assert self._since_ms is not None
        interval_ms = self._config.interval_ms
        is_old = self._bytes > 0 and 0 < interval_ms <= now_ms - self._since_ms
        is_due = is_old or self._bytes >= self._config.bytes_max
        if is_due and not self._writing and self._metadata.image.offset >= 0:
            self._bytes = 0
            self._since_ms = now_ms
            self._writing = True
            self._tasks.spawn(self._make(self._metadata.image), NAME)

    async def _make(self, image: MetadataImage) -> None:
        try:
            await self._try(image, EpochEnd(image.epoch, image.offset + 1))
        finally:
            self._writing = False
        self._begin_if_due()  # batches were committed during the write

    async def _try(self, image: MetadataImage, snapshot: EpochEnd) -> None:
        writer: SnapshotWriter | None = None
        try:
            writer = self._driver.begin_snapshot(snapshot)
            await self._write(image, snapshot, writer)
        except OSError as error:
            _logger.error("metadata snapshot failed", reason=str(error))  # noqa: TRY400  no traceback
            if writer is not None:
                writer.abandon()
        except Exception as error:  # noqa: BLE001  a bug must be visible
            self._on_failure(NAME, error)
        else:
            _logger.info("metadata snapshot written", end_offset=snapshot.end_offset, epoch=snapshot.epoch)
            self._driver.snapshot_made(snapshot)

    async def _write(self, image: MetadataImage, snapshot: EpochEnd, writer: SnapshotWriter) -> None:
        now_ms = self._clock.wall_ms()
        for data in snapshot_batches(image, snapshot, last_contained_ms=self._newest_ms, now_ms=now_ms):
            writer.append(data)
            await sleep(0)  # let other tasks run between two batches
        await writer.finish()
