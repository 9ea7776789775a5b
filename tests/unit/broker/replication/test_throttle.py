"""Replication throttles (KIP-73)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.replication.throttle import DEBT_MS_MAX, PAUSE_MS_MAX, ReplicaThrottles, Throttle, is_listed
from odradek.protocol.primitives import INT64_MAX
from odradek.simulation.environment.loop import SimLoop
from odradek.storage.config import LogConfig
from tests.support.data_rig import NOW_MS, Clock
from tests.support.replication_rig import Brokers


def test_bytes_above_the_rate_delay_until_the_rate_allows_them() -> None:
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
    assert throttle.wait_ms() == 701, "unused time gives no credit"


def test_debt_is_bounded_since_in_sync_replicas_add_to_it_without_limit() -> None:
    """In-sync replicas are never delayed.

    If the rate is raised above their traffic, others get the rest within seconds.
    """
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
    assert 1_000 < waited_ms < 5_000, "eleven seconds at the old rate, paid with the rest of the new rate"


@pytest.mark.parametrize(
    ("rate", "taken", "wait_ms"), [(INT64_MAX, 10**12, 0), (0, 0, PAUSE_MS_MAX), (1, 10**6, PAUSE_MS_MAX)]
)
def test_unlimited_rate_has_no_delay_and_rate_zero_the_maximum_delay(rate: int, taken: int, wait_ms: int) -> None:
    throttle = Throttle(lambda: rate, Clock())
    throttle.record(taken)
    assert throttle.wait_ms() == wait_ms


@pytest.mark.parametrize(
    ("replicas", "named"),
    [((), False), (("*",), True), (("0:1",), True), (("1:1", "0:2"), False), (("1:1", "0:1"), True)],
)
def test_throttled_replicas_property_lists_replicas(replicas: tuple[str, ...], named: bool) -> None:
    assert is_listed(frozenset(replicas), 0, 1) is named


@pytest.mark.parametrize("in_sync", [True, False])
def test_in_sync_replicas_are_counted_and_never_delayed(in_sync: bool) -> None:
    clock = Clock()
    throttles = ReplicaThrottles(1, Throttle(lambda: 100, clock), Throttle(lambda: 100, clock), lambda _: in_sync)
    config = LogConfig(
        leader_replication_throttled_replicas=frozenset("*"), follower_replication_throttled_replicas=frozenset("*")
    )
    partition: Any = SimpleNamespace(index=0, log=SimpleNamespace(config=config))
    throttles.record_leader_bytes(partition, 50)
    throttles.record_follower_bytes(partition, 50)
    assert (throttles.leader_wait_ms(partition, follower_in_sync=in_sync) == 0) is in_sync
    assert (throttles.follower_wait_ms(partition) == 0) is in_sync


@pytest.fixture(params=["leader", "follower"])
async def throttled(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Brokers, int]]:
    """Replica 3 was fenced and lacks five records. The rate of the throttled side is zero."""
    side = request.param
    named: dict[str, Any] = {f"{side}_replication_throttled_replicas": frozenset(("0:1", "0:3"))}
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
    for node_id in (1, 2, 3):
        brokers[node_id].clock.now_ms += 60_000
    yield brokers, node
    await brokers.close()


async def test_replica_outside_the_isr_is_delayed_and_in_sync_replicas_are_not(throttled: tuple[Brokers, int]) -> None:
    brokers, node = throttled
    brokers.unfence(3)
    del brokers.isolated[3]
    await brokers.rounds(3_000)
    assert brokers[3].end() == 1
    brokers[1].append(b"y")
    await brokers.until(lambda: brokers[1].committed() == 7)
    brokers[node].rates.update(leader=INT64_MAX, follower=INT64_MAX)
    await brokers.until(lambda: brokers[3].end() == 7)
    leader_term = brokers[1].partition().leader_term
    assert leader_term is not None
    await brokers.until(lambda: leader_term.replicas.isr == (1, 2, 3))


async def catch_up(folder: Path, side: str, rate: int) -> float:
    """Return the bytes per second at which replica 2 fetches ten records that it lacks, one in node_id fetch."""
    named: dict[str, Any] = {f"{side}_replication_throttled_replicas": frozenset("*")}
    settings = "replica.fetch.wait.max.ms=500", "replica.fetch.max.bytes=1"
    brokers = Brokers(folder, 2, LogConfig(min_insync_replicas=1, **named), settings)
    brokers.isolated[2] = None
    brokers.topic(replicas=(1, 2))
    brokers.fence(2, isr=[1])
    for _ in range(10):
        brokers[1].append(b"x" * 1_000)
    for node_id in (1, 2):
        brokers[node_id].rates[side] = rate
    brokers.unfence(2)
    del brokers.isolated[2]
    loop = asyncio.get_running_loop()
    await brokers.until(lambda: brokers[2].end() == 1)
    started, lacking = loop.time(), len(brokers[1].content()) - len(brokers[2].content())
    await brokers.until(lambda: brokers[2].end() == 10)
    await brokers.close()
    return lacking / (loop.time() - started)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_replica_outside_the_isr_catches_up_at_the_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """Virtual time.

    The leader returns a delayed fetch when the debt is paid, not when the wait time of the fetch expires.
    """
    loop, rate = SimLoop(Random(1)), 50_000
    monkeypatch.setattr(Clock, "monotonic_ms", lambda _: NOW_MS + int(loop.time() * 1_000))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert 0.9 * rate < runner.run(catch_up(tmp_path, side, rate)) <= rate
