"""when_done: a response that is built when several futures are done."""

import asyncio
from asyncio import Future

import pytest

from odradek.broker.requests.futures import when_done
from odradek.protocol.errors import ErrorCode, Refusal


def futures(count: int) -> list[Future[int]]:
    return [asyncio.get_running_loop().create_future() for _ in range(count)]


async def test_response_is_built_once_after_the_last_future() -> None:
    results: list[int] = []
    first, second = futures(2)
    response = when_done(lambda: results.append(first.result() + second.result()), first, second)
    second.set_result(2)
    await asyncio.sleep(0)
    assert not response.done()
    first.set_result(1)
    await response
    assert results == [3]


async def test_exception_of_the_response_function_is_raised_by_the_future() -> None:
    (future,) = futures(1)
    response = when_done(future.result, future)
    future.set_exception(Refusal(ErrorCode.NOT_COORDINATOR))
    with pytest.raises(Refusal):
        await response


async def test_cancelled_future_cancels_the_response() -> None:
    (future,) = futures(1)
    response = when_done(future.result, future)
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await response


async def test_cancelled_response_is_never_built() -> None:
    results: list[int] = []
    (future,) = futures(1)
    response = when_done(lambda: results.append(future.result()), future)
    response.cancel()
    future.set_result(1)
    await asyncio.sleep(0)
    assert results == []
