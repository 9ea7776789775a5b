"""Use changed certificates without a restart: after a change of their files or of the properties of this broker."""

from asyncio import Event, Lock, timeout
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from odradek.broker.config.properties import Config
from odradek.broker.config.property import ConfigError
from odradek.broker.tls.node_tls import NodeTls
from odradek.storage.disk.port import Disk

CHECK_INTERVAL_S: Final = 5.0
"""Seconds between two checks of the files. A check reads them, usually some KiB."""
_logger = structlog.get_logger(__name__)


class TlsReload:
    """Check the files and the properties of all listeners with TLS. Replace the contexts for new connections.

    An invalid change is logged once, and the contexts stay unchanged. Existing connections stay open.
    """

    def __init__(self, tls: NodeTls, config: Config, disk: Disk) -> None:
        self._tls = tls
        self._config = config
        self._disk = disk
        self._due = Event()
        self._lock = Lock()
        self._problems: dict[str, str] = {}

    async def run(self) -> None:
        """Check at each interval, and after each change of the properties."""
        while True:
            with suppress(TimeoutError):
                async with timeout(CHECK_INTERVAL_S):
                    await self._due.wait()
            self._due.clear()
            await self.check()

    async def check(self) -> None:
        """Use the contexts of listeners whose properties or files have changed."""
        for listener in self._tls.listeners:
            try:
                changed = partial(listener.changed, self._config, self._disk.read_file)
                contexts = await self._disk.in_thread(changed)
            except ConfigError as error:
                if self._problems.get(listener.name) != str(error):
                    self._problems[listener.name] = str(error)
                    _logger.warning("changed certificates refused", listener=listener.name, reason=str(error))
                continue
            self._problems.pop(listener.name, None)
            if contexts is not None:
                listener.use(contexts)
                _logger.info("certificates replaced", listener=listener.name)
