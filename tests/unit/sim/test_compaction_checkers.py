"""Checks of compacted logs against hand-written logs: allowed removals, and each kind of forbidden one."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from odradek.simulation.environment.disk import DiskLatency, SimDisk
from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.medium import Medium
from tests.sim.checkers.batches import DELETE_HORIZON, Batch, read_batches
from tests.sim.checkers.compaction import Cleaned, Content, Judge, check_held
from tests.sim.checkers.replica_log import Placed
from tests.sim.watchers.commit_delays import CommitDelays
from tests.sim.watchers.host_logs import HostLogs, Known
from tests.sim.watchers.monitor import Monitor
from tests.sim.workloads.encode import HEADER, TRANSACTIONAL, encode_batch, encode_marker

Rows = Sequence[tuple[bytes | None, bytes | None]]
RETENTION_MS = 1000
NOW_MS = 10_000
HORIZON = NOW_MS + RETENTION_MS
STATE = "/data/__transaction_state-0"
PLACE = ("__transaction_state", 0)


def raw(offset: int, *records: tuple[bytes | None, bytes | None], epoch: int = 0) -> bytes:
    return encode_batch(records, timestamp=NOW_MS, base_offset=offset, leader_epoch=epoch)


def parsed(data: bytes) -> Batch:
    (batch,) = read_batches(data)
    return batch


def plain(offset: int, *records: tuple[bytes | None, bytes | None]) -> Batch:
    return parsed(raw(offset, *records))


def transactional(offset: int, *records: tuple[bytes | None, bytes | None]) -> Batch:
    data = encode_batch(
        records, timestamp=NOW_MS, base_offset=offset, producer_id=7, producer_epoch=0, attributes=TRANSACTIONAL
    )
    return parsed(data)


def marker(offset: int, *, commit: bool) -> Batch:
    data = encode_marker(
        producer_id=7, producer_epoch=0, coordinator_epoch=0, commit=commit, timestamp=NOW_MS, base_offset=offset
    )
    return parsed(data)


def left_of(batch: Batch, *offsets: int, horizon: int | None = None) -> Batch:
    """Return the batch with only the records at these offsets."""
    kept = [index for index, offset in enumerate(batch.offsets) if offset in offsets]
    return replace(
        batch,
        crc=batch.crc + 1,
        attributes=batch.attributes | (0 if horizon is None else DELETE_HORIZON),
        base_timestamp=batch.base_timestamp if horizon is None else horizon,
        deltas=[batch.deltas[index] for index in kept],
        records=[batch.records[index] for index in kept],
    )


def content_of(*batches: Batch) -> Content:
    content = Content()
    for batch in batches:
        content.add(batch)
    return content


def judge(*batches: Batch, committed: int = 1000, now_ms: int = NOW_MS) -> Judge:
    return Judge(content_of(*batches), Cleaned(), lambda offset: offset < committed, now_ms, RETENTION_MS)


OLD, NEW = plain(0, (b"a", b"1"), (b"b", b"1")), plain(2, (b"a", b"2"))


def test_superseded_record_may_be_removed_and_the_rest_is_unchanged() -> None:
    assert list(judge(OLD, NEW).taken(OLD, OLD, left_of(OLD, 1))) == []
    moved = replace(left_of(OLD, 1), deltas=[0])
    assert "compaction left contents that the original batch does not have" in next(
        judge(OLD, NEW).taken(OLD, OLD, moved)
    )
    relabelled = replace(left_of(OLD, 1), producer_id=3)
    assert "compaction left contents that the original batch does not have" in next(
        judge(OLD, NEW).taken(OLD, OLD, relabelled)
    )


def test_newest_value_of_a_key_may_not_be_removed() -> None:
    assert list(judge(OLD, NEW).taken(OLD, OLD, None)) == ["offset 1: the newest record of key b'b' was removed"]


def test_superseding_record_must_be_committed_and_stable() -> None:
    assert "is not committed" in next(judge(OLD, NEW, committed=2).taken(OLD, OLD, left_of(OLD, 1)))
    pending = transactional(2, (b"a", b"2"))
    assert "newest record of key b'a'" in next(judge(OLD, pending).taken(OLD, OLD, left_of(OLD, 1)))
    aborted = [OLD, pending, marker(3, commit=False)]
    assert "newest record of key b'a'" in next(judge(*aborted).taken(OLD, OLD, left_of(OLD, 1)))
    committed = [OLD, pending, marker(3, commit=True)]
    assert list(judge(*committed).taken(OLD, OLD, left_of(OLD, 1))) == []
    assert list(judge(*aborted).taken(pending, pending, None)) == []


def test_records_above_the_stable_offset_may_not_be_removed() -> None:
    begun = transactional(2, (b"x", b"1"))
    behind = plain(3, (b"a", b"3"))
    finding = next(judge(OLD, begun, behind, plain(4, (b"a", b"4"))).taken(behind, behind, None))
    assert finding == "offset 3 was compacted, the last stable offset is 2"


def test_tombstone_may_be_removed_after_its_delete_horizon() -> None:
    tombstone = plain(0, (b"a", None))
    dated = left_of(tombstone, 0, horizon=HORIZON)
    assert "a tombstone was removed" in next(judge(tombstone).taken(tombstone, tombstone, None))
    assert "a tombstone was removed" in next(judge(tombstone).taken(tombstone, dated, None))
    late = judge(tombstone, now_ms=HORIZON)
    assert (list(late.taken(tombstone, dated, None)), list(late.cleaned.expired)) == ([], [0])
    assert list(judge(tombstone).taken(tombstone, tombstone, dated)) == []
    early = left_of(tombstone, 0, horizon=NOW_MS - 5 * RETENTION_MS)
    assert "delete.retention.ms is 1000" in next(judge(tombstone).taken(tombstone, tombstone, early))


def test_delete_horizon_may_be_below_a_timestamp_from_the_future() -> None:
    tombstone = plain(0, (b"a", None))
    early = left_of(tombstone, 0, horizon=NOW_MS - 4 * RETENTION_MS)
    strict = judge(tombstone)
    assert "was set at" in next(strict.taken(tombstone, tombstone, early))
    assert list(replace(strict, future_timestamps=True).taken(tombstone, tombstone, early)) == []


def test_marker_may_be_removed_after_its_horizon_and_its_data() -> None:
    data, end = transactional(0, (b"a", b"1")), marker(1, commit=False)
    dated = left_of(end, 1, horizon=HORIZON)
    assert "a marker was removed" in next(judge(data, end).taken(end, end, None))
    assert list(judge(data, end, now_ms=HORIZON).taken(end, dated, None)) == []
    log = [Placed(data, 0, 0, data), Placed(end, 0, 0, None)]
    assert "the marker was removed" in next(check_held(log, content_of(data, end), Cleaned()))
    log[0].held = None
    assert list(check_held(log, content_of(data, end), Cleaned())) == []


def test_last_batch_of_a_producer_must_be_kept_even_without_records() -> None:
    def numbered(offset: int, sequence: int) -> Batch:
        rows = [(b"a", b"%d" % offset)]
        return parsed(
            encode_batch(
                rows, timestamp=NOW_MS, producer_id=7, producer_epoch=0, base_sequence=sequence, base_offset=offset
            )
        )

    first, last, later = numbered(0, 0), numbered(1, 1), plain(2, (b"a", b"2"))
    assert list(judge(first, last, later).taken(first, first, None)) == []
    assert list(judge(first, last, later).taken(last, last, left_of(last))) == []
    assert "the last batch of producer 7 was removed" in next(judge(first, last, later).taken(last, last, None))
    expiring = replace(judge(first, last, later), producers_expire=True)
    assert list(expiring.taken(last, last, None)) == []
    fence = replace(marker(3, commit=False), producer_epoch=1)
    assert list(judge(first, last, later, fence).taken(last, last, None)) == []


def test_batch_without_producer_id_need_not_be_kept() -> None:
    """Kafka's group coordinator writes its batches with sequence 0 and without a producer id."""
    tombstone = replace(plain(0, (b"a", None)), base_sequence=0)
    dated = left_of(tombstone, 0, horizon=HORIZON)
    assert list(judge(tombstone, now_ms=HORIZON).taken(tombstone, dated, None)) == []


def test_disk_must_hold_the_newest_value_of_each_key() -> None:
    log = [Placed(OLD, 0, 0, OLD), Placed(NEW, 0, 0, None)]
    assert "newest value of key b'a'" in next(check_held(log, content_of(OLD, NEW), Cleaned()))
    log[0].held, log[1].held = left_of(OLD, 1), NEW
    assert list(check_held(log, content_of(OLD, NEW), Cleaned())) == []


def test_removed_tombstone_must_not_leave_earlier_records() -> None:
    tombstone = plain(2, (b"a", None))
    log = [Placed(OLD, 0, 0, OLD), Placed(tombstone, 0, 0, None)]
    assert "the tombstone of key b'a' was removed" in next(check_held(log, content_of(OLD, tombstone), Cleaned()))
    log[0].held = left_of(OLD, 1)
    assert list(check_held(log, content_of(OLD, tombstone), Cleaned())) == []


def test_lagging_replica_may_lack_a_superseded_record() -> None:
    cleaned = Cleaned()
    assert list(replace(judge(OLD, NEW), cleaned=cleaned).taken(OLD, OLD, left_of(OLD, 1))) == []
    log = [Placed(OLD, 0, 0, left_of(OLD, 1))]
    assert list(check_held(log, content_of(OLD), cleaned)) == []
    assert "newest value" in next(check_held([*log, Placed(NEW, 0, 0, None)], content_of(OLD, NEW), cleaned))


def test_two_different_batches_compacted_at_one_offset_are_reported() -> None:
    cleaned = Cleaned()
    assert cleaned.note(OLD, None) == ""
    assert "two batches were compacted" in cleaned.note(replace(OLD, crc=OLD.crc + 1), None)


class Watched:
    """Monitor of two hosts. The first has segments 0..2 and 3..4 and an active one, with one key."""

    def __init__(self, loop: SimLoop) -> None:
        delays = CommitDelays(loop)
        delays._committed[PLACE] = 100
        self.monitor = Monitor("/data", "ledger", delays, lambda: 0, flush=False)
        known: Known = {}
        self.disks: dict[int, SimDisk] = {}
        self.hosts: dict[int, HostLogs] = {}
        for number in (1, 2):
            medium = Medium()
            disk = self.disks[number] = SimDisk(medium, loop, Random(1), name="n", latency=DiskLatency())
            host = self.hosts[number] = self.monitor.hosts[number] = HostLogs(
                number, medium, "/data", lambda _: True, known, lambda *_: None, self.monitor.violations
            )
            self.monitor.compaction.watch(host)
            disk.watchers.append(host)
            disk.make_directory(STATE)
        for base, offsets in ((0, (0, 1, 2)), (3, (3, 4)), (5, (5,))):
            self.write(1, f"{base:020}.log", *(record(offset) for offset in offsets))

    def write(self, number: int, name: str, *batches: bytes) -> None:
        file = self.disks[number].open(f"{STATE}/{name}", create=True)
        for batch in batches:
            file.write(file.size, batch)

    def rename(self, old: str, new: str) -> None:
        self.disks[1].rename(f"{STATE}/{old}", f"{STATE}/{new}")

    def prepare(self, *batches: bytes, base: int = 0) -> None:
        self.write(1, f"{base:020}.log.cleaned", *batches)
        self.rename(f"{base:020}.log.cleaned", f"{base:020}.log.swap")

    def finish(self, *bases: int, base: int = 0) -> None:
        for replaced in bases:
            self.rename(f"{replaced:020}.log", f"{replaced:020}.log.deleted")
        self.rename(f"{base:020}.log.swap", f"{base:020}.log")

    def held(self, number: int = 1) -> list[int]:
        placed = self.hosts[number].log(PLACE).placed
        return [batch_placed.batch.base_offset for batch_placed in placed if batch_placed.held is not None]

    def all_offsets(self, number: int = 1) -> list[int]:
        return [batch.base_offset for batch in self.hosts[number].log(PLACE).batches]


def record(offset: int) -> bytes:
    return raw(offset, (b"key", b"%d" % offset))


@pytest.fixture
def watched() -> Iterator[Watched]:
    loop = SimLoop(Random(1))
    yield Watched(loop)
    loop.close()


def test_compacted_log_keeps_its_original_batches_in_the_model(watched: Watched) -> None:
    watched.prepare(record(4))
    watched.finish(0, 3)
    assert (watched.all_offsets(), watched.held()) == ([0, 1, 2, 3, 4, 5], [4, 5])
    assert [batch.base_offset for batch in watched.hosts[1].batches(PLACE)] == [0, 1, 2, 3, 4, 5]
    watched.monitor.reload(1, watched.disks[1].medium)
    assert (watched.all_offsets(), watched.held()) == ([0, 1, 2, 3, 4, 5], [4, 5])
    assert watched.monitor.violations == []
    assert watched.monitor.counters["cleaned segments"] == 1


@pytest.mark.parametrize("retired", [(), (0,), (0, 3)])
def test_restart_during_a_swap_finds_the_complete_log(watched: Watched, retired: tuple[int, ...]) -> None:
    watched.prepare(record(4))
    for base in retired:
        watched.rename(f"{base:020}.log", f"{base:020}.log.deleted")
    watched.monitor.reload(1, watched.disks[1].medium)
    assert watched.all_offsets() == [0, 1, 2, 3, 4, 5]
    watched.finish(*(base for base in (0, 3) if base not in retired))
    assert (watched.all_offsets(), watched.held()) == ([0, 1, 2, 3, 4, 5], [4, 5])
    assert watched.monitor.violations == []
    assert watched.monitor.counters["restart in the middle of a swap"] == 1


def test_lost_segment_does_not_count_as_compacted(watched: Watched) -> None:
    watched.disks[1].remove(f"{STATE}/{3:020}.log")
    watched.monitor.reload(1, watched.disks[1].medium)
    assert watched.all_offsets() == [0, 1, 2]


def test_compacted_batches_behind_lost_ones_do_not_count(watched: Watched) -> None:
    """Host 2 lost offsets 3 to 5.

    Offset 6 was compacted on host 1. Offset 3, which superseded 2, is not on host 2 yet.
    """
    for offset in (6, 7):
        watched.write(1, f"{offset:020}.log", raw(offset, (b"other", b"%d" % offset)))
    for base in (0, 6):
        watched.prepare(base=base)
        watched.finish(base, base=base)
    for base in (0, 3, 5, 6, 7):
        watched.write(2, f"{base:020}.log")
    watched.hosts[2].logs.clear()  # the watcher does not know the removals on this disk
    watched.monitor.reload(2, watched.disks[2].medium)
    assert watched.monitor.violations == []
    assert watched.all_offsets(2) == [0, 1, 2]


@pytest.mark.parametrize("left", [b"", raw(3, (b"key", b"3"))], ids=["all", "some"])
def test_batches_lost_with_power_do_not_count_as_compacted(watched: Watched, left: bytes) -> None:
    for base, offsets in ((0, (0, 1, 2)), (3, (3, 4))):
        watched.write(2, f"{base:020}.log", *(record(offset) for offset in offsets))
    watched.prepare(record(4))
    watched.finish(0, 3)
    disk = watched.disks[2]
    disk.watchers.clear()  # the watcher sees no truncation
    disk.open(f"{STATE}/{0:020}.log", create=False).truncate(len(record(0)))
    disk.open(f"{STATE}/{3:020}.log", create=False).truncate(len(left))
    watched.monitor.reload(2, disk.medium)
    assert watched.all_offsets(2) == [0]
    assert watched.monitor.violations == []


def test_follower_without_data_counts_batches_removed_on_the_leader_as_held(watched: Watched) -> None:
    """Recovery removes the second of two emptied segments. The follower then fetches from behind a gap."""
    watched.prepare(record(2))
    watched.finish(0)
    for base in (0, 3):
        watched.write(2, f"{base:020}.log")
    watched.monitor.reload(2, watched.disks[2].medium)
    watched.disks[2].remove(f"{STATE}/{3:020}.log")
    watched.write(2, f"{0:020}.log", record(2))
    assert (watched.all_offsets(2), watched.held(2)) == ([0, 1, 2], [2])
    watched.monitor.reload(2, watched.disks[2].medium)
    assert (watched.all_offsets(2), watched.held(2)) == ([0, 1, 2], [2])


def test_removal_of_the_newest_value_is_reported(watched: Watched) -> None:
    watched.write(1, f"{5:020}.log", raw(6, (b"other", b"6")))
    watched.write(1, f"{7:020}.log", raw(7, (b"key", b"7")))
    watched.prepare(base=5)
    assert any("the newest record of key b'other' was removed" in violation for violation in watched.monitor.violations)


def test_follower_over_a_compaction_gap_holds_the_removed_batches(watched: Watched) -> None:
    watched.prepare(record(2))
    watched.finish(0)
    watched.write(2, f"{0:020}.log", record(2), record(3))
    assert (watched.all_offsets(2), watched.held(2)) == ([0, 1, 2, 3], [2, 3])
    assert watched.monitor.violations == []
    assert watched.monitor.counters["follower fetched over a compaction gap"] == 1


def test_gap_without_compaction_is_reported(watched: Watched) -> None:
    watched.write(2, f"{0:020}.log", record(0), record(2))
    assert any("offset 2 follows 0" in violation for violation in watched.monitor.violations)


def test_truncated_segments_do_not_count_as_compacted(watched: Watched) -> None:
    for base in (3, 5):
        watched.rename(f"{base:020}.log", f"{base:020}.log.deleted")
    watched.write(1, f"{0:020}.log", raw(3, (b"key", b"anew"), epoch=1))
    assert watched.monitor.violations == []
    assert watched.all_offsets() == [0, 1, 2, 3]


def test_delete_horizon_is_read_from_the_batch_header() -> None:
    """The reader takes delete horizons from these header fields; `left_of` does not compute checksums."""
    data = bytearray(raw(0, (b"a", None)))
    struct.pack_into(">hiq", data, 21, DELETE_HORIZON, 0, HORIZON)
    assert parsed(bytes(data)).delete_horizon == HORIZON
    assert HEADER.size == 61
