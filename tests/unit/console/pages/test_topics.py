"""The pages of topics, against a broker in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.console.settings import Settings
from tests.support.console_client import SMALL, browser
from tests.support.running_node import running

if TYPE_CHECKING:
    from pathlib import Path


async def test_pages_show_offsets_partitions_and_configurations(tmp_path: Path) -> None:
    async with running(tmp_path, *SMALL) as broker:
        await broker.produce("payments", b"1", b"2")
        async with browser(Settings(f"127.0.0.1:{broker.node.listeners[0].port}")) as client:
            listed = await client.get("/topics?q=pay")
            unmatched = await client.get("/topics?q=%3Cscript%3E")
            described = await client.get("/topics/payments")
            configured = await client.get("/topics/payments/configs")
            missing = await client.get("/topics/missing")
            invalid = await client.get("/topics/%3Cb%3E")
    assert '<td class="num">2</td>' in listed.text
    assert "&lt;script&gt;" in unmatched.text
    assert "<script>" not in unmatched.text
    assert described.status == 200
    assert '<span class="state good">in sync</span>' in described.text
    assert "retention.ms" in configured.text
    assert (missing.status, "topic missing does not exist" in missing.text) == (404, True)
    assert (invalid.status, "<b>" in invalid.text) == (502, False)
