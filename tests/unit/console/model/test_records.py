"""Records with the states of their transactions, read forward and backward from a broker in this process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from odradek import client
from odradek.client.network.metadata import TopicPartition
from odradek.console.model import partition_log
from odradek.console.model.memory_limit import MemoryLimit, PageMemory
from odradek.console.model.partition_log import PartitionReader, read_bounds
from odradek.console.model.records import RecordQuery, parse_key, parse_time, read_record, read_records
from tests.support.console_client import SMALL
from tests.support.running_node import running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from odradek.console.model.log_record import LogRecord
    from odradek.console.model.partition_log import Bounds

KEY = TopicPartition("payments", 0)


@asynccontextmanager
async def payments(path: Path, *, partitions: int = 1) -> AsyncIterator[client.Cluster]:
    """Run a broker with a topic, and yield a client of it."""
    async with running(path, *SMALL) as broker, client.Cluster(f"127.0.0.1:{broker.node.listeners[0].port}") as cluster:
        await client.create_topic(cluster, "payments", partitions=partitions)
        yield cluster


async def bounds_of(cluster: client.Cluster) -> Bounds:
    """Return the offsets of the first partition."""
    found = (await read_bounds(cluster, await cluster.topic("payments"), [0]))[0].value
    assert found is not None
    return found


async def write(producer: client.Producer, *values: str, end: str = "commit", partition: int = 0) -> None:
    """Write a transaction."""
    await producer.begin()
    await producer.send(
        "payments", [client.ProducerRecord(value[0].encode(), value.encode(), partition=partition) for value in values]
    )
    if end == "commit":
        await producer.commit()
    elif end == "abort":
        await producer.abort()


def states(rows: list[LogRecord]) -> list[tuple[str, str]]:
    """Return values and states, the oldest first."""
    return [((row.value or b"").decode(), row.state.value) for row in reversed(rows)]


async def test_states_before_and_after_the_last_stable_offset(tmp_path: Path) -> None:
    async with payments(tmp_path) as cluster:
        first, second = (client.Producer(cluster, transactional_id=name) for name in ("first", "second"))
        plain = client.Producer(cluster)
        await write(second, "a1")
        await write(second, "a2", end="abort")
        await write(first, "b1", end="none")
        await plain.send("payments", [client.ProducerRecord(None, b"p")])
        await write(second, "c1")
        await write(second, "c2", end="abort")
        bounds = await bounds_of(cluster)
        page = await read_records(cluster, "payments", RecordQuery(), PageMemory(MemoryLimit()))
        marked = await read_records(cluster, "payments", RecordQuery(markers=True), PageMemory(MemoryLimit()))
        await first.commit()
        after = await read_records(cluster, "payments", RecordQuery(), PageMemory(MemoryLimit()))
    assert bounds.stable < bounds.high
    expected = [("a1", "committed"), ("a2", "aborted"), ("b1", "open"), ("p", "none"), ("c1", "committed")]
    assert states(page.rows) == [*expected, ("c2", "aborted")]
    assert [row.control.name for row in reversed(marked.rows) if row.control is not None] == ["COMMIT", "ABORT"] * 2
    assert ("b1", "committed") in states(after.rows)


async def test_state_is_not_known_if_the_markers_are_too_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "MARKER_BYTES_MAX", 1)
    monkeypatch.setattr(partition_log, "FETCH_BYTES", 200)
    async with payments(tmp_path) as cluster:
        first, second = (client.Producer(cluster, transactional_id=name) for name in ("first", "second"))
        await write(first, "a", end="none")
        for number in range(20):
            await write(second, f"b{number}")
        page = await read_records(cluster, "payments", RecordQuery(partition=0, before=1), PageMemory(MemoryLimit()))
        await first.abort()
    assert states(page.rows) == [("a", "not known")]


async def test_pages_backward_and_forward_meet_without_gap_or_overlap(tmp_path: Path) -> None:
    async with payments(tmp_path) as cluster:
        producer = client.Producer(cluster, transactional_id="first")
        for number in range(70):
            await write(producer, f"v{number}", end="commit" if number % 3 else "abort")
        values: list[str] = []
        before: int | None = None
        while True:
            page = await read_records(cluster, "payments", RecordQuery(0, before=before), PageMemory(MemoryLimit()))
            values = [value for value, _ in states(page.rows)] + values
            assert page.only is not None
            before = page.only.first
            if before <= page.only.bounds.start:
                break
        forward: list[str] = []
        start = 0
        while True:
            page = await read_records(cluster, "payments", RecordQuery(0, start=start), PageMemory(MemoryLimit()))
            assert page.only is not None
            forward += [value for value, _ in states(page.rows)]
            start = page.only.end
            if start >= page.only.bounds.high:
                break
    assert values == forward == [f"v{number}" for number in range(70)]


async def test_search_finds_keys_and_reads_bounded_bytes(tmp_path: Path) -> None:
    async with payments(tmp_path) as cluster:
        plain = client.Producer(cluster)
        for number in range(30):
            key = b"k" if number == 3 else b"other"
            await plain.send("payments", [client.ProducerRecord(key, b"x" * 1_000 + str(number).encode())])
        found = await read_records(cluster, "payments", RecordQuery(key=b"k"), PageMemory(MemoryLimit()))
        topic = await cluster.topic("payments")
        bounds = await bounds_of(cluster)
        reader = PartitionReader(cluster, topic, KEY, bounds, bytes_max=5_000)
        page = await reader.backward(bounds.high, 50, lambda row: row.key == b"k")
    assert [row.offset for row in found.rows] == [3]
    assert not found.forward
    assert page.rows == []
    assert not page.complete


async def test_records_of_all_partitions_are_in_the_order_of_time(tmp_path: Path) -> None:
    async with payments(tmp_path, partitions=3) as cluster:
        plain = client.Producer(cluster)
        for number in (5, 1, 3, 4, 2):
            record = client.ProducerRecord(
                None, str(number).encode(), partition=number % 3, timestamp_ms=number * 1_000
            )
            await plain.send("payments", [record])
        newest = await read_records(cluster, "payments", RecordQuery(), PageMemory(MemoryLimit()))
        late = await read_records(cluster, "payments", RecordQuery(time_ms=3_000), PageMemory(MemoryLimit()))
    assert [value for value, _ in states(newest.rows)] == ["1", "2", "3", "4", "5"]
    # Partition 2 has the times 5 and 2, in this order. The search begins at the first that is not before the time.
    assert [value for value, _ in states(late.rows)] == ["2", "3", "4", "5"]
    assert (newest.forward, late.forward) == (False, True)


async def test_record_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    async with payments(tmp_path) as cluster:
        await write(client.Producer(cluster, transactional_id="first"), "a")
        assert (await read_record(cluster, "payments", 0, 0, PageMemory(MemoryLimit()))).value == b"a"
        assert (await read_record(cluster, "payments", 0, 1, PageMemory(MemoryLimit()))).control is not None
        for index, offset in ((0, 2), (9, 0)):
            with pytest.raises(client.NotFound):
                await read_record(cluster, "payments", index, offset, PageMemory(MemoryLimit()))


def test_keys_and_times_are_parsed() -> None:
    assert (parse_key(""), parse_key("a"), parse_key("0x00ff")) == (None, b"a", b"\x00\xff")
    assert parse_time("1970-01-01 00:00:02") == parse_time("1970-01-01T01:00:02+01:00") == parse_time("2000") == 2_000
    assert parse_time(" ") is None
    for parse, text in ((parse_key, "0xzz"), (parse_time, "yesterday"), (parse_time, "0001-99-01")):
        with pytest.raises(client.InvalidArgument):
            parse(text)
