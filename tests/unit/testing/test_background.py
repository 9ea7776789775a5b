from __future__ import annotations

import asyncio
import threading

import pytest

from odradek.testing.background import Background


def test_operation_runs_in_the_thread_and_its_exception_is_raised() -> None:
    background = Background("test")

    async def thread_name() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise KeyError("missing")

    assert background.run(thread_name()) == "test"
    with pytest.raises(KeyError, match="missing"):
        background.run(fail())
    background.close()


def test_close_ends_the_thread_and_cancels_operations() -> None:
    background = Background("test")
    began, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    waiting = asyncio.run_coroutine_threadsafe(wait(), background.loop)
    began.wait(10)
    background.close()
    assert ended.is_set()
    assert waiting.cancelled()
    assert background.loop.is_closed()
    background.close()
