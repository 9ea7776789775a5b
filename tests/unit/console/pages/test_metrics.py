"""The page of metrics, against a broker in this process with an address for Prometheus."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from odradek.console.model import observer as observer_module
from odradek.console.model import scraper as scraper_module
from odradek.console.model.charts import BROKER_CHARTS, PROTOCOL_CHARTS
from odradek.console.settings import Settings
from odradek.console.web.render import UNKNOWN
from tests.support.command_line import TIMEOUT_S
from tests.support.console_client import SMALL, browser
from tests.support.ports import free_port
from tests.support.running_node import running

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_samples_of_the_protocol_and_of_prometheus_begin_with_the_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (observer_module, scraper_module):
        monkeypatch.setattr(module, "INTERVAL_S", 0.05)
    monkeypatch.setattr(scraper_module, "SCRAPE_TIMEOUT_S", TIMEOUT_S)
    port, absent = free_port(), free_port()
    urls = (f"http://127.0.0.1:{port}/metrics", f"http://127.0.0.1:{absent}/metrics")
    async with running(tmp_path, *SMALL, f"odradek.metrics.listener=127.0.0.1:{port}") as node:
        settings = Settings(f"127.0.0.1:{node.node.listeners[0].port}", prometheus=urls)
        async with browser(settings) as client:
            observer, scraper = client.app.state.sessions.viewer("").observer, client.app.state.scraper
            async with asyncio.timeout(TIMEOUT_S):
                while not (
                    observer.history.latest("written").get("orders")
                    and scraper.history.latest("requests").get(f"127.0.0.1:{port}")
                ):
                    await node.produce("orders", b"1")
            observer.close()
            scraper.close()
            async with client.stream("/metrics") as source:
                figures = await source.next_of("state")
                data = json.loads(await source.next_of("samples"))
                position = source.last_id
            page = (await client.get("/metrics")).text
            async with client.stream("/metrics", last_event_id=position) as source:
                later = json.loads(await source.next_of("samples"))
    written = data["protocol"]["charts"]["written"]["orders"]
    assert written[0] is None
    assert written[-1] > 0
    assert max(rate or 0 for rate in data["brokers"]["charts"]["requests"][f"127.0.0.1:{port}"]) > 0
    assert data["protocol"]["times"] == observer.history.times()
    assert len(data["protocol"]["times"]) == len(written)
    assert data["brokers"]["times"] == scraper.history.times()
    assert (data["whole"], later["whole"]) == (True, False)
    assert (later["protocol"]["times"], later["brokers"]["times"]) == ([], [])
    assert later["brokers"]["charts"]["requests"][f"127.0.0.1:{port}"] == []
    assert list(scraper.errors) == [f"127.0.0.1:{absent}"]
    for text in (figures, page):
        assert f'<span class="state bad">127.0.0.1:{absent}</span>' in text
    assert "data-chart=" not in figures
    assert page.count("data-chart=") == len(PROTOCOL_CHARTS) + len(BROKER_CHARTS)


async def test_page_without_prometheus_and_without_a_broker_names_the_reason() -> None:
    async with browser(Settings(f"127.0.0.1:{free_port()}")) as client:
        await client.app.state.sessions.viewer("").observer.sample()
        page = (await client.get("/metrics")).text
    assert '<span class="state bad">incomplete</span>' in page
    assert "--prometheus URL" in page
    for name in ("Held back", "Lag to last stable offset", "Lag to high watermark"):
        assert f"<dt>{name}</dt><dd>{UNKNOWN}</dd>" in page
