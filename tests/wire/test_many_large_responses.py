"""Small requests with large responses, of many concurrent connections: the memory stays near the byte budget."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.flood_requests import (
    COMMIT_V,
    INIT_V,
    PRODUCE_V,
    TOPIC,
    TOPIC_PARTITIONS,
    commit,
    committed,
    error_code,
    init,
    produce,
)
from benchmarks.floods import Broker, Witness
from benchmarks.hostile_concurrent import GROWTH_MIB
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.raw_client import RawClient, encode_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from odradek.protocol.schema import Message

BUDGET_MIB = 16
CONNECTIONS = 50
IDS = 1_500
ID_CHARACTERS = 4_000
"""Characters per group id or transactional id. A response with all of them has 6 MB."""
METADATA_BYTES = 4_000
REPEATED = 100
PRODUCERS = 400
REPEATED_PARTITIONS = 1_000
RECEIVE_BUFFER_BYTES = 4_096
TIMEOUT_S = 60.0
BATCH = 50

SETTINGS = (
    f"queued.max.request.bytes={BUDGET_MIB * 2**20}",
    f"socket.request.max.bytes={BUDGET_MIB * 2**20}",
    "odradek.frame.deadline.ms=200",
)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    running = Broker(tmp_path, settings=SETTINGS)
    try:
        await running.ready()
        yield running
    finally:
        code = running.stop()
    assert code == 0


def ids() -> list[str]:
    return [f"{number}-".ljust(ID_CHARACTERS, "x") for number in range(IDS)]


async def send_all(client: RawClient, requests: Sequence[Message], version: int, outcome: Callable[[Any], str]) -> None:
    """Send all requests. Send one again while the broker waits for a block of producer ids, as clients do."""
    waiting = list(requests)
    async with asyncio.timeout(TIMEOUT_S):
        while waiting:
            batch, waiting = waiting[:BATCH], waiting[BATCH:]
            outcomes = [outcome(each) for each in await asyncio.gather(*(client.send(each, version) for each in batch))]
            assert set(outcomes) <= {"NONE", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name}
            waiting += [each for each, result in zip(batch, outcomes, strict=True) if result != "NONE"]


async def groups(client: RawClient) -> bytes:
    await send_all(client, [commit(group, [0]) for group in ids()], COMMIT_V, committed)
    return encode_request(ListGroupsRequest(), 4, 1, "hostile")


async def transactions(client: RawClient) -> bytes:
    await send_all(client, [init(name) for name in ids()], INIT_V, error_code)
    return encode_request(ListTransactionsRequest(), 1, 1, "hostile")


async def offsets(client: RawClient) -> bytes:
    """Return a request of 1 KB for the offsets of one group, many times. The response has 40 MB."""
    partitions = range(TOPIC_PARTITIONS)
    await send_all(client, [commit(Witness.group, partitions, metadata="x" * METADATA_BYTES)], COMMIT_V, committed)
    group = OffsetFetchRequestGroup(Witness.group, topics=None)
    return encode_request(OffsetFetchRequest(groups=[group] * REPEATED), 8, 1, "hostile")


async def producers(client: RawClient) -> bytes:
    """Return a request of 4 KB for the producers of one partition, many times. The response has 30 MB."""
    for producer_id in range(PRODUCERS):
        response: Any = await client.call(produce(producer_id), PRODUCE_V)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    request = DescribeProducersRequest([TopicRequest(TOPIC, [0] * REPEATED_PARTITIONS)])
    return encode_request(request, 0, 1, "hostile")


def served(address: tuple[str, int], frame: bytes) -> socket.socket:
    """Send `frame`, and return the connection when its response begins or when the broker has closed it."""
    connection = socket.create_connection(address, timeout=TIMEOUT_S)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    connection.sendall(frame)
    with contextlib.suppress(ConnectionError):
        connection.recv(1)
    return connection


@pytest.mark.parametrize(
    ("prepare", "connections"),
    [
        pytest.param(groups, CONNECTIONS, id="ListGroups"),
        pytest.param(transactions, CONNECTIONS, id="ListTransactions", marks=pytest.mark.full),
        pytest.param(offsets, CONNECTIONS, id="OffsetFetch", marks=pytest.mark.full),
        pytest.param(producers, 1, id="DescribeProducers"),
    ],
)
async def test_memory_of_many_concurrent_large_responses_is_bounded_by_the_byte_budget(
    broker: Broker, prepare: Callable[[RawClient], Any], connections: int
) -> None:
    """No client receives more than the beginning of its response."""
    client = await broker.connect("honest")
    await Witness(client).prepare()
    frame = await prepare(client)
    before_mib = broker.resident_mib
    broker.reset_peak()
    with ThreadPoolExecutor(connections) as threads:
        attacks = [asyncio.wrap_future(threads.submit(served, broker.address, frame)) for _ in range(connections)]
        for connection in await asyncio.gather(*attacks):
            connection.close()
    assert broker.peak_mib - before_mib < BUDGET_MIB + GROWTH_MIB
    client.close()
