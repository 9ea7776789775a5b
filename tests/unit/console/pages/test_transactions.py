"""The pages of transactions, against a broker in this process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from odradek.client import Cluster, Fenced, Producer, ProducerRecord, blocked_partitions, describe_transaction
from odradek.client import Settings as ClientSettings
from odradek.console.model import parts, transition_log
from odradek.console.settings import Settings
from tests.support.console_client import SMALL, browser
from tests.support.hanging import leave_hanging
from tests.support.ports import free_port
from tests.support.running_node import NOW_MS, RunningNode, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.console_client import Browser, Page

MARKUP = "<img src=x onerror=alert(1)>\"'&"
UNVERIFIED = "transaction.partition.verification.enable=false"
HANGING_PRODUCER = 77
LOADED_S = 120.0
"""Deadline of a large page on a loaded machine."""


def settings_of(node: RunningNode, *, allow_actions: bool = False) -> Settings:
    return Settings(f"127.0.0.1:{node.node.listeners[0].port}", allow_actions=allow_actions)


@asynccontextmanager
async def console(node: RunningNode, *, allow_actions: bool = False) -> AsyncIterator[tuple[Browser, Cluster]]:
    settings = settings_of(node, allow_actions=allow_actions)
    async with browser(settings) as client, Cluster(settings.bootstrap) as cluster:
        yield client, cluster


class Confirmation(HTMLParser):
    """The form of a page that confirms an abort, as a browser reads and sends it."""

    def __init__(self, page: Page) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self.feed(page.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "form" and found.get("class") == "confirm":
            self.action = found["action"]
        elif tag == "input" and self.action:
            self.fields[found["name"]] = found["value"].replace("\n", "\r\n")

    async def send(self, client: Browser, **changed: str) -> Page:
        return await client.post(self.action, self.fields | changed)


async def until_ended(cluster: Cluster) -> None:
    """Wait until no partition is held back."""
    async with asyncio.timeout(20):
        while (await blocked_partitions(cluster)).rows:
            await asyncio.sleep(0.02)


async def test_hanging_transaction_is_found_and_aborted_by_its_form(tmp_path: Path) -> None:
    async with running(tmp_path, *SMALL, UNVERIFIED) as node:
        await node.produce("payments", b"before")
        await leave_hanging(node.client, "payments", HANGING_PRODUCER, NOW_MS)
        async with console(node, allow_actions=True) as (client, cluster):
            page = await client.get("/transactions")
            assert '<span class="state bad">hanging</span>' in page.text
            link = f"/transactions/abort?topic=payments&amp;partition=0&amp;producer_id={HANGING_PRODUCER}"
            assert link in page.text
            form = Confirmation(await client.get(link.replace("&amp;", "&")))
            refused = await form.send(client, csrf="0" * 64)
            assert refused.status == 403
            assert (await blocked_partitions(cluster)).rows != []
            done = await form.send(client)
            assert (done.status, "is aborted in this partition" in done.text) == (200, True)
            assert (await blocked_partitions(cluster)).rows == []
            again = await form.send(client)
            assert (again.status, "has no open transaction" in again.text) == (404, True)


async def test_without_actions_there_is_no_form_and_no_route_that_aborts(tmp_path: Path) -> None:
    async with running(tmp_path, *SMALL, UNVERIFIED) as node:
        await node.produce("payments", b"before")
        await leave_hanging(node.client, "payments", HANGING_PRODUCER, NOW_MS)
        async with console(node) as (client, cluster):
            page = await client.get("/transactions")
            assert "hanging" in page.text
            assert "/transactions/abort" not in page.text
            address = f"/transactions/abort?topic=payments&partition=0&producer_id={HANGING_PRODUCER}"
            token = await client.token("/transactions")
            assert (await client.get("/transactions/abort?id=x")).status == 404
            assert (await client.post(address, {"csrf": token})).status == 404
            assert (await blocked_partitions(cluster)).rows != []


async def test_open_transaction_is_shown_with_its_client_timeline_and_log_and_is_fenced(tmp_path: Path) -> None:
    async with running(tmp_path, *SMALL) as node:
        await node.metadata("payments")
        await node.produce("payments", b"before")
        await node.init("other")
        async with console(node, allow_actions=True) as (client, cluster):
            producer = Producer(cluster, transactional_id=MARKUP)
            await producer.begin()
            await producer.send("payments", [ProducerRecord(None, b"1")])
            await producer.commit()
            await producer.begin()
            await producer.send("payments", [ProducerRecord(None, b"2")])
            address = "/transactions/id?id=%3Cimg+src%3Dx+onerror%3Dalert%281%29%3E%22%27%26"
            for path in ("/transactions", "/transactions?state=all", "/transactions/log", address):
                page = await client.get(path)
                assert page.status == 200
                assert MARKUP not in page.text
                assert "<img src=x" not in page.text
                assert "&lt;img src=x onerror=alert(1)&gt;&#34;&#39;&amp;" in page.text
                assert "Ongoing" in page.text
            one = (await client.get(address)).text
            assert '<span class="state good">committed</span>' in one
            assert '<rect class="committed"' in one
            assert "CompleteCommit" in one
            listed = (await client.get("/transactions")).text
            assert '<span class="state info">open</span>' in listed
            assert "odradek-client" in listed
            done = await Confirmation(await client.get(f"/transactions/abort?id={quote(MARKUP)}")).send(client)
            assert (done.status, "Its transaction is aborted." in done.text) == (200, True)
            await until_ended(cluster)
            with pytest.raises(Fenced):
                await producer.commit()


async def test_long_ids_are_shortened_on_the_page_of_a_transactional_id(tmp_path: Path) -> None:
    longest = 2**15 - 1
    async with running(tmp_path, *SMALL) as node:
        await node.metadata("payments")
        async with console(node) as (client, _):
            settings = ClientSettings(client_id="c" * longest)
            async with Cluster(settings_of(node).bootstrap, settings) as cluster:
                producer = Producer(cluster, transactional_id="t" * longest)
                await producer.begin()
                await producer.send("payments", [ProducerRecord(None, b"1")])
                page = await client.get(f"/transactions/id?id={'t' * longest}")
                await producer.abort()
    assert (page.status, "Ongoing" in page.text) == (200, True)
    assert f'<h1 class="mono">{"t" * 250}… (32,767 characters)</h1>' in page.text
    assert f"<title>{'t' * 250}… (32,767 characters) " in page.text
    assert "c" * 57 + "..." in page.text
    assert "c" * 58 not in page.text


async def test_many_long_ids_are_described_and_leave_the_page_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptions of all ids in one request exceed its maximum. In addresses, they would take 12 MB."""
    monkeypatch.setattr(parts, "DEADLINE_S", LOADED_S)
    monkeypatch.setattr(transition_log, "SCAN_DEADLINE_S", LOADED_S)
    ids = [f"{number:03}" + "€" * 10_000 for number in range(150)]
    async with running(tmp_path, *SMALL) as node:
        await node.metadata("payments")
        async with console(node, allow_actions=True) as (client, cluster):
            producers = [Producer(cluster, transactional_id=each) for each in ids]
            for producer in producers:
                await producer.begin()
                await producer.send("payments", [ProducerRecord(None, b"1")])
            page = await client.get("/transactions")
            log = await client.get("/transactions/log")
            holder = await describe_transaction(cluster, ids[0])
            found = await client.get(f"/transactions?state=all&q={holder.producer_id}")
            for producer in producers:
                await producer.abort()
    for each in (page, log):
        assert "not read" not in each.text
        assert 'class="failed"' not in each.text
        assert len(each.text) < 500_000
        assert 'href="/transactions?state=all&amp;q=' in each.text
    assert f'href="/transactions?state=all&amp;q={holder.producer_id}"' in page.text
    assert f'href="/transactions/id?id={quote(ids[0])}"' in found.text
    assert f'href="/transactions/abort?id={quote(ids[0])}"' in found.text


@pytest.mark.parametrize(
    ("named", "similar"), [("pay\u200bment", "pay\\u200bment"), ("a\nb", "a\r\nb")], ids=["invisible", "line"]
)
async def test_form_aborts_the_transaction_of_exactly_the_named_id(tmp_path: Path, named: str, similar: str) -> None:
    async with running(tmp_path, *SMALL) as node:
        await node.metadata("payments")
        async with console(node, allow_actions=True) as (client, cluster):
            producers = [Producer(cluster, transactional_id=each) for each in (named, similar)]
            for producer in producers:
                await producer.begin()
                await producer.send("payments", [ProducerRecord(None, b"1")])
            done = await Confirmation(await client.get(f"/transactions/abort?id={quote(named)}")).send(client)
            assert (done.status, "Its transaction is aborted." in done.text) == (200, True)
            await producers[1].commit()
            await until_ended(cluster)
            with pytest.raises(Fenced):
                await producers[0].commit()


@pytest.mark.parametrize("query", ["", "?id=", "?topic=t&partition=-1&producer_id=1", "?topic=t&partition=1"])
async def test_incomplete_confirmation_is_refused(tmp_path: Path, query: str) -> None:
    settings = Settings(f"127.0.0.1:{free_port()}", allow_actions=True)
    async with browser(settings) as client:
        page = await client.get(f"/transactions/abort{query}")
    assert "names no transaction" in page.text
    assert (page.status, "The address is not valid" in page.text) == (400, True)


@pytest.mark.parametrize("path", ["/transactions", "/transactions/log", "/transactions/id?id=x"])
async def test_page_without_a_broker_shows_each_part_as_an_error(path: str) -> None:
    async with browser(Settings(f"127.0.0.1:{free_port()}")) as client:
        page = await client.get(path)
    assert page.status == 200
    assert "not read" in page.text


async def test_pages_of_a_cluster_without_transactions_are_empty_and_create_no_topic(tmp_path: Path) -> None:
    async with running(tmp_path, *SMALL) as node, console(node) as (client, cluster):
        assert "has had no transaction" in (await client.get("/transactions/log")).text
        assert "does not exist" in (await client.get("/transactions/id?id=x")).text
        assert "No transaction holds back" in (await client.get("/transactions")).text
        assert (await cluster.fetch_metadata(None)).topics == {}
