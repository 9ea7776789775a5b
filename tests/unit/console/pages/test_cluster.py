"""The page of the cluster, against a broker in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.console.settings import Settings
from tests.support.console_client import SMALL, browser
from tests.support.ports import free_port
from tests.support.running_node import running

if TYPE_CHECKING:
    from pathlib import Path


async def test_page_shows_brokers_and_partitions(tmp_path: Path) -> None:
    async with running(tmp_path, *SMALL) as broker:
        await broker.produce("payments", b"1")
        async with browser(Settings(f"127.0.0.1:{broker.node.listeners[0].port}")) as client:
            page = await client.get("/cluster")
            topology = await client.get("/topology?topic=payments")
    assert "<title>payments-0, leader</title>" in topology.text
    assert page.status == 200
    assert '<span class="state good">running</span>' in page.text
    assert f"127.0.0.1:{broker.node.listeners[0].port}" in page.text
    assert "<dt>Topics</dt><dd>1</dd>" in page.text


async def test_page_without_a_broker_shows_each_part_as_an_error() -> None:
    async with browser(Settings(f"127.0.0.1:{free_port()}")) as client:
        page = await client.get("/cluster")
        assert "not read" in (await client.get("/topology")).text
    assert page.status == 200
    assert page.text.count("not read") >= 2
