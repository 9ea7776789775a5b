"""Queue of large requests: one at a time, in order, within the byte budget, and without requests of closed clients."""

from __future__ import annotations

import asyncio
import gc
import weakref

from odradek.broker.dispatch.large_requests import LargeRequests
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.protocol.codec import SlicedDecoding, encode
from odradek.protocol.errors import ChargeExceeded
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.runtime.tasks import Tasks

UNLIMITED = 1 << 40
TURNS_MAX = 100


class Rig:
    def __init__(self, budget_bytes: int = UNLIMITED) -> None:
        self.unexpected: list[BaseException] = []
        self.tasks = Tasks(lambda _, exception: self.unexpected.append(exception))
        self.budget = ByteBudget(budget_bytes)
        self.queue = LargeRequests(self.budget, self.tasks)

    @staticmethod
    def decoding(groups: int = 10_000, charge_max: int = UNLIMITED) -> SlicedDecoding[DescribeGroupsRequest]:
        data = encode(DescribeGroupsRequest(groups=["g"] * groups), 5)
        return SlicedDecoding(DescribeGroupsRequest, 5, data, charge_max)


async def until_done(*futures: asyncio.Future[None]) -> None:
    async with asyncio.timeout(30):
        await asyncio.wait(futures)


async def test_requests_are_decoded_one_at_a_time_in_order() -> None:
    rig = Rig()
    decodings = [rig.decoding() for _ in range(3)]
    futures = [rig.queue.decode(decoding) for decoding in decodings]
    begun: list[tuple[bool, ...]] = []
    while not all(future.done() for future in futures):
        begun.append(tuple(decoding.charge > 0 for decoding in decodings))
        assert sum(decoding.charge > 0 and decoding.message is None for decoding in decodings) <= 1
        await asyncio.sleep(0)
    assert {(True, False, False), (True, True, False)} <= set(begun)
    assert not rig.unexpected


async def test_exceeded_charge_fails_its_request_alone() -> None:
    rig = Rig()
    refused, served = rig.queue.decode(rig.decoding(charge_max=1_000)), rig.queue.decode(rig.decoding())
    await until_done(refused, served)
    assert isinstance(refused.exception(), ChargeExceeded)
    assert served.exception() is None


async def test_canceled_requests_are_not_kept() -> None:
    """A client that sends large requests and closes its connections cannot fill the memory with queued requests."""
    rig = Rig()
    first = rig.queue.decode(rig.decoding())
    waiting = [rig.decoding() for _ in range(3)]
    kept = [weakref.ref(decoding) for decoding in waiting]
    futures = [rig.queue.decode(decoding) for decoding in waiting]
    waiting.clear()
    for future in futures:
        future.cancel()
    await asyncio.sleep(0)
    gc.collect()
    assert [reference() for reference in kept] == [None] * 3
    assert not first.done()
    await until_done(first)


async def test_cancellation_of_the_running_request_continues_with_the_next() -> None:
    rig = Rig()
    running = rig.decoding(1_000_000)
    first, second = rig.queue.decode(running), rig.queue.decode(rig.decoding())
    while not running.charge:
        await asyncio.sleep(0)
    first.cancel()
    await until_done(second)
    assert running.message is None


async def test_queue_waits_for_the_byte_budget_and_ends_if_all_requests_are_canceled() -> None:
    rig = Rig(budget_bytes=100)
    rig.budget.reserve(100)
    other = object()
    assert rig.budget.may_read(other, 100, lambda: None), "another connection is exempt from the limit"
    decoding = rig.decoding()
    future = rig.queue.decode(decoding)
    for _ in range(TURNS_MAX):
        await asyncio.sleep(0)
    assert decoding.charge == 0
    future.cancel()
    rig.budget.release(50)
    for _ in range(TURNS_MAX):
        await asyncio.sleep(0)
    assert not rig.unexpected
    later = rig.queue.decode(rig.decoding())
    await until_done(later)
