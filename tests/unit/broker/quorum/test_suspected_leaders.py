"""Answers that would name a broker that has just been lost wait until it is known what has become of it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from odradek.broker.quorum.suspected_leaders import SUSPICION_MS_MAX, SuspectedLeaders
from tests.support.broker_context import broker, image


class Rig:
    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.heard = {1: 0, 2: 0}
        self.lose: Callable[[int, bool], None]
        self.publish: Callable[[Any, Any], None]
        self.metadata = SimpleNamespace(image=image(brokers=(broker(1), broker(2))), subscribe=self._subscribe)
        peers = SimpleNamespace(on_lost=self._on_lost, last_contact_ms=self.heard.__getitem__)
        clock = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        self.suspected = SuspectedLeaders(peers, self.metadata, clock)  # type: ignore[arg-type]  # what is needed of them

    def _on_lost(self, callback: Callable[[int, bool], None]) -> None:
        self.lose = callback

    def _subscribe(self, callback: Callable[[Any, Any], None]) -> None:
        self.publish = callback

    def fence(self, node_id: int) -> None:
        brokers = {**self.metadata.image.brokers, node_id: broker(node_id, fenced=True)}
        self.metadata.image = replace(self.metadata.image, brokers=brokers)
        self.publish(None, self.metadata.image)


async def waits(rig: Rig) -> "asyncio.Task[None]":
    task = asyncio.get_running_loop().create_task(rig.suspected.decided())
    await asyncio.sleep(0)
    return task


async def test_without_a_lost_connection_nobody_waits() -> None:
    rig = Rig()
    assert not rig.suspected.any()
    await rig.suspected.decided()


async def test_the_verdict_in_the_metadata_ends_the_waiting() -> None:
    rig = Rig()
    rig.lose(2, False)
    assert rig.suspected.any()
    task = await waits(rig)
    rig.publish(None, rig.metadata.image)  # news of something else
    await asyncio.sleep(0)
    assert not task.done()
    rig.fence(2)
    await task
    assert not rig.suspected.any()


async def test_a_node_that_is_heard_again_ends_it_too() -> None:
    rig = Rig()
    rig.lose(2, False)
    task = await waits(rig)
    rig.heard[2] = rig.now_ms + 1
    rig.suspected.recheck()
    await task
    assert not rig.suspected.any()


async def test_the_time_is_bounded_and_does_not_begin_anew_with_every_failure_to_connect() -> None:
    rig = Rig()
    rig.lose(2, True)
    rig.now_ms += SUSPICION_MS_MAX - 1
    rig.lose(2, True)
    assert rig.suspected.any()
    rig.now_ms += 1
    assert not rig.suspected.any()
    rig.lose(2, True)
    assert not rig.suspected.any()


async def test_a_node_that_is_no_broker_or_is_fenced_already_is_no_reason_to_wait() -> None:
    rig = Rig()
    rig.heard[3] = 0
    rig.lose(3, True)
    assert not rig.suspected.any()
    rig.fence(2)
    rig.lose(2, True)
    assert not rig.suspected.any()
