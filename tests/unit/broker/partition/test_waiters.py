import asyncio
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.partition import waiters
from odradek.broker.partition.waiters import CommitWait, FetchWait, FetchWatchers, OffsetWaiters, Watermark
from odradek.protocol.errors import ErrorCode

NONE = ErrorCode.NONE


def test_waiters_complete_in_offset_order_when_their_offset_is_reached() -> None:
    queue = OffsetWaiters()
    woken: list[tuple[str, ErrorCode]] = []
    for name, offset in (("a", 5), ("b", 9), ("c", 9), ("d", 7)):
        queue.add(offset, partial(lambda name, error: woken.append((name, error)), name))
    queue.advance(4)
    assert woken == []
    queue.advance(7)
    assert woken == [("a", NONE), ("d", NONE)]
    queue.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert woken[2:] == [("b", ErrorCode.NOT_LEADER_OR_FOLLOWER), ("c", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    queue.advance(100)
    assert len(woken) == 4
    assert len(queue) == 0


@settings(max_examples=50, deadline=None)
@given(offsets=st.lists(st.integers(0, 20), max_size=20), steps=st.lists(st.integers(0, 20), max_size=6))
def test_waiters_added_in_any_order_complete_by_offset(offsets: list[int], steps: list[int]) -> None:
    queue = OffsetWaiters()
    woken: list[tuple[int, int]] = []
    for number, offset in enumerate(offsets):
        queue.add(offset, partial(lambda mine, _error: woken.append(mine), (offset, number)))
    for step in sorted(steps):
        queue.advance(step)
    reached = max(steps, default=-1)
    assert woken == sorted((offset, number) for number, offset in enumerate(offsets) if offset <= reached)


async def test_commit_wait_completes_when_every_partition_has_a_result() -> None:
    outcome: dict[str, ErrorCode] = {}
    first, second = OffsetWaiters(), OffsetWaiters()
    wait: CommitWait[dict[str, ErrorCode]] = CommitWait(outcome)
    wait.expect(first, 3, lambda error: outcome.update(first=error))
    wait.expect(second, 4, lambda error: outcome.update(second=error))
    first.advance(3)
    future = wait.start(60_000)
    assert not future.done()
    second.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert future.result() == {"first": NONE, "second": ErrorCode.NOT_LEADER_OR_FOLLOWER}


async def test_commit_wait_without_partitions_is_done_immediately() -> None:
    assert CommitWait("response").start(60_000).result() == "response"


async def test_commit_wait_with_all_results_before_start_is_done_at_start() -> None:
    queue = OffsetWaiters()
    wait: CommitWait[str] = CommitWait("response")
    wait.expect(queue, 1, lambda _error: None)
    queue.advance(1)
    assert wait.start(60_000).done()


async def test_commit_wait_times_out_for_missing_partitions_and_leaves_their_queues() -> None:
    results: list[tuple[str, ErrorCode]] = []
    queue = OffsetWaiters()
    unrelated: list[ErrorCode] = []
    wait: CommitWait[None] = CommitWait(None)
    wait.expect(queue, 1, lambda error: results.append(("a", error)))
    wait.expect(queue, 2, lambda error: results.append(("b", error)))
    queue.add(2, unrelated.append)
    wait.expect(queue, 3, lambda error: results.append(("c", error)))
    queue.advance(1)
    await wait.start(0)
    assert (len(queue), queue.next_offset) == (1, 2)
    queue.advance(9)
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    assert results == [("a", NONE), ("b", timed_out), ("c", timed_out)]
    assert unrelated == [NONE]


async def test_fetch_wakes_on_its_own_watermark() -> None:
    watchers = FetchWatchers()
    uncommitted, committed = FetchWait(), FetchWait()
    uncommitted.watch(watchers, Watermark.HIGH_WATERMARK, 1_000)
    committed.watch(watchers, Watermark.LAST_STABLE_OFFSET, 1_000)
    uncommitted.start(1, 60_000)
    committed.start(1, 60_000)
    watchers.appended(10, 300)
    assert not uncommitted.woken.done()
    watchers.advanced(10, None)
    assert uncommitted.woken.done()
    assert not committed.woken.done()
    watchers.advanced(10, 10)
    assert committed.woken.done()
    assert len(watchers) == 0


async def test_min_bytes_counts_all_partitions_up_to_the_limit_of_each() -> None:
    watchers_1, watchers_2 = FetchWatchers(), FetchWatchers()
    wait = FetchWait()
    wait.watch(watchers_1, Watermark.HIGH_WATERMARK, 300)
    wait.watch(watchers_2, Watermark.HIGH_WATERMARK, 300)
    wait.start(500, 60_000)
    for end, size in ((1, 200), (2, 200), (3, 200)):
        watchers_1.appended(end, size)
        watchers_1.advanced(end, None)
    assert not wait.woken.done()  # 600 bytes, of which the limit of the partition counts 300
    watchers_2.appended(1, 200)
    assert not wait.woken.done()  # appended, but below no watermark
    watchers_2.advanced(1, None)
    assert wait.woken.done()
    assert len(watchers_1) == len(watchers_2) == 0


async def test_min_bytes_counts_the_bytes_that_a_lagging_watermark_passes() -> None:
    watchers = FetchWatchers()
    for end in range(1, 11):
        watchers.appended(end, 100)
    wait = FetchWait()
    wait.watch(watchers, Watermark.LAST_STABLE_OFFSET, 10_000)
    wait.start(450, 60_000)
    watchers.advanced(10, None)
    watchers.advanced(10, 4)
    assert not wait.woken.done()
    watchers.advanced(10, 5)
    assert wait.woken.done()


async def test_fetch_wakes_on_timeout_and_on_loss_of_the_partition() -> None:
    watchers = FetchWatchers()
    timed, lost = FetchWait(), FetchWait()
    timed.watch(watchers, Watermark.HIGH_WATERMARK, 10)
    timed.start(1, 0)
    await timed.woken
    lost.watch(watchers, Watermark.LOG_END, 10)
    lost.start(1, 60_000)
    watchers.wake_all()
    assert lost.woken.done()
    assert len(watchers) == 0


async def test_second_wake_has_no_effect() -> None:
    wait = FetchWait()
    wait.start(1, 60_000)
    wait.wake()
    wait.wake()
    assert wait.woken.done()


async def test_growth_entries_of_a_long_transaction_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiters, "GROWTH_ENTRIES_MAX", 16)
    watchers = FetchWatchers()
    for end in range(1, 1_001):
        watchers.appended(end, 10)
        watchers.advanced(end, None)
        assert len(watchers._ends) <= 17
    wait = FetchWait()
    wait.watch(watchers, Watermark.LAST_STABLE_OFFSET, 100_000)
    wait.start(10_000, 60_000)
    watchers.advanced(1_000, 1_000)
    assert wait.woken.done()  # merged entries lose no bytes at the end
    assert len(watchers._ends) == 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_advance_wakes_a_fetch_with_min_bytes_1(data: st.DataObject) -> None:
    """A fetch with min_bytes=1 wakes on every advance of its watermark, also when growth entries were merged."""

    async def advance_in_steps() -> None:
        watchers = FetchWatchers()
        end = data.draw(st.integers(1, 40))
        for offset in range(1, end + 1):
            watchers.appended(offset, data.draw(st.integers(61, 70)))
            if data.draw(st.booleans()):
                watchers._merge()
        mark = 0
        while mark < end:
            wait = FetchWait()
            wait.watch(watchers, Watermark.LAST_STABLE_OFFSET, 1_000_000)
            wait.start(1, 60_000)
            mark = data.draw(st.integers(mark + 1, end))
            watchers.advanced(end, mark)
            assert wait.woken.done()

    asyncio.run(advance_in_steps())


async def test_fetches_wake_in_order_of_arrival() -> None:
    watchers = FetchWatchers()
    woken: list[int] = []
    for number in range(5):
        wait = FetchWait()
        wait.watch(watchers, Watermark.HIGH_WATERMARK, 10)
        wait.start(1, 60_000)
        wait.woken.add_done_callback(partial(lambda number, _done: woken.append(number), number))
    watchers.appended(1, 61)
    watchers.advanced(1, None)
    await asyncio.sleep(0)
    assert woken == [0, 1, 2, 3, 4]
