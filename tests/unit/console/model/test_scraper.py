"""Scrapes of addresses that are malformed, share a host, or do not respond with HTTP."""

from __future__ import annotations

import asyncio

import pytest

from odradek.client.errors import InvalidArgument
from odradek.console.model.scraper import Scraper


async def test_response_that_is_not_http_is_an_error_of_its_address() -> None:
    async def respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x15\x03\x03\x00\x02\x02\x46\r\n")  # an alert of a TLS listener
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        scraper = Scraper([f"http://{host}/metrics"])
        await scraper.sample()
    assert list(scraper.errors) == [host]
    assert len(scraper.history.times()) == 1


async def test_addresses_that_share_a_host_are_all_scraped() -> None:
    requested = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requested.append((await reader.readline()).decode().split()[1])
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nkafka_server_socketservermetrics_connection_count 7\n")
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        urls = [f"http://127.0.0.1:{port}/{path}" for path in ("1", "2?x=3")]
        scraper = Scraper(urls)
        await scraper.sample()
    assert sorted(requested) == ["/1", "/2?x=3"]
    assert scraper.history.latest("connections") == dict.fromkeys(urls, 7)


@pytest.mark.parametrize("end", ["", "/"])
async def test_address_without_a_path_has_that_of_odradek_brokers(end: str) -> None:
    requested = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requested.append((await reader.readline()).decode().split()[1])
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(respond, "127.0.0.1", 0) as server:
        scraper = Scraper([f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{end}"])
        await scraper.sample()
    assert (requested, scraper.errors) == (["/metrics"], {})


@pytest.mark.parametrize("url", ["127.0.0.1:9404", "file:///etc/passwd", "http://[::1", "http://a:b/", "http://u:p@a/"])
def test_malformed_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument, match="--prometheus") as raised:
        Scraper([url])
    assert "u:p" not in str(raised.value)
