"""Logs while no file descriptor or no memory is left: nothing fails permanently, and nothing half-written stays."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.disk.port import ResourcesExhausted
from odradek.storage.log.reads import ColdRead
from odradek.storage.segment import segment
from odradek.storage.segment.index import OFFSET_ENTRY_BYTES, TXN_ENTRY_BYTES
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, append, batch, headers, marker, open_log, produced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.storage.log.log import PartitionLog

SMALL = LogConfig(segment_bytes=200, index_interval_bytes=0)
LOG_FILE = f"t-0/{0:020d}.log"


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    disk = FaultyDisk()
    yield disk
    disk.close()


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


def bases(log: PartitionLog) -> list[int]:
    return [one.base_offset for one in log.segments]


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT])
def test_append_to_a_full_disk_is_refused_and_later_accepted(disk: FaultyDisk, root: str, reason: int) -> None:
    log = open_log(disk, root, LogConfig())
    append(log, produced(7, 0))
    size = log.segments.active.file.size
    disk.refuse("write", ".log", reason)
    with pytest.raises(ResourcesExhausted):
        append(log, produced(7, 1))
    assert (log.log_end_offset, log.local.failed, log.segments.active.file.size) == (1, False, size)
    disk.heal()
    append(log, produced(7, 1))
    assert log.log_end_offset == 2


@pytest.mark.parametrize(
    ("operation", "suffix", "reason"),
    [
        ("check_resources", "", errno.EMFILE),
        ("open", ".log", errno.ENFILE),
        ("open", ".snapshot", errno.ENOMEM),
        ("open", ".timeindex", errno.ENOMEM),
        ("write", ".snapshot", errno.ENOMEM),
    ],
)
def test_roll_without_resources_is_postponed(
    disk: FaultyDisk, root: str, operation: str, suffix: str, reason: int
) -> None:
    log = open_log(disk, root, SMALL)
    append(log, produced(7, 0))
    disk.refuse(operation, suffix, reason)
    for sequence in range(1, 10):
        append(log, produced(7, sequence))
    assert (bases(log), log.failed) == ([0], False)
    assert log.segments.active.size > SMALL.segment_bytes
    disk.heal()
    append(log, produced(7, 10))
    assert bases(log) == [0, 10]
    recovered = open_log(OsDisk(), root, SMALL, high_watermark=11)
    assert [header.base_offset for header in headers(recovered)] == list(range(11))
    assert recovered.producers.entries[7].last_sequence == 10


def test_append_that_needs_a_new_segment_is_refused_and_leaves_the_log_unchanged(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root, LogConfig(index_interval_bytes=0, segment_index_bytes=4 * OFFSET_ENTRY_BYTES))
    disk.refuse("check_resources", reason=errno.EMFILE)
    count = 0
    with pytest.raises(ResourcesExhausted):
        while True:
            append(log, produced(7, count))
            count += 1
    active = log.segments.active
    assert (log.log_end_offset, log.failed, active.file.size) == (count, False, active.size)
    assert log.producers.entries[7].last_sequence == count - 1
    disk.heal()
    assert append(log, produced(7, count)).first_offset == count
    assert bases(log) == [0, count]


def test_part_of_a_batch_that_was_written_is_removed(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsDisk()
    log = open_log(disk, root)
    append(log, batch(1))
    size = log.segments.active.size
    whole = os.pwritev

    def part(descriptor: int, buffers: list[bytes], offset: int) -> int:
        return whole(descriptor, [bytes(buffers[0])[:20]], offset)

    def no_memory(*_: object) -> int:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with monkeypatch.context() as patched, pytest.raises(ResourcesExhausted):
        patched.setattr(os, "pwritev", part)
        patched.setattr(os, "pwrite", no_memory)
        append(log, batch(1))
    assert (log.failed, log.log_end_offset, log.segments.active.size) == (False, 1, size)
    assert Path(root, LOG_FILE).stat().st_size == size
    assert append(log, batch(1)).first_offset == 1
    assert len(headers(open_log(disk, root))) == 2
    disk.close()


def test_batches_are_kept_if_the_pending_index_entries_cannot_be_written(
    disk: FaultyDisk, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment, "INDEX_ENTRIES_PENDING_MAX", 2)
    log = open_log(disk, root, LogConfig(index_interval_bytes=0))
    disk.refuse("open", "index", errno.EMFILE)
    for _ in range(6):
        append(log, batch(1))
    index = log.segments.active.offset_index
    assert index is not None
    assert (log.log_end_offset, log.failed, index.persisted) == (6, False, 0)
    disk.heal()
    append(log, batch(1))
    assert index.persisted == len(index) > 0


@pytest.mark.parametrize("operation", ["open", "write"])
def test_aborted_transaction_is_visible_and_written_later(disk: FaultyDisk, root: str, operation: str) -> None:
    log = open_log(disk, root)
    disk.refuse(operation, ".txnindex", errno.ENOMEM)
    append(log, produced(7, 0, transactional=True))
    append(log, marker(7, commit=False))
    assert (log.failed, log.last_stable_offset) == (False, 2)
    result = log.read(0, max_bytes=1 << 20)
    assert not isinstance(result, ColdRead)
    assert log.aborted_transactions(0, result) == [(7, 0)]
    disk.heal()
    append(log, produced(8, 0, transactional=True))
    append(log, marker(8, commit=False))
    index = Path(root, "t-0", f"{0:020d}.txnindex")
    assert index.stat().st_size == 2 * TXN_ENTRY_BYTES
    disk.refuse(operation, ".txnindex", errno.ENOMEM)
    append(log, produced(9, 0, transactional=True))
    append(log, marker(9, commit=False))
    disk.heal()
    log.roll(NOW_MS)
    assert index.stat().st_size == 3 * TXN_ENTRY_BYTES


@pytest.mark.parametrize(
    ("operation", "suffix"),
    [("open", ".snapshot"), ("open", ".timeindex"), ("open", "partition.metadata"), ("sync_directory", "t-0")],
)
async def test_flush_without_resources_can_be_repeated(
    disk: FaultyDisk, root: str, operation: str, suffix: str
) -> None:
    log = open_log(disk, root, SMALL)
    for sequence in range(9):
        append(log, produced(7, sequence))
    disk.refuse(operation, suffix, errno.EMFILE)
    with pytest.raises(ResourcesExhausted):
        await log.flush()
    assert (log.failed, log.flushed_offset) == (False, 0)
    disk.heal()
    await log.flush()
    assert (log.flushed_offset, log.recovery_point) == (9, 8)
    snapshots = {Path(path).name for path in disk.synced if path.endswith(".snapshot")}
    assert snapshots == {f"{base:020d}.snapshot" for base in bases(log)[1:]}


async def test_sync_that_reports_no_memory_fails_the_log(disk: FaultyDisk, root: str) -> None:
    """A repeated sync could succeed although the data is lost, so the error number does not matter."""
    log = open_log(disk, root)
    append(log, batch(1))
    disk.refuse("sync", ".log", errno.ENOMEM)
    with pytest.raises(OSError, match="refused"):
        await log.flush()
    assert log.failed


def test_retention_without_resources_for_a_roll_is_repeated(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root, LogConfig(retention_ms=1))
    append(log, batch(3))
    disk.refuse("check_resources", reason=errno.EMFILE)
    with pytest.raises(ResourcesExhausted):
        log.delete_expired_segments(NOW_MS * 2)
    assert (log.failed, log.log_start_offset) == (False, 0)
    disk.heal()
    assert log.delete_expired_segments(NOW_MS * 2) == 1
    assert log.log_start_offset == 3
