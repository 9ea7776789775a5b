"""Recovery after damage: files of a log directory are truncated, changed, zeroed, extended or deleted.

The log keeps the longest valid prefix.

The expected prefix is read with `struct` in Kafka's layout, without the storage package.
"""

from __future__ import annotations

import asyncio
import shutil
import struct
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from odradek.protocol.errors import Malformed, Refusal
from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from tests.support.effort import effort
from tests.support.invariants import cheap_only
from tests.support.logs import CODECS, append, batch, headers, marker, open_log, produced

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200)
HEADER = struct.Struct(">qiibIhiqqqhii")
FILE_SUFFIXES = (
    "log",
    "log",
    "index",
    "timeindex",
    "txnindex",
    "snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
)


@dataclass(frozen=True)
class Damage:
    """One change of a file: of the `file_index`-th file with `suffix`, at `position`."""

    suffix: str
    file_index: int
    kind: str
    position: int
    amount: int
    garbage: bytes

    def apply(self, directory: Path) -> None:
        files = sorted(path for path in directory.iterdir() if path.name.endswith(self.suffix))
        if not files:
            return
        path = files[self.file_index % len(files)]
        data = bytearray(path.read_bytes())
        offset = self.position % (len(data) + 1)
        if self.kind == "truncate":
            del data[offset:]
        elif self.kind == "flip" and data:
            data[offset % len(data)] ^= 1 + self.amount % 255
        elif self.kind == "zero":
            data[offset : offset + self.amount] = bytes(len(data[offset : offset + self.amount]))
        elif self.kind == "extend":
            data += self.garbage
        elif self.kind == "delete":
            path.unlink()
            return
        path.write_bytes(data)


DAMAGES = st.lists(
    st.builds(
        Damage,
        suffix=st.sampled_from(FILE_SUFFIXES),
        file_index=st.integers(0, 5),
        kind=st.sampled_from(["truncate", "flip", "zero", "extend", "delete"]),
        position=st.integers(0, 4000),
        amount=st.integers(1, 300),
        garbage=st.binary(min_size=1, max_size=200) | st.just(bytes(100)),
    ),
    min_size=1,
    max_size=4,
)

LATE_TIMESTAMP = Damage("log", file_index=3, kind="flip", position=40, amount=1, garbage=b"")
"""A larger timestamp of a batch below an entry of the time index. Recovery starts after both."""


@pytest.fixture(scope="module")
def pristine() -> Iterator[Path]:
    """Make a log of several segments with plain, compressed and transactional batches, and close it cleanly."""
    root = Path(tempfile.mkdtemp())
    log = open_log(OsDisk(), str(root), CONFIG)
    sequences = [0, 0]
    for number in range(45):
        producer_id = number % 2
        if number % 9 == 8:
            append(log, marker(producer_id, commit=number % 2 == 0), leader_epoch=number // 20)
        elif number % 3 == 0:
            append(log, batch(3, size=40, compression=CODECS[number % 5]), leader_epoch=number // 20)
        else:
            data = produced(producer_id, sequences[producer_id], 2, transactional=True)
            append(log, data, leader_epoch=number // 20)
            sequences[producer_id] += 2
        if number == 42:
            asyncio.run(log.flush_for_recovery())
    log.close(clean=True)
    yield root / "t-0"
    shutil.rmtree(root)


def recovery_starts(directory: Path) -> list[int]:
    """Return the offsets of the snapshots in the last segment: of the flush, and of the clean stop."""
    last_base = max(int(path.stem) for path in directory.glob("*.log"))
    return sorted(offset for path in directory.glob("*.snapshot") if (offset := int(path.stem)) > last_base)


def valid_prefix(directory: Path) -> list[int]:
    """Return the CRCs of the batches in the longest valid prefix."""
    crcs: list[int] = []
    expected: int | None = None
    for path in sorted(directory.glob("*.log")):
        base = int(path.stem)
        if expected is not None and base != expected:
            return crcs
        expected = base
        data = path.read_bytes()
        position = 0
        while position < len(data):
            if len(data) - position < HEADER.size:
                return crcs
            first, length, _, magic, crc, _, delta, _, _, _, _, _, count = HEADER.unpack_from(data, position)
            end = position + 12 + length
            is_valid = magic == 2 and length >= 49 and end <= len(data) and delta >= 0 and count >= 0
            if not is_valid or first != expected or crc32c(data[position + 21 : end]) != crc:
                return crcs
            crcs.append(crc)
            expected = first + delta + 1
            position = end
    return crcs


@settings(max_examples=effort(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damages=DAMAGES)
def test_recovery_keeps_the_longest_valid_prefix(pristine: Path, damages: list[Damage]) -> None:
    disk = OsDisk()
    with tempfile.TemporaryDirectory() as root:
        directory = Path(root) / "t-0"
        shutil.copytree(pristine, directory)
        for damage in damages:
            damage.apply(directory)
        expected = valid_prefix(directory)
        log = open_log(disk, root, CONFIG)
        assert [header.crc for header in headers(log)] == expected
        log.update_high_watermark(log.log_end_offset)
        producers = log.producers.active()
        open_transactions = [
            max(row.current_txn_start_offset, log.log_start_offset)
            for row in producers
            if row.current_txn_start_offset >= 0
        ]
        assert log.last_stable_offset == min([*open_transactions, log.log_end_offset])
        append(log, batch(2), leader_epoch=9)
        log.close(clean=False)
        reopened = open_log(disk, root, CONFIG)
        assert [header.crc for header in headers(reopened)][:-1] == expected, "recovery is repeatable"
        reopened.update_high_watermark(reopened.log_end_offset)
        assert reopened.producers.active() == producers
        assert reopened.last_stable_offset == min([*open_transactions, reopened.log_end_offset])
        reopened.close(clean=True)
    disk.close()


@settings(max_examples=effort(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damages=DAMAGES,
    recovery_point=st.integers(0, 200),
    start=st.sampled_from([None, 0, 1]),
    clean=st.booleans(),
    offset=st.integers(0, 120),
)
@example(damages=[LATE_TIMESTAMP], recovery_point=90, start=0, clean=False, offset=0)
def test_damage_below_the_recovery_point_refuses_reads_without_crash(
    pristine: Path, damages: list[Damage], recovery_point: int, start: int | None, clean: bool, offset: int
) -> None:
    """Recovery does not read batches below the recovery point: readers detect the damage there and refuse it."""
    disk = OsDisk()
    with tempfile.TemporaryDirectory() as root:
        directory = Path(root) / "t-0"
        shutil.copytree(pristine, directory)
        for damage in damages:
            damage.apply(directory)
        recovery_start = None if start is None else recovery_starts(pristine)[start]
        log = open_log(disk, root, CONFIG, clean=clean, recovery_point=recovery_point, recovery_start=recovery_start)
        with cheap_only(), suppress(Refusal, Malformed):
            # The log refuses the read, or returns the damaged bytes to the consumer, which detects the damage.
            headers(log)
            log.read(min(max(offset, log.log_start_offset), log.log_end_offset), max_bytes=700)
        append(log, batch(1), leader_epoch=9)
        log.close(clean=True)
    disk.close()
