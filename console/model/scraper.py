"""Periodic scrapes of the metrics of brokers: history of the charts that only Odradek brokers have."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from odradek.console.model.charts import METRIC_NAMES, broker_values
from odradek.console.model.http_address import parse_http_address
from odradek.console.model.http_get import HttpFailed, http_get
from odradek.console.model.prometheus import parse
from odradek.console.model.series import INTERVAL_S, History, Rates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.console.model.prometheus import Scrape

SCRAPE_TIMEOUT_S: Final = 2.0
"""Seconds for a response of a broker. A broker builds its metrics in about 10 ms."""
SCRAPE_BYTES_MAX: Final = 16 * 2**20
"""Maximum size of a scrape in bytes. A broker has at most about 2 MiB: the number of its rows is bounded."""

METRICS_PATH: Final = "/metrics"
"""Path that is requested if an address has none. Brokers of Odradek serve their metrics there."""


class Scraper:
    """Metrics of brokers, from `start` until `close`.

    Args:
        urls: Addresses of metrics. None of them follows a redirect or uses a proxy.

    Raises:
        InvalidArgument: An address is malformed.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self.history = History()
        self.errors: dict[str, str] = {}
        """Reason by address, for each broker whose last scrape failed."""
        self._urls = _by_name(urls)
        self._rates = Rates()
        self._task: asyncio.Task[None] | None = None

    @property
    def enabled(self) -> bool:
        """Return True if there is an address."""
        return bool(self._urls)

    def start(self) -> None:
        """Start the scrapes, if there is an address."""
        if self._task is None and self._urls:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """End the scrapes."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await self.sample()
                await asyncio.sleep(INTERVAL_S)

    async def sample(self) -> None:
        """Scrape all brokers once. A broker that does not respond has a gap."""
        found = await asyncio.gather(*map(scrape, self._urls.values()), return_exceptions=True)
        scrapes: dict[str, Scrape] = {}
        errors: dict[str, str] = {}
        for name, result in zip(self._urls, found, strict=True):
            if isinstance(result, HttpFailed):
                errors[name] = str(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                scrapes[name] = result
        self.errors = errors
        at_s = time.time()
        self.history.add(at_s, broker_values(scrapes, at_s, self._rates, self.history))


def _by_name(urls: Sequence[str]) -> dict[str, str]:
    """Return addresses by the names of their series: host and port, or the whole address if others have the same."""
    hosts = {url: parse_http_address(url, "--prometheus").netloc for url in urls}
    shared = Counter(hosts.values())
    return {url if shared[host] > 1 else host: url for url, host in hosts.items()}


async def scrape(url: str) -> Scrape:
    """Return the metrics of a broker that the charts use. Raise HttpFailed if they cannot be read."""
    server = parse_http_address(url, "--prometheus")
    path = METRICS_PATH if server.path in {"", "/"} else server.path
    target = f"{path}?{server.query}" if server.query else path
    found = await http_get(server, target, deadline_s=SCRAPE_TIMEOUT_S, bytes_max=SCRAPE_BYTES_MAX)
    if found.status != HTTPStatus.OK:
        raise HttpFailed(f"the response has the status {found.status}")
    return parse(found.body.decode(errors="replace"), METRIC_NAMES)
