"""Fuzz target of log recovery. The parts of an input are the settings, and a name and a content for each file.

The log may keep only batches that the files contain, in order and with correct checksums. A second recovery must
change nothing.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import Malformed, Refusal
from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.log.reads import ColdRead
from tests.fuzz import parts
from tests.fuzz.mutations import damaged
from tests.fuzz.target import KIB, Bound, Target
from tests.support.logs import CODECS, append, batch, marker, open_log, produced

if TYPE_CHECKING:
    from random import Random

    from odradek.protocol.schema import Buffer
    from odradek.storage.log.log import PartitionLog
    from odradek.storage.log.reads import ReadResult

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)
MEMORY = Path("/dev/shm")
NAME_BYTES_MAX = 40
READ_BYTES = 1 << 20
CLEAN, RECOVERY_POINT, LOG_START = 1, 2, 4
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-")


def fresh_directory() -> str:
    return tempfile.mkdtemp(prefix="fuzz-", dir=MEMORY if MEMORY.is_dir() else None)


def run(data: bytes) -> int:
    """Open a log from damaged files, read it, and open it again."""
    settings, *files = [*parts.split(data)] or [b""]
    options = options_of(settings)
    root = fresh_directory()
    disk = OsDisk()
    log_settings = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        directory = Path(root, "t-0")
        directory.mkdir()
        contents = write_files(directory, files)
        log = open_log(disk, root, CONFIG, **options)
        try:
            found = batches_of(log)
            if not options:
                assert_valid(found, contents)
        finally:
            state = state_of(log)
            log.close(clean=True)
        if not options:
            again = open_log(disk, root, CONFIG)
            second = state_of(again), batches_of(again)
            again.close(clean=False)
            assert second == (state, found), f"the second recovery changes {(state, found)} to {second}"
    finally:
        structlog.configure(**log_settings)
        disk.close()
        shutil.rmtree(root)
    return 0


def options_of(settings: bytes) -> dict[str, int | bool]:
    """Return the checkpointed facts. Without any, the shutdown was unclean and nothing is known to be flushed."""
    flags, number = (settings + b"\x00\x00")[:2]
    options: dict[str, int | bool] = {}
    if flags & CLEAN:
        options["clean"] = True
    if flags & RECOVERY_POINT:
        options["recovery_point"] = number
    if flags & LOG_START:
        options["log_start_offset"] = number
    return options


def write_files(directory: Path, files: list[bytes]) -> list[bytes]:
    """Write the files of an input. Return the contents of the log files."""
    contents = []
    for at in range(0, len(files) - 1, 2):
        name = files[at][:NAME_BYTES_MAX].decode("ascii", "replace")
        if name.strip(".") and set(name) <= NAME_CHARACTERS:
            (directory / name).write_bytes(files[at + 1])
            contents.append(files[at + 1])
    return contents


def state_of(log: PartitionLog) -> tuple[int, int, list[tuple[int, int]]]:
    """Return the offsets and the epochs with records. A recovery derives no epoch that starts at the log end."""
    epochs = [(epoch, start) for epoch, start in log.epochs.entries() if start < log.log_end_offset]
    return log.log_start_offset, log.log_end_offset, epochs


def batches_of(log: PartitionLog) -> list[tuple[int, int]]:
    """Return base offset and checksum of each batch that a consumer reads. A damaged batch ends the list."""
    log.update_high_watermark(log.log_end_offset)
    found: list[tuple[int, int]] = []
    offset = log.log_start_offset
    with suppress(Refusal, Malformed):
        while offset < log.log_end_offset:
            piece = [header for header, _ in iter_batches(read(log, offset))]
            if not piece or piece[-1].last_offset < offset:
                break
            found += [(header.base_offset, header.crc) for header in piece]
            offset = piece[-1].last_offset + 1
    return found


def read(log: PartitionLog, offset: int) -> Buffer:
    """Read a log, and wait for pieces that are not in the page cache."""
    result = log.read(offset, max_bytes=READ_BYTES)
    if not isinstance(result, ColdRead):
        return result.records
    step = result._step
    while True:
        try:
            step = result._reading.send(step[0].read(step[1], step[2]) if step is not None else b"")
        except StopIteration as stop:
            found: ReadResult = stop.value
            return found.records


def assert_valid(found: list[tuple[int, int]], contents: list[bytes]) -> None:
    """Each batch of a recovered log has a correct checksum in a file, and offsets increase."""
    assert found == sorted(set(found)), f"batches are not in order: {found}"
    for base_offset, crc in found:
        assert any(crc.to_bytes(4, "big") in content for content in contents), f"batch {base_offset} is in no file"


@cache
def valid_files() -> tuple[tuple[str, bytes], ...]:
    """Return the files of a log of several segments with plain, compressed and transactional batches."""
    root = fresh_directory()
    disk = OsDisk()
    log = open_log(disk, root, CONFIG)
    sequences = [0, 0]
    for number in range(16):
        producer_id = number % 2
        if number % 5 == 4:
            append(log, marker(producer_id, commit=number % 2 == 0), leader_epoch=number // 6)
        elif number % 3 == 0:
            append(log, batch(2, size=40, compression=CODECS[number % 5]), leader_epoch=number // 6)
        else:
            append(log, produced(producer_id, sequences[producer_id], 2, transactional=True), leader_epoch=number // 6)
            sequences[producer_id] += 2
    log.close(clean=True)
    disk.close()
    found = tuple((path.name, path.read_bytes()) for path in sorted(Path(root, "t-0").iterdir()))
    shutil.rmtree(root)
    return found


def seeds() -> list[bytes]:
    files = [item for name, content in valid_files() for item in (name.encode(), content)]
    logs = [item for name, content in valid_files() if name.endswith(".log") for item in (name.encode(), content)]
    settings = (b"\x00", b"\x01", b"\x02\x08", b"\x04\x05", b"\x07\x06")
    return [parts.joined([one, *files]) for one in settings] + [parts.joined([b"\x00", *logs])]


def mutate(data: bytes, rng: Random) -> bytes:
    """Damage the content or the name of a file, or remove, repeat or exchange files."""
    settings, *files = parts.split(data) or [b"\x00"]
    if len(files) < 2:
        return rng.choice(seeds())
    if rng.random() < 0.2:
        settings = bytes((rng.randrange(8), rng.randrange(40)))
    for _ in range(rng.randint(1, 3)):
        at = 2 * rng.randrange(len(files) // 2)
        kind = rng.randrange(10)
        if kind == 0 and len(files) > 3:
            del files[at : at + 2]
        elif kind == 1:
            files[at] = damaged(files[at], rng)
        elif kind == 2:
            files[at + 1] = files[2 * rng.randrange(len(files) // 2) + 1]
        elif kind == 3:
            files[at] = files[at] + rng.choice((b".swap", b".cleaned", b".deleted", b".tmp"))
        else:
            files[at + 1] = damaged(files[at + 1], rng)
    return parts.joined([settings, *files])


RECOVERY = Target(
    "recovery", run, seeds, typed=(OSError,), memory=Bound(8 * 1024 * KIB, 256), steps=Bound(300_000, 500),
    bytes_max=16 * KIB, mutate=mutate,
)  # fmt: skip
