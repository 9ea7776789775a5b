"""Use changed certificates without a restart: after a change of their files or of the properties of this broker."""

from asyncio import Event, timeout
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final

import structlog

from odradek.broker.config.properties import Config
from odradek.broker.config.property import ConfigError
from odradek.broker.config.sources import with_dynamic_values
from odradek.broker.tls.node_tls import NodeTls
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import RESOURCE_BROKER, MetadataImage
from odradek.runtime.clock import NEVER_MS, Clock
from odradek.storage.disk.port import Disk

CHECK_INTERVAL_S: Final = 5.0
"""Seconds between two checks of the files. A check reads them, usually some KiB."""
DAY_MS: Final = 24 * 60 * 60 * 1000
WARNING_DAYS: Final = 14
"""Days before the end of the validity of a certificate from which the node logs a warning each day."""
_logger = structlog.get_logger(__name__)


class Certificates:
    """Check the files and the properties of all listeners with TLS. Replace the contexts for new connections.

    An invalid change is logged once, and the contexts stay unchanged. Existing connections stay open.
    """

    def __init__(self, tls: NodeTls, config: Config, disk: Disk, clock: Clock) -> None:
        """`config` has the values of the node's file. `on_metadata` adds the dynamic values of this broker."""
        self._tls = tls
        self._static = config
        self._texts: Mapping[str, str] = {}
        self._disk = disk
        self._clock = clock
        self._warned_ms: dict[str, int] = {}
        """Time of the last warning about the end of the validity, by listener."""
        self._due = Event()
        self._problems: dict[str, str] = {}

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Check the listeners after each change of the dynamic configuration of this broker."""
        own = (RESOURCE_BROKER, str(self._static.node_id))
        if own in delta.changed_configs():
            self._texts = image.config(*own)
            self._due.set()

    async def validate(self, texts: Mapping[str, str]) -> None:
        """Raise ConfigError if no contexts can be made with the dynamic configuration `texts` of this broker."""
        config = with_dynamic_values(self._static, texts)
        for listener in self._tls.listeners:
            await self._disk.in_thread(partial(listener.changed, config, self._disk.read_file))

    async def run(self) -> None:
        """Check at each interval, and after each change of the dynamic configuration."""
        while True:
            self._warn_of_expiry()
            with suppress(TimeoutError):
                async with timeout(CHECK_INTERVAL_S):
                    await self._due.wait()
            self._due.clear()
            await self._check()

    def _warn_of_expiry(self) -> None:
        now_ms = self._clock.wall_ms()
        for listener in self._tls.listeners:
            expires_ms = listener.expires_ms
            if expires_ms is None or expires_ms - now_ms > WARNING_DAYS * DAY_MS:
                self._warned_ms.pop(listener.name, None)
            elif now_ms - self._warned_ms.get(listener.name, NEVER_MS) >= DAY_MS:
                self._warned_ms[listener.name] = now_ms
                event = "certificate expired" if expires_ms <= now_ms else "certificate expires"
                until = datetime.fromtimestamp(expires_ms / 1000, UTC).isoformat(timespec="minutes")
                _logger.warning(event, listener=listener.name, at=until, remedy="replace the file with a new one")

    async def _check(self) -> None:
        """Use the contexts of listeners whose properties or files have changed."""
        for listener in self._tls.listeners:
            try:
                config = with_dynamic_values(self._static, self._texts)
                contexts = await self._disk.in_thread(partial(listener.changed, config, self._disk.read_file))
            except ConfigError as error:
                if self._problems.get(listener.name) != str(error):
                    self._problems[listener.name] = str(error)
                    _logger.warning("changed TLS settings refused", listener=listener.name, reason=str(error))
                continue
            self._problems.pop(listener.name, None)
            if contexts is not None:
                listener.use(contexts)
                _logger.info("TLS settings replaced", listener=listener.name)
