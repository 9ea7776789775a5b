"""PartitionRaftStorage: restarts, missing entries, and logs that do not match their snapshots."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from odradek.broker.process.clock import SystemClock
from odradek.broker.quorum import storage
from odradek.broker.quorum.snapshots import DAMAGED_SUFFIX, file_name, parse_file_name
from odradek.broker.quorum.storage import PartitionRaftStorage, note_lost_entries
from odradek.cluster.metadata.image import EMPTY_IMAGE, METADATA_TOPIC_ID
from odradek.cluster.metadata.snapshot import snapshot_batches
from odradek.cluster.raft.batches import encode_records
from odradek.cluster.raft.messages import EpochEnd, HardState, Standing
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.storage.config import LogConfig
from odradek.storage.data_directory.log_manager import LogManager
from odradek.storage.disk.os_disk import IO_THREADS_MAX, OsDisk
from odradek.storage.disk.port import ResourcesExhausted
from tests.support.data_rig import FailingDisk
from tests.support.logs import load_all
from tests.support.raft_memory import CLUSTER_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from odradek.storage.disk.port import Disk

T = TypeVar("T")
ATTEMPTS = 20
GUARD_S = 20
CONFIG = replace(LogConfig(), retention_ms=-1, retention_bytes=-1)


class ProcessEnded(Exception):
    """The process of the node ends."""


class Replica:
    """The directory of one replica. `reopened` returns the replica after a clean or unclean shutdown."""

    def __init__(self, path: Path, *, sole_voter: bool = False, disk: Disk | None = None) -> None:
        self.path, self.sole_voter, self._disk = path, sole_voter, disk
        self.logs = LogManager(disk or OsDisk(), str(path), CONFIG)
        self.logs.directory.claim(node_id=1, rng=random.Random(1), cluster_id=CLUSTER_ID)
        load_all(
            self.logs,
            0,
            refuse_loss=(CLUSTER_METADATA,) if sole_voter else (),
            on_flushed_loss=partial(note_lost_entries, OsDisk(), str(path), may_truncate=not sole_voter),
        )
        self.log = self.logs.create(CLUSTER_METADATA, 0, METADATA_TOPIC_ID, CONFIG, 0)
        voters = [1] if sole_voter else [1, 2, 3]
        self.storage = PartitionRaftStorage(self.logs, self.log, voters, SystemClock(), sole_voter=sole_voter)

    @property
    def folder(self) -> Path:
        return self.path / f"{CLUSTER_METADATA}-0"

    @property
    def log_file(self) -> Path:
        return max(self.folder.glob("*.log"))

    async def append(self, count: int, epoch: int = 1) -> None:
        for _ in range(count):
            offset = self.storage.log_end_offset
            await self.storage.write([encode_records([(None, b"x" * 40)], base_offset=offset, epoch=epoch, now_ms=1)])
        await self.storage.sync()

    async def snapshot(self, end_offset: int, epoch: int = 1) -> EpochEnd:
        snapshot = EpochEnd(epoch, end_offset)
        writer = self.storage.begin_snapshot(snapshot)
        for data in snapshot_batches(EMPTY_IMAGE, snapshot, last_contained_ms=1, now_ms=1):
            writer.append(data)
        await writer.finish()
        return snapshot

    async def commit(self, offset: int) -> None:
        self.storage.set_high_watermark(offset)
        await self.logs.checkpoint_high_watermarks()

    async def begin_without_snapshots(self) -> None:
        """Let the log of ten entries begin at 4, and remove the snapshots at 4 and 8."""
        await self.commit(10)
        first, second = await self.snapshot(4), await self.snapshot(8)
        await self.storage.forget_before(first)
        await self.logs.checkpoint_log_starts()
        for snapshot in (first, second):
            (self.folder / file_name(snapshot)).unlink()

    def reopened(self, *, clean: bool = False) -> Replica:
        self.logs.close(clean=clean)
        return Replica(self.path, sole_voter=self.sole_voter, disk=self._disk)


def test_file_names_of_snapshots() -> None:
    assert file_name(EpochEnd(3, 154)) == "00000000000000000154-0000000003.checkpoint"
    assert parse_file_name("00000000000000000154-0000000003.checkpoint") == EpochEnd(3, 154)
    for name in ("1-2.checkpoint", file_name(EpochEnd(3, 154)) + ".part", f"{2**63:020d}-0000000003.checkpoint"):
        assert parse_file_name(name) is None


async def test_log_and_hard_state_are_unchanged_after_a_restart(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    assert await replica.storage.open()
    await replica.append(3)
    await replica.append(2, epoch=4)
    state = HardState(4, 2, -1, Standing.NEW)
    await replica.storage.save_hard_state(state)
    again = replica.reopened().storage
    assert await again.open()
    assert (again.log_start_offset, again.log_end_offset, list(again.epochs())) == (0, 5, [(1, 0), (4, 3)])
    assert again.load_hard_state() == state


@pytest.mark.parametrize("restarts", [0, 1])
async def test_votes_and_commits_do_not_wait_for_the_threads_of_other_logs(tmp_path: Path, restarts: int) -> None:
    disk, slow_flushes = OsDisk(), threading.Event()
    replica = Replica(tmp_path, disk=disk)
    assert await replica.storage.open()
    for _ in range(restarts):
        replica = replica.reopened()
        assert await replica.storage.open()
    flushes = [asyncio.ensure_future(disk.in_thread(slow_flushes.wait)) for _ in range(2 * IO_THREADS_MAX)]
    try:
        async with asyncio.timeout(GUARD_S):
            await replica.storage.save_hard_state(HardState(4, 2, -1, Standing.NEW))
            await replica.append(3)
        assert not any(flush.done() for flush in flushes)
    finally:
        slow_flushes.set()
    await asyncio.gather(*flushes)
    disk.close()


async def test_truncations_and_reads_of_snapshots_do_not_wait_for_the_threads_of_other_logs(tmp_path: Path) -> None:
    disk, slow_flushes = OsDisk(), threading.Event()
    replica = Replica(tmp_path, disk=disk)
    assert await replica.storage.open()
    await replica.append(5)
    await replica.commit(4)
    snapshot = await replica.snapshot(2)
    await replica.logs.checkpoint_recovery_points()
    flushes = [asyncio.ensure_future(disk.in_thread(slow_flushes.wait)) for _ in range(2 * IO_THREADS_MAX)]
    try:
        async with asyncio.timeout(GUARD_S):
            assert await replica.storage.read_snapshot(snapshot, 0, 1_000)
            await replica.storage.truncate_to(4)
        assert not any(flush.done() for flush in flushes)
    finally:
        slow_flushes.set()
    await asyncio.gather(*flushes)
    assert replica.storage.log_end_offset == 4
    disk.close()


async def test_unfinished_snapshot_is_removed_at_the_start(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.append(5)
    replica.storage.begin_snapshot(EpochEnd(1, 3)).append(b"half")
    again = replica.reopened().storage
    assert await again.open()
    assert not again.snapshots()
    assert not list(replica.folder.glob("*.part"))


async def test_log_begins_at_the_end_of_the_older_of_two_snapshots(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.append(10)
    await replica.commit(10)
    first = await replica.snapshot(4)
    second = await replica.snapshot(8)
    await replica.storage.forget_before(first)
    assert (replica.storage.log_start_offset, list(replica.storage.snapshots())) == (4, [first, second])
    again = replica.reopened()  # the log start offset is in no checkpoint
    assert await again.storage.open()
    assert (again.storage.log_start_offset, again.storage.log_end_offset) == (4, 10)
    await again.append(5)
    third = await again.snapshot(12)
    await again.storage.forget_before(second)
    assert (again.storage.log_start_offset, list(again.storage.snapshots())) == (8, [second, third])


async def test_segments_below_the_older_snapshot_are_deleted(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    for round_ in range(1, 5):
        await replica.append(10)
        await replica.commit(10 * round_)
        await replica.snapshot(10 * round_)
        if round_ > 1:
            await replica.storage.forget_before(replica.storage.snapshots()[-2])
    assert [path.name[:20] for path in sorted(replica.folder.glob("*.log"))] == [f"{30:020d}", f"{40:020d}"]
    assert len(list(replica.folder.glob("*.checkpoint"))) == 2


async def test_log_restarts_at_a_leaders_snapshot_after_a_power_failure(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.append(5)
    await replica.commit(5)
    snapshot = await replica.snapshot(100, epoch=7)
    again = replica.reopened()
    assert await again.storage.open()
    assert (again.storage.log_start_offset, again.storage.log_end_offset) == (100, 100)
    await again.append(2, epoch=8)
    last = again.reopened().storage
    assert await last.open()
    assert (last.log_start_offset, last.log_end_offset, list(last.snapshots())) == (100, 102, [snapshot])


@pytest.mark.parametrize("reopened_before", [False, True])
async def test_log_with_uncommitted_entries_behind_a_leaders_snapshot_restarts_there(
    tmp_path: Path, *, reopened_before: bool
) -> None:
    """The process of a deposed leader ends between the end of the snapshot and `restart_at`.

    `reopened_before`: an earlier version has let the log begin at the end of the snapshot, with uncommitted entries.
    """
    replica = Replica(tmp_path)
    await replica.append(3)
    await replica.commit(3)
    await replica.append(17, epoch=3)
    snapshot = await replica.snapshot(10, epoch=5)
    await replica.logs.checkpoint_recovery_points()
    if reopened_before:
        replica.storage.set_high_watermark(snapshot.end_offset)
        await replica.storage.forget_before(snapshot)
        await replica.logs.checkpoint_log_starts()
    again = replica.reopened().storage
    assert not await again.open()
    assert (again.log_start_offset, again.log_end_offset, list(again.epochs())) == (10, 10, [])
    assert list(again.snapshots()) == [snapshot]


async def test_log_that_contains_its_snapshot_stays(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.append(3)
    await replica.append(4, epoch=3)
    await replica.append(2, epoch=5)
    await replica.commit(9)
    for end_offset, epoch in ((3, 1), (7, 3)):
        await replica.snapshot(end_offset, epoch)
    again = replica.reopened()
    assert await again.storage.open()
    assert (again.storage.log_start_offset, again.storage.log_end_offset) == (3, 9)
    await again.snapshot(9, 5)
    assert await (last := again.reopened().storage).open()
    assert (last.log_start_offset, last.log_end_offset) == (7, 9)


async def test_restart_at_a_snapshot_removes_the_log_and_all_other_snapshots(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.append(10)
    await replica.snapshot(5)
    snapshot = await replica.snapshot(100, epoch=7)
    await replica.storage.restart_at(snapshot)
    assert list(replica.storage.snapshots()) == [snapshot]
    assert (replica.storage.log_end_offset, list(replica.storage.epochs())) == (100, [])
    chunk = await replica.storage.read_snapshot(snapshot, 0, 10)
    assert chunk is not None
    assert (len(chunk.data), chunk.size) == (10, (replica.folder / file_name(snapshot)).stat().st_size)
    assert await replica.storage.read_snapshot(EpochEnd(7, 99), 0, 10) is None
    for position in (-1, chunk.size, chunk.size + 5):
        beyond = await replica.storage.read_snapshot(snapshot, position, 10)
        assert beyond is not None
        assert beyond.data == b""


@pytest.mark.parametrize("restarted", [False, True])
async def test_truncation_is_durable_on_return(tmp_path: Path, *, restarted: bool) -> None:
    replica = Replica(tmp_path)
    await replica.append(10)
    snapshot = await replica.snapshot(5)
    await (replica.storage.restart_at(snapshot) if restarted else replica.storage.truncate_to(5))
    assert (replica.log.local.truncation.count, replica.log.log_end_offset, replica.log.local.truncation.unsynced) == (
        1,
        5,
        None,
    )


# ---- loss -----------------------------------------------------------------------------------------------------------


async def test_open_reports_a_log_that_ends_below_the_high_watermark(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.append(10)
    await replica.commit(10)
    with replica.log_file.open("r+b") as file:
        file.truncate(300)
    again = replica.reopened().storage
    assert not await again.open()
    assert again.log_end_offset < 10


async def test_open_reports_a_log_that_ends_below_the_recovery_point(
    tmp_path: Path,
) -> None:
    replica = Replica(tmp_path)
    await replica.append(10)
    await replica.logs.checkpoint_recovery_points()
    with replica.log_file.open("r+b") as file:
        file.truncate(300)
    assert not await replica.reopened().storage.open()


async def test_sole_voter_refuses_a_log_that_ends_below_the_high_watermark(tmp_path: Path) -> None:
    replica = Replica(tmp_path, sole_voter=True)
    await replica.append(10)
    await replica.commit(10)
    with replica.log_file.open("r+b") as file:
        file.truncate(300)
    with pytest.raises(OSError, match="offset 10 were durable"):
        replica.reopened()


@pytest.mark.parametrize("position", [0.02, 0.3, 0.6, 0.97])
async def test_log_is_truncated_at_its_first_damaged_batch(tmp_path: Path, position: float) -> None:
    replica = Replica(tmp_path)
    await replica.append(10)
    replica.logs.close(clean=True)  # a start after a clean shutdown skips recovery
    content = bytearray(replica.log_file.read_bytes())
    content[int(len(content) * position)] ^= 0x40
    replica.log_file.write_bytes(content)
    again = Replica(tmp_path).storage
    assert not await again.open()
    assert again.log_end_offset <= int(10 * position)


def flip(content: bytearray, batch: int) -> None:
    """Flip a bit in a record of one of the ten equal batches: only its checksum shows that."""
    content[len(content) * (batch + 1) // 10 - 2] ^= 0x40


async def damaged_after_process_failure(
    tmp_path: Path, damage: Callable[[bytearray], None], *, sole_voter: bool = False
) -> Path:
    """Write ten durable entries, with a high watermark of 3 in the checkpoint. Damage the log, and return its file."""
    replica = Replica(tmp_path, sole_voter=sole_voter)
    await replica.append(3)
    await replica.commit(3)
    await replica.append(7)
    await replica.storage.save_hard_state(HardState(1, 2, 3))
    replica.logs.close(clean=False)
    content = bytearray(replica.log_file.read_bytes())
    damage(content)
    replica.log_file.write_bytes(content)
    return replica.log_file


@pytest.mark.parametrize("batch", [3, 6, 9])
async def test_voter_with_damage_above_the_checkpoints_is_lost_after_a_process_failure(
    tmp_path: Path, batch: int
) -> None:
    """The voter may have acknowledged the damaged batch and those behind it. Recovery truncates all of them."""
    await damaged_after_process_failure(tmp_path, lambda content: flip(content, batch))
    replica = Replica(tmp_path)
    assert replica.storage.log_end_offset == batch
    replica = replica.reopened()  # the process ended after recovery: this start finds no damage
    await replica.storage.open()
    assert replica.storage.load_hard_state() == HardState(1, 2, 3, Standing.LOST)


async def test_voter_with_a_torn_tail_stays_ordinary(tmp_path: Path) -> None:
    def tear(content: bytearray) -> None:
        del content[-20:]

    await damaged_after_process_failure(tmp_path, tear)
    replica = Replica(tmp_path)
    assert await replica.storage.open()
    assert replica.storage.log_end_offset == 9
    assert replica.storage.load_hard_state() == HardState(1, 2, 3)


@pytest.mark.parametrize("batch", [3, 6, 9])
async def test_sole_voter_refuses_damage_above_the_checkpoints_after_a_process_failure(
    tmp_path: Path, batch: int
) -> None:
    log_file = await damaged_after_process_failure(tmp_path, lambda content: flip(content, batch), sole_voter=True)
    before = log_file.read_bytes()
    with pytest.raises(OSError, match=f"metadata log damaged.*byte {len(before) * batch // 10} "):
        Replica(tmp_path, sole_voter=True)
    assert log_file.read_bytes() == before


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM])
async def test_read_error_does_not_truncate_the_log(tmp_path: Path, number: int) -> None:
    disk = FailingDisk()
    replica = Replica(tmp_path, disk=disk)
    await replica.append(10)
    await replica.storage.save_hard_state(HardState(1, 2, 3))
    replica = replica.reopened(clean=True)
    disk.failing["read"] = number
    with pytest.raises(OSError, match="injected") as caught:
        await replica.storage.open()
    assert caught.value.errno == number
    disk.failing.clear()
    assert await replica.storage.open()
    assert replica.storage.log_end_offset == 10
    assert replica.storage.load_hard_state() == HardState(1, 2, 3)


@pytest.mark.parametrize("batch", [0, 4, 9])
async def test_batch_with_a_damaged_base_offset_is_truncated(tmp_path: Path, batch: int) -> None:
    """The checksum does not cover the base offset."""
    replica = Replica(tmp_path)
    await replica.append(10)
    replica.logs.close(clean=True)
    content = bytearray(replica.log_file.read_bytes())
    content[len(content) * batch // 10 + 6] ^= 0x40
    replica.log_file.write_bytes(content)
    again = Replica(tmp_path).storage
    assert not await again.open()
    assert again.log_end_offset == batch


@pytest.mark.parametrize("damaged", ["log", "snapshots"])
async def test_voter_that_ends_after_the_truncation_of_damage_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    """The next start finds no damage. Without the standing, the voter would elect a leader without its entries."""
    replica = Replica(tmp_path)
    await replica.append(10)
    await replica.storage.save_hard_state(HardState(1, 2, -1))
    if damaged == "snapshots":
        await replica.begin_without_snapshots()
    replica.logs.close(clean=True)
    if damaged == "log":
        content = bytearray(replica.log_file.read_bytes())
        content[len(content) * 7 // 10 - 2] ^= 0x40  # in a record: only its checksum shows that
        replica.log_file.write_bytes(content)
    again = Replica(tmp_path)
    method = "truncate_to" if damaged == "log" else "restart_at"
    removal = getattr(again.storage, method)

    async def remove_and_end(argument: Any) -> None:
        await removal(argument)
        raise ProcessEnded

    monkeypatch.setattr(again.storage, method, remove_and_end)
    with pytest.raises(ProcessEnded):
        await again.storage.open()
    last = again.reopened().storage
    await last.open()
    assert last.log_end_offset < 10
    assert last.load_hard_state() == HardState(1, 2, -1, Standing.LOST)


async def test_damaged_snapshot_is_renamed_and_the_older_one_is_used(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.append(10)
    await replica.commit(10)
    first = await replica.snapshot(4)
    second = await replica.snapshot(8)
    await replica.storage.forget_before(first)
    await replica.logs.checkpoint_log_starts()
    path = replica.folder / file_name(second)
    path.write_bytes(path.read_bytes()[:-5])
    again = replica.reopened().storage
    assert await again.open()
    assert (again.log_start_offset, again.log_end_offset, list(again.snapshots())) == (4, 10, [first])
    assert path.with_name(path.name + DAMAGED_SUFFIX).exists()


async def test_log_that_begins_after_0_without_a_snapshot_is_replaced_by_an_empty_one(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    await replica.append(10)
    await replica.begin_without_snapshots()
    again = replica.reopened().storage
    assert not await again.open()
    assert (again.log_start_offset, again.log_end_offset) == (0, 0)


async def test_metadata_log_is_written_when_memory_is_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node without memory waits. Its log has each batch once."""
    disk = FailingDisk()
    replica = Replica(tmp_path, disk=disk)
    await replica.append(1)
    disk.failing["write"] = errno.ENOMEM
    writing = await waiting(replica.append(2), monkeypatch)
    assert replica.storage.log_end_offset == 1
    disk.failing.clear()
    await writing
    assert replica.storage.log_end_offset == 3
    assert replica.reopened().storage.log_end_offset == 3


async def test_snapshot_is_read_when_descriptors_are_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FailingDisk()
    replica = Replica(tmp_path, disk=disk)
    await replica.append(5)
    await replica.commit(5)
    snapshot = await replica.snapshot(5)
    disk.failing["open"] = errno.EMFILE
    reading = await waiting(replica.storage.read_snapshot(snapshot, 0, 100), monkeypatch)
    disk.failing.clear()
    piece = await reading
    assert piece is not None
    assert len(piece.data) == 100


@pytest.mark.parametrize("restarts", [False, True])
async def test_metadata_log_is_truncated_when_descriptors_are_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, restarts: bool
) -> None:
    """A truncation, and the restart of the log at a snapshot, which truncates all of it."""
    disk = FailingDisk()
    replica = Replica(tmp_path, disk=disk)
    await replica.append(3)

    def exhausted() -> None:
        raise ResourcesExhausted(errno.EMFILE, "injected")

    checks = disk.check_resources
    monkeypatch.setattr(disk, "check_resources", exhausted)
    changing = replica.storage.restart_at(EpochEnd(1, 100)) if restarts else replica.storage.truncate_to(1)
    truncating = await waiting(changing, monkeypatch)
    assert replica.storage.log_end_offset == 3
    monkeypatch.setattr(disk, "check_resources", checks)
    await truncating
    assert replica.storage.log_end_offset == (100 if restarts else 1)


async def waiting(operation: Coroutine[Any, Any, T], monkeypatch: pytest.MonkeyPatch) -> asyncio.Future[T]:
    """Start an operation without the resources that it needs. It must wait for them."""
    monkeypatch.setattr(storage, "RESOURCE_RETRY_S", 0.0)
    started = asyncio.ensure_future(operation)
    for _ in range(ATTEMPTS):
        await asyncio.sleep(0)
    assert not started.done()
    return started
