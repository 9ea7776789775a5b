"""Recovery below the recovery point that does not reach its end, or whose files are not durable yet."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from odradek.simulation.environment.disk import Detached, DiskLatency, SimDisk
from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.medium import Medium
from odradek.storage.batches.scan import Scan
from odradek.storage.config import LogConfig
from odradek.storage.files import names
from tests.support.logs import append, marker, open_log, produced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from odradek.storage.log.log import PartitionLog

ROOT: Final = "/data"
CONFIG: Final = LogConfig(segment_bytes=700, index_interval_bytes=100)
TRANSACTIONS: Final = 12
POWER_FAILURES: Final = 10


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    sim_loop = SimLoop(Random(1))
    yield sim_loop
    sim_loop.close()


class Stopped:
    """A log with aborted transactions in several segments, after a clean stop, with a damaged index of the first one.

    `damage` changes a file of the first segment.
    """

    def __init__(self, loop: SimLoop, damage: Callable[[Medium, SimDisk], None]) -> None:
        self._loop = loop
        self.medium = Medium()
        disk = self.disk(self.medium)
        disk.make_directory(f"{ROOT}/t-0")
        log = open_log(disk, ROOT, CONFIG)
        for number in range(TRANSACTIONS):
            append(log, produced(9, number, transactional=True, size=100))
            append(log, marker(9, commit=number % 3 == 0))
        loop.run_until_complete(log.flush())
        log.close(clean=True)
        for path in (f"{ROOT}/t-0", ROOT, "/"):
            disk.sync_directory_now(path)
        self.aborted = aborted_in(log)
        self.newest = newest_timestamps(log)
        assert sum(bool(entries) for entries in self.aborted.values()) >= 4
        self.options: dict[str, Any] = {
            "recovery_point": log.recovery_point,
            "high_watermark": log.high_watermark,
        }
        damage(self.medium, disk)
        disk.sync_directory_now(f"{ROOT}/t-0")

    def disk(self, medium: Medium) -> SimDisk:
        return SimDisk(medium, self._loop, Random(1), name="n", latency=DiskLatency(cold_probability=0.0))

    def open(self, medium: Medium, *, clean: bool, operations: int | None = None) -> PartitionLog | None:
        """Open the log on `medium`. Return None if the process ends at its disk operation number `operations`."""
        disk = self.disk(medium)
        disk.crash_at_operation, disk.on_crash = operations, disk.detach
        try:
            return open_log(disk, ROOT, CONFIG, clean=clean, **self.options)
        except Detached:
            return None


def aborted_in(log: PartitionLog) -> dict[int, list[Any]]:
    return {segment.base_offset: segment.txn_index.entries() for segment in log.segments}


def newest_timestamps(log: PartitionLog) -> dict[int, int]:
    return {segment.base_offset: segment.max_timestamp for segment in log.segments}


def without_time_index(medium: Medium, disk: SimDisk) -> None:
    disk.remove(f"{ROOT}/t-0/{names.offset_file(0, names.TIME_INDEX_SUFFIX)}")


def with_damaged_txn_index(medium: Medium, disk: SimDisk) -> None:
    """Change the version of the last entry of the first segment."""
    path = f"{ROOT}/t-0/{names.offset_file(0, names.TXN_INDEX_SUFFIX)}"
    content = bytearray(medium.contents(path))
    content[-33] ^= 0x40
    disk.replace_file_now(path, bytes(content))


def with_torn_time_index(medium: Medium, disk: SimDisk) -> None:
    """Add a part of an entry to the time index of the first segment."""
    path = f"{ROOT}/t-0/{names.offset_file(0, names.TIME_INDEX_SUFFIX)}"
    disk.replace_file_now(path, medium.contents(path) + bytes(5))


DAMAGES: Final = (without_time_index, with_damaged_txn_index, with_torn_time_index)


@pytest.mark.parametrize("damage", DAMAGES)
def test_process_that_ends_during_recovery_loses_no_index_entry(
    loop: SimLoop, damage: Callable[[Medium, SimDisk], None]
) -> None:
    stopped = Stopped(loop, damage)
    operations = 0
    while True:
        operations += 1
        medium = deepcopy(stopped.medium)
        ended = stopped.open(medium, clean=True, operations=operations) is None
        log = stopped.open(medium, clean=False)
        assert log is not None
        assert aborted_in(log) == stopped.aborted, f"after {operations} disk operations"
        assert newest_timestamps(log) == stopped.newest, f"after {operations} disk operations"
        if not ended:
            break
    assert operations > 1


@pytest.mark.parametrize("damage", DAMAGES)
def test_power_failure_after_recovery_loses_no_index_entry(
    loop: SimLoop, damage: Callable[[Medium, SimDisk], None]
) -> None:
    stopped = Stopped(loop, damage)
    for seed in range(POWER_FAILURES):
        medium = deepcopy(stopped.medium)
        assert stopped.open(medium, clean=True) is not None
        medium.lose_power(Random(seed))
        log = stopped.open(medium, clean=False)
        assert log is not None
        assert aborted_in(log) == stopped.aborted, f"power failure {seed}"
        assert newest_timestamps(log) == stopped.newest, f"power failure {seed}"


def with_shorter_log_file(medium: Medium, disk: SimDisk) -> None:
    """Remove half of the log file of the first segment. Its indexes do not fit it then."""
    path = f"{ROOT}/t-0/{names.offset_file(0, names.LOG_SUFFIX)}"
    disk.replace_file_now(path, medium.contents(path)[: len(medium.contents(path)) // 2])


def check_contiguous(log: PartitionLog) -> None:
    """Fail if a batch of the log does not begin where the one before it ends."""
    end = log.segments.first.base_offset
    for segment in log.segments:
        assert segment.base_offset == end
        for _, header, _ in Scan(segment.file, 0, segment.size):
            assert header.base_offset == end
            end = header.last_offset + 1
    assert end == log.log_end_offset


def test_process_that_ends_during_a_truncating_recovery_leaves_no_hole(loop: SimLoop) -> None:
    stopped = Stopped(loop, with_shorter_log_file)
    operations, ended = 0, True
    while ended:
        operations += 1
        medium = deepcopy(stopped.medium)
        ended = stopped.open(medium, clean=True, operations=operations) is None
        log = stopped.open(medium, clean=False)
        assert log is not None
        check_contiguous(log)
    assert operations > 1


def test_power_failure_during_a_truncating_recovery_leaves_no_hole(loop: SimLoop) -> None:
    stopped = Stopped(loop, with_shorter_log_file)
    for seed in range(10 * POWER_FAILURES):
        medium = deepcopy(stopped.medium)
        stopped.open(medium, clean=True, operations=1 + seed)
        medium.lose_power(Random(seed))
        log = stopped.open(medium, clean=False)
        assert log is not None
        check_contiguous(log)
