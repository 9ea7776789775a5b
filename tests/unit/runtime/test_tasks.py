import asyncio

import pytest

from odradek.runtime.tasks import Tasks


async def test_tasks_are_cancelled_one_by_one_latest_first() -> None:
    ended: list[str] = []

    async def forever(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    tasks = Tasks(lambda _name, _exception: None)
    for name in "abc":
        tasks.spawn(forever(name), name)
    await asyncio.sleep(0)
    await tasks.cancel_all()
    assert ended == ["c", "b", "a"]
    assert len(tasks) == 0
    with pytest.raises(RuntimeError, match="late"):
        tasks.spawn(forever("late"), "late")


async def test_exception_is_reported_with_the_name_of_its_task() -> None:
    reported: list[tuple[str, str]] = []

    async def broken() -> None:
        raise ValueError("bad")

    tasks = Tasks(lambda name, exception: reported.append((name, str(exception))))
    tasks.spawn(broken(), "the broken one")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert reported == [("the broken one", "bad")]
    await tasks.cancel_all()


async def test_task_that_fails_during_cancellation_does_not_block_others() -> None:
    reported: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("in finally")

    tasks = Tasks(lambda name, _exception: reported.append(name))
    first, second = tasks.spawn(stubborn(), "first"), tasks.spawn(stubborn(), "second")
    await asyncio.sleep(0)
    await tasks.cancel_all()
    assert first.done()
    assert second.done()
    await asyncio.sleep(0)
    assert sorted(reported) == ["first", "second"]
