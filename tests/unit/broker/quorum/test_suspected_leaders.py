"""SuspectedLeaders: delay of Metadata responses after the loss of a connection to a broker."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from odradek.broker.quorum.suspected_leaders import PARTITIONS_CHECKED_MAX, SUSPICION_MS_MAX, SuspectedLeaders
from tests.support.broker_context import broker, image, topic


class Rig:
    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.contacts_ms = {1: 0, 2: 0}
        self.lose: Callable[[int, bool], None]
        self.publish: Callable[[Any, Any], None]
        self.metadata = SimpleNamespace(image=image(brokers=(broker(1), broker(2))), subscribe=self._subscribe)
        peers = SimpleNamespace(on_lost=self._on_lost, last_contact_ms=self.contacts_ms.__getitem__)
        clock = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        self.suspected = SuspectedLeaders(peers, self.metadata, clock)  # type: ignore[arg-type]  # the methods that are used

    def _on_lost(self, callback: Callable[[int, bool], None]) -> None:
        self.lose = callback

    def _subscribe(self, callback: Callable[[Any, Any], None]) -> None:
        self.publish = callback

    def lead_t(self, *leaders: int) -> None:
        """Publish an image with one partition of `t` for each leader."""
        self.metadata.image = image([topic("t", 1, leaders)], brokers=self.metadata.image.brokers.values())
        self.publish(None, self.metadata.image)

    def fence(self, node_id: int) -> None:
        brokers = {**self.metadata.image.brokers, node_id: broker(node_id, fenced=True)}
        self.metadata.image = replace(self.metadata.image, brokers=brokers)
        self.publish(None, self.metadata.image)


async def start_waiting(rig: Rig) -> "asyncio.Task[None]":
    task = asyncio.get_running_loop().create_task(rig.suspected.decided())
    await asyncio.sleep(0)
    return task


async def test_no_response_is_delayed_without_a_lost_connection() -> None:
    rig = Rig()
    assert not rig.suspected.any()
    await rig.suspected.decided()


async def test_delay_ends_when_the_broker_is_fenced() -> None:
    rig = Rig()
    rig.lose(2, False)
    assert rig.suspected.any()
    task = await start_waiting(rig)
    rig.publish(None, rig.metadata.image)  # an unrelated change
    await asyncio.sleep(0)
    assert not task.done()
    rig.fence(2)
    await task
    assert not rig.suspected.any()


async def test_delay_ends_after_contact_with_the_broker() -> None:
    rig = Rig()
    rig.lose(2, False)
    task = await start_waiting(rig)
    rig.contacts_ms[2] = rig.now_ms + 1
    rig.suspected.recheck()
    await task
    assert not rig.suspected.any()


async def test_delay_is_bounded_from_the_first_of_several_failed_connections() -> None:
    rig = Rig()
    rig.lose(2, True)
    rig.now_ms += SUSPICION_MS_MAX - 1
    rig.lose(2, True)
    assert rig.suspected.any()
    rig.now_ms += 1
    assert not rig.suspected.any()
    rig.lose(2, True)
    assert not rig.suspected.any()


async def test_unregistered_and_fenced_brokers_cause_no_delay() -> None:
    rig = Rig()
    rig.contacts_ms[3] = 0
    rig.lose(3, True)
    assert not rig.suspected.any()
    rig.fence(2)
    rig.lose(2, True)
    assert not rig.suspected.any()


async def test_delay_ends_when_other_brokers_lead_the_topics_of_the_request() -> None:
    """The controller fences the failed broker only after the elections for all of its partitions."""
    rig = Rig()
    rig.lead_t(1, 2)
    rig.lose(2, False)
    assert rig.suspected.any(["t"])
    task = asyncio.get_running_loop().create_task(rig.suspected.decided(["missing", "t"]))
    await asyncio.sleep(0)
    rig.lead_t(1, 1)
    async with asyncio.timeout(10):
        await task
    assert not rig.suspected.any(["t"])
    assert rig.suspected.any()


async def test_topics_of_other_leaders_cause_no_delay() -> None:
    rig = Rig()
    rig.lead_t(1, 1)
    rig.lose(2, False)
    assert not rig.suspected.any(["t", "missing"])
    assert rig.suspected.any()


async def test_response_with_too_many_partitions_to_check_waits_for_the_decision() -> None:
    rig = Rig()
    rig.lead_t(*[1] * PARTITIONS_CHECKED_MAX)
    rig.lose(2, False)
    assert not rig.suspected.any(["t"])
    rig.lead_t(*[1] * (PARTITIONS_CHECKED_MAX + 1))
    assert rig.suspected.any(["t"])
    rig.fence(2)
    assert not rig.suspected.any(["t"])
