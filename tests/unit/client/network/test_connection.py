"""A connection under faults: time-outs, disconnects, invalid responses."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import pytest

from odradek.client import (
    ClientError,
    ConnectionLost,
    InvalidArgument,
    ProtocolError,
    RequestTimedOut,
    Settings,
    Unreachable,
    UnsupportedRequest,
)
from odradek.client.network.connection import Connection
from odradek.protocol.codec import encode_response
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.support.fake_kafka import HOST, PORT_BASE, FakeKafka, Fault, RawBytes, WrongCorrelationId, run

if TYPE_CHECKING:
    from odradek.protocol.schema import Message
    from tests.support.fake_kafka import Step

ADDRESS = (HOST, PORT_BASE + 1)
SETTINGS = Settings(connect_timeout_s=5.0, request_timeout_s=30.0, response_bytes_max=1_000)


def groups(*names: str) -> ListGroupsResponse:
    return ListGroupsResponse(groups=[ListedGroup(group_id=name) for name in names])


async def listed(connection: Connection) -> list[str]:
    response = await connection.call(ListGroupsRequest())
    return [group.group_id for group in response.groups]


def whole_frame(message: Message, version: int = 5) -> bytes:
    body = b"".join(map(bytes, encode_response(ListGroupsRequest.API_KEY, version, 1, message)))
    return struct.pack(">i", len(body)) + body


def test_versions_are_agreed_once_and_the_newest_common_one_is_used(kafka: FakeKafka) -> None:
    kafka.versions = {ListGroupsRequest.API_KEY: (0, 4)}
    kafka.script(ListGroupsRequest, groups("a"), groups("b"))

    async def test() -> list[list[str]]:
        connection = await Connection.open(ADDRESS, SETTINGS)
        return [await listed(connection), await listed(connection)]

    assert run(kafka, test()) == [["a"], ["b"]]
    assert len(kafka.of(ApiVersionsRequest)) == 1
    assert [received.version for received in kafka.of(ListGroupsRequest)] == [4, 4]


def test_a_broker_that_does_not_know_the_version_request_is_used_by_its_version_0_response(kafka: FakeKafka) -> None:
    rows = [ApiVersion(ListGroupsRequest.API_KEY, 0, 2)]
    kafka.script(ApiVersionsRequest, ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=rows))
    kafka.script(ListGroupsRequest, groups("old"))

    async def test() -> list[str]:
        return await listed(await Connection.open(ADDRESS, SETTINGS))

    assert run(kafka, test()) == ["old"]
    assert kafka.of(ListGroupsRequest)[0].version == 2


def test_a_request_that_the_broker_does_not_serve_is_not_sent(kafka: FakeKafka) -> None:
    kafka.versions = {ListGroupsRequest.API_KEY: (90, 99)}

    async def test() -> None:
        connection = await Connection.open(ADDRESS, SETTINGS)
        with pytest.raises(UnsupportedRequest, match="does not serve ListGroupsRequest"):
            await listed(connection)
        assert not connection.closed

    run(kafka, test())
    assert kafka.of(ListGroupsRequest) == []


@pytest.mark.parametrize(
    ("request_message", "reason"),
    [
        (
            CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2**40, replication_factor=1)]),
            r"CreateTopicsRequest v7: topics\.num_partitions, .*: expected a number from -2147483648 to 2147483647",
        ),
        (
            RenewDelegationTokenRequest(b"", 2**63),
            "renew_period_ms: expected a number from -9223372036854775808 to 9223372036854775807",
        ),
    ],
    ids=["32 bits", "64 bits"],
)
def test_a_value_that_no_request_can_hold_is_an_invalid_argument(
    kafka: FakeKafka, request_message: Message, reason: str
) -> None:
    async def test() -> None:
        connection = await Connection.open(ADDRESS, SETTINGS)
        with pytest.raises(InvalidArgument, match=reason):
            await connection.call(request_message)
        assert not connection.closed

    run(kafka, test())


def test_responses_go_to_their_requests_in_order_also_after_a_cancelled_one(kafka: FakeKafka) -> None:
    kafka.script(ListGroupsRequest, groups("a"), groups("b"), groups("c"))

    async def test() -> list[list[str]]:
        connection = await Connection.open(ADDRESS, SETTINGS)
        first, second, third = (asyncio.create_task(listed(connection)) for _ in range(3))
        await asyncio.sleep(0)
        second.cancel()
        return [await first, await third]

    assert run(kafka, test()) == [["a"], ["c"]]


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (Fault.DISCONNECT, ConnectionLost, "closed the connection"),
        (RawBytes(whole_frame(groups("half"))[:9], then_close=True), ConnectionLost, "closed the connection"),
        (RawBytes(b"", then_close=True), ConnectionLost, "closed the connection"),
        (Fault.SILENCE, RequestTimedOut, "sent no response within 30 s"),
        (RawBytes(whole_frame(groups("half"))[:9]), RequestTimedOut, "sent no response within 30 s"),
        (WrongCorrelationId(groups("a"), 1), ProtocolError, "sent an invalid response: "),
        (WrongCorrelationId(groups("a"), -1), ProtocolError, "sent an invalid response: "),
        (RawBytes(struct.pack(">i", 1_001)), ProtocolError, "1001 bytes"),
        (RawBytes(struct.pack(">i", -1)), ProtocolError, "-1 bytes"),
        (RawBytes(struct.pack(">ii", 5, 1) + b"\x00"), ProtocolError, "ListGroupsResponse"),
        (RawBytes(whole_frame(groups("a")) * 2), ProtocolError, "sent an invalid response: "),
    ],
)
def test_a_fault_fails_all_open_requests_and_closes_the_connection(
    kafka: FakeKafka, step: Step, error: type[ClientError], message: str
) -> None:
    kafka.script(ListGroupsRequest, step, Fault.SILENCE)

    async def test() -> tuple[Connection, tuple[Any, ...]]:
        connection = await Connection.open(ADDRESS, SETTINGS)
        results: tuple[Any, ...] = await asyncio.gather(listed(connection), listed(connection), return_exceptions=True)
        with pytest.raises(error):
            await listed(connection)
        return connection, results

    connection, results = run(kafka, test())
    assert connection.closed
    assert type(results[-1]) is error
    assert message in str(results[-1])
    assert f"{HOST}:{PORT_BASE + 1}" in str(results[-1])
    assert results[0] == ["a"] or type(results[0]) is error
    assert len(kafka.of(ListGroupsRequest)) <= 2, "nothing is sent on a closed connection"


def test_a_time_out_is_counted_from_each_request(kafka: FakeKafka) -> None:
    kafka.script(ListGroupsRequest, Fault.SILENCE)

    async def test() -> float:
        connection = await Connection.open(ADDRESS, SETTINGS)
        await asyncio.sleep(100)
        began = kafka.loop.time()
        with pytest.raises(RequestTimedOut):
            await listed(connection)
        return kafka.loop.time() - began

    assert run(kafka, test()) == pytest.approx(30.0, abs=0.1)


def test_no_listener_is_unreachable(kafka: FakeKafka) -> None:
    async def test() -> None:
        kafka.stop(1)
        with pytest.raises(
            Unreachable, match=rf"cannot connect to a broker at {HOST}:{PORT_BASE + 1} \(Connection ref"
        ):
            await Connection.open(ADDRESS, SETTINGS)

    run(kafka, test())


def test_a_host_that_does_not_respond_is_unreachable_after_the_connect_time_out(kafka: FakeKafka) -> None:
    async def test() -> None:
        kafka.loop.network.links.partition("clients", HOST, 60.0)
        with pytest.raises(Unreachable, match="timed out"):
            await Connection.open(ADDRESS, SETTINGS)
        assert kafka.loop.time() == pytest.approx(5.0, abs=0.1)

    run(kafka, test())


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (RawBytes(b"HTTP/1.1 400 Bad Request\r\n\r\n"), ProtocolError, "does not speak Kafka's protocol in plain text"),
        (RawBytes(b"\x15\x03\x01\x00\x02\x02\x46", then_close=True), ProtocolError, "does not speak Kafka's protocol"),
        (Fault.SILENCE, RequestTimedOut, "sent no response within 5 s"),
        (ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ClientError, "CLUSTER_AUTHORIZATION"),
    ],
)
def test_a_peer_without_version_agreement_is_no_connection(
    kafka: FakeKafka, step: Step, error: type[ClientError], message: str
) -> None:
    """The peer is a web server, a TLS listener, a process that hangs, or a broker that refuses the request."""
    kafka.script(ApiVersionsRequest, step)

    async def test() -> None:
        with pytest.raises(error, match=message):
            await Connection.open(ADDRESS, SETTINGS)

    run(kafka, test())


def test_nothing_is_written_to_a_transport_that_closes(kafka: FakeKafka) -> None:
    """asyncio calls `connection_lost` in a later turn of the loop. Until then it logs a warning for each request."""

    async def test() -> None:
        connection = await Connection.open(ADDRESS, SETTINGS)
        assert connection._transport is not None
        connection._transport.abort()
        with pytest.raises(ConnectionLost, match="closed the connection"):
            await listed(connection)
        assert connection.closed

    run(kafka, test())
    assert kafka.of(ListGroupsRequest) == []


def test_close_fails_open_requests(kafka: FakeKafka) -> None:
    kafka.script(ListGroupsRequest, Fault.SILENCE)

    async def test() -> None:
        connection = await Connection.open(ADDRESS, SETTINGS)
        open_one = asyncio.create_task(listed(connection))
        await asyncio.sleep(1)
        connection.close()
        with pytest.raises(ConnectionLost, match="was closed"):
            await open_one

    run(kafka, test())
