import asyncio

from odradek.runtime.shard import Timer
from odradek.runtime.timers import FIRED_MAX, FIRING_US_MAX, RECHECK_MS_MAX, STALE_MAX, TimerQueue, TimerTurns
from tests.support.fake_shard_log import FakeClock


def queue() -> tuple[TimerQueue, FakeClock, list[str]]:
    fired: list[str] = []
    clock = FakeClock(0)
    return TimerQueue(clock, lambda _key, command: fired.append(command)), clock, fired


async def test_deadlines_fire_in_order_and_equal_ones_in_the_order_of_set() -> None:
    timers, clock, fired = queue()
    for key, deadline_ms in (("c", 30), ("a", 10), ("b", 10)):
        timers.set(Timer(key, deadline_ms, key))
    clock.now_ms = 29
    timers._expire()
    assert fired == ["a", "b"]
    clock.now_ms = 30
    timers._expire()
    assert fired == ["a", "b", "c"]
    assert len(timers) == 0


async def test_second_timer_of_a_key_replaces_the_first() -> None:
    timers, clock, fired = queue()
    timers.set(Timer("a", 10, "first"))
    timers.set(Timer("a", 5, "second"))
    timers.set(Timer("b", 5, "never"))
    timers.set(Timer("b", None))
    clock.now_ms = 100
    timers._expire()
    assert fired == ["second"]


async def test_replaced_entries_are_removed() -> None:
    timers, _, _ = queue()
    for deadline_ms in range(10 * STALE_MAX):
        timers.set(Timer("a", deadline_ms, "x"))
    assert len(timers._wall) <= STALE_MAX + 3
    timers.clear()
    assert timers._handle is None


async def test_jump_of_the_wall_clock_is_noticed_within_the_recheck_interval() -> None:
    timers, clock, fired = queue()
    timers.set(Timer("a", 3_600_000, "a"))
    handle = timers._handle
    assert handle is not None
    assert handle.when() - asyncio.get_running_loop().time() <= RECHECK_MS_MAX / 1_000
    clock.now_ms = 3_600_000
    timers._expire()
    assert fired == ["a"]


async def test_timer_fires_on_a_real_event_loop() -> None:
    done = asyncio.get_running_loop().create_future()
    timers = TimerQueue(FakeClock(5), lambda _key, command: done.set_result(command))
    timers.set(Timer("a", 5, "now"))
    assert await done == "now"


async def test_command_that_sets_its_timer_for_now_does_not_starve_the_loop() -> None:
    fired: list[str] = []

    def fire(_key: object, command: str) -> None:
        fired.append(command)
        timers.set(Timer("a", 0, "again"))

    timers = TimerQueue(FakeClock(0), fire)
    timers.set(Timer("a", 0, "first"))
    timers._expire()
    assert fired == ["first"]
    timers.clear()


async def test_wall_clock_set_back_does_not_postpone_a_delay() -> None:
    """A sweep every 10 s continues. A wall-clock deadline moves with the clock."""
    timers, clock, fired = queue()
    clock.monotonic_offset_ms = 0
    timers.set(Timer("sweep", command="sweep", delay_ms=10_000))
    timers.set(Timer("deadline", 10_000, "deadline"))
    clock.now_ms -= 3_600_000
    clock.monotonic_offset_ms = 3_600_000 + 9_999
    timers._expire()
    assert fired == []
    clock.monotonic_offset_ms += 1
    timers._expire()
    assert fired == ["sweep"]
    assert len(timers) == 1


async def test_loop_timer_is_set_to_the_earliest_due_time_of_both_clocks() -> None:
    timers, _, _ = queue()
    loop = asyncio.get_running_loop()
    timers.set(Timer("late", command="late", delay_ms=60_000))
    handle = timers._handle
    assert handle is not None
    assert 59 < handle.when() - loop.time() < 61
    timers.set(Timer("soon", command="soon", delay_ms=100))
    handle = timers._handle
    assert handle is not None
    assert handle.when() - loop.time() < 1
    timers.set(Timer("soon"))
    timers._expire()
    assert len(timers) == 1
    timers.clear()
    assert timers._handle is None


async def test_timers_that_are_due_together_fire_in_several_callbacks() -> None:
    """Other work runs in between: a client can make thousands of timers due at the same time."""
    timers, clock, fired = queue()
    for number in range(2 * FIRED_MAX + 1):
        timers.set(Timer(number, 10, f"{number}"))
    clock.now_ms = 10
    counts = []
    while len(timers):
        timers._expire()
        counts.append(len(fired))
    assert counts == [FIRED_MAX, 2 * FIRED_MAX, 2 * FIRED_MAX + 1]
    assert fired == [f"{number}" for number in range(2 * FIRED_MAX + 1)]


async def test_timers_of_all_queues_of_a_coordinator_share_the_time_of_an_iteration() -> None:
    """Commands of 2 ms in 50 shards: a bound per shard would add up to 50 times the bound."""
    clock, fired, latest_ms = FakeClock(0), list[int](), 0
    turns = TimerTurns(clock)

    def fire(_key: object, shard: int) -> None:
        clock.now_ms += 2
        fired.append(shard)

    queues = [TimerQueue(clock, fire, turns=turns) for _ in range(50)]
    for shard, timers in enumerate(queues):
        timers.set(Timer("wall", 0, shard))
        for number in range(4):
            timers.set(Timer(number, command=shard, delay_ms=0))
    while any(map(len, queues)):
        await asyncio.sleep(0)
        assert clock.now_ms - latest_ms <= FIRING_US_MAX // 1_000 + 2
        latest_ms = clock.now_ms
    assert sorted(fired) == sorted(5 * list(range(50)))
    assert set(fired[: 3 * 50]) == set(range(50)), "no shard fires a fourth timer before the first one of another shard"


async def test_timers_after_the_bound_fire_in_the_order_of_their_due_times() -> None:
    clock, fired = FakeClock(0), list[str]()

    def fire(_key: object, command: str) -> None:
        clock.now_ms += 10
        fired.append(command)
        if command == "first":
            timers.set(Timer("replaced", command="again", delay_ms=100))
            timers.set(Timer("cancelled"))

    timers = TimerQueue(clock, fire)
    for name in ("first", "replaced", "cancelled", "last"):
        timers.set(Timer(name, command=name, delay_ms=0))
    timers.set(Timer("wall", 0, "wall"))
    await asyncio.sleep(0)
    timers._expire()
    while len(fired) < 3:
        await asyncio.sleep(0)
    assert fired == ["wall", "first", "last"]
    assert len(timers) == 1
    timers.clear()
    assert timers._handle is None
