"""A log that has lost records must not count as complete: its broker registers as after an unclean shutdown."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.data_directory.log_manager import LogManager
from odradek.storage.files import checkpoint, names
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, TOPIC_ID, append, batch, load_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONFIG = LogConfig(segment_bytes=100_000)
EPOCH = 42
BATCHES = 6


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    disk = FaultyDisk()
    yield disk
    disk.close()


def opened(disk: FaultyDisk, root: Path) -> LogManager:
    manager = LogManager(disk, str(root), CONFIG)
    manager.directory.claim(node_id=1, rng=random.Random(1))
    load_all(manager, NOW_MS)
    return manager


def written(disk: FaultyDisk, root: Path, *, clean: bool, high_watermark: int = 0) -> Path:
    """Write BATCHES batches of one record, end the run, and return the file of the active segment."""
    manager = opened(disk, root)
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    for _ in range(BATCHES):
        append(log, batch(1, size=200))
    manager.close(clean=clean, broker_epoch=EPOCH)
    (root / checkpoint.HIGH_WATERMARKS).write_bytes(checkpoint.encode_offsets({("t", 0): high_watermark}))
    (root / names.BOOT_MARKER).write_text("{}")
    return root / "t-0" / names.offset_file(0, names.LOG_SUFFIX)


def flip(position: int) -> Callable[[bytearray], None]:
    def damage(content: bytearray) -> None:
        content[position] ^= 0x55

    return damage


def shortened(end: int) -> Callable[[bytearray], None]:
    def damage(content: bytearray) -> None:
        del content[end:]

    return damage


def lengthen_last(content: bytearray) -> None:
    """Flip a bit in the length of the last batch, so that it seems to end after the file."""
    last = len(content) - len(content) // BATCHES  # all batches have the same size
    content[last + 9] ^= 0x01


def damaged(disk: FaultyDisk, root: Path, damage: Callable[[bytearray], None], **run: bool | int) -> LogManager:
    path = written(disk, root, **run)  # type: ignore[arg-type]
    content = bytearray(path.read_bytes())
    damage(content)
    path.write_bytes(content)
    return opened(disk, root)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (flip(700), "a record in the middle"),
        (flip(9), "the length of the first batch, which then exceeds the file"),
        (flip(-1), "the last batch, which is complete"),
        (flip(16), "the magic of the first batch"),
        (lengthen_last, "the length of the last batch, which is complete"),
    ],
)
def test_damaged_log_does_not_count_as_complete(
    disk: FaultyDisk, tmp_path: Path, damage: Callable[[bytearray], None], why: str
) -> None:
    manager = damaged(disk, tmp_path, damage, clean=False)
    log = manager.get("t", 0)
    assert log is not None
    assert log.log_end_offset < BATCHES, why
    assert not (tmp_path / names.BOOT_MARKER).exists()


def test_torn_tail_counts_as_complete(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = damaged(disk, tmp_path, shortened(-20), clean=False)
    log = manager.get("t", 0)
    assert log is not None
    assert log.log_end_offset == BATCHES - 1
    assert (tmp_path / names.BOOT_MARKER).exists()


def test_log_that_ends_below_its_high_watermark_does_not_count_as_complete(disk: FaultyDisk, tmp_path: Path) -> None:
    damaged(disk, tmp_path, shortened(-20), clean=False, high_watermark=BATCHES)
    assert not (tmp_path / names.BOOT_MARKER).exists()


def test_damage_after_a_clean_shutdown_is_no_clean_start_of_the_broker(disk: FaultyDisk, tmp_path: Path) -> None:
    """The index does not fit the shorter log, so recovery runs."""
    manager = damaged(disk, tmp_path, shortened(500), clean=True)
    assert manager.directory.clean_start
    assert manager.directory.previous_broker_epoch == -1


@pytest.mark.parametrize(("high_watermark", "epoch"), [(BATCHES, -1), (0, EPOCH)])
def test_missing_directory_after_a_clean_shutdown_does_not_count_as_complete(
    disk: FaultyDisk, tmp_path: Path, high_watermark: int, epoch: int
) -> None:
    """Otherwise the broker could lead an empty log, and the other replicas would be truncated to it."""
    path = written(disk, tmp_path, clean=True, high_watermark=high_watermark)
    shutil.rmtree(path.parent)
    assert opened(disk, tmp_path).directory.previous_broker_epoch == epoch
    assert (tmp_path / names.BOOT_MARKER).exists() is (epoch == EPOCH)


def test_loss_is_noted_before_the_log_is_truncated(disk: FaultyDisk, tmp_path: Path) -> None:
    """Otherwise the next run would find a shorter log without damage."""
    path = written(disk, tmp_path, clean=False)
    content = bytearray(path.read_bytes())
    flip(700)(content)
    path.write_bytes(content)
    disk.refuse("open", names.TRUNCATION_MARK)
    manager = opened(disk, tmp_path)
    assert manager.get("t", 0) is None
    assert path.stat().st_size == len(content)
    assert not (tmp_path / names.BOOT_MARKER).exists()
