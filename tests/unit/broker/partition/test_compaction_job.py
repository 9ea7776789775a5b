"""Compaction job: selection of logs, checkpoints, pauses, disk errors, concurrent truncation and retention."""

import asyncio
import os
from pathlib import Path

import pytest

from odradek.broker.coordinators.log_replay import replay
from odradek.broker.coordinators.standby_cache import StandbyCache
from odradek.broker.partition.compaction_job import RECHECK_SECONDS, CompactionJob, pacing
from odradek.protocol.batch import Compression, build_batch
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shard import Marker, ShardRecord
from odradek.storage.compaction.cleaner import Cleaning, CleaningResult
from odradek.storage.config import LogConfig
from odradek.storage.data_directory.log_manager import LogManager
from odradek.storage.files.checkpoint import CLEANER_OFFSETS, RECOVERY_POINTS
from odradek.storage.log.log import PartitionLog
from odradek.storage.producers.entry import Origin
from tests.support.cleaning import fetched, latest
from tests.support.compaction_bench import COMPACTED, Bench
from tests.support.fake_kafka import virtual_loop
from tests.support.logs import headers, load_all


async def test_dirty_logs_are_cleaned_and_their_cleaner_offsets_are_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.put()
    bench.put(1, keys=20)
    before = [latest(fetched(bench.log(index), committed=False)) for index in (0, 1)]
    sizes = [bench.log(index).segments.size for index in (0, 1)]
    await bench.compaction.clean_due()
    assert [latest(fetched(bench.log(index), committed=False)) for index in (0, 1)] == before
    ends = {("t", index): bench.log(index).segments.active.base_offset for index in (0, 1)}
    assert bench.offsets(CLEANER_OFFSETS) == ends
    assert all(bench.offsets(RECOVERY_POINTS)[key] >= end for key, end in ends.items())
    assert bench.log(0).segments.size < sizes[0]
    assert bench.log(1).segments.size == sizes[1], "every key occurs once"


async def test_only_compacted_topics_above_the_dirty_ratio_or_lag_are_cleaned(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.put()
    bench.log().update_config(LogConfig(segment_bytes=400))
    await bench.compaction.clean_due()
    assert bench.log().cleaned_to is None
    bench.log().update_config(COMPACTED)
    await bench.compaction.clean_due()
    cleaned_to = bench.log().cleaned_to
    assert cleaned_to == bench.log().segments.active.base_offset
    bench.put(count=7)
    assert bench.log().segments.active.base_offset > cleaned_to
    bench.log().update_config(LogConfig(segment_bytes=400, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.9))
    await bench.compaction.clean_due()
    assert bench.log().cleaned_to == cleaned_to
    lag = LogConfig(
        segment_bytes=400, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=1_000
    )
    bench.log().update_config(lag)
    await bench.compaction.clean_due()
    assert bench.log().cleaned_to == cleaned_to, "max.compaction.lag.ms has not passed"
    bench.rig.clock.now_ms += 1_001
    await bench.compaction.clean_due()
    assert bench.log().cleaned_to == bench.log().segments.active.base_offset


async def test_compact_and_delete_policies_together(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=400, cleanup_policy=("compact", "delete"), retention_ms=1_000)
    bench = Bench(tmp_path, config)
    bench.put()
    await bench.compaction.clean_due()
    assert bench.log().log_start_offset == 0
    bench.rig.clock.now_ms += 5_000
    bench.put(count=5)
    assert bench.log().delete_expired_segments(bench.rig.clock.now_ms) > 0
    assert bench.log().log_start_offset > 0
    await bench.compaction.clean_due()
    assert bench.log().log_start_offset == bench.log().segments.first.base_offset


async def test_delete_horizon_begins_at_the_wall_clock_and_passes_by_the_expiry_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expiry time is late after a restart.

    A delete horizon from it has already passed for a replica that copies the batch.
    """
    config = LogConfig(segment_bytes=400, cleanup_policy=("compact",), delete_retention_ms=1_000)
    bench = Bench(tmp_path, config)
    log, clock = bench.log(), bench.rig.clock
    late_ms = 5_000
    monkeypatch.setattr(clock, "expiry_ms", lambda: clock.now_ms - late_ms)

    async def compact() -> list[int]:
        """Return the delete horizon of each batch that has one."""
        bench.put(count=20)
        await bench.compaction.clean_due()
        return [header.base_timestamp for header in headers(log) if header.has_delete_horizon]

    tombstone = build_batch([(b"deleted", None, clock.now_ms, ())])
    bench.rig.partition().append(tombstone, origin=Origin.CLIENT, now_ms=clock.now_ms)
    horizon_ms = clock.now_ms + 1_000
    assert await compact() == [horizon_ms]
    clock.now_ms = horizon_ms + late_ms - 1
    assert await compact() == [horizon_ms]
    clock.now_ms += 1
    assert await compact() == []


async def test_corrupt_log_is_skipped_and_other_logs_are_cleaned(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.put()
    bench.put(1)
    path = Path(bench.log().segments.first.path(".log"))
    with path.open("r+b") as file:
        file.seek(70)
        file.write(os.urandom(4))
    files = sorted(entry.name for entry in path.parent.glob("0*"))
    await bench.compaction.clean_due()
    await bench.compaction.clean_due()
    assert bench.log().cleaned_to is None
    assert bench.log(1).cleaned_to == bench.log(1).segments.active.base_offset
    assert sorted(entry.name for entry in path.parent.glob("0*")) == files
    assert bench.rig.partition("t", 0).online


async def test_unexpected_exception_is_reported_once_and_other_logs_are_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log with the exception stays the dirtiest log, so the job would select it again."""
    bench = Bench(tmp_path)
    bench.put(keys=1)
    bench.put(1)
    bug = RuntimeError("a bug")
    run = Cleaning.run

    async def failing(cleaning: Cleaning) -> CleaningResult:
        if cleaning._log is bench.log():
            raise bug
        return await run(cleaning)

    monkeypatch.setattr(Cleaning, "run", failing)
    await bench.compaction.clean_due()
    await bench.compaction.clean_due()
    assert bench.unexpected == [("compaction of t-0", bug)]
    assert bench.log().cleaned_to is None
    assert bench.log(1).cleaned_to == bench.log(1).segments.active.base_offset
    assert bench.rig.partition("t", 0).online


async def test_disk_error_before_the_swap_leaves_the_log_unchanged(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.put()
    before = latest(fetched(bench.log(), committed=False))
    for operation, suffix in (("write", ".log.cleaned"), ("sync", ".index.cleaned"), ("sync_directory", "t-0")):
        await bench.log().flush()
        bench.disk.refuse(operation, suffix)
        await bench.compaction.clean_due()
        bench.disk.heal()
        assert bench.log().cleaned_to is None, operation
        assert latest(fetched(bench.log(), committed=False)) == before
        assert not [entry.name for entry in (tmp_path / "t-0").iterdir() if entry.suffix in {".cleaned", ".swap"}]
    assert bench.rig.partition("t", 0).online
    await bench.compaction.clean_due()
    assert bench.log().cleaned_to == bench.log().segments.active.base_offset


async def test_disk_error_during_the_swap_takes_the_partition_offline(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.put()
    before = latest(fetched(bench.log(), committed=False))
    bench.disk.refuse("rename", ".log.swap")
    await bench.compaction.clean_due()
    assert not bench.rig.partition("t", 0).online
    bench.disk.heal()
    reopened = LogManager(bench.disk, str(tmp_path), LogConfig())
    load_all(reopened, bench.rig.clock.now_ms)
    log = reopened.get("t", 0)
    assert log is not None
    log.update_high_watermark(log.log_end_offset)
    assert latest(fetched(log, committed=False)) == before


async def test_pacing_rests_three_times_the_work_time_and_obeys_the_byte_rate() -> None:
    loop = asyncio.get_running_loop()
    pace = pacing(lambda: 1_000_000.0)
    started = loop.time()
    await pace(50_000)
    assert loop.time() - started >= 0.05
    worked_to = loop.time() + 0.01
    while loop.time() < worked_to:
        pass
    started = loop.time()
    await pace(0)
    assert loop.time() - started >= 0.03


def test_pauses_of_years_end_soon_after_the_configuration_is_reverted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client can set them. Without the revert, no log would be compacted until the broker restarts."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        rate = 1e-6
        pace = pacing(lambda: rate)
        paused = asyncio.ensure_future(pace(1_000_000))
        await asyncio.sleep(10 * RECHECK_SECONDS)
        assert not paused.done()
        rate = 1e9
        reverted = loop.time()
        await paused
        assert loop.time() - reverted <= RECHECK_SECONDS
        job = CompactionJob.__new__(CompactionJob)
        backoff_ms = 2**63 - 1
        monkeypatch.setattr(job, "_current", lambda _: backoff_ms)
        backing_off = asyncio.ensure_future(job._back_off())
        await asyncio.sleep(10 * RECHECK_SECONDS)
        assert not backing_off.done()
        backoff_ms = 15_000
        reverted = loop.time()
        await backing_off
        assert loop.time() - reverted <= RECHECK_SECONDS

    with virtual_loop() as loop:
        loop.run_until_complete(scenario())


@pytest.mark.parametrize("ending", ["truncated", "closed"])
async def test_log_truncated_or_closed_during_cleaning_is_not_swapped(tmp_path: Path, ending: str) -> None:
    bench = Bench(tmp_path)
    bench.put()
    log = bench.log()
    await log.flush()
    task = asyncio.create_task(bench.compaction.clean_due())
    while not list((tmp_path / "t-0").glob("*.cleaned")):
        await asyncio.sleep(0)
    if ending == "truncated":
        log.truncate_to(log.log_end_offset - 1, now_ms=0, monotonic_ms=0)
    else:
        log.close(clean=True)
    await task
    assert log.cleaned_to is None
    assert not list((tmp_path / "t-0").glob("*.swap"))


@pytest.mark.parametrize("ending", ["truncated", "closed"])
async def test_log_truncated_or_closed_during_the_flush_is_not_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """A plan for sealed segments must not apply to the segment that has become active by truncation."""
    bench = Bench(tmp_path)
    bench.put()
    log, flush = bench.log(), PartitionLog.flush

    async def flush_then_end(self: PartitionLog, upto: int | None = None) -> None:
        await flush(self, upto)
        if ending == "truncated":
            log.truncate_to(log.log_start_offset + 2, now_ms=0, monotonic_ms=0)
        elif not log.closed:
            log.close(clean=False)

    monkeypatch.setattr(PartitionLog, "flush", flush_then_end)
    await bench.compaction.clean_due()
    assert log.cleaned_to is None
    assert not list((tmp_path / "t-0").glob("*.cleaned"))
    if ending == "truncated":
        assert [record.offset for record in fetched(log, committed=False)] == [0, 1]


async def test_replay_and_standby_cache_read_a_log_with_gaps(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.put(count=60, keys=7)
    await bench.compaction.clean_due()
    bench.put(count=30, keys=7)
    await bench.compaction.clean_due()
    partition, log = bench.rig.partition(), bench.log()
    expected = [(record.offset, record.key, record.value) for record in fetched(log, committed=False)]
    assert len(expected) < 30
    visited: list[tuple[int, bytes | None, bytes | None]] = []

    def visit(offset: int, entry: ShardRecord | Marker, leader_epoch: int) -> None:
        assert isinstance(entry, ShardRecord)
        visited.append((offset, entry.key, entry.value))

    await replay(partition, log.log_start_offset, log.log_end_offset, visit, read_bytes=100)
    assert visited == expected
    standby_cache = StandbyCache(partition, bench.rig.clock)
    await standby_cache.catch_up(read_bytes=100)
    assert await standby_cache.replay(lambda *_: None) == log.log_end_offset
    assert len(standby_cache) == 7


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
async def test_append_without_key_to_compacted_topic_is_refused(tmp_path: Path, codec: Compression) -> None:
    bench = Bench(tmp_path)
    now_ms = bench.rig.clock.now_ms
    data = build_batch([(b"k", b"v", now_ms, ()), (None, b"v", now_ms, ())], compression=codec)
    with pytest.raises(Refusal) as caught:
        bench.rig.partition().append(data, origin=Origin.CLIENT, now_ms=now_ms)
    assert caught.value.error is ErrorCode.INVALID_RECORD


async def test_truncation_lowers_the_cleaner_offset_after_its_checkpoint(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.put()
    await bench.compaction.clean_due()
    log = bench.log()
    assert bench.offsets(CLEANER_OFFSETS)["t", 0] == log.cleaned_to
    assert log.cleaned_to is not None
    offset = log.cleaned_to - 1
    await bench.logs.lower_recovery_point("t", 0, offset)
    assert bench.offsets(CLEANER_OFFSETS)["t", 0] == offset == log.cleaned_to
    log.truncate_to(offset - 1, now_ms=0, monotonic_ms=0)
    assert log.cleaned_to <= offset - 1


async def test_cancel_ends_the_job_although_cleanup_of_files_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    bench.put()
    task = asyncio.create_task(bench.compaction.run())
    while not list((tmp_path / "t-0").glob("*.cleaned")):
        await asyncio.sleep(0)

    def refuse(path: str) -> None:
        raise OSError(5, "remove caught", path)

    monkeypatch.setattr(bench.disk, "remove", refuse)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(task), 1)
    assert task.cancelled()


@pytest.mark.parametrize("moment", ["before", "during"])
async def test_retention_deletes_segments_before_or_during_cleaning(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = LogConfig(segment_bytes=400, cleanup_policy=("compact", "delete"), retention_ms=1_000)
    bench = Bench(tmp_path, config)
    bench.put()
    log, clock = bench.log(), bench.rig.clock

    def expire() -> None:
        clock.now_ms += 5_000
        assert log.delete_expired_segments(clock.now_ms) > 0
        clock.now_ms -= 5_000

    if moment == "before":
        checkpoint_recovery_points = bench.logs.checkpoint_recovery_points

        async def checkpoint() -> None:
            await checkpoint_recovery_points()
            expire()

        monkeypatch.setattr(bench.logs, "checkpoint_recovery_points", checkpoint)
        await bench.compaction.clean_due()
    else:
        task = asyncio.create_task(bench.compaction.clean_due())
        while not list((tmp_path / "t-0").glob("*.cleaned")):
            await asyncio.sleep(0)
        expire()
        await task
    assert len(log.segments) == 1
    assert log.log_start_offset == log.log_end_offset == log.segments.active.base_offset
    assert not [path for path in (tmp_path / "t-0").iterdir() if path.suffix in {".cleaned", ".swap"}]
    assert bench.rig.partition().online
