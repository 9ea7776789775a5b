import asyncio
from asyncio import Future

import pytest

from odradek.broker.requests.futures import when_done
from odradek.protocol.errors import ErrorCode, Refusal


def futures(count: int) -> list[Future[int]]:
    return [asyncio.get_running_loop().create_future() for _ in range(count)]


async def test_the_answer_is_made_once_when_the_last_future_is_done() -> None:
    made: list[int] = []
    first, second = futures(2)
    answered = when_done(lambda: made.append(first.result() + second.result()), first, second)
    second.set_result(2)
    await asyncio.sleep(0)
    assert not answered.done()
    first.set_result(1)
    await answered
    assert made == [3]


async def test_what_the_answer_raises_is_raised_by_its_future() -> None:
    (waited,) = futures(1)
    answered = when_done(waited.result, waited)
    waited.set_exception(Refusal(ErrorCode.NOT_COORDINATOR))
    with pytest.raises(Refusal):
        await answered


async def test_a_future_that_was_cancelled_cancels_the_answer() -> None:
    (waited,) = futures(1)
    answered = when_done(waited.result, waited)
    waited.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answered


async def test_nothing_is_made_for_an_answer_that_nobody_waits_for() -> None:
    made: list[int] = []
    (waited,) = futures(1)
    answered = when_done(lambda: made.append(waited.result()), waited)
    answered.cancel()
    waited.set_result(1)
    await asyncio.sleep(0)
    assert made == []
