"""Fence this broker while its disk is full, so that brokers with space lead its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from odradek.runtime.repeated_tasks import repeat

if TYPE_CHECKING:
    from odradek.cluster.lifecycle.driver import BrokerLifecycle
    from odradek.runtime.tasks import Spawn
    from odradek.storage.disk.port import Disk

CHECK_INTERVAL_MS: Final = 1_000
"""Milliseconds between two checks of the free space, which take one system call each."""
_logger = structlog.get_logger(__name__)


class DiskSpace:
    """The free space of the data directory of a broker, and the request to be fenced while it is full."""

    def __init__(self, disk: Disk, log_dir: str, lifecycle: BrokerLifecycle) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._lifecycle = lifecycle
        self._full = False

    def start(self, spawn: Spawn) -> None:
        """Start the checks."""
        name = "job: disk space"
        spawn(repeat(self.check, 0, CHECK_INTERVAL_MS, spawn, name), name)

    async def check(self) -> None:
        """Compare the free space with the reserve. Request to be fenced, or to be unfenced, if that has changed."""
        full = self._disk.is_full(self._log_dir)
        if full != self._full:
            self._full = full
            if full:
                _logger.error(
                    "disk full, appends refused",
                    directory=self._log_dir,
                    free_bytes=self._disk.free_bytes(self._log_dir),
                    remedy="free space, delete topics or records, or reduce retention; a restart is not necessary",
                )
            else:
                _logger.info("disk has free space, appends accepted", directory=self._log_dir)
        self._lifecycle.want_fence_for_now(full)
