"""Rests between slices take as long as the slices, and have nearly no length in virtual time."""

from __future__ import annotations

import asyncio

from odradek.runtime.rest import Pace
from tests.support.fake_kafka import virtual_loop


def work(seconds: float) -> None:
    """Occupy the event loop."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        pass


async def test_rest_takes_a_multiple_of_the_work() -> None:
    loop = asyncio.get_running_loop()
    pace = Pace(3)
    work(0.01)
    began = loop.time()
    await pace.rest()
    assert loop.time() - began >= 0.03


async def test_factor_of_one_rest_replaces_that_of_the_job() -> None:
    loop = asyncio.get_running_loop()
    pace = Pace(0)
    work(0.01)
    began = loop.time()
    await pace.rest(3)
    assert loop.time() - began >= 0.03


async def test_longest_rest_is_bounded() -> None:
    """Other processes, or a slow disk, can make a slice much longer than its work."""
    loop = asyncio.get_running_loop()
    pace = Pace(1_000, longest_s=0.001)
    work(0.02)
    began = loop.time()
    await pace.rest()
    assert loop.time() - began < 20


async def test_work_before_resume_does_not_count() -> None:
    loop = asyncio.get_running_loop()
    pace = Pace(1_000)
    work(0.02)
    pace.resume()
    began = loop.time()
    await pace.rest()
    assert loop.time() - began < 20


def test_other_callbacks_run_during_a_rest_without_work() -> None:
    async def scenario() -> list[str]:
        events: list[str] = []
        asyncio.get_running_loop().call_soon(events.append, "other callback")
        before = asyncio.get_running_loop().time()
        await Pace(3).rest()
        assert asyncio.get_running_loop().time() - before < 0.001
        return [*events, "rested"]

    with virtual_loop() as loop:
        assert loop.run_until_complete(scenario()) == ["other callback", "rested"]
