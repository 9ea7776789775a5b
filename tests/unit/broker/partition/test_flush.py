import asyncio
import errno
from typing import TYPE_CHECKING, cast

import pytest

from odradek.broker.partition import flush
from odradek.broker.partition.flush import GroupFlush
from odradek.storage.disk.port import ResourcesExhausted

if TYPE_CHECKING:
    from odradek.storage.log.log import PartitionLog


class ManuallyFlushedLog:
    """In-memory log. A flush of it completes when the test completes its future."""

    def __init__(self) -> None:
        self.log_end_offset = 0
        self.flushed_offset = 0
        self.flushes: list[tuple[int, asyncio.Future[None]]] = []

    async def flush(self) -> None:
        covers = self.log_end_offset
        done = asyncio.get_running_loop().create_future()
        self.flushes.append((covers, done))
        await done
        self.flushed_offset = max(self.flushed_offset, covers)


class Bench:
    def __init__(self, messages: int) -> None:
        self.log = ManuallyFlushedLog()
        self.acknowledged: list[int] = []
        self.failures: list[OSError] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.flush = GroupFlush(
            cast("PartitionLog", self.log),
            name="t-0",
            messages=messages,
            spawn=self.spawn,
            acknowledgeable=self.acknowledged.append,
            failed=self.failures.append,
        )

    def spawn(self, coro: object, name: str) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coro, name=name)  # type: ignore[arg-type]  # a Coroutine
        self.tasks.append(task)
        return task

    async def append(self, count: int) -> None:
        self.log.log_end_offset += count
        self.flush.appended()
        await asyncio.sleep(0)

    async def finish(self, number: int, error: OSError | None = None) -> None:
        done = self.log.flushes[number][1]
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
        for _ in range(4):
            await asyncio.sleep(0)


async def test_append_without_flush_messages_is_acknowledgeable() -> None:
    bench = Bench(messages=2**63 - 1)
    await bench.append(3)
    assert bench.acknowledged == [3]
    assert bench.log.flushes == []


async def test_with_flush_messages_1_nothing_is_acknowledgeable_before_the_flush() -> None:
    bench = Bench(messages=1)
    await bench.append(1)
    assert bench.acknowledged == []
    await bench.finish(0)
    assert bench.acknowledged == [1]


async def test_one_flush_at_a_time_and_the_next_covers_all_appends_since() -> None:
    bench = Bench(messages=1)
    await bench.append(1)
    for _ in range(5):
        await bench.append(1)
    assert len(bench.log.flushes) == 1
    await bench.finish(0)
    assert bench.acknowledged == [1]
    assert [covers for covers, _ in bench.log.flushes] == [1, 6]
    await bench.finish(1)
    assert bench.acknowledged == [1, 6]
    await bench.append(1)
    assert len(bench.log.flushes) == 3


async def test_fewer_than_flush_messages_are_acknowledgeable_without_a_flush() -> None:
    bench = Bench(messages=4)
    await bench.append(3)
    assert bench.acknowledged == [3]
    await bench.append(1)  # four unflushed: as in Kafka, the append of the fourth flushes before it returns
    assert bench.acknowledged == [3]
    await bench.append(2)
    await bench.finish(0)
    assert bench.acknowledged == [3, 6]  # two unflushed are allowed again


async def test_failed_flush_is_reported_and_nothing_is_acknowledgeable() -> None:
    bench = Bench(messages=1)
    await bench.append(1)
    await bench.finish(0, OSError(errno.EIO, "flush"))
    assert bench.acknowledged == []
    assert [failure.errno for failure in bench.failures] == [errno.EIO]


async def test_flush_without_a_descriptor_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "RESOURCE_RETRY_S", 0.0)
    bench = Bench(messages=1)
    await bench.append(1)
    await bench.finish(0, ResourcesExhausted(errno.EMFILE, "too many open files"))
    while len(bench.log.flushes) < 2:
        await asyncio.sleep(0)
    assert bench.acknowledged == []
    await bench.finish(1)
    assert (bench.acknowledged, bench.failures) == ([1], [])


async def test_flush_completed_after_close_acknowledges_nothing() -> None:
    bench = Bench(messages=1)
    await bench.append(1)
    bench.flush.close()
    await bench.finish(0)
    assert bench.acknowledged == []


@pytest.mark.parametrize(("messages", "acknowledged"), [(1, [2]), (100, [2, 3])])
async def test_change_of_flush_messages_takes_effect_immediately(messages: int, acknowledged: list[int]) -> None:
    bench = Bench(messages=3)
    await bench.append(2)
    bench.flush.set_messages(messages)
    await asyncio.sleep(0)
    await bench.append(1)
    assert list(dict.fromkeys(bench.acknowledged)) == acknowledged
