"""Streams of pages: shared readings, limits, slow browsers, heartbeats, and their end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from odradek.client.errors import ClientError
from odradek.console.model.cluster import ClusterPage
from odradek.console.model.parts import Part
from odradek.console.pages import cluster as cluster_page
from odradek.console.settings import Settings
from odradek.console.web import live, streams
from odradek.console.web.events import event
from odradek.console.web.streams import PERIOD_S, End, Streams, TooManyStreams
from tests.support.console_client import browser
from tests.support.fake_kafka import virtual_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from typing import Any

    from odradek.simulation.environment.loop import SimLoop
    from tests.support.console_client import Browser

SETTINGS = Settings("127.0.0.1:1")


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    with virtual_loop() as found:
        yield found


class Source:
    """A page that counts its readings, and shows their number."""

    def __init__(self) -> None:
        self.reads = 0
        self.failure: Exception | None = None
        self.fixed = ""

    async def read(self) -> bytes:
        self.reads += 1
        return b"%d" % self.reads

    async def read_cluster(self, _: object, all_topics: Any) -> ClusterPage:
        all_topics.close()
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return ClusterPage(self.fixed or f"reading-{self.reads}", Part(error="a"), Part(error="b"), Part(error="c"), [])


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    """Replace the readings of the page of the cluster, which follow each other without pauses."""
    found = Source()
    monkeypatch.setattr(cluster_page, "read_cluster", found.read_cluster)
    monkeypatch.setattr(streams, "PERIOD_S", 0.01)
    return found


@pytest.fixture
async def client(source: Source) -> AsyncIterator[Browser]:
    async with browser(SETTINGS) as found:
        yield found


def test_streams_of_one_page_share_its_readings_until_the_last_one_leaves(loop: SimLoop) -> None:
    async def test() -> None:
        opened, source = Streams(), Source()
        first, second = (opened.open("a", session, source.read) for session in ("1", "2"))
        assert first.feed is second.feed
        await asyncio.sleep(3.5 * PERIOD_S)
        assert (source.reads, first.feed.version, first.feed.state) == (4, 4, b"4")
        opened.close(first)
        await asyncio.sleep(PERIOD_S)
        assert source.reads == 5
        opened.close(second)
        await asyncio.sleep(10 * PERIOD_S)
        assert (source.reads, len(opened), opened._feeds) == (5, 0, {})

    loop.run_until_complete(test())


def test_stream_that_joins_later_has_a_new_state(loop: SimLoop) -> None:
    async def test() -> None:
        opened, source = Streams(), Source()
        opened.open("a", "1", source.read)
        await asyncio.sleep(streams.FRESH_S / 2)
        opened.open("a", "2", source.read)
        await asyncio.sleep(0.1)
        assert source.reads == 1
        await asyncio.sleep(streams.FRESH_S)
        opened.open("a", "3", source.read)
        await asyncio.sleep(0.1)
        assert source.reads == 2
        opened.stop()
        await asyncio.sleep(0)

    loop.run_until_complete(test())


def test_number_of_streams_is_bounded_and_a_stop_refuses_further_ones(
    loop: SimLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STREAMS_MAX", 2)

    async def test() -> None:
        opened, source = Streams(), Source()
        first, second = (opened.open(name, name, source.read) for name in "ab")
        opened.end_session("a")
        assert (first.ended, second.ended) == (End.SESSION, None)
        with pytest.raises(TooManyStreams):  # the response of the first one is not complete
            opened.open("c", "c", source.read)
        opened.close(first)
        third = opened.open("c", "c", source.read)
        opened.stop()
        assert (second.ended, third.ended) == (End.STOP, End.STOP)
        opened.close(second)
        with pytest.raises(TooManyStreams):
            opened.open("d", "d", source.read)
        await asyncio.sleep(0)

    loop.run_until_complete(test())


def test_texts_of_clients_add_no_fields_to_an_event() -> None:
    hostile = "a\rid: 7\n\nevent: ended\r\ndata: b"
    assert (
        event("state", hostile) == b"event: state\ndata: a\ndata: id: 7\ndata: \ndata: event: ended\ndata: data: b\n\n"
    )


async def test_stream_has_the_content_of_the_page_without_its_frame(client: Browser) -> None:
    async with client.stream("/cluster") as opened:
        state = await opened.next_of("state")
        assert opened.headers["content-type"].startswith("text/event-stream")
        assert opened.headers["x-accel-buffering"] == "no"
        assert "content-security-policy" in opened.headers
    assert state.strip().startswith('<section id="live">')
    assert "reading-1" in state
    assert 'name="csrf"' not in state
    page = (await client.get("/cluster")).text
    assert '<section id="live">' in page
    assert 'name="csrf"' in page


async def test_browser_that_does_not_read_receives_the_newest_state_alone(client: Browser, source: Source) -> None:
    async with client.stream("/cluster") as opened:
        await opened.next_of("state")
        opened.reading.clear()
        reached = source.reads + 20
        while source.reads < reached:
            await asyncio.sleep(0.01)
        opened.reading.set()
        states = [await opened.next_of("state") for _ in range(3)]
    numbers = [int(state.partition("reading-")[2].partition("<")[0]) for state in states]
    assert numbers[1] >= reached - 1  # the first state had waited in the connection
    assert numbers[2] > numbers[1]


async def test_failed_reading_is_an_event_and_the_next_state_follows(client: Browser, source: Source) -> None:
    source.failure = ClientError("no broker responds", "start one")
    async with client.stream("/cluster") as opened:
        assert "no broker responds" in await opened.next_of("failed")
        source.failure = None
        assert "reading-" in await opened.next_of("state")


async def test_unchanged_page_has_heartbeats(client: Browser, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.fixed = "same"
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.03)
    async with client.stream("/cluster") as opened:
        found = [await opened.next() for _ in range(3)]
    assert [each and each[0] for each in found] == ["state", "alive", "alive"]


async def test_stream_beyond_the_maximum_names_the_reason(client: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAMS_MAX", 1)
    async with client.stream("/cluster") as first:
        await first.next_of("state")
        async with client.stream("/cluster") as second:
            assert "close other pages" in await second.next_of("refused")
            assert await second.next() is None
    async with client.stream("/cluster") as third:
        await third.next_of("state")


async def test_unexpected_error_ends_the_stream_and_the_next_one_reads_the_page_again(
    client: Browser, source: Source
) -> None:
    source.fixed = "same"
    async with client.stream("/cluster") as opened:
        await opened.next_of("state")
        source.failure = RuntimeError("unexpected")
        assert await opened.next() is None
        source.failure = None
        async with client.stream("/cluster") as following:
            assert "same" in await following.next_of("state")


async def test_stop_ends_the_streams_without_a_further_event(client: Browser, source: Source) -> None:
    source.fixed = "same"
    async with client.stream("/cluster") as opened:
        await opened.next_of("state")
        client.app.state.sessions.streams.stop()
        assert await opened.next() is None


async def test_stream_for_another_site_is_refused(client: Browser, source: Source) -> None:
    for headers, status in (({"sec_fetch_site": "cross-site"}, 403), ({"host": "evil.example"}, 421)):
        assert (await client.get("/cluster", accept="text/event-stream", **headers)).status == status
    assert source.reads == 0
