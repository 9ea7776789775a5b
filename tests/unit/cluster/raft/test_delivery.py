"""Delivery of a snapshot that changes while it is read, and of a large batch with others behind it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from odradek.cluster.raft import delivery
from odradek.cluster.raft.batches import encode_records, encode_snapshot_footer, encode_snapshot_header
from odradek.cluster.raft.delivery import RECORDS_PER_PART, TURN_BYTES_MAX, TURN_RECORDS_MAX, Delivery
from odradek.cluster.raft.messages import Entry, EpochEnd
from odradek.cluster.raft.snapshot_reader import SNAPSHOT_READ_BYTES_MAX
from odradek.protocol.errors import Malformed
from odradek.runtime.rest import Pace
from odradek.runtime.tasks import Tasks
from tests.support.raft_memory import MemoryRaftStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.cluster.raft.batches import LogBatch

OWN, OF_LEADER = EpochEnd(1, 100), EpochEnd(2, 300)


def snapshot_of(value: bytes, records: int = 1) -> bytes:
    """Return a snapshot whose batches have one record each."""
    batches = [encode_snapshot_header(epoch=1, last_contained_ms=0, now_ms=0)]
    batches += [encode_records([(None, value)], base_offset=1 + at, epoch=1, now_ms=0) for at in range(records)]
    batches.append(encode_snapshot_footer(base_offset=1 + records, epoch=1, now_ms=0))
    return b"".join(batches)


@dataclass
class Load:
    """Content of one snapshot. `on_take` is called after its first batches."""

    snapshot: EpochEnd
    on_take: Callable[[], None]
    values: list[bytes | None] = field(default_factory=list)
    is_complete: bool = False

    def take(self, batches: Sequence[LogBatch]) -> None:
        self.values += [value for batch in batches for _, value in batch.records]
        self.on_take()

    def done(self) -> None:
        self.is_complete = True


class Receiver:
    """A delivery from `storage`, the loads of its snapshots, and what it reports."""

    def __init__(self, storage: MemoryRaftStorage, on_take: Callable[[], None]) -> None:
        self.loads: list[Load] = []
        self.failures: list[BaseException] = []
        self.ended = asyncio.Event()
        self.delivery = Delivery(storage, Tasks(lambda _, error: self.fail(error)), "raft", self.fail)
        self.delivery.snapshot_listeners.append(lambda snapshot: self.load(snapshot, on_take))
        self.delivery.watermark_callbacks.append(lambda _: self.ended.set())

    def load(self, snapshot: EpochEnd, on_take: Callable[[], None]) -> Load:
        self.loads.append(Load(snapshot, on_take))
        return self.loads[-1]

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)
        self.ended.set()

    async def deliver(self, committed: int) -> None:
        self.delivery.advance(committed)
        await asyncio.wait_for(self.ended.wait(), 10)


def two_reads() -> bytes:
    return snapshot_of(bytes(SNAPSHOT_READ_BYTES_MAX // 2), 3)


async def test_snapshot_of_the_leader_replaces_an_own_one_during_its_delivery() -> None:
    storage = MemoryRaftStorage(start=OWN.end_offset, files={OWN: two_reads()})

    def install() -> None:
        storage.files = {OF_LEADER: snapshot_of(b"new")}
        storage.start = OF_LEADER.end_offset

    receiver = Receiver(storage, install)
    await receiver.deliver(OF_LEADER.end_offset)
    assert not receiver.failures
    assert [load.is_complete for load in receiver.loads] == [False, True]
    assert (receiver.loads[-1].snapshot, receiver.loads[-1].values) == (OF_LEADER, [b"new"])
    assert receiver.delivery.high_watermark == OF_LEADER.end_offset


async def test_damaged_snapshot_ends_the_node() -> None:
    storage = MemoryRaftStorage(start=OWN.end_offset, files={OWN: two_reads()})

    def damage() -> None:
        storage.files = {OWN: b""}

    receiver = Receiver(storage, damage)
    await receiver.deliver(OWN.end_offset)
    assert [type(error) for error in receiver.failures] == [Malformed]


@pytest.mark.parametrize(("behind", "resumed"), [(0, [True, False]), (1, [True, True])])
async def test_batches_behind_a_large_one_end_its_rests(
    monkeypatch: pytest.MonkeyPatch, behind: int, resumed: list[bool]
) -> None:
    """A small batch can contain the changes of a fail-over. The first rest of a new `Pace` has no length either."""
    rests: list[bool] = []

    class RecordedPace(Pace):
        resumed = False

        def resume(self) -> None:
            self.resumed = True

        async def rest(self, factor: float | None = None) -> None:
            assert factor is None
            rests.append(self.resumed)
            self.resumed = False
            await asyncio.sleep(0)

    monkeypatch.setattr(delivery, "Pace", RecordedPace)
    large = [(None, bytes(TURN_BYTES_MAX // RECORDS_PER_PART))] * (2 * RECORDS_PER_PART)
    receiver = Receiver(MemoryRaftStorage(), lambda: None)
    for base, records in ((0, large), (len(large), [(None, b"small")])):
        data = encode_records(records, base_offset=base, epoch=1, now_ms=0)
        receiver.delivery.written(None, [Entry(base, base + len(records) - 1, 1, data)], [data])
    await receiver.deliver(len(large) + behind)
    assert not receiver.failures
    assert rests == resumed


async def test_long_log_is_delivered_in_turns_and_its_large_batch_in_parts() -> None:
    storage = MemoryRaftStorage()
    small, large = [(None, bytes(1_000))] * 10, [(None, bytes(500))] * (2 * RECORDS_PER_PART + 1)
    base = 0
    for records in (*[small] * 8, large, small):
        data = encode_records(records, base_offset=base, epoch=1, now_ms=0)
        storage.batches.append(data)
        base += len(records)
    receiver = Receiver(storage, lambda: None)
    delivered: list[list[LogBatch]] = []
    prepared: list[tuple[int, int]] = []
    receiver.delivery.committed_listeners.append(lambda batches: delivered.append(list(batches)))
    receiver.delivery.preparing_listeners.append(
        lambda batches: prepared.append((sum(map(len, delivered)), len(batches[0].records)))
    )
    await receiver.deliver(base)
    assert not receiver.failures
    offsets = [offset for turn in delivered for batch in turn for offset in (batch.base_offset, batch.last_offset)]
    assert offsets == sorted(offsets)
    assert (offsets[0], offsets[-1]) == (0, base - 1)
    sizes = [sum(len(value or b"") for batch in turn for _, value in batch.records) for turn in delivered]
    assert max(sizes) == sum(len(value) for _, value in large)
    assert all(size <= 2 * TURN_BYTES_MAX for size in sizes if size < max(sizes))
    assert prepared == [(8, RECORDS_PER_PART)] * 2  # after the delivery of the eight batches before it


@pytest.mark.parametrize("from_log", [False, True])
async def test_batches_of_small_records_are_delivered_in_turns(from_log: bool) -> None:
    """The slices of a fail-over are small batches. 700 of their records fit into TURN_BYTES_MAX, and take 12 ms."""
    storage = MemoryRaftStorage()
    receiver = Receiver(storage, lambda: None)
    delivered: list[list[LogBatch]] = []
    receiver.delivery.committed_listeners.append(lambda batches: delivered.append(list(batches)))
    counts = [200, 201, 50, 50, 100, 100, 100, TURN_RECORDS_MAX]
    base = 0
    for count in counts:
        data = encode_records([(None, b"small")] * count, base_offset=base, epoch=1, now_ms=0)
        storage.batches.append(data)
        if not from_log:
            receiver.delivery.written(None, [Entry(base, base + count - 1, 1, data)], [data])
        base += count
    await receiver.deliver(base)
    assert not receiver.failures
    turns = [[len(batch.records) for batch in turn] for turn in delivered]
    assert sum(map(sum, turns)) == base
    assert max(map(sum, turns)) <= TURN_RECORDS_MAX + RECORDS_PER_PART
    if not from_log:
        assert turns == [[200], [201, 50], [50, 100, 100], [100], [TURN_RECORDS_MAX]]


async def test_batch_of_many_small_records_is_prepared_in_parts() -> None:
    receiver = Receiver(MemoryRaftStorage(), lambda: None)
    prepared: list[int] = []
    receiver.delivery.preparing_listeners.append(lambda batches: prepared.append(len(batches[0].records)))
    count = TURN_RECORDS_MAX + 1
    data = encode_records([(None, b"small")] * count, base_offset=0, epoch=1, now_ms=0)
    receiver.delivery.written(None, [Entry(0, count - 1, 1, data)], [data])
    await receiver.deliver(count)
    assert not receiver.failures
    assert prepared == [RECORDS_PER_PART, RECORDS_PER_PART, count - 2 * RECORDS_PER_PART]
