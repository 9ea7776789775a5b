"""Large requests: decoded one at a time, in order, within the byte budget, and without requests of closed clients."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.dispatch import large_requests
from odradek.broker.dispatch.large_requests import LargeRequests
from odradek.broker.dispatch.request_limits import CHARGE_BYTES_MAX
from odradek.broker.dispatch.request_metrics import ApiMetrics
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.large_work import RequestDropped
from odradek.broker.requests.listener import Listener
from odradek.broker.requests.node_principals import SessionNode
from odradek.broker.requests.session import NO_CONNECTION, Session
from odradek.broker.security.authorizer import AllowAll
from odradek.protocol.codec import SlicedDecoding, SlicedEncoding, encode, encode_response
from odradek.protocol.errors import ChargeExceeded, ErrorCode
from odradek.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from collections.abc import Callable

UNLIMITED = 1 << 40
TURNS_MAX = 100
API_KEY, VERSION = DescribeGroupsRequest.API_KEY, 5
FRAME_BYTES = 100


class Client:
    """One request on a connection of its own."""

    def __init__(self, rig: Rig, connection_id: int) -> None:
        self._rig = rig
        self.session = Session(connection_id, Listener("L", "127.0.0.1", 1, "localhost", 1), "127.0.0.1", 2)
        self.session.on_charge = rig.budget.reserve
        self.session.on_close = self.close
        self.reason = ""
        self.context = RequestContext(
            API_KEY, VERSION, 1, "client", self.session, AllowAll(), now_ms=0, request_bytes=FRAME_BYTES
        )
        self.turns = 0

    def close(self, reason: str = "") -> None:
        self.reason = reason
        self.session.end()
        self._rig.budget.release(self.context.charge)

    def respond(self) -> None:
        self._rig.budget.release(self.context.charge)
        self.context.charge = 0

    async def decode(self, decoding: SlicedDecoding[Any]) -> None:
        with self._rig.large.begin(self.context) as work:
            await work.decode(decoding)

    async def work(self, turns: int, charge: int = 0) -> None:
        with self._rig.large.begin(self.context) as work:
            for _ in range(turns):
                await work.turn()
                self.turns += 1
                work.charge(charge)


class Rig:
    def __init__(self, budget_bytes: int = UNLIMITED) -> None:
        self.budget = ByteBudget(budget_bytes)
        self.metrics = ApiMetrics("DescribeGroups")
        self.large = LargeRequests(self.budget, {API_KEY: self.metrics})
        self._connections = 0

    def client(self) -> Client:
        self._connections += 1
        return Client(self, self._connections)

    @staticmethod
    def decoding(groups: int = 10_000, charge_max: int = UNLIMITED) -> SlicedDecoding[DescribeGroupsRequest]:
        data = encode(DescribeGroupsRequest(groups=["g"] * groups), VERSION)
        return SlicedDecoding(DescribeGroupsRequest, VERSION, data, charge_max)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


async def turns(count: int = TURNS_MAX) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_requests_are_decoded_one_at_a_time_in_order() -> None:
    rig = Rig()
    decodings = [rig.decoding() for _ in range(3)]
    tasks = [asyncio.create_task(rig.client().decode(decoding)) for decoding in decodings]
    begun: list[tuple[bool, ...]] = []
    while not all(task.done() for task in tasks):
        begun.append(tuple(decoding.charge > 0 for decoding in decodings))
        assert sum(decoding.charge > 0 and decoding.message is None for decoding in decodings) <= 1
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert {(True, False, False), (True, True, False)} <= set(begun)
    assert rig.budget.used_bytes == sum(decoding.charge for decoding in decodings)


async def test_exceeded_charge_fails_its_request_alone() -> None:
    rig = Rig()
    refused = asyncio.create_task(rig.client().decode(rig.decoding(charge_max=1_000)))
    served = asyncio.create_task(rig.client().decode(rig.decoding()))
    with pytest.raises(ChargeExceeded):
        await refused
    await served


async def test_requests_of_closed_connections_are_not_kept() -> None:
    """A client that sends large requests and closes its connections cannot fill the memory with queued requests."""
    rig = Rig()
    first = asyncio.create_task(rig.client().decode(rig.decoding(100_000)))
    clients = [rig.client() for _ in range(3)]
    waiting = [rig.decoding() for _ in clients]
    kept = [weakref.ref(decoding) for decoding in waiting]
    tasks = [asyncio.create_task(client.decode(decoding)) for client, decoding in zip(clients, waiting, strict=True)]
    waiting.clear()
    await turns(3)
    for client in clients:
        client.close()
    await until(lambda: all(task.done() for task in tasks))
    assert all(isinstance(task.exception(), RequestDropped) for task in tasks)
    assert not first.done()
    tasks.clear()
    gc.collect()
    assert [reference() for reference in kept] == [None] * 3
    await first


async def test_end_of_the_connection_that_is_decoded_continues_with_the_next() -> None:
    rig = Rig()
    client, running = rig.client(), rig.decoding(1_000_000)
    first = asyncio.create_task(client.decode(running))
    second = asyncio.create_task(rig.client().decode(rig.decoding()))
    await until(lambda: running.charge)
    client.close()
    await second
    with pytest.raises(RequestDropped):
        await first
    assert running.message is None


async def test_peer_is_checked_at_each_turn() -> None:
    """The connection is not read while its request is handled."""
    rig = Rig()
    client = rig.client()
    task = asyncio.create_task(client.work(TURNS_MAX))
    await until(lambda: client.turns == 2)
    client.session.on_check = client.close
    with pytest.raises(RequestDropped):
        await task
    assert client.turns == 2


async def test_only_the_oldest_request_goes_on_while_the_budget_is_exhausted() -> None:
    rig = Rig(budget_bytes=1_000)
    clients = [rig.client() for _ in range(3)]
    tasks = [asyncio.create_task(client.work(TURNS_MAX, charge=10)) for client in clients]
    await tasks[0]
    assert clients[0].turns == TURNS_MAX
    assert sum(client.turns for client in clients[1:]) * 10 <= 1_000
    assert not any(task.done() for task in tasks[1:])
    before = clients[2].turns
    await tasks[1]
    assert clients[2].turns <= before + 1, "it is the oldest one now"
    for client in clients[:2]:
        client.respond()
    await tasks[2]


async def test_released_bytes_let_waiting_requests_go_on_one_by_one() -> None:
    rig = Rig(budget_bytes=100)
    rig.budget.reserve(100)
    clients = [rig.client() for _ in range(4)]
    tasks = [asyncio.create_task(client.work(2, charge=60)) for client in clients]
    await tasks[0]
    assert sum(client.turns for client in clients[1:]) <= 1, "one of them is the oldest one now"
    rig.budget.release(100)
    clients[0].respond()
    for client, task in zip(clients[1:], tasks[1:], strict=True):
        await task
        client.respond()
    assert rig.budget.used_bytes == 0


async def test_oldest_request_waits_for_clients_that_do_not_receive_responses() -> None:
    rig = Rig(budget_bytes=6_400)
    rig.budget.reserve(6_400)
    rig.budget.unsent_bytes = 6_400
    client = rig.client()
    task = asyncio.create_task(client.work(1))
    await turns()
    assert not client.turns
    rig.budget.unsent_bytes = 0
    rig.budget.release(0)
    await task
    assert rig.budget.on_release is None


async def test_request_over_its_limit_is_dropped_while_the_budget_is_exhausted() -> None:
    rig = Rig(budget_bytes=CHARGE_BYTES_MAX // 2)
    client = rig.client()
    with pytest.raises(RequestDropped):
        await client.work(3, charge=CHARGE_BYTES_MAX)
    assert client.turns == 1
    assert "byte budget is exhausted" in client.reason


async def test_request_that_waits_too_long_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_requests, "WAIT_SECONDS_MAX", 0.0)
    rig = Rig(budget_bytes=100)
    rig.budget.reserve(100)
    rig.budget.unsent_bytes = 100
    client = rig.client()
    with pytest.raises(RequestDropped):
        await client.work(1)
    assert "send it again later" in client.reason


async def test_forwarded_request_does_not_wait() -> None:
    rig = Rig(budget_bytes=100)
    rig.budget.reserve(100)
    ahead = asyncio.create_task(rig.client().work(UNLIMITED))
    await turns()
    forwarded = Client(rig, NO_CONNECTION)
    await forwarded.work(TURNS_MAX)
    ahead.cancel()
    await asyncio.gather(ahead, return_exceptions=True)


async def test_packed_elements_are_charged_counted_and_encoded_as_their_objects() -> None:
    rig = Rig()
    client = rig.client()
    groups = [DescribedGroup(ErrorCode.INVALID_GROUP_ID, group_id=f"g{number}") for number in range(3_000)]
    whole = encode_response(API_KEY, VERSION, 1, DescribeGroupsResponse(groups=groups))
    with rig.large.begin(client.context) as work:
        packed: list[Any] = [await work.pack(DescribeGroupsResponse, groups[:1_500])]
        packed.append(await work.pack(DescribeGroupsResponse, groups[1_500:2_999]))
    response = DescribeGroupsResponse(groups=[*packed, groups[-1]])
    assert rig.budget.used_bytes == sum(len(part.data) for part in packed)
    rig.metrics.count_response(response, bytes_in=0, bytes_out=0, us=0)
    assert rig.metrics.errors == {ErrorCode.INVALID_GROUP_ID: 3_000}
    encoding = SlicedEncoding(API_KEY, VERSION, 1, response)
    while not encoding.run_slice():
        pass
    assert b"".join(encoding.chunks) == b"".join(whole)


async def test_reserved_bytes_are_released_at_the_end_of_the_block() -> None:
    rig = Rig()
    client = rig.client()
    with rig.large.begin(client.context) as work:
        work.charge(10)
        with pytest.raises(RequestDropped), work.reserved(100):
            assert (rig.budget.used_bytes, client.context.charge) == (110, 110)
            raise RequestDropped
        assert (rig.budget.used_bytes, client.context.charge) == (10, 10)


# ---- turns ----------------------------------------------------------------------------------------------------------


async def test_one_request_goes_on_per_iteration_of_the_event_loop() -> None:
    """Many large requests do not hold the loop together. None of them overtakes another."""
    rig = Rig()
    clients = [rig.client() for _ in range(20)]
    tasks = [asyncio.create_task(client.work(10)) for client in clients]
    before = 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        made = [client.turns for client in clients]
        assert sum(made) - before <= 1
        assert max(made) - min(made) <= 1
        before = sum(made)
    assert before == 200


async def test_requests_of_brokers_wait_for_each_other_alone() -> None:
    rig = Rig()
    clients = [rig.client() for _ in range(20)]
    forwarded = rig.client()
    forwarded.session.connection_id, forwarded.session.node = NO_CONNECTION, SessionNode.of(frozenset((9,)))
    brokers = [rig.client() for _ in range(2)]
    for number, broker in enumerate(brokers):
        broker.session.node = SessionNode.of(frozenset((number,)))
    tasks = [asyncio.create_task(client.work(100)) for client in (*clients, forwarded, *brokers)]
    await until(lambda: all(broker.turns == 100 for broker in brokers))
    made = [client.turns for client in (*clients, forwarded)]
    assert abs(sum(made) - 200) <= 30, "clients had as many turns as brokers"
    assert max(made) - min(made) <= 1, "a request that another broker has forwarded is one of a client"
    await asyncio.gather(*tasks)


async def test_cancelled_request_gives_its_turn_to_the_next_one() -> None:
    rig = Rig()
    tasks = [asyncio.create_task(rig.client().work(3)) for _ in range(5)]
    await turns(2)
    for task in tasks[:4]:
        task.cancel()
    await until(tasks[4].done)
    assert [task.cancelled() for task in tasks] == [True] * 4 + [False]
