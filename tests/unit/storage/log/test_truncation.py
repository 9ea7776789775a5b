"""Truncation of a log: truncated batches do not reappear after any power failure."""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from odradek.protocol.batch import build_batch
from odradek.simulation.environment.disk import EIO, DiskFault, DiskLatency, SimDisk
from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.medium import Medium
from odradek.storage.config import LogConfig
from odradek.storage.files.names import TRUNCATION_MARK
from odradek.storage.log.log import PartitionLog
from tests.support.logs import NOW_MS, headers, open_log, records
from tests.support.power_cuts import lose, survivors

ROOT = "/data"
DIRECTORY = f"{ROOT}/t-0"
OLD, NEW = 0, 1
TWO_BATCHES = LogConfig(segment_bytes=500)
"""Segments hold two batches of `replicate`."""


class Machine:
    """Simulated machine with one disk and one log directory."""

    def __init__(self, medium: Medium | None = None) -> None:
        self.loop = SimLoop(Random(1))
        self.medium = medium or Medium()
        self.disk = self._disk()
        if medium is None:
            self.disk.make_directory(DIRECTORY)
            self.loop.run_until_complete(self.disk.sync_directory(ROOT))
            self.loop.run_until_complete(self.disk.sync_directory("/"))

    def _disk(self) -> SimDisk:
        return SimDisk(self.medium, self.loop, Random(1), name="n", latency=DiskLatency(cold_probability=0.0))

    def kill(self) -> None:
        """Kill the process: all written bytes stay."""
        self.disk.detach()
        self.disk = self._disk()

    def log(self, config: LogConfig | None = None, recovery_point: int = 0) -> PartitionLog:
        return open_log(self.disk, ROOT, config, recovery_point=recovery_point)

    def flush(self, log: PartitionLog) -> None:
        self.loop.run_until_complete(log.flush())


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine()
    yield machine
    machine.loop.close()


def replicate(log: PartitionLog, epoch: int, count: int) -> None:
    """Append `count` batches of one record and of equal size, so that any of them fits in the place of another."""
    for _ in range(count):
        data = build_batch(records(1, size=150), base_offset=log.log_end_offset, leader_epoch=epoch)
        log.append_as_follower(data, now_ms=NOW_MS, monotonic_ms=NOW_MS)


def epochs_found(medium: Medium, config: LogConfig | None, recovery_point: int) -> list[int]:
    """Return the leader epochs of the batches that the next start finds on the disk."""
    machine = Machine(medium)
    try:
        return [header.leader_epoch for header in headers(machine.log(config, recovery_point))]
    finally:
        machine.loop.close()


def sync_if(machine: Machine, log: PartitionLog, *, awaited: bool) -> None:
    """Await the truncation if `awaited`, as a follower does. Otherwise the next append syncs it, as on a new leader."""
    if awaited:
        machine.loop.run_until_complete(log.sync_truncation())


def check_survivors(machine: Machine, config: LogConfig | None, recovery_point: int, truncated_to: int) -> None:
    """Check each possible result of a power failure: all batches after the truncation are new, or all are old."""
    seen = set()
    for survivor in survivors(machine.medium, DIRECTORY):
        epochs = epochs_found(survivor, config, recovery_point)
        assert epochs == sorted(epochs), "an old batch follows a new one"
        assert NEW not in epochs or epochs.index(NEW) == truncated_to, "an old batch is in the place of a new one"
        seen.add(tuple(epochs))
    assert len(seen) > 1, "the power failure could not lose a batch"


@pytest.mark.parametrize("awaited", [True, False])
@pytest.mark.parametrize("flushed", [True, False])
def test_truncated_batch_does_not_reappear_among_new_ones(machine: Machine, *, flushed: bool, awaited: bool) -> None:
    """A power failure loses the truncation and the first write after it, but not the second write."""
    log = machine.log()
    replicate(log, OLD, 4)
    if flushed:
        machine.flush(log)
    log.truncate_to(1, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    sync_if(machine, log, awaited=awaited)
    replicate(log, NEW, 2)
    check_survivors(machine, None, log.recovery_point, 1)


@pytest.mark.parametrize("awaited", [True, False])
@pytest.mark.parametrize("rolled", [True, False])
def test_truncated_segment_does_not_reappear_after_new_batches(
    machine: Machine, *, rolled: bool, awaited: bool
) -> None:
    """With the same segment size, a new segment gets the name of the old one; with a larger one, no segment does."""
    log = machine.log(TWO_BATCHES)
    replicate(log, OLD, 6)
    machine.flush(log)
    log.truncate_to(1, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    sync_if(machine, log, awaited=awaited)
    if not rolled:
        log.update_config(LogConfig())
    replicate(log, NEW, 3)
    check_survivors(machine, TWO_BATCHES, log.recovery_point, 1)


@pytest.mark.parametrize("awaited", [True, False])
def test_truncated_segment_does_not_reappear_after_flushed_batches(machine: Machine, *, awaited: bool) -> None:
    """Otherwise recovery would begin at the old segment, and the flushed batches before it would be lost."""
    log = machine.log(TWO_BATCHES)
    replicate(log, OLD, 6)
    machine.flush(log)
    log.truncate_to(1, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    sync_if(machine, log, awaited=awaited)
    log.update_config(LogConfig())
    replicate(log, NEW, 3)
    machine.flush(log)
    assert (log.flushed_offset, log.recovery_point) == (4, 3)
    for survivor in survivors(machine.medium, DIRECTORY):
        assert epochs_found(survivor, TWO_BATCHES, log.recovery_point) == [OLD, NEW, NEW, NEW]


def test_batch_truncated_by_recovery_does_not_reappear(machine: Machine) -> None:
    """A batch that recovery has truncated does not reappear.

    1. A power failure leaves a hole and an old batch after it. Recovery truncates the log at the hole.
    2. New batches fill the hole.
    3. A second power failure may lose the truncation, but not the new batches.
    """
    log = machine.log()
    replicate(log, OLD, 1)
    machine.flush(log)
    replicate(log, OLD, 2)
    machine.kill()
    lose(machine.medium, DIRECTORY, [False, True])
    log = machine.log()
    assert log.log_end_offset == 1
    replicate(log, NEW, 2)
    check_survivors(machine, None, log.recovery_point, 1)


@pytest.mark.parametrize("rest", [True, False])
def test_segment_removed_by_recovery_does_not_reappear(machine: Machine, *, rest: bool) -> None:
    """The segment before it has lost its first batch, or all batches."""
    log = machine.log(TWO_BATCHES)
    replicate(log, OLD, 2)
    machine.flush(log)
    replicate(log, OLD, 4)
    machine.kill()
    machine.loop.run_until_complete(machine.disk.sync_directory(DIRECTORY))
    lose(machine.medium, DIRECTORY, [False, rest, True, True])
    log = machine.log(TWO_BATCHES, recovery_point=2)
    assert log.log_end_offset == 2
    replicate(log, NEW, 3)
    check_survivors(machine, TWO_BATCHES, log.recovery_point, 2)


def test_truncation_before_a_kill_is_made_durable_by_the_next_start(machine: Machine) -> None:
    log = machine.log()
    replicate(log, OLD, 4)
    machine.flush(log)
    log.truncate_to(1, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    machine.kill()
    recovered = machine.log(recovery_point=log.recovery_point)
    replicate(recovered, NEW, 2)
    check_survivors(machine, None, recovered.recovery_point, 1)


@pytest.mark.parametrize("awaited", [True, False])
def test_fully_truncated_log_has_no_former_batch(machine: Machine, *, awaited: bool) -> None:
    log = machine.log()
    replicate(log, OLD, 4)
    machine.flush(log)
    log.truncate_fully_and_start_at(2, now_ms=NOW_MS)
    sync_if(machine, log, awaited=awaited)
    replicate(log, NEW, 2)
    for survivor in survivors(machine.medium, DIRECTORY):
        assert OLD not in epochs_found(survivor, None, log.recovery_point)


def test_append_after_an_awaited_truncation_does_not_sync(machine: Machine) -> None:
    log = machine.log()
    replicate(log, OLD, 4)
    machine.flush(log)
    log.truncate_to(1, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    machine.loop.run_until_complete(log.sync_truncation())
    before = machine.disk.operations
    replicate(log, NEW, 1)
    assert machine.disk.operations == before + 1
    recovered = machine.log(recovery_point=1)
    assert [header.leader_epoch for header in headers(recovered)] == [OLD, NEW]


def test_truncation_during_the_sync_of_another_is_synced(machine: Machine) -> None:
    log = machine.log()
    replicate(log, OLD, 4)
    machine.flush(log)

    async def truncate_twice() -> None:
        log.truncate_to(3, now_ms=NOW_MS, monotonic_ms=NOW_MS)
        first = asyncio.ensure_future(log.sync_truncation())
        await asyncio.sleep(0)
        log.truncate_to(1, now_ms=NOW_MS, monotonic_ms=NOW_MS)
        await first

    machine.loop.run_until_complete(truncate_twice())
    assert log.local.truncation.unsynced is None
    for survivor in survivors(machine.medium, DIRECTORY):
        assert epochs_found(survivor, None, 1) == [OLD]


@pytest.mark.parametrize("waiting", [True, False])
def test_log_with_a_failed_truncation_sync_accepts_no_append(machine: Machine, *, waiting: bool) -> None:
    log = machine.log()
    replicate(log, OLD, 4)
    log.truncate_to(1, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    machine.disk.faults.append(DiskFault("sync", ".log", EIO))
    with pytest.raises(OSError, match="simulated fault"):
        machine.loop.run_until_complete(log.sync_truncation()) if waiting else replicate(log, NEW, 1)
    assert log.failed
    with pytest.raises(OSError, match="failed"):
        replicate(log, NEW, 1)


def test_close_during_a_truncation_sync_ends_the_sync(machine: Machine) -> None:
    log = machine.log()
    replicate(log, OLD, 4)
    log.truncate_to(1, now_ms=NOW_MS, monotonic_ms=NOW_MS)

    async def close() -> None:
        sync = asyncio.ensure_future(log.sync_truncation())
        await asyncio.sleep(0)
        log.close(clean=False)
        await sync

    machine.loop.run_until_complete(close())
    assert machine.disk.exists(f"{DIRECTORY}/{TRUNCATION_MARK}"), "the next start makes the truncation durable"


def test_clean_close_makes_the_truncation_durable(machine: Machine) -> None:
    log = machine.log()
    replicate(log, OLD, 4)
    log.truncate_to(1, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    log.close(clean=True)
    assert not machine.disk.exists(f"{DIRECTORY}/{TRUNCATION_MARK}")
