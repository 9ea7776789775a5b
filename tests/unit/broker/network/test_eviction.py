"""Eviction of idle connections at the limit of open files."""

import asyncio
import random
from pathlib import Path

import pytest

from odradek.broker.network import server_state
from odradek.broker.node import Node
from odradek.broker.process.clock import SystemClock
from odradek.broker.process.env import Env
from odradek.broker.requests.session import origin_of
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.storage.disk.os_disk import OsDisk
from tests.support.broker_context import config
from tests.support.raw_client import RawClient, encode_request

CONNECTIONS_MAX = 4
TOPIC = "t"
WAITING = FetchRequest(max_wait_ms=2**31 - 1, min_bytes=1, topics=[FetchTopic(TOPIC, partitions=[FetchPartition(0)])])


async def created(client: RawClient) -> None:
    """Create the topic."""
    request = CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)], timeout_ms=30_000)
    assert (await client.call(request, 7)).topics[0].error_code == ErrorCode.NONE


async def ended(reader: asyncio.StreamReader) -> bool:
    """Wait until the broker closes a connection."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def test_new_connection_replaces_the_oldest_one_without_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = config(f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0")
    env = Env(OsDisk(), SystemClock(), random.Random(7), "boot", lambda: CONNECTIONS_MAX)
    node = Node(chosen, env)
    try:
        async with asyncio.timeout(30):
            await node.start()
            port = node.listeners[0].port
            active = await RawClient.connect("127.0.0.1", port)
            await active.call(ApiVersionsRequest(), 3)
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX - 1)]
            newest = await RawClient.connect("127.0.0.1", port)
            await newest.call(ApiVersionsRequest(), 3)
            assert await ended(silent[0][0])
            for _ in range(CONNECTIONS_MAX - 2):
                later = await RawClient.connect("127.0.0.1", port)
                await later.call(ApiVersionsRequest(), 3)
            assert await ended(silent[2][0])
            refused = await asyncio.open_connection("127.0.0.1", port)
            assert await ended(refused[0]), "all connections have sent a request just now"
            await active.call(ApiVersionsRequest(), 3)
            monkeypatch.setattr(server_state, "EVICTION_IDLE_S", 0.0)
            last = await RawClient.connect("127.0.0.1", port)
            await last.call(ApiVersionsRequest(), 3)
            assert len(node.acceptor.connections) <= CONNECTIONS_MAX
            for _, writer in [*silent, refused]:
                writer.close()
    finally:
        await node.stop()


@pytest.mark.parametrize("in_flight", [False, True])
async def test_address_with_most_connections_gives_one_to_another_address(tmp_path: Path, *, in_flight: bool) -> None:
    """A client that uses all its connections cannot keep clients at other addresses away.

    `in_flight`: it has a request in flight on each of them, which waits for the first records of a topic.
    """
    chosen = config(f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0")
    env = Env(OsDisk(), SystemClock(), random.Random(7), "boot", lambda: CONNECTIONS_MAX)
    node = Node(chosen, env)
    frame = encode_request(ApiVersionsRequest(), 3, 1, "client")
    try:
        async with asyncio.timeout(30):
            await node.start()
            port = node.listeners[0].port
            greedy = [await RawClient.connect("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
            if in_flight:
                await created(greedy[0])
            for client in greedy:
                await client.call(ApiVersionsRequest(), 3)
                if in_flight:
                    client.send(WAITING, 11)
            while in_flight and not all(connection._in_flight for connection in node.acceptor.connections):
                await asyncio.sleep(0)
            served = []
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
                writer.write(frame)
                assert await reader.readexactly(4)
                served.append(writer)
            third, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            assert await ended(third), "both addresses have the same number of connections"
            assert sum(client.is_open for client in greedy) == CONNECTIONS_MAX - 2
            for opened in (*served, writer):
                opened.close()
    finally:
        await node.stop()


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("client-1", "client-1", True),
    ],
)
def test_addresses_of_one_ipv6_network_count_as_one_client(first: str, second: str, *, same: bool) -> None:
    assert (origin_of(first) == origin_of(second)) is same
