"""The audit with Spark: logs of Odradek and of Apache Kafka, planted violations, the command."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import pytest

from odradek import LocalCluster
from odradek.pipeline.audit import LogDirectories, RunningCluster, audit, keep_transitions
from odradek.pipeline.audit.__main__ import main
from odradek.pipeline.audit.alignment import Fit
from odradek.pipeline.audit.job import judged_logs
from odradek.pipeline.audit.judgment import Kind, Status
from odradek.pipeline.audit.statistics import statistics_of
from odradek.pipeline.cluster.access import Access
from odradek.pipeline.spark.session import ROOT
from tests.interop.drivers.base import ProducerOptions
from tests.interop.drivers.java import JavaDriver
from tests.support import planted_logs
from tests.support.audited_cluster import (
    CLASSIC_DECISIONS,
    CLASSIC_IDS,
    DECISIONS,
    HANGING_PRODUCER_ID,
    OWNER_ID,
    PARTITIONS,
    TOPIC,
    TRANSACTIONS,
    abort_as_operator,
    leave_open,
    write_transactions,
)
from tests.support.kafka_broker import KafkaBroker
from tests.support.local_audit import judgments

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from odradek.pipeline.audit.judgment import Judgment, Violation
    from tests.support.planted_logs import Marker, Planted
    from tests.support.topics import Topics

pytestmark = pytest.mark.spark
SETTINGS = {
    "transaction.two.phase.commit.enable": "true",
    "transaction.partition.verification.enable": "false",  # for data without a transaction
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "2",
}


JAVA_DECISIONS = 8
"""Decisions of `write_as_java`."""


class Audited(NamedTuple):
    """The log directory of a stopped broker, and the judgments of its logs over the wire while it was running."""

    logs: Path
    over_the_wire: list[Judgment]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """Write transactions to a broker, and stop it."""
    directory = tmp_path_factory.mktemp("audited")
    with LocalCluster(directory=directory, settings=SETTINGS) as cluster:
        keep_transitions(Access(cluster.bootstrap))
        asyncio.run(write_transactions(cluster.bootstrap, two_phase_commit=True))
        asyncio.run(abort_as_operator(cluster.bootstrap))
        asyncio.run(leave_open(cluster.bootstrap, "open-1"))
        asyncio.run(leave_open(cluster.bootstrap, OWNER_ID))
        return Audited(cluster.directory.data(1), judgments(RunningCluster(cluster.bootstrap)))


@pytest.fixture
def logs(audited: Audited) -> Path:
    return audited.logs


def third(partition: Path, *, classic: bool) -> Marker:
    """Return the third marker of a producer with TV1 or TV2. With TV2, the epochs of the markers differ."""
    by_producer: dict[int, list[Marker]] = {}
    for marker in planted_logs.markers(partition):
        by_producer.setdefault(marker.header.producer_id, []).append(marker)
    for found in by_producer.values():
        is_classic = len({marker.header.producer_epoch for marker in found}) == 1
        if len(found) > 2 and is_classic == classic:
            return found[2]
    raise AssertionError("no producer of this kind has three markers")


def classic_producer(partition: Path) -> tuple[int, int]:
    """Return the producer id and the epoch of a producer with TV1, whose transactions have all ended."""
    header = third(partition, classic=True).header
    return header.producer_id, header.producer_epoch


# Partition of the topic, and the function that plants a violation there.
PLANTS: dict[str, tuple[int, Callable[[Path], Planted]]] = {
    "classic marker removed": (0, lambda path: planted_logs.remove_marker(path, third(path, classic=True))),
    "TV2 marker removed": (0, lambda path: planted_logs.remove_marker(path, third(path, classic=False))),
    "classic marker with a wrong epoch": (
        1,
        lambda path: planted_logs.replace_marker(path, third(path, classic=True), epoch=77),
    ),
    "TV2 marker with a wrong epoch": (
        1,
        lambda path: planted_logs.replace_marker(path, third(path, classic=False), epoch=77),
    ),
    "marker forged": (2, lambda path: planted_logs.forge_marker(path, *classic_producer(path))),
    "marker of an unknown producer forged": (2, lambda path: planted_logs.forge_marker(path, 123_456, 0)),
    "data after the marker": (2, lambda path: planted_logs.write_late(path, *classic_producer(path))),
}


def names(violation: Violation, planted: Planted) -> bool:
    """Return True if the violation names what was planted."""
    where = f"{violation.topic}-{violation.partition}"
    found = violation.kind, violation.producer_id, violation.producer_epoch, where
    return found == planted[:4] and planted.offset in {-1, violation.offset}


@pytest.mark.parametrize("name", PLANTS)
def test_each_planted_violation_is_the_only_one_that_is_found(logs: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(logs, tmp_path / "copy")
    assert [violation for judged in judgments(LogDirectories([copy])) for violation in judged.violations] == []
    partition, plant = PLANTS[name]
    planted = plant(copy / f"{TOPIC}-{partition}")
    [violation] = [violation for judged in judgments(LogDirectories([copy])) for violation in judged.violations]
    assert names(violation, planted), violation
    known = planted.producer_id != 123_456
    assert bool(violation.transactional_id) == known


def test_audit_over_the_wire_has_the_result_of_an_audit_of_the_files(audited: Audited) -> None:
    def by_id(found: list[Judgment]) -> list[tuple[str, Judgment]]:
        return sorted(((str(judged.decisions[:1]), judged) for judged in found), key=itemgetter(0))

    over_the_wire, of_files = by_id(audited.over_the_wire), by_id(judgments(LogDirectories([audited.logs])))
    assert over_the_wire == of_files
    assert sum(len(judged.decisions) for _, judged in of_files) == DECISIONS


@pytest.mark.full
def test_audit_of_a_running_cluster_finds_no_violation(spark: SparkSession, bootstrap: str, topics: Topics) -> None:
    """The broker may have the transactions of all tests before, so more decisions than those of this test."""
    topic = topics.new(2)
    topics.layout(topic, "C2 A3 C1")
    result = audit(spark, RunningCluster(bootstrap))
    assert result.violations == []
    assert result.proven >= 3
    assert result.ok


def test_audit_proves_all_decisions_of_a_stopped_cluster(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    result = audit(spark, LogDirectories([logs]), out=tmp_path)
    assert result.violations == []
    assert result.decisions == {Status.PROVEN: DECISIONS}
    # Each transaction has a marker in each partition; that with offsets has one there, and one in __consumer_offsets.
    assert result.markers == {Fit.MATCH: (DECISIONS - 1) * PARTITIONS + 2, Fit.BY_OPERATOR: 1}
    [abort] = result.operator_aborts
    assert f"unknown transactional id, producer {HANGING_PRODUCER_ID}/0" in abort
    assert result.ok
    assert all(len(line) <= 80 for line in result.lines() if not line.startswith("report: "))
    rows = {table.name: spark.read.parquet(str(table)).count() for table in tmp_path.iterdir() if table.is_dir()}
    assert rows["decisions"] == DECISIONS
    assert rows["markers"] == sum(result.markers.values())
    assert rows["violations"] == 0
    states = {
        row["transactional_id"]: row["state"] for row in spark.read.parquet(str(tmp_path / "open_data")).collect()
    }
    assert states == {"open-1": "Ongoing", OWNER_ID: "in doubt"}
    assert result.report is not None
    page = result.report.read_text()
    titles = ["Decisions per minute", "Latency", "Open and in-doubt transactions", "Partitions that are held back"]
    for title in [*titles, "Epoch churn", "Coordinator partitions"]:
        assert f"<title>{title}</title>" in page
    assert "no violation" in page
    assert not re.search(r"(src|href)=.?http", page)


def test_figures_agree_with_the_transactions_that_were_written(spark: SparkSession, logs: Path) -> None:
    with judged_logs(spark, LogDirectories([logs])) as frames:
        statistics = statistics_of(frames.read, frames.judged, frames.logs)
    decisions = {(each.prefix, each.commit): each.decisions for each in statistics.latencies}
    commits, aborts = TRANSACTIONS * 3 // 4, TRANSACTIONS // 4
    assert decisions == {
        ("classic", True): commits * len(CLASSIC_IDS),
        ("classic", False): aborts * len(CLASSIC_IDS),
        ("owner", True): commits,
        ("owner", False): aborts,
        ("kept", True): 1,
        ("offsets", True): 1,
    }
    assert sum(rate.commits + rate.aborts for rate in statistics.rates) == DECISIONS
    assert sum(statistics.coordinators.values()) == DECISIONS
    assert all(list(each.application) == sorted(each.application) for each in statistics.latencies)
    assert all(value >= 0 for each in statistics.latencies for value in (*each.application, *each.markers))
    # The record of both open transactions has the same key, and so the same partition. The older one is open-1.
    assert [(each.transactional_id, each.state) for each in statistics.holders] == [("open-1", "Ongoing")]
    assert {(each.transactional_id, each.state) for each in statistics.open} == {
        ("open-1", "Ongoing"),
        (OWNER_ID, "in doubt"),
    }
    churn = {each.transactional_id: (each.initializations, each.identities) for each in statistics.churn}
    # With TV2, each end of a transaction raises the epoch. The owner was initialized twice.
    assert churn[OWNER_ID] == (2, TRANSACTIONS + 2)
    assert churn["classic-1"] == (1, 1)


def test_audit_names_all_planted_violations(
    spark: SparkSession, logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(logs, tmp_path / "copy")
    planted = [plant(copy / f"{TOPIC}-{partition}") for partition, plant in PLANTS.values()]
    result = audit(spark, LogDirectories([copy]))
    assert not result.ok
    missed = [each for each in planted if not any(names(violation, each) for violation in result.violations)]
    assert missed == []
    printed = "\n".join(result.lines())
    for violation in result.violations:
        assert f"{violation.topic}-{violation.partition} at offset {violation.offset}" in " ".join(printed.split())


def test_damaged_batch_is_a_violation(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(logs, tmp_path / "copy")
    path = planted_logs.segment(copy / f"{TOPIC}-1")
    header, batch = planted_logs.batches(copy / f"{TOPIC}-1")[5]
    path.write_bytes(path.read_bytes().replace(batch, batch[:-1] + bytes([batch[-1] ^ 1])))
    result = audit(spark, LogDirectories([copy]))
    assert [(each.kind, each.partition, each.offset) for each in result.violations] == [
        (Kind.DAMAGED, 1, header.base_offset)
    ]
    assert result.decisions[Status.UNDECIDABLE] > 0


@pytest.mark.full
def test_audit_proves_the_decisions_of_apache_kafka(spark: SparkSession, tmp_path: Path) -> None:
    with KafkaBroker(tmp_path, overrides={"transaction.state.log.num.partitions": "4"}) as broker:
        asyncio.run(write_transactions(broker.bootstrap, two_phase_commit=False))
        write_as_java(broker.bootstrap)
        over_the_wire = audit(spark, RunningCluster(broker.bootstrap))
        broker.stop()
        result = audit(spark, LogDirectories([broker.data_directory]))
    assert result.violations == []
    assert result.decisions == {Status.PROVEN: CLASSIC_DECISIONS + JAVA_DECISIONS}
    assert over_the_wire.decisions == result.decisions
    assert over_the_wire.markers == result.markers


def write_as_java(bootstrap: str) -> None:
    """Write transactions with TV2: commits, aborts, and one that the next incarnation of the producer aborts."""
    driver = JavaDriver()
    try:
        for _ in range(2):
            producer = driver.producer(bootstrap, ProducerOptions(transactional_id="java-1"))
            producer.init()
            for number in range(4):
                producer.begin()
                producer.send(TOPIC, b"java", partition=number % PARTITIONS)
                producer.flush()
                if number < 3:
                    (producer.abort if number == 1 else producer.commit)()
        producer.abort()
    finally:
        driver.close()


def test_command_refuses_a_directory_without_partitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--log-dirs", str(tmp_path)]) == 2
    assert "has no partitions" in capsys.readouterr().err


@pytest.mark.full
def test_command_prints_counts_and_violations_and_sets_the_exit_code(logs: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(logs, tmp_path / "copy")
    planted_logs.forge_marker(copy / f"{TOPIC}-0", 123_456, 0)
    for module, directory, code in (("odradek.pipeline.audit", logs, 0), ("pipeline.audit", copy, 1)):
        command = [sys.executable, "-m", module, "--log-dirs", str(directory)]
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert finished.returncode == code, finished.stdout + finished.stderr
        assert f"{DECISIONS}  decisions proven" in finished.stdout
        assert ("marker without a decision" in finished.stdout) == (code == 1)
