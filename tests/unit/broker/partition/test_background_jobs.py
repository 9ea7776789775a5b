import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.config.topics import TopicSettings
from odradek.broker.partition import background_jobs as jobs
from odradek.broker.partition.background_jobs import BackgroundJobs
from odradek.runtime.clock import Clock
from odradek.runtime.tasks import Tasks
from odradek.storage.config import LogConfig
from odradek.storage.data_directory import log_manager
from odradek.storage.data_directory.log_manager import LogManager
from odradek.storage.files.checkpoint import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    RECOVERY_STARTS,
    decode_offsets,
)
from odradek.storage.log import flushing
from odradek.storage.producers.entry import Origin
from tests.support.data_rig import EIO, Rig, batch


class Bench:
    def __init__(
        self, folder: Path, config: LogConfig | None = None, *assignments: str, clock: Clock | None = None
    ) -> None:
        self.rig = Rig(folder, *assignments, config=config)
        self.logs = LogManager(self.rig.disk, str(folder), LogConfig())
        self.rig.logs = self.logs  # type: ignore[assignment]  # the whole manager in place of the part
        self.rig.partitions._logs = self.logs
        self.rig.topic("t", 2)
        self.failures: list[tuple[str, BaseException]] = []
        self.tasks = Tasks(lambda name, error: self.failures.append((name, error)))
        rig = self.rig
        self.jobs = BackgroundJobs(
            rig.config, clock or rig.clock, rig.partitions, self.logs, self.tasks, TopicSettings(rig.config)
        )

    def append(self, index: int = 0, **producer: Any) -> None:
        data = batch(b"x" * 100, **producer)
        self.rig.partition("t", index).append(data, origin=Origin.CLIENT, now_ms=self.rig.clock.now_ms)

    def offsets(self, folder: Path, name: str) -> dict[tuple[str, int], int]:
        return decode_offsets((folder / name).read_bytes())


async def test_delete_expired_removes_segments_and_later_their_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path, LogConfig(segment_bytes=200, retention_ms=1_000, file_delete_delay_ms=50))
    for _ in range(3):
        bench.append()
    log = bench.rig.partition().log
    await bench.jobs.delete_expired()
    assert log.log_start_offset == 0
    bench.rig.clock.now_ms += 5_000
    await bench.jobs.delete_expired()
    assert log.log_start_offset == 3
    assert len(list((tmp_path / "t-0").glob("*.deleted"))) > 0
    await bench.jobs._remove_deleted()
    bench.rig.clock.now_ms += 50
    bench.rig.clock.wall_jump_ms = -60_000  # a full disk must not wait until the wall clock is there again
    await bench.jobs._remove_deleted()
    assert list((tmp_path / "t-0").glob("*.deleted")) == []


async def test_checkpoint_files_hold_the_offsets_of_all_logs(tmp_path: Path) -> None:
    bench = Bench(tmp_path, LogConfig(segment_bytes=200))
    for _ in range(3):
        bench.append()
    await bench.jobs.flush_sealed()
    await bench.logs.checkpoint_high_watermarks()
    await bench.logs.checkpoint_log_starts()
    assert bench.offsets(tmp_path, HIGH_WATERMARKS) == {("t", 0): 3, ("t", 1): 0}
    assert bench.offsets(tmp_path, LOG_START_OFFSETS) == {("t", 0): 0, ("t", 1): 0}
    assert bench.offsets(tmp_path, RECOVERY_POINTS) == {("t", 0): 2, ("t", 1): 0}  # all segments but the active one


async def test_idle_producers_expire_after_producer_id_expiration_ms(tmp_path: Path) -> None:
    bench = Bench(tmp_path, LogConfig(producer_id_expiration_ms=1_000))
    bench.append(producer_id=5, epoch=0, sequence=0)
    await bench.jobs.expire_producers()
    assert len(bench.rig.partition().log.producers.active()) == 1
    bench.rig.clock.now_ms += 1_000
    await bench.jobs.expire_producers()
    assert bench.rig.partition().log.producers.active() == []


async def test_unexpected_exception_of_one_partition_does_not_end_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, LogConfig(producer_id_expiration_ms=1_000))
    for index in range(2):
        bench.append(index, producer_id=5, epoch=0, sequence=0)
    monkeypatch.setattr(bench.rig.partition("t", 0).log.producers, "expire", _fail)
    bench.rig.clock.now_ms += 1_000
    await bench.jobs.expire_producers()
    assert bench.rig.partition("t", 1).log.producers.active() == []
    await asyncio.sleep(0)
    assert [(name, str(error)) for name, error in bench.failures] == [("background job of t-0", "unforeseen")]


def _fail(*_arguments: object) -> int:
    raise ValueError("unforeseen")


async def test_records_are_flushed_after_flush_ms(tmp_path: Path) -> None:
    bench = Bench(tmp_path, LogConfig(flush_ms=1_000))
    bench.append()
    await bench.jobs.flush_by_time()
    bench.rig.clock.now_ms += 999
    await bench.jobs.flush_by_time()
    assert bench.rig.partition().log.flushed_offset == 0
    bench.rig.clock.now_ms += 1
    await bench.jobs.flush_by_time()
    assert bench.rig.partition().log.flushed_offset == 1


async def test_disk_error_takes_one_partition_offline_and_the_job_continues(tmp_path: Path) -> None:
    bench = Bench(tmp_path, LogConfig(segment_bytes=200))
    for index in (0, 1):
        for _ in range(3):
            bench.append(index)
    failing = bench.rig.partition("t", 0)
    flush = failing.log.flush

    async def refuse(upto: int | None = None) -> None:
        raise OSError(EIO, "injected")

    failing.log.flush = refuse  # type: ignore[method-assign]  # one log's disk
    await bench.jobs.flush_sealed()
    assert [partition.online for partition in bench.rig.partitions] == [False, True]
    assert bench.rig.partition("t", 1).log.flushed_offset == 2
    failing.log.flush = flush  # type: ignore[method-assign]  # restores the method


async def test_recovery_start_is_moved_and_checkpointed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the flush of another log fails: only that partition goes offline."""
    monkeypatch.setattr(log_manager, "BYTES_TO_RECOVER_MAX", 300)
    monkeypatch.setattr(flushing, "RECOVERY_START_BYTES_MIN", 1)
    bench = Bench(tmp_path)
    for index in (0, 1):
        for _ in range(3):
            bench.append(index)
    failing = bench.rig.partition("t", 0)

    async def refuse() -> None:
        raise OSError(EIO, "injected")

    monkeypatch.setattr(failing.log, "flush_for_recovery", refuse)
    await bench.jobs.move_recovery_starts()
    assert [partition.online for partition in bench.rig.partitions] == [False, True]
    assert bench.offsets(tmp_path, RECOVERY_STARTS) == {("t", 1): 3}
    assert bench.offsets(tmp_path, RECOVERY_POINTS)["t", 1] == 2


async def test_checkpoint_that_fails_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, None, "replica.high.watermark.checkpoint.interval.ms=1")
    attempts: list[int] = []
    third_attempt = asyncio.Event()

    async def refuse() -> None:
        attempts.append(1)
        if len(attempts) == 3:
            third_attempt.set()
        raise OSError(EIO, "injected")

    monkeypatch.setattr(bench.logs, "checkpoint_high_watermarks", refuse)
    bench.jobs.start()
    await asyncio.wait_for(third_attempt.wait(), 10)
    await bench.tasks.cancel_all()
    assert bench.failures == []


async def test_each_job_starts_with_its_own_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assignments = (
        "log.initial.task.delay.ms=7",
        "log.retention.check.interval.ms=11",
        "log.flush.scheduler.interval.ms=12",
        "log.flush.offset.checkpoint.interval.ms=13",
        "log.flush.start.offset.checkpoint.interval.ms=14",
        "replica.high.watermark.checkpoint.interval.ms=15",
        "producer.id.expiration.check.interval.ms=16",
        "log.segment.delete.delay.ms=5000",
        "replica.lag.time.max.ms=35",
    )
    bench = Bench(tmp_path, None, *assignments)
    started: list[tuple[int, int]] = []

    async def record_start(job: Callable[[], Any], first_ms: int, interval_ms: int, *_task: object) -> None:
        started.append((first_ms, interval_ms))

    monkeypatch.setattr(jobs, "repeat", record_start)
    bench.jobs.start()
    await asyncio.sleep(0)
    assert started == [(7, 11), (7, 12), (7, 13), (5_000, 5_000), (7, 14), (15, 15), (5_000, 5_000), (17, 17), (16, 16)]


async def test_job_with_maximum_interval_never_starts(tmp_path: Path) -> None:
    bench = Bench(tmp_path)  # log.flush.scheduler.interval.ms is 2**63 - 1 by default
    bench.jobs.start()
    assert len(bench.tasks) == 9
    await bench.tasks.cancel_all()
