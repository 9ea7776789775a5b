"""What was cut off a log, and does not come back whatever a power cut takes."""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from odradek.protocol.batch import build_batch
from odradek.storage.config import LogConfig
from odradek.storage.files.names import TRUNCATION_MARK
from odradek.storage.log.log import PartitionLog
from tests.sim.environment.disk import EIO, DiskFault, DiskLatency, SimDisk
from tests.sim.environment.loop import SimLoop
from tests.sim.environment.medium import Medium
from tests.support.logs import NOW_MS, headers, open_log, records
from tests.support.power_cuts import lose, survivors

ROOT = "/data"
DIRECTORY = f"{ROOT}/t-0"
OLD, NEW = 0, 1
TWO_BATCHES = LogConfig(segment_bytes=500)
"""Of `replicate`, in a segment."""


class World:
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
        """Of the process: what it has written stays."""
        self.disk.detach()
        self.disk = self._disk()

    def log(self, config: LogConfig | None = None, recovery_point: int = 0) -> PartitionLog:
        return open_log(self.disk, ROOT, config, recovery_point=recovery_point)

    def flush(self, log: PartitionLog) -> None:
        self.loop.run_until_complete(log.flush())


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.loop.close()


def replicate(log: PartitionLog, epoch: int, count: int) -> None:
    """So many batches of one record, all of the same size: any of them fits where any other was."""
    for _ in range(count):
        data = build_batch(records(1, size=150), base_offset=log.log_end_offset, leader_epoch=epoch)
        log.append_as_follower(data, now_ms=NOW_MS)


def epochs_found(medium: Medium, config: LogConfig | None, recovery_point: int) -> list[int]:
    """Of the batches that the next life has."""
    world = World(medium)
    try:
        return [header.leader_epoch for header in headers(world.log(config, recovery_point))]
    finally:
        world.loop.close()


def durable(world: World, log: PartitionLog, *, awaited: bool) -> None:
    """As a follower does, which awaits its cut; or as a replica that leads before, whose append finds it undone."""
    if awaited:
        world.loop.run_until_complete(log.sync_truncation())


def check_what_is_left(world: World, config: LogConfig | None, recovery_point: int, cut: int) -> None:
    """Whatever a power cut takes now: what is behind the cut is new, or all that the log has is old."""
    seen = set()
    for survivor in survivors(world.medium, DIRECTORY):
        found = epochs_found(survivor, config, recovery_point)
        assert found == sorted(found), "an old batch behind a new one"
        assert NEW not in found or found.index(NEW) == cut, "an old batch has taken the place of a new one"
        seen.add(tuple(found))
    assert len(seen) > 1, "nothing could be lost"


@pytest.mark.parametrize("awaited", [True, False])
@pytest.mark.parametrize("flushed", [True, False])
def test_an_old_batch_does_not_come_back_among_new_ones(world: World, *, flushed: bool, awaited: bool) -> None:
    """The cut and the first write behind it are lost, the second write is not."""
    log = world.log()
    replicate(log, OLD, 4)
    if flushed:
        world.flush(log)
    log.truncate_to(1, now_ms=NOW_MS)
    durable(world, log, awaited=awaited)
    replicate(log, NEW, 2)
    check_what_is_left(world, None, log.recovery_point, 1)


@pytest.mark.parametrize("awaited", [True, False])
@pytest.mark.parametrize("rolled", [True, False])
def test_an_old_segment_does_not_come_back_behind_new_batches(world: World, *, rolled: bool, awaited: bool) -> None:
    """With the same segment size a new one takes its name; with a larger one nothing does."""
    log = world.log(TWO_BATCHES)
    replicate(log, OLD, 6)
    world.flush(log)
    log.truncate_to(1, now_ms=NOW_MS)
    durable(world, log, awaited=awaited)
    if not rolled:
        log.update_config(LogConfig())
    replicate(log, NEW, 3)
    check_what_is_left(world, TWO_BATCHES, log.recovery_point, 1)


@pytest.mark.parametrize("awaited", [True, False])
def test_an_old_segment_does_not_come_back_behind_what_was_flushed(world: World, *, awaited: bool) -> None:
    """It would be where recovery begins, and what was flushed before it would go."""
    log = world.log(TWO_BATCHES)
    replicate(log, OLD, 6)
    world.flush(log)
    log.truncate_to(1, now_ms=NOW_MS)
    durable(world, log, awaited=awaited)
    log.update_config(LogConfig())
    replicate(log, NEW, 3)
    world.flush(log)
    assert log.recovery_point == 4
    for survivor in survivors(world.medium, DIRECTORY):
        assert epochs_found(survivor, TWO_BATCHES, log.recovery_point) == [OLD, NEW, NEW, NEW]


def test_what_a_recovery_has_cut_does_not_come_back(world: World) -> None:
    """The first power cut leaves a hole and an old batch behind it; the second takes the cut at the hole, and not what has filled it."""
    log = world.log()
    replicate(log, OLD, 1)
    world.flush(log)
    replicate(log, OLD, 2)
    world.kill()
    lose(world.medium, DIRECTORY, [False, True])
    log = world.log()
    assert log.log_end_offset == 1
    replicate(log, NEW, 2)
    check_what_is_left(world, None, log.recovery_point, 1)


@pytest.mark.parametrize("rest", [True, False])
def test_segments_that_a_recovery_has_dropped_do_not_come_back(world: World, *, rest: bool) -> None:
    """Behind one that has lost its beginning, or everything."""
    log = world.log(TWO_BATCHES)
    replicate(log, OLD, 2)
    world.flush(log)
    replicate(log, OLD, 4)
    world.kill()
    world.loop.run_until_complete(world.disk.sync_directory(DIRECTORY))
    lose(world.medium, DIRECTORY, [False, rest, True, True])
    log = world.log(TWO_BATCHES, recovery_point=2)
    assert log.log_end_offset == 2
    replicate(log, NEW, 3)
    check_what_is_left(world, TWO_BATCHES, log.recovery_point, 2)


def test_a_process_that_is_killed_leaves_its_cut_to_the_next_one(world: World) -> None:
    log = world.log()
    replicate(log, OLD, 4)
    world.flush(log)
    log.truncate_to(1, now_ms=NOW_MS)
    world.kill()
    again = world.log(recovery_point=log.recovery_point)
    replicate(again, NEW, 2)
    check_what_is_left(world, None, again.recovery_point, 1)


@pytest.mark.parametrize("awaited", [True, False])
def test_a_log_that_began_anew_has_nothing_of_its_former_life(world: World, *, awaited: bool) -> None:
    log = world.log()
    replicate(log, OLD, 4)
    world.flush(log)
    log.truncate_fully_and_start_at(2, now_ms=NOW_MS)
    durable(world, log, awaited=awaited)
    replicate(log, NEW, 2)
    for survivor in survivors(world.medium, DIRECTORY):
        assert OLD not in epochs_found(survivor, None, log.recovery_point)


def test_an_append_finds_the_cut_on_the_disk_where_that_was_awaited(world: World) -> None:
    log = world.log()
    replicate(log, OLD, 4)
    world.flush(log)
    log.truncate_to(1, now_ms=NOW_MS)
    world.loop.run_until_complete(log.sync_truncation())
    before = world.disk.operations
    replicate(log, NEW, 1)
    assert world.disk.operations == before + 1
    again = world.log(recovery_point=1)
    assert [header.leader_epoch for header in headers(again)] == [OLD, NEW]


def test_a_cut_under_the_sync_of_another_is_synced_too(world: World) -> None:
    log = world.log()
    replicate(log, OLD, 4)
    world.flush(log)

    async def cut_twice() -> None:
        log.truncate_to(3, now_ms=NOW_MS)
        first = asyncio.ensure_future(log.sync_truncation())
        await asyncio.sleep(0)
        log.truncate_to(1, now_ms=NOW_MS)
        await first

    world.loop.run_until_complete(cut_twice())
    assert log.local.truncation.unsynced is None
    for survivor in survivors(world.medium, DIRECTORY):
        assert epochs_found(survivor, None, 1) == [OLD]


@pytest.mark.parametrize("waiting", [True, False])
def test_a_log_whose_cut_the_disk_refuses_takes_nothing_more(world: World, *, waiting: bool) -> None:
    log = world.log()
    replicate(log, OLD, 4)
    log.truncate_to(1, now_ms=NOW_MS)
    world.disk.faults.append(DiskFault("sync", ".log", EIO))
    with pytest.raises(OSError, match="simulated fault"):
        world.loop.run_until_complete(log.sync_truncation()) if waiting else replicate(log, NEW, 1)
    assert log.failed
    with pytest.raises(OSError, match="failed"):
        replicate(log, NEW, 1)


def test_a_log_that_is_closed_under_the_sync_of_its_cut_ends_it(world: World) -> None:
    log = world.log()
    replicate(log, OLD, 4)
    log.truncate_to(1, now_ms=NOW_MS)

    async def close() -> None:
        sync = asyncio.ensure_future(log.sync_truncation())
        await asyncio.sleep(0)
        log.close(clean=False)
        await sync

    world.loop.run_until_complete(close())
    assert world.disk.exists(f"{DIRECTORY}/{TRUNCATION_MARK}"), "for the next life"


def test_a_clean_stop_leaves_no_cut_to_the_next_life(world: World) -> None:
    log = world.log()
    replicate(log, OLD, 4)
    log.truncate_to(1, now_ms=NOW_MS)
    log.close(clean=True)
    assert not world.disk.exists(f"{DIRECTORY}/{TRUNCATION_MARK}")
