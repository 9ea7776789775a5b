"""The clock of a node: the clock of its environment, with the expiry time (`odradek.runtime.expiry_time`)."""

import json
from functools import partial
from typing import Final

import structlog

from odradek.runtime.clock import Clock
from odradek.runtime.expiry_time import ExpiryTime
from odradek.runtime.repeated_tasks import repeat
from odradek.runtime.tasks import Spawn
from odradek.storage.disk.port import Disk
from odradek.storage.files import names

LAG_REPORTED_MS: Final = 120_000
"""Difference in milliseconds between wall clock and expiry time that is logged. The checkpoint has an age of at most
one minute, so a restart alone does not reach it."""
CHECKPOINT_INTERVAL_MS: Final = 60_000
"""Milliseconds between two checkpoints of the expiry time."""
_logger = structlog.get_logger(__name__)


class ExpiryClock:
    """Clock (`odradek.runtime.clock.Clock`) on the clock of the environment and the send times of datagrams."""

    def __init__(self, source: Clock) -> None:
        self.wall_ms = source.wall_ms
        self.monotonic_ms = source.monotonic_ms
        self.monotonic_us = source.monotonic_us
        self._time = ExpiryTime()
        self._peers: dict[int, int] = {}
        """Wall clock minus this node's monotonic clock, per other node. A jump of this node's wall clock keeps it."""
        self._lags = False

    def received(self, node_id: int, sent_ms: int) -> None:
        """Note the wall clock of another node, from a datagram that arrived now."""
        self._peers[node_id] = sent_ms - self.monotonic_ms()

    def expiry_ms(self) -> int:
        monotonic_ms, wall_ms = self.monotonic_ms(), self.wall_ms()
        peers_ms = (monotonic_ms + difference_ms for difference_ms in self._peers.values())
        now_ms = self._time.advance(monotonic_ms=monotonic_ms, wall_ms=wall_ms, peers_ms=peers_ms)
        self._report(wall_ms - now_ms)
        return now_ms

    def _report(self, lag_ms: int) -> None:
        if (lag_ms > LAG_REPORTED_MS) == self._lags:
            return
        self._lags = not self._lags
        if not self._lags:
            _logger.info("expiry time equals wall clock")
            return
        _logger.warning(
            "expiry time behind wall clock",
            lag_ms=lag_ms,
            remedy="retention and expiration are late by lag_ms, which decreases: this host was stopped or suspended,"
            " or its clock was set forward. If the clock is wrong, correct it by a time service (NTP)",
        )

    # ---- the checkpoint ---------------------------------------------------------------------------------------------

    def restore(self, disk: Disk, log_dir: str) -> None:
        """Begin at the checkpoint of the previous run. An absent or damaged checkpoint has no effect.

        Raise OSError if it cannot be read: without it, a wall clock that jumped would be the expiry time.
        """
        path = f"{log_dir}/{names.EXPIRY_TIME}"
        try:
            if disk.exists(path):
                self._time.restore(int(json.loads(disk.read_file(path))["expiryMs"]), self.monotonic_ms())
        except (ValueError, KeyError, TypeError) as error:
            _logger.warning("checkpoint of the expiry time ignored", path=path, reason=str(error))

    def start(self, disk: Disk, log_dir: str, spawn: Spawn) -> None:
        """Start to write checkpoints."""
        name = "job: checkpoint of the expiry time"
        spawn(repeat(partial(self.checkpoint, disk, log_dir), 0, CHECKPOINT_INTERVAL_MS, spawn, name), name)

    async def checkpoint(self, disk: Disk, log_dir: str) -> None:
        """Write the expiry time for the next run. A disk error is logged: the next checkpoint tries again."""
        path = f"{log_dir}/{names.EXPIRY_TIME}"
        content = {"version": 0, "expiryMs": self.expiry_ms()}
        try:
            await disk.replace_file(path, json.dumps(content).encode())
        except OSError as error:
            _logger.warning("checkpoint of the expiry time failed", path=path, reason=str(error))
