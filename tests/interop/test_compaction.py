"""Compaction compared with Kafka's LogCleaner on a copy of the files, and checked by DumpLogSegments."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.protocol.batch import Compression, build_batch, iter_batches, iter_records
from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from tests.interop.test_dump_log_segments import compare_index, compare_segment, compare_snapshot, dump
from tests.support.cleaning import clean
from tests.support.jars import REFERENCE
from tests.support.kafka_tools import LOGGING
from tests.support.logs import NOW_MS, append, marker, open_log

if TYPE_CHECKING:
    from odradek.storage.log.log import PartitionLog

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

CLEANER = Path(__file__).with_name("KafkaCleaner.java")
RETENTION_MS = 5_000
CONFIG = LogConfig(
    segment_bytes=3_000, index_interval_bytes=300, cleanup_policy=("compact",), delete_retention_ms=RETENTION_MS
)
PASSES = (NOW_MS + 1_000, NOW_MS + 1_000 + RETENTION_MS, NOW_MS + 1_000 + 2 * RETENTION_MS)
"""Times of the compactions. At the second, delete horizons have passed; the third finds markers and empty batches."""

CODECS = (Compression.NONE, Compression.GZIP, Compression.ZSTD)
CASES_SHORT = ((1, Compression.NONE), *((3, codec) for codec in CODECS))
"""Passes and codecs of `make test`. Three passes include the first two, and compare the ends of each."""


def write_sample(log: PartitionLog, codec: Compression) -> None:
    """Write keys repeatedly, tombstones, and committed and aborted transactions, some of them across segments."""
    sequences = [0, 0, 0]
    for number in range(300):
        producer_id = number % 3
        stamped = [
            (
                b"key-%d" % ((number * 7 + at * at) % 23),
                None if (number + at) % 11 == 0 else b"value-%d-%d" % (number, at) * (1 + number % 3),
                NOW_MS + number - at,
                (("header", b"h"), ("none", None)) if number % 5 == 0 else (),
            )
            for at in range(1 + number % 4)
        ]
        if number % 8 == 7:
            append(
                log,
                marker(producer_id, commit=number % 16 == 7, epoch=1, coordinator_epoch=3, timestamp=NOW_MS + number),
            )
        elif number % 2:
            data = build_batch(
                stamped,
                producer_id=producer_id,
                producer_epoch=1,
                base_sequence=sequences[producer_id],
                transactional=True,
                compression=codec,
            )
            sequences[producer_id] += len(stamped)
            append(log, data, leader_epoch=number // 100)
        else:
            append(log, build_batch(stamped, compression=codec), leader_epoch=number // 100)
    for producer_id in range(3):
        append(
            log, marker(producer_id, commit=True, epoch=1, coordinator_epoch=3, timestamp=NOW_MS + 300), leader_epoch=2
        )
    append(log, build_batch([(b"last", b"v" * 2_900, NOW_MS + 301, ())]), leader_epoch=2)


def run_kafkas_cleaner(directory: Path, passes: int) -> list[int]:
    times = [str(time) for time in PASSES[:passes]]
    arguments = [str(CONFIG.segment_bytes), str(CONFIG.index_interval_bytes), str(RETENTION_MS), *times]
    java = ["java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={LOGGING}"]
    finished = subprocess.run(
        [*java, "-cp", f"{REFERENCE}/*", str(CLEANER), str(directory), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return [int(line) for line in finished.stdout.split()]


@pytest.mark.parametrize(
    ("passes", "codec"),
    [
        case if case in CASES_SHORT else pytest.param(*case, marks=pytest.mark.full)
        for case in itertools.product((1, 2, 3), CODECS)
    ],
)
def test_compacted_log_equals_that_of_kafkas_cleaner(tmp_path: Path, passes: int, codec: Compression) -> None:
    disk = OsDisk()
    log = open_log(disk, str(tmp_path / "odradek"), CONFIG)
    write_sample(log, codec)
    log.close(clean=True)
    shutil.copytree(tmp_path / "odradek", tmp_path / "kafka")
    ends = run_kafkas_cleaner(tmp_path / "kafka" / "t-0", passes)
    log = open_log(disk, str(tmp_path / "odradek"), CONFIG, clean=True)
    log.update_high_watermark(log.log_end_offset)
    ends_of_odradek = [clean_all(log, time) for time in PASSES[:passes]]
    log.close(clean=True)
    assert ends_of_odradek == ends
    odradek_files, kafka_files = (files(tmp_path / owner / "t-0") for owner in ("odradek", "kafka"))
    assert sorted(odradek_files) == sorted(kafka_files)
    for name, content in odradek_files.items():
        if codec is Compression.NONE or not name.endswith(".log"):
            assert content == kafka_files[name], name
        else:
            assert unpacked(content) == unpacked(kafka_files[name]), name


def clean_all(log: PartitionLog, now_ms: int) -> int:
    """Compact the whole log, and return the first dirty offset."""
    log.cleaned_to = None
    return asyncio.run(clean(log, now_ms=now_ms)).end_offset


def files(directory: Path) -> dict[str, bytes]:
    """Return the logs and transaction indexes. Entries of offset and time indexes may differ from Kafka's."""
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.suffix in {".log", ".txnindex"} and path.stat().st_size
    }


def unpacked(log: bytes) -> list[object]:
    """Return all fields and records of a log, without compressed bytes, lengths and checksums."""
    content: list[object] = []
    for header, batch in iter_batches(log):
        fields = [value for name, value in vars_of(header).items() if name not in {"crc", "batch_length"}]
        content.append((fields, list(iter_records(batch, max_decompressed_bytes=1 << 20))))
    return content


def vars_of(header: object) -> dict[str, object]:
    return {name: getattr(header, name) for name in type(header).__slots__}  # type: ignore[attr-defined]


@pytest.mark.parametrize("passes", [1, 3])
def test_dump_log_segments_reports_no_error_in_a_compacted_log(tmp_path: Path, passes: int) -> None:
    log = open_log(OsDisk(), str(tmp_path), CONFIG)
    write_sample(log, Compression.NONE)
    for time in PASSES[:passes]:
        clean_all(log, time)
    log.remove_deleted(NOW_MS)
    log.remove_deleted(NOW_MS + CONFIG.file_delete_delay_ms)
    log.close(clean=True)
    for name, lines in dump(log.directory, "--index-sanity-check", gaps=True).items():
        if name.endswith((".index", ".timeindex")):
            assert any("passed sanity check" in line or "is empty" in line for line in lines), (name, lines)
    for name, lines in dump(log.directory, "--deep-iteration", "--print-data-log", gaps=True).items():
        if name.endswith(".log"):
            compare_segment(log.directory, name, lines)
        elif name.endswith(".snapshot"):
            compare_snapshot(log.directory, name, lines)
        elif not any("is empty" in line for line in lines):
            compare_index(log.directory, name, lines)
