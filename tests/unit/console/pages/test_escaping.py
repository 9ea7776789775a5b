"""Texts that clients choose are escaped on all pages of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek import client
from odradek.console.pages.records import FIELDS
from odradek.console.settings import Settings
from tests.support.console_client import SMALL, browser
from tests.support.running_node import running

if TYPE_CHECKING:
    from pathlib import Path

MARKUP = "\"'><img src=x onerror=alert(1)><script>alert(2)</script>{{7*7}}"


async def test_keys_values_and_headers_are_escaped(tmp_path: Path) -> None:
    async with running(tmp_path, *SMALL) as broker:
        bootstrap = f"127.0.0.1:{broker.node.listeners[0].port}"
        async with client.Cluster(bootstrap) as cluster:
            await client.create_topic(cluster, "payments", partitions=1)
            record = client.ProducerRecord(MARKUP.encode(), MARKUP.encode(), headers=((MARKUP, MARKUP.encode()),))
            json = client.ProducerRecord(b'["<img src=x>"]', b'{"a<img src=x>": "<script>"}')
            await client.Producer(cluster).send("payments", [record, json])
        async with browser(Settings(bootstrap)) as console:
            paths = [
                f"/topics/payments/records{rest}"
                for rest in ("", "?as=text", "?as=json", "/0/0", "/0/1", "/0/0?as=hex")
            ]
            given = "%22%3E%3Cimg%20src%3Dx%3E"
            paths += [f"/topics/payments/records?{name}={given}" for name in FIELDS]
            paths += [f"/topics?q={given}", f"/topics?order={given}", f"/topics/{given}", f"/{given}"]
            pages = {path: await console.get(path) for path in paths}
    for path, page in pages.items():
        assert "<img src=x" not in page.text, path
        assert "<script>" not in page.text, path
    assert "{{7*7}}" in pages["/topics/payments/records"].text
    assert "&lt;img src=x onerror=alert(1)&gt;" in pages["/topics/payments/records"].text
    assert [page.status for path, page in pages.items() if path.startswith("/topics/payments")] == [200] * (
        6 + len(FIELDS)
    )


async def test_fields_keep_invisible_characters_of_a_search(tmp_path: Path) -> None:
    addresses = ["/topics?q", "/topology?topic", "/groups?q", "/transactions?q", "/transactions/log?q"]
    addresses += [f"/topics/a/records?{name}" for name in ("key", "from", "time")]
    async with (
        running(tmp_path, *SMALL) as broker,
        browser(Settings(f"127.0.0.1:{broker.node.listeners[0].port}")) as console,
    ):
        pages = {address: await console.get(f"{address}=a%E2%80%8Bb") for address in addresses}
    for address, page in pages.items():
        assert 'value="a\u200bb"' in page.text, address
