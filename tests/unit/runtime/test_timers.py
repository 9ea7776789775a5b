import asyncio

from runtime.shard import Timer
from runtime.timers import RECHECK_MS_MAX, STALE_MAX, TimerQueue
from tests.support.fake_shard_log import FakeClock


def queue() -> tuple[TimerQueue, FakeClock, list[str]]:
    fired: list[str] = []
    clock = FakeClock(0)
    return TimerQueue(clock, fired.append), clock, fired


async def test_deadlines_fire_in_order_and_equal_ones_as_they_were_set() -> None:
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


async def test_a_key_has_one_timer() -> None:
    timers, clock, fired = queue()
    timers.set(Timer("a", 10, "first"))
    timers.set(Timer("a", 5, "second"))
    timers.set(Timer("b", 5, "never"))
    timers.set(Timer("b", None))
    clock.now_ms = 100
    timers._expire()
    assert fired == ["second"]


async def test_replaced_entries_do_not_pile_up() -> None:
    timers, _, _ = queue()
    for deadline_ms in range(10 * STALE_MAX):
        timers.set(Timer("a", deadline_ms, "x"))
    assert len(timers._heap) <= STALE_MAX + 3
    timers.clear()
    assert timers._handle is None


async def test_a_jump_of_the_wall_clock_is_noticed() -> None:
    timers, clock, fired = queue()
    timers.set(Timer("a", 3_600_000, "a"))
    handle = timers._handle
    assert handle is not None
    assert handle.when() - asyncio.get_running_loop().time() <= RECHECK_MS_MAX / 1_000
    clock.now_ms = 3_600_000
    timers._expire()
    assert fired == ["a"]


async def test_a_real_timer_fires_by_itself() -> None:
    done = asyncio.get_running_loop().create_future()
    timers = TimerQueue(FakeClock(5), done.set_result)
    timers.set(Timer("a", 5, "now"))
    assert await done == "now"


async def test_a_command_that_sets_its_timer_for_now_does_not_starve_the_loop() -> None:
    fired: list[str] = []

    def fire(command: str) -> None:
        fired.append(command)
        timers.set(Timer("a", 0, "again"))

    timers = TimerQueue(FakeClock(0), fire)
    timers.set(Timer("a", 0, "first"))
    timers._expire()
    assert fired == ["first"]
    timers.clear()
