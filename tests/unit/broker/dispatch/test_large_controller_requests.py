"""Large requests for the controller are handled in one piece, in order; the response that refuses them in parts."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.apis import create_partitions, elect_leaders, envelope
from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.dispatch.dispatcher import Call, Dispatcher
from odradek.broker.dispatch.large_requests import LargeRequests
from odradek.broker.dispatch.request_metrics import api_metrics
from odradek.broker.dispatch.table import API_TABLE
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.requests.api import Ordered, Routing
from odradek.broker.requests.listener import CLIENT, CONTROLLER
from odradek.broker.requests.session import Session
from odradek.broker.requests.splitting import ELEMENTS_PER_PART, Splitting
from odradek.broker.security.authorizer import AllowAll
from odradek.cluster.controller.slices import RECORDS_PER_REQUEST_MAX
from odradek.protocol.codec import decode, encode
from odradek.protocol.connection import parse_request
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.generation.measuring import instance
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from odradek.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from odradek.protocol.schema import field_rows
from tests.support.broker_context import LISTENER, context, image
from tests.support.quotas import Unlimited
from tests.support.raw_client import SIZE, encode_request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.broker.requests.api import AnyApi
    from odradek.protocol.schema import FieldRow, Message

UNLIMITED = 1 << 40
VERSION = 3
RESPONSE_HEADER_BYTES = 5
LARGE = RECORDS_PER_REQUEST_MAX
TOO_LARGE = RECORDS_PER_REQUEST_MAX + 1
COUNTED = {
    "CreateTopics": ("topics",),
    "AlterConfigs": ("resources",),
    "CreatePartitions": ("topics",),
    "ElectLeaders": ("topic_partitions", "partitions"),
    "IncrementalAlterConfigs": ("resources",),
    "AlterPartitionReassignments": ("topics", "partitions"),
    "ListPartitionReassignments": ("topics", "partition_indexes"),
    "AlterClientQuotas": ("entries",),
    "AlterUserScramCredentials": ("upsertions",),
    "CreateAcls": ("creations",),
    "CreateDelegationToken": ("renewers",),
    "DeleteAcls": ("filters",),
}
"""Arrays whose innermost elements a request for the controller is limited by. DeleteTopics: see the test."""
UNCOUNTED = {
    "DescribeQuorum",
    "ExpireDelegationToken",
    "RenewDelegationToken",
    "UnregisterBroker",
    "UnregisterController",
    "UpdateFeatures",
}
"""Requests for the controller that name one thing, or that CHARGE_BYTES_MAX limits to some thousand elements."""
TOPICS_MIN_VERSION = 6
"""First version of DeleteTopics with topic ids."""
REFUSAL = Refusal(ErrorCode.INVALID_PARTITIONS, "each one")


def request_of(count: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest([CreatePartitionsTopic(f"topic-{number}", 1, None) for number in range(count)])


class Rig:
    """Dispatcher of CreatePartitions, which a function of the test handles, of Envelope, and of `others`."""

    def __init__(
        self, handle: Callable[[Any, Any], Any], *, is_active: bool = True, others: Sequence[AnyApi] = (), **fields: Any
    ) -> None:
        """`fields` are further fields of the row of CreatePartitions."""
        self.forwarded: list[Any] = []
        self.since_turn = self.largest = 0
        row = replace(
            create_partitions.API, handle=handle, refuse=self._refuse, listeners=(CLIENT, CONTROLLER), **fields
        )
        table: tuple[AnyApi, ...] = (row, envelope.API, *others)
        metrics = api_metrics(table)
        services: Any = SimpleNamespace(
            clock=SimpleNamespace(wall_ms=lambda: 0, monotonic_us=lambda: 0),
            quotas=Unlimited(),
            authorizer=AllowAll(),
            audit=None,
            controller=SimpleNamespace(is_active=is_active),
            forward=self._forward,
        )
        self.dispatcher = Dispatcher(
            table,
            BrokerRequestContext,
            (services, services, services),
            forwarding=services,
            metrics=metrics,
            large_requests=LargeRequests(ByteBudget(UNLIMITED), metrics),
            on_unexpected=lambda _context, bug: pytest.fail(repr(bug)),
        )
        self.session = Session(1, replace(LISTENER, roles=(CLIENT, CONTROLLER)), "127.0.0.1", 5)

    async def _forward(self, request: Any, *_: Any) -> Any:
        self.forwarded.append(request)
        raise REFUSAL

    def _refuse(self, *arguments: Any) -> CreatePartitionsResponse:
        self.since_turn += len(arguments[1].topics)
        self.largest = max(self.largest, self.since_turn)
        return create_partitions.refuse(*arguments)

    def open(self, request: Message, version: int) -> Call:
        frame = parse_request(encode_request(request, version, 1, "client")[SIZE.size :])
        return self.dispatcher.open(frame, self.session)

    async def response(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        """Return the response that a client reads. Count the refused elements between two turns of another task."""
        call = self.open(request, VERSION)
        result = await self.completed(self.dispatcher.handle(call))
        assert call.context.encode_in_slices
        encoded = b"".join(await self.dispatcher.encode_in_slices(call, result))
        return decode(CreatePartitionsResponse, VERSION, encoded[RESPONSE_HEADER_BYTES:])

    async def embedded_response(self, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        """Return the response to a request that another broker forwards."""
        data = encode_request(request, VERSION, 1, "client")[SIZE.size :]
        call = self.open(EnvelopeRequest(data, b"", bytes((127, 0, 0, 1))), 0)
        result: EnvelopeResponse = await self.completed(self.dispatcher.handle(call))
        assert result.response_data is not None
        return decode(CreatePartitionsResponse, VERSION, bytes(result.response_data)[RESPONSE_HEADER_BYTES:])

    async def completed(self, result: Any) -> Any:
        other = asyncio.create_task(self._other_work())
        while isinstance(result, Ordered):
            result = await result.awaitable
        if asyncio.iscoroutine(result):
            result = await result
        other.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await other
        return result

    async def _other_work(self) -> None:
        while True:
            self.since_turn = 0
            await asyncio.sleep(0)


async def refusing(_context: Any, _request: Any) -> Any:
    raise REFUSAL


def unexpected(_context: Any, _request: Any) -> Any:
    pytest.fail("the handler was called")


@pytest.mark.parametrize("place", ["controller", "forwarding broker", "controller, embedded"])
async def test_refusal_of_a_large_request_is_made_in_bounded_parts(place: str) -> None:
    rig = Rig(refusing, is_active=place != "forwarding broker")
    request = request_of(LARGE)
    response = await (rig.embedded_response if "embedded" in place else rig.response)(request)
    assert [row.name for row in response.results] == [topic.name for topic in request.topics]
    assert {(row.error_code, row.error_message) for row in response.results} == {(REFUSAL.error, REFUSAL.message)}
    assert 0 < rig.largest <= ELEMENTS_PER_PART
    assert len(rig.forwarded) == (place == "forwarding broker")


@pytest.mark.parametrize("is_active", [True, False])
async def test_request_with_too_many_elements_is_refused_where_it_arrives(is_active: bool) -> None:
    rig = Rig(unexpected, is_active=is_active)
    response = await rig.response(request_of(TOO_LARGE))
    assert [row.error_code for row in response.results] == [ErrorCode.POLICY_VIOLATION] * TOO_LARGE
    assert rig.largest <= ELEMENTS_PER_PART
    assert not rig.forwarded


@pytest.mark.parametrize("is_active", [True, False])
async def test_election_in_too_many_partitions_is_refused_where_it_arrives(is_active: bool) -> None:
    rig = Rig(unexpected, is_active=is_active, others=[replace(elect_leaders.API, handle=unexpected)])
    named = TopicPartitions("t", list(range(TOO_LARGE)))
    call = rig.open(ElectLeadersRequest(topic_partitions=[named]), 2)
    response = await rig.completed(rig.dispatcher.handle(call))
    assert response == ElectLeadersResponse(error_code=ErrorCode.POLICY_VIOLATION)
    assert not rig.forwarded


@pytest.mark.parametrize("api", [api for api in API_TABLE if api.elements is not None], ids=lambda api: api.name)
def test_elements_of_a_request_are_counted_in_the_innermost_array(api: AnyApi) -> None:
    assert api.elements is not None
    for version in range(api.min_version, api.max_version + 1):
        deleted = "topics" if version >= TOPICS_MIN_VERSION else "topic_names"
        names = COUNTED.get(api.name, (deleted,))
        request = instance(api.request, version, path_of(api.request, names), 7)
        assert api.elements(request) == 7


def test_every_request_for_the_controller_that_names_many_things_is_limited() -> None:
    assert {api.name for api in API_TABLE if api.routing is Routing.CONTROLLER and api.elements is None} == UNCOUNTED


async def test_envelope_holds_the_memory_of_the_request_in_it() -> None:
    charged: list[int] = []

    def handle(context: Any, _request: Any) -> CreatePartitionsResponse:
        context.reserve(1_000)
        charged.append(sum(reserved))
        return CreatePartitionsResponse()

    rig = Rig(handle)
    reserved: list[int] = []
    rig.session.on_charge = reserved.append
    data = encode_request(request_of(1), VERSION, 1, "client")[SIZE.size :]
    call = rig.open(EnvelopeRequest(data, b"", bytes((127, 0, 0, 1))), 0)
    before = call.context.charge
    await rig.completed(rig.dispatcher.handle(call))
    assert charged == [1_000]
    assert call.context.charge - before == 1_000  # released with the response to the envelope


async def test_later_requests_of_the_connection_wait_for_the_response_to_a_large_request() -> None:
    committed: asyncio.Future[CreatePartitionsResponse] = asyncio.get_running_loop().create_future()
    handled = asyncio.Event()

    def handle(_context: Any, _request: Any) -> Any:
        handled.set()
        return committed

    rig = Rig(handle)
    result = rig.dispatcher.handle(rig.open(request_of(LARGE), VERSION))
    assert isinstance(result, Ordered)
    stage_one = asyncio.ensure_future(result.awaitable)
    await handled.wait()
    await asyncio.sleep(0)
    assert not stage_one.done()
    committed.set_result(CreatePartitionsResponse())
    assert await stage_one == CreatePartitionsResponse()


async def test_request_is_handled_after_its_check_and_before_later_requests_of_the_connection() -> None:
    checked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    handled: list[int] = []

    def handle(_context: Any, request: Any) -> CreatePartitionsResponse:
        handled.append(len(request.topics))
        return CreatePartitionsResponse()

    rig = Rig(handle, check=lambda _context, request: checked if len(request.topics) > 1 else None)
    result = rig.dispatcher.handle(rig.open(request_of(2), VERSION))
    assert isinstance(result, Ordered)
    assert not handled
    checked.set_result(None)
    assert await rig.completed(result) == CreatePartitionsResponse()
    assert rig.dispatcher.handle(rig.open(request_of(1), VERSION)) == CreatePartitionsResponse()
    assert handled == [2, 1]


def controller_rows() -> list[tuple[AnyApi, int, Splitting]]:
    return [
        (api, version, splitting)
        for api in API_TABLE
        if api.routing is Routing.CONTROLLER
        for version in range(api.min_version, api.max_version + 1)
        if (splitting := api.splitting(version)) is not None
    ]


def path_of(cls: Any, names: tuple[str, ...]) -> tuple[FieldRow, ...]:
    if not names:
        return ()
    row = next(row for row in field_rows(cls) if row.name == names[0])
    return (row, *path_of(row.struct, names[1:]))


@pytest.mark.parametrize(
    ("api", "version", "splitting"), controller_rows(), ids=lambda value: getattr(value, "name", str(value))
)
def test_refusals_of_the_parts_equal_the_refusal_of_the_whole_request(
    api: AnyApi, version: int, splitting: Splitting
) -> None:
    request = instance(api.request, version, path_of(api.request, splitting.request), 2 * ELEMENTS_PER_PART + 1)
    request_context = context(version, image())
    whole: Any = None
    for part, shared in splitting.parts(request):
        response = api.refuse(request_context, part, ErrorCode.POLICY_VIOLATION, "message")
        if whole is None:
            whole = response
        else:
            splitting.join(whole, response, shared)
    assert whole is not None
    expected: Any = api.refuse(request_context, request, ErrorCode.POLICY_VIOLATION, "message")
    assert encode(whole, version) == encode(expected, version)


async def test_cancellation_during_the_decoding_closes_the_connection() -> None:
    """A node that stops cancels the decoding of a large request. No response can name its elements."""
    rig = Rig(unexpected)
    reasons: list[str] = []
    rig.session.on_close = reasons.append
    call = rig.open(request_of(LARGE), VERSION)
    handled = rig.dispatcher.handle(call)
    assert isinstance(handled, Ordered)
    decoding = asyncio.ensure_future(handled.awaitable)
    await asyncio.sleep(0)
    decoding.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await decoding
    assert rig.dispatcher.result(call, decoding) is None
    assert reasons == ["the request was not decoded"]
