"""Throttles of replicas that are moved (KIP-73)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.config.property import LONG_MAX
from odradek.broker.replication.throttle import DEBT_MS_MAX, PAUSE_MS_MAX, ReplicaThrottles, Throttle, is_listed
from odradek.storage.config import LogConfig
from tests.sim.environment.loop import SimLoop
from tests.support.data_rig import NOW_MS, Clock
from tests.support.replication_rig import Brokers


def test_what_is_taken_beyond_the_rate_is_paid_off_as_time_passes() -> None:
    clock, rate = Clock(), [1_000]
    throttle = Throttle(lambda: rate[0], clock)
    assert throttle.wait_ms() == 0
    throttle.record(500)
    assert throttle.wait_ms() == 501
    clock.now_ms += 400
    assert throttle.wait_ms() == 101
    clock.now_ms += 100
    assert throttle.wait_ms() == 0
    clock.now_ms += 3_600_000
    throttle.record(700)
    assert throttle.wait_ms() == 701, "a quiet hour saves nothing up"


def test_a_debt_is_forgotten_after_a_while_as_replicas_in_sync_may_add_to_it_without_end() -> None:
    """They are never held back. A rate that is raised above what they take lets others have the rest within seconds."""
    clock, rate = Clock(), [1_000]
    throttle = Throttle(lambda: rate[0], clock)
    for _ in range(3_600):
        throttle.record(3_000)
        clock.now_ms += 1_000
    rate[0] = 6_000
    waited_ms = 0
    while throttle.wait_ms() and waited_ms <= DEBT_MS_MAX:
        throttle.record(300)
        clock.now_ms += 100
        waited_ms += 100
    assert 1_000 < waited_ms < 5_000, "eleven seconds of the old rate, paid with what the new one leaves"


@pytest.mark.parametrize(
    ("rate", "taken", "wait_ms"), [(LONG_MAX, 10**12, 0), (0, 0, PAUSE_MS_MAX), (1, 10**6, PAUSE_MS_MAX)]
)
def test_no_limit_no_bytes_at_all_and_a_wait_that_looks_again(rate: int, taken: int, wait_ms: int) -> None:
    throttle = Throttle(lambda: rate, Clock())
    throttle.record(taken)
    assert throttle.wait_ms() == wait_ms


@pytest.mark.parametrize(
    ("replicas", "named"),
    [((), False), (("*",), True), (("0:1",), True), (("1:1", "0:2"), False), (("1:1", "0:1"), True)],
)
def test_which_replicas_are_named(replicas: tuple[str, ...], named: bool) -> None:
    assert is_listed(replicas, 0, 1) is named


@pytest.mark.parametrize("in_sync", [True, False])
def test_what_is_in_sync_is_never_held_back_but_counts(in_sync: bool) -> None:
    clock = Clock()
    throttles = ReplicaThrottles(1, Throttle(lambda: 100, clock), Throttle(lambda: 100, clock), lambda _: in_sync)
    config = LogConfig(leader_replication_throttled_replicas=("*",), follower_replication_throttled_replicas=("*",))
    partition: Any = SimpleNamespace(index=0, log=SimpleNamespace(config=config))
    throttles.record_leader_bytes(partition, 50)
    throttles.record_follower_bytes(partition, 50)
    assert (throttles.leader_wait_ms(partition, follower_in_sync=in_sync) == 0) is in_sync
    assert (throttles.follower_wait_ms(partition) == 0) is in_sync


@pytest.fixture(params=["leader", "follower"])
async def throttled(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Brokers, int]]:
    """Replica 3 has been away and lacks five records; the side that is throttled lets nothing through."""
    side = request.param
    named: dict[str, Any] = {f"{side}_replication_throttled_replicas": ("0:1", "0:3")}
    brokers = Brokers(tmp_path, config=LogConfig(min_insync_replicas=2, **named))
    node = 1 if side == "leader" else 3
    brokers[node].rates[side] = 0
    brokers.topic()
    brokers[1].append(b"a")
    await brokers.until(lambda: brokers[1].committed() == 1)
    brokers.isolated[3] = None
    brokers.fence(3, isr=[1, 2])
    for _ in range(5):
        brokers[1].append(b"x")
    await brokers.until(lambda: brokers[1].committed() == 6)
    for each in (1, 2, 3):
        brokers[each].clock.now_ms += 60_000
    yield brokers, node
    await brokers.close()


async def test_a_replica_that_is_not_in_sync_waits_and_those_in_sync_do_not(throttled: tuple[Brokers, int]) -> None:
    brokers, node = throttled
    brokers.unfence(3)
    del brokers.isolated[3]
    await brokers.rounds(3_000)
    assert brokers[3].end() == 1
    brokers[1].append(b"y")
    await brokers.until(lambda: brokers[1].committed() == 7)
    brokers[node].rates.update(leader=LONG_MAX, follower=LONG_MAX)
    await brokers.until(lambda: brokers[3].end() == 7)
    leading = brokers[1].partition().leader_term
    assert leading is not None
    await brokers.until(lambda: leading.replicas.isr == (1, 2, 3))


async def catch_up(folder: Path, side: str, rate: int) -> float:
    """Bytes a second at which replica 2 comes by ten records that it lacks, one with each fetch."""
    named: dict[str, Any] = {f"{side}_replication_throttled_replicas": ("*",)}
    settings = "replica.fetch.wait.max.ms=500", "replica.fetch.max.bytes=1"
    brokers = Brokers(folder, 2, LogConfig(min_insync_replicas=1, **named), settings)
    brokers.isolated[2] = None
    brokers.topic(replicas=(1, 2))
    brokers.fence(2, isr=[1])
    for _ in range(10):
        brokers[1].append(b"x" * 1_000)
    for each in (1, 2):
        brokers[each].rates[side] = rate
    brokers.unfence(2)
    del brokers.isolated[2]
    loop = asyncio.get_running_loop()
    await brokers.until(lambda: brokers[2].end() == 1)
    began, lacking = loop.time(), len(brokers[1].content()) - len(brokers[2].content())
    await brokers.until(lambda: brokers[2].end() == 10)
    await brokers.close()
    return lacking / (loop.time() - began)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_that_is_not_in_sync_catches_up_at_the_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """In virtual time. A fetch that is held back at the leader is answered when the debt is paid, not when its own time is up."""
    loop, rate = SimLoop(Random(1)), 50_000
    monkeypatch.setattr(Clock, "monotonic_ms", lambda _: NOW_MS + int(loop.time() * 1_000))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert 0.9 * rate < runner.run(catch_up(tmp_path, side, rate)) <= rate
