"""Kafka's DumpLogSegments decodes all files of the storage without errors and with the expected values.

Its output is not stored: the tool runs in the test, on files of the test.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from odradek.protocol.batch import build_batch
from odradek.protocol.codec import encode
from odradek.protocol.records.metadata import FeatureLevelRecord, TopicRecord
from odradek.protocol.records.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.dump import dump_file
from odradek.storage.files.names import parse_offset_file
from odradek.storage.log.log import PartitionLog
from odradek.storage.producers.entry import Origin
from odradek.storage.recovery.loaded_log import OpenOptions
from tests.support.kafka_jars import run_class
from tests.support.logs import CODECS, NOW_MS, TOPIC_ID, append, batch, marker, open_log, produced

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

DUMP = "org.apache.kafka.tools.DumpLogSegments"
SEGMENT_BYTES = 9_000
FILES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
FIELD = re.compile(r"(\w+): (OptionalLong\.empty|OptionalLong\[-?\d+\]|\S+)")
# The tool reports each file that does not begin at offset 0.
FIRST_OFFSET_COMPLAINT = re.compile(r"Non-consecutive offsets in \S+/(\d{20})\.log\s+-1 is followed by (\d+)\n")


# The tool reports each gap of offsets after compaction.
GAP_COMPLAINT = re.compile(r"Non-consecutive offsets in \S+\.log\n((?:\s+-?\d+ is followed by \d+\n)+)")


def dump(directory: str, *options: str, gaps: bool = False) -> dict[str, list[str]]:
    """Return the lines of the output by file. Fail on errors other than permitted gaps."""
    disk = OsDisk()
    files = [f"{directory}/{name}" for name in disk.list(directory) if name.endswith(FILES)]
    finished = run_class(DUMP, "--files", ",".join(files), *options)
    assert finished.returncode == 0, finished.stderr
    complaints = "".join(line + "\n" for line in finished.stderr.splitlines() if not line.startswith("SLF4J"))
    if gaps:
        complaints = GAP_COMPLAINT.sub("", complaints)
    for match in FIRST_OFFSET_COMPLAINT.finditer(complaints):
        assert int(match[1]) == int(match[2])
    assert FIRST_OFFSET_COMPLAINT.sub("", complaints).strip() == ""
    by_file: dict[str, list[str]] = defaultdict(list)
    for line in finished.stdout.splitlines():
        if line.startswith("Dumping "):
            current = by_file[line.rpartition("/")[2]]
        else:
            current.append(line)
    assert sorted(by_file) == sorted(name.rpartition("/")[2] for name in files)
    return by_file


def fields(line: str) -> dict[str, str]:
    return dict(FIELD.findall(line))


def decoded_by_odradek(directory: str, name: str, *, records: bool = False) -> list[dict[str, Any]]:
    entries = list(dump_file(OsDisk(), f"{directory}/{name}", records=records))
    assert not any("error" in entry for entry in entries)
    return entries


def write_sample(log: PartitionLog) -> None:
    """Write several segments with all codecs, timestamps out of order, and transactions.

    Transactions are committed, aborted, open, empty, and across segments.
    """
    sequences = [0, 0, 0]
    for number in range(240):
        producer_id, timestamp = number % 3, NOW_MS + number * 1000
        if number % 10 == 9:
            end = marker(producer_id, commit=number % 20 == 9, coordinator_epoch=number // 100, timestamp=timestamp)
            append(log, end)
        elif number % 2:
            data = produced(
                producer_id,
                sequences[producer_id],
                3,
                transactional=True,
                timestamp=timestamp,
                compression=CODECS[number % 5],
            )
            append(log, data, leader_epoch=number // 80)
            sequences[producer_id] += 3
        else:
            record_timestamp = timestamp - number % 7 * 1500
            append(
                log,
                batch(4, size=number, timestamp=record_timestamp, compression=CODECS[number % 5]),
                leader_epoch=number // 80,
            )
        if number == 150:
            asyncio.run(log.flush())


@pytest.fixture(scope="module", params=["closed", "recovered"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the directory of a log after a clean shutdown, or after recovery from an unclean one."""
    root, disk = str(tmp_path_factory.mktemp("dump")), OsDisk()
    config = LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=500)
    log = open_log(disk, root, config)
    write_sample(log)
    if request.param == "recovered":
        log.close(clean=False)
        log = open_log(disk, root, config)
    log.close(clean=True)
    assert len([name for name in disk.list(f"{root}/t-0") if name.endswith(".log")]) >= 3
    return f"{root}/t-0"


def test_index_sanity_check_passes(directory: str) -> None:
    for name, lines in dump(directory, "--index-sanity-check").items():
        if name.endswith((".index", ".timeindex")):
            assert any("passed sanity check" in line for line in lines), (name, lines)


def test_decoded_values_equal_the_written_ones(directory: str) -> None:
    for name, lines in dump(directory, "--deep-iteration", "--print-data-log").items():
        if name.endswith(".log"):
            compare_segment(directory, name, lines)
        elif name.endswith(".snapshot"):
            compare_snapshot(directory, name, lines)
        else:
            compare_index(directory, name, lines)


def compare_segment(directory: str, name: str, lines: list[str]) -> None:
    parsed = parse_offset_file(name)
    assert parsed is not None
    assert lines[0] == f"Log starting offset: {parsed[0]}"
    batches = [fields(line) for line in lines if line.startswith("baseOffset")]
    entries = decoded_by_odradek(directory, name, records=True)
    assert [
        [
            row["baseOffset"],
            row["lastOffset"],
            row["count"],
            row["baseSequence"],
            row["lastSequence"],
            row["producerId"],
            row["producerEpoch"],
            row["partitionLeaderEpoch"],
            row["isTransactional"] == "true",
            row["isControl"] == "true",
            row["position"],
            row["CreateTime"],
            row["size"],
            row["compresscodec"],
            row["crc"],
            row["isvalid"],
        ]
        for row in batches
    ] == [
        [
            str(entry["base_offset"]),
            str(entry["last_offset"]),
            str(entry["count"]),
            str(entry["base_sequence"]),
            str(entry["last_sequence"]),
            str(entry["producer_id"]),
            str(entry["producer_epoch"]),
            str(entry["leader_epoch"]),
            entry["transactional"],
            entry["control"],
            str(entry["position"]),
            str(entry["max_timestamp"]),
            str(entry["size"]),
            entry["compression"],
            str(entry["crc"]),
            "true",
        ]
        for entry in entries
    ]
    records = [fields(line) for line in lines if line.startswith("| offset")]
    flat = [record for entry in entries for record in entry["records"]]
    assert [(row["offset"], row["CreateTime"]) for row in records] == [
        (str(record["offset"]), str(record["timestamp"])) for record in flat
    ]
    assert [row.get("payload") for row in records] == [record.get("value") or None for record in flat]
    assert [(row.get("endTxnMarker"), row.get("coordinatorEpoch")) for row in records] == [
        (record.get("marker"), str(record["coordinator_epoch"]) if "marker" in record else None) for record in flat
    ]


def compare_index(directory: str, name: str, lines: list[str]) -> None:
    rows = [{key: int(value) for key, value in fields(line).items()} for line in lines]
    renamed = {
        "producer_id": "producerId",
        "first_offset": "firstOffset",
        "last_offset": "lastOffset",
        "last_stable_offset": "lastStableOffset",
    }
    expected = [
        {renamed.get(key, key): value for key, value in entry.items()} for entry in decoded_by_odradek(directory, name)
    ]
    assert rows == expected, name


def compare_snapshot(directory: str, name: str, lines: list[str]) -> None:
    assert [
        [
            row["producerId"],
            row["producerEpoch"],
            row["coordinatorEpoch"],
            row["currentTxnFirstOffset"].removeprefix("OptionalLong").strip("[]").replace(".empty", "None"),
            row["lastTimestamp"],
            row["lastSequence"],
            row["lastOffset"],
            row["offsetDelta"],
        ]
        for row in map(fields, lines)
    ] == [[str(value) for value in entry.values()] for entry in decoded_by_odradek(directory, name)]


def test_transaction_log_is_decoded(tmp_path: Path) -> None:
    log = PartitionLog.open(
        OsDisk(),
        f"{tmp_path}/__transaction_state-7",
        LogConfig(cleanup_policy=("compact",)),
        OpenOptions(NOW_MS),
        topic="__transaction_state",
        partition=7,
        topic_id=TOPIC_ID,
    )
    for number in range(3):
        key = b"\x00\x00" + encode(TransactionLogKey(transactional_id=f"id-{number}"), 0)
        state = TransactionLogValue(
            producer_id=1000 + number,
            producer_epoch=5,
            transaction_timeout_ms=60_000,
            transaction_status=1,
            transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 3])],
            transaction_last_update_timestamp_ms=NOW_MS,
            transaction_start_timestamp_ms=NOW_MS,
            client_transaction_version=2,
        )
        written = (key, b"\x00\x01" + encode(state, 1), NOW_MS, ())
        append(log, build_batch([written]), origin=Origin.COORDINATOR)
    append(
        log,
        build_batch([(b"\x00\x00" + encode(TransactionLogKey(transactional_id="id-0"), 0), None, NOW_MS, ())]),
        origin=Origin.COORDINATOR,
    )
    log.close(clean=True)
    name = f"{0:020d}.log"
    lines = [line for line in dump(log.directory, "--transaction-log-decoder")[name] if line.startswith("| offset")]
    keys = [json.loads(line.partition("key: ")[2].partition(" payload: ")[0])["data"] for line in lines]
    values = [json.loads(line.partition(" payload: ")[2]) if " payload: {" in line else None for line in lines]
    flat = [record for entry in decoded_by_odradek(log.directory, name, records=True) for record in entry["records"]]
    assert [key["transactionalId"] for key in keys] == [record["key"]["transactional_id"] for record in flat]
    for value, record in zip(values, flat, strict=True):
        assert (value is None) == (record["value"] is None)
        if value is not None:
            assert int(value["version"]) == record["version"]
            assert value["data"]["producerId"] == record["value"]["producer_id"]
            assert value["data"]["transactionPartitions"] == [{"topic": "t", "partitionIds": [0, 3]}]
            assert value["data"]["clientTransactionVersion"] == record["value"]["client_transaction_version"]


def test_metadata_log_is_decoded(tmp_path: Path) -> None:
    log = PartitionLog.open(
        OsDisk(),
        f"{tmp_path}/__cluster_metadata-0",
        LogConfig(),
        OpenOptions(NOW_MS),
        topic="__cluster_metadata",
        partition=0,
        topic_id=TOPIC_ID,
    )
    topic = bytes([1, TopicRecord.API_KEY, 0]) + encode(TopicRecord(name="payments", topic_id=TOPIC_ID), 0)
    feature = FeatureLevelRecord(name="transaction.version", feature_level=2)
    level = bytes([1, FeatureLevelRecord.API_KEY, 0]) + encode(feature, 0)
    append(log, build_batch([(None, topic, NOW_MS, ()), (None, level, NOW_MS, ())]), origin=Origin.RAFT_LEADER)
    log.close(clean=True)
    name = f"{0:020d}.log"
    lines = [line for line in dump(log.directory, "--cluster-metadata-decoder")[name] if line.startswith("| offset")]
    values = [json.loads(line.partition(" payload: ")[2]) for line in lines]
    flat = [record for entry in decoded_by_odradek(log.directory, name, records=True) for record in entry["records"]]
    assert [value["data"]["name"] for value in values] == [record["value"]["name"] for record in flat]
    assert values[0]["data"]["topicId"] == flat[0]["value"]["topic_id"]
