"""Logs that compaction has been at, made by hand: what may be missing, and each way in which too much is."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from tests.sim.checkers.batches import DELETE_HORIZON, Batch, read_batches
from tests.sim.checkers.compaction import Cleaned, Content, Judge, check_held
from tests.sim.checkers.replica_log import Placed
from tests.sim.environment.disk import DiskLatency, SimDisk
from tests.sim.environment.loop import SimLoop
from tests.sim.environment.medium import Medium
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
    """The batch with the records at these offsets only."""
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


def test_what_has_a_successor_may_go_and_what_stays_keeps_its_offsets() -> None:
    assert list(judge(OLD, NEW).taken(OLD, OLD, left_of(OLD, 1))) == []
    moved = replace(left_of(OLD, 1), deltas=[0])
    assert "compaction left contents that the original batch does not have" in next(
        judge(OLD, NEW).taken(OLD, OLD, moved)
    )
    relabelled = replace(left_of(OLD, 1), producer_id=3)
    assert "compaction left contents that the original batch does not have" in next(
        judge(OLD, NEW).taken(OLD, OLD, relabelled)
    )


def test_the_newest_value_of_a_key_may_not_go() -> None:
    assert list(judge(OLD, NEW).taken(OLD, OLD, None)) == ["offset 1: the newest record of key b'b' was removed"]


def test_what_comes_later_counts_once_it_is_committed_and_stable() -> None:
    assert "is not committed" in next(judge(OLD, NEW, committed=2).taken(OLD, OLD, left_of(OLD, 1)))
    pending = transactional(2, (b"a", b"2"))
    assert "newest record of key b'a'" in next(judge(OLD, pending).taken(OLD, OLD, left_of(OLD, 1)))
    aborted = [OLD, pending, marker(3, commit=False)]
    assert "newest record of key b'a'" in next(judge(*aborted).taken(OLD, OLD, left_of(OLD, 1)))
    committed = [OLD, pending, marker(3, commit=True)]
    assert list(judge(*committed).taken(OLD, OLD, left_of(OLD, 1))) == []
    assert list(judge(*aborted).taken(pending, pending, None)) == []


def test_nothing_goes_that_is_not_stable() -> None:
    begun = transactional(2, (b"x", b"1"))
    behind = plain(3, (b"a", b"3"))
    finding = next(judge(OLD, begun, behind, plain(4, (b"a", b"4"))).taken(behind, behind, None))
    assert finding == "offset 3 was compacted, the last stable offset is 2"


def test_a_tombstone_stays_until_a_delete_horizon_has_been_set_and_has_passed() -> None:
    tombstone = plain(0, (b"a", None))
    dated = left_of(tombstone, 0, horizon=HORIZON)
    assert "a tombstone was removed" in next(judge(tombstone).taken(tombstone, tombstone, None))
    assert "a tombstone was removed" in next(judge(tombstone).taken(tombstone, dated, None))
    late = judge(tombstone, now_ms=HORIZON)
    assert (list(late.taken(tombstone, dated, None)), list(late.cleaned.expired)) == ([], [0])
    assert list(judge(tombstone).taken(tombstone, tombstone, dated)) == []
    hasty = left_of(tombstone, 0, horizon=NOW_MS - 5 * RETENTION_MS)
    assert "delete.retention.ms is 1000" in next(judge(tombstone).taken(tombstone, tombstone, hasty))


def test_a_marker_stays_until_its_horizon_has_passed_and_its_data_is_gone() -> None:
    data, end = transactional(0, (b"a", b"1")), marker(1, commit=False)
    dated = left_of(end, 1, horizon=HORIZON)
    assert "a marker was removed" in next(judge(data, end).taken(end, end, None))
    assert list(judge(data, end, now_ms=HORIZON).taken(end, dated, None)) == []
    log = [Placed(data, 0, 0, data), Placed(end, 0, 0, None)]
    assert "the marker was removed" in next(check_held(log, content_of(data, end), Cleaned()))
    log[0].held = None
    assert list(check_held(log, content_of(data, end), Cleaned())) == []


def test_the_last_batch_of_a_producer_stays_without_its_records() -> None:
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
    fence = replace(marker(3, commit=False), producer_epoch=1)
    assert list(judge(first, last, later, fence).taken(last, last, None)) == []


def test_who_has_no_producer_id_has_no_last_batch() -> None:
    """Kafka's group coordinator numbers its batches all the same, each with 0."""
    tombstone = replace(plain(0, (b"a", None)), base_sequence=0)
    dated = left_of(tombstone, 0, horizon=HORIZON)
    assert list(judge(tombstone, now_ms=HORIZON).taken(tombstone, dated, None)) == []


def test_a_disk_holds_the_newest_value_of_each_key() -> None:
    log = [Placed(OLD, 0, 0, OLD), Placed(NEW, 0, 0, None)]
    assert "newest value of key b'a'" in next(check_held(log, content_of(OLD, NEW), Cleaned()))
    log[0].held, log[1].held = left_of(OLD, 1), NEW
    assert list(check_held(log, content_of(OLD, NEW), Cleaned())) == []


def test_a_tombstone_that_is_gone_uncovers_nothing() -> None:
    gone = plain(2, (b"a", None))
    log = [Placed(OLD, 0, 0, OLD), Placed(gone, 0, 0, None)]
    assert "the tombstone of key b'a' was removed" in next(check_held(log, content_of(OLD, gone), Cleaned()))
    log[0].held = left_of(OLD, 1)
    assert list(check_held(log, content_of(OLD, gone), Cleaned())) == []


def test_a_replica_that_lags_may_lack_what_it_has_not_the_successor_of_yet() -> None:
    cleaned = Cleaned()
    assert list(replace(judge(OLD, NEW), cleaned=cleaned).taken(OLD, OLD, left_of(OLD, 1))) == []
    log = [Placed(OLD, 0, 0, left_of(OLD, 1))]
    assert list(check_held(log, content_of(OLD), cleaned)) == []
    assert "newest value" in next(check_held([*log, Placed(NEW, 0, 0, None)], content_of(OLD, NEW), cleaned))


def test_two_batches_that_were_compacted_at_one_offset_are_seen() -> None:
    cleaned = Cleaned()
    assert cleaned.note(OLD, None) == ""
    assert "two batches were compacted" in cleaned.note(replace(OLD, crc=OLD.crc + 1), None)


class Watched:
    """Two hosts; the first has the segments 0..2, 3..4 and an active one, with one key."""

    def __init__(self, loop: SimLoop) -> None:
        gates = CommitDelays(loop)
        gates._committed[PLACE] = 100
        self.monitor = Monitor("/data", "ledger", gates, lambda: 0, flush=False)
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
        for each in bases:
            self.rename(f"{each:020}.log", f"{each:020}.log.deleted")
        self.rename(f"{base:020}.log.swap", f"{base:020}.log")

    def held(self, number: int = 1) -> list[int]:
        return [each.batch.base_offset for each in self.hosts[number].log(PLACE).placed if each.held is not None]

    def whole(self, number: int = 1) -> list[int]:
        return [batch.base_offset for batch in self.hosts[number].log(PLACE).batches]


def record(offset: int) -> bytes:
    return raw(offset, (b"key", b"%d" % offset))


@pytest.fixture
def watched() -> Iterator[Watched]:
    loop = SimLoop(Random(1))
    yield Watched(loop)
    loop.close()


def test_a_compacted_log_is_judged_as_it_was_written(watched: Watched) -> None:
    watched.prepare(record(4))
    watched.finish(0, 3)
    assert (watched.whole(), watched.held()) == ([0, 1, 2, 3, 4, 5], [4, 5])
    assert [batch.base_offset for batch in watched.hosts[1].batches(PLACE)] == [0, 1, 2, 3, 4, 5]
    watched.monitor.reload(1, watched.disks[1].medium)
    assert (watched.whole(), watched.held()) == ([0, 1, 2, 3, 4, 5], [4, 5])
    assert watched.monitor.violations == []
    assert watched.monitor.counters["cleaned segments"] == 1


@pytest.mark.parametrize("retired", [(), (0,), (0, 3)])
def test_a_start_in_the_middle_of_a_swap_finds_the_whole_log(watched: Watched, retired: tuple[int, ...]) -> None:
    watched.prepare(record(4))
    for base in retired:
        watched.rename(f"{base:020}.log", f"{base:020}.log.deleted")
    watched.monitor.reload(1, watched.disks[1].medium)
    assert watched.whole() == [0, 1, 2, 3, 4, 5]
    watched.finish(*(base for base in (0, 3) if base not in retired))
    assert (watched.whole(), watched.held()) == ([0, 1, 2, 3, 4, 5], [4, 5])
    assert watched.monitor.violations == []
    assert watched.monitor.counters["restart in the middle of a swap"] == 1


def test_a_segment_that_is_lost_is_not_taken_for_one_that_was_compacted(watched: Watched) -> None:
    watched.disks[1].remove(f"{STATE}/{3:020}.log")
    watched.monitor.reload(1, watched.disks[1].medium)
    assert watched.whole() == [0, 1, 2]


def test_what_was_compacted_behind_what_a_power_cut_has_taken_is_not_there_either(watched: Watched) -> None:
    """Who has lost 3 to 5 knows nothing of 6, which has been compacted elsewhere: 3 is what 2 gave way to, and not yet there again."""
    for offset in (6, 7):
        watched.write(1, f"{offset:020}.log", raw(offset, (b"other", b"%d" % offset)))
    for base in (0, 6):
        watched.prepare(base=base)
        watched.finish(base, base=base)
    for base in (0, 3, 5, 6, 7):
        watched.write(2, f"{base:020}.log")
    watched.hosts[2].logs.clear()  # what has been taken there is not told
    watched.monitor.reload(2, watched.disks[2].medium)
    assert watched.monitor.violations == []
    assert watched.whole(2) == [0, 1, 2]


@pytest.mark.parametrize("left", [b"", raw(3, (b"key", b"3"))], ids=["all", "some"])
def test_what_a_power_cut_has_taken_is_not_taken_for_what_a_cleaner_took_elsewhere(
    watched: Watched, left: bytes
) -> None:
    for base, offsets in ((0, (0, 1, 2)), (3, (3, 4))):
        watched.write(2, f"{base:020}.log", *(record(offset) for offset in offsets))
    watched.prepare(record(4))
    watched.finish(0, 3)
    disk = watched.disks[2]
    disk.watchers.clear()  # nobody is told
    disk.open(f"{STATE}/{0:020}.log", create=False).truncate(len(record(0)))
    disk.open(f"{STATE}/{3:020}.log", create=False).truncate(len(left))
    watched.monitor.reload(2, disk.medium)
    assert watched.whole(2) == [0]
    assert watched.monitor.violations == []


def test_a_follower_that_has_lost_everything_holds_what_is_gone_as_its_leader_does(watched: Watched) -> None:
    """Recovery removes the second of two segments that a power cut has emptied; what is fetched then begins behind a gap."""
    watched.prepare(record(2))
    watched.finish(0)
    for base in (0, 3):
        watched.write(2, f"{base:020}.log")
    watched.monitor.reload(2, watched.disks[2].medium)
    watched.disks[2].remove(f"{STATE}/{3:020}.log")
    watched.write(2, f"{0:020}.log", record(2))
    assert (watched.whole(2), watched.held(2)) == ([0, 1, 2], [2])
    watched.monitor.reload(2, watched.disks[2].medium)
    assert (watched.whole(2), watched.held(2)) == ([0, 1, 2], [2])


def test_a_cleaner_that_takes_the_newest_value_is_seen(watched: Watched) -> None:
    watched.write(1, f"{5:020}.log", raw(6, (b"other", b"6")))
    watched.write(1, f"{7:020}.log", raw(7, (b"key", b"7")))
    watched.prepare(base=5)
    assert any("the newest record of key b'other' was removed" in each for each in watched.monitor.violations)


def test_a_follower_over_a_gap_holds_what_its_leader_held(watched: Watched) -> None:
    watched.prepare(record(2))
    watched.finish(0)
    watched.write(2, f"{0:020}.log", record(2), record(3))
    assert (watched.whole(2), watched.held(2)) == ([0, 1, 2, 3], [2, 3])
    assert watched.monitor.violations == []
    assert watched.monitor.counters["follower fetched over a compaction gap"] == 1


def test_a_follower_over_a_gap_that_no_cleaner_has_left_is_seen(watched: Watched) -> None:
    watched.write(2, f"{0:020}.log", record(0), record(2))
    assert any("offset 2 follows 0" in each for each in watched.monitor.violations)


def test_segments_that_a_cut_takes_away_are_not_taken_for_compacted_ones(watched: Watched) -> None:
    for base in (3, 5):
        watched.rename(f"{base:020}.log", f"{base:020}.log.deleted")
    watched.write(1, f"{0:020}.log", raw(3, (b"key", b"anew"), epoch=1))
    assert watched.monitor.violations == []
    assert watched.whole() == [0, 1, 2, 3]


def test_the_header_says_how_an_encoded_batch_is_laid_out() -> None:
    """`left_of` makes up checksums; what the reader knows of horizons comes from these fields."""
    data = bytearray(raw(0, (b"a", None)))
    struct.pack_into(">hiq", data, 21, DELETE_HORIZON, 0, HORIZON)
    assert parsed(bytes(data)).delete_horizon == HORIZON
    assert HEADER.size == 61
