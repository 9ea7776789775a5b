"""The pytest plugin in projects outside of this repository."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.plugin_runs import TIMEOUT_S, Project

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.interop

SHOP = """
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from odradek.testing import Kafka

used = []


def test_sync(kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2)
    producer = Producer(kafka.client_config("confluent-kafka"))
    producer.produce(topic, b"42")
    assert producer.flush(10) == 0
    assert kafka.values(topic) == [b"42"]
    used.append((kafka.bootstrap, topic))


async def test_async(kafka: Kafka) -> None:
    topic = kafka.topic("orders")
    assert topic.startswith("orders-")
    async with AIOKafkaProducer(**kafka.client_config("aiokafka")) as producer:
        await producer.send_and_wait(topic, b"43")
    assert kafka.values(topic) == [b"43"]
    used.append((kafka.bootstrap, topic))


@pytest.mark.kafka(topics={"orders": 3})
def test_topics_of_the_marker_exist_and_earlier_ones_are_deleted(kafka: Kafka) -> None:
    [(first, one), (second, other)] = used
    assert first == second == kafka.bootstrap
    names = set(Producer(kafka.client_config("confluent-kafka")).list_topics().topics)
    assert "orders" in names and not names & {one, other}


def test_that_fails(kafka: Kafka) -> None:
    assert not kafka.group()
"""
NO_KAFKA = """
import subprocess
import sys

import pytest


@pytest.fixture
def kafka() -> str:
    return "of the project"


def test_other(kafka: str) -> None:
    assert kafka == "of the project"
    assert "odradek.local" not in sys.modules
"""
WAITING = """
import pathlib
import threading


def test_that_is_killed(kafka):
    pathlib.Path("new").write_text(" ".join(str(kafka.cluster.pid(each)) for each in kafka.cluster.node_ids))
    pathlib.Path("new").rename("pids")
    threading.Event().wait()
"""
MIXED = """
def test_without_kafka(): pass


def test_with_kafka(kafka): pass
"""
NEXT_RUN = """
def test_next(kafka):
    assert kafka.topic()
"""
WARM = """
import pathlib
import tempfile
import time

import pytest


def test_that_runs_while_the_cluster_of_the_next_test_starts():
    base = pathlib.Path(tempfile.gettempdir())
    while not list(base.glob("odradek-tests-*/run-*/cluster-1/broker-3.log")):
        time.sleep(0.01)


@pytest.mark.kafka(brokers=3)
def test_with_three_brokers(kafka):
    assert len(kafka.cluster.node_ids) == 3
"""
RULES = """
from confluent_kafka import Producer


def test_rule(kafka):
    def fail(request):
        assert request.api == "Fetch"

    kafka.faults.on("Metadata").call(fail)
    assert Producer(kafka.client_config("confluent-kafka")).list_topics(timeout=10)


def test_after(kafka):
    assert kafka.faults.errors == []
"""
MARKERS = """
import pytest

@pytest.mark.kafka(broker=3)
def test_unknown_argument(kafka): pass

@pytest.mark.kafka(settings=["num.partitions=3"])
def test_settings_without_names(kafka): pass

@pytest.mark.kafka(topics={"orders": 0})
def test_topic_without_partitions(kafka): pass

@pytest.mark.kafka(brokers=3)
@pytest.mark.kafka(topics={"orders": 1})
def test_two_markers(kafka): pass
"""
SKIPPED = """
import pytest

pytestmark = pytest.mark.kafka(brokers=1)


@pytest.mark.skip
def test_skip(kafka): pass


@pytest.mark.skip(reason="later")
class TestSkippedClass:
    def test_skip(self, kafka): pass


@pytest.mark.skipif(False, 1 + 1 == 2, reason="true")
def test_skipif(kafka): pass


@pytest.mark.skipif(condition=True, reason="true")
def test_skipif_by_name(kafka): pass


@pytest.mark.xfail(run=False)
def test_xfail_that_does_not_run(kafka): pass


@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.skip)])
def test_skipped_parameter(kafka, number): pass


@pytest.mark.slow
def test_deselected(kafka): pass


def test_without_kafka(): pass
"""
RECORD_STARTS = """
from pathlib import Path

import pytest

from odradek.testing.pool import ClusterPool

start = ClusterPool.start


def record(pool, spec):
    with (Path(__file__).parent / "starts").open("a") as starts:
        starts.write(str(spec.brokers))
    return start(pool, spec)


ClusterPool.start = record
"""
NOT_SKIPPED = """
import pytest


@pytest.mark.skipif(False, reason="false")
@pytest.mark.xfail(False, run=False, reason="false")
def test_that_runs(kafka):
    assert kafka.cluster.node_ids == [1]
"""


def test_tests_share_a_cluster_and_a_failure_shows_the_logs(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("test_shop.py", SHOP)
    run = project.run()
    assert run.counts == {"passed": 3, "failed": 1}, run.output
    [directory] = project.left()
    assert f"log of broker 1: {directory}/cluster-1/broker-1.log" in run.output
    assert "listening" in run.output
    kept = sorted(path.name for path in directory.glob("cluster-1/broker-1*"))
    assert kept == ["broker-1.log", "broker-1.properties"]


def test_plugin_imports_and_starts_nothing_without_its_fixtures(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("test_other.py", NO_KAFKA)
    run = project.run()
    assert run.counts == {"passed": 1}, run.output
    assert project.left() == []


def test_marker_with_an_invalid_argument_is_an_error_with_its_name(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("test_markers.py", MARKERS)
    run = project.run()
    assert run.counts == {"error": 4}, run.output
    assert "marker kafka: broker is unknown; use keyword arguments of brokers, topics" in run.output
    assert "marker kafka: settings=['num.partitions=3'] must be a dict from names to values" in run.output
    assert "a test has one marker kafka; put all arguments into one of them" in run.output
    assert "marker kafka: topics={'orders': 0} must be a dict from names to numbers of partitions" in run.output


def test_directory_that_cannot_be_created_is_an_error_of_the_tests_with_the_fixture(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("test_mixed.py", MIXED)
    (project.temporary / f"odradek-tests-{os.getuid()}").write_text("a file in place of the directory")
    run = project.run()
    assert (run.counts, run.code) == ({"passed": 1, "error": 1}, pytest.ExitCode.TESTS_FAILED), run.output
    assert f"odradek-tests-{os.getuid()}" in run.output


@pytest.mark.parametrize(
    "options", [pytest.param((), id="one process", marks=pytest.mark.full), pytest.param(("-n", "1"), id="xdist")]
)
def test_no_cluster_starts_for_tests_that_do_not_run(tmp_path: Path, options: tuple[str, ...]) -> None:
    project = Project(tmp_path)
    project.write("conftest.py", RECORD_STARTS)
    project.write("test_skipped.py", SKIPPED)
    run = project.run("-W", "ignore::pytest.PytestUnknownMarkWarning", "-o", "markers=slow", "-m", "not slow", *options)
    assert (run.counts, run.code) == ({"passed": 1, "skipped": 5}, 0), run.output
    assert not (tmp_path / "starts").exists()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--collect-only",), id="collect"),
        pytest.param(("--setup-plan",), id="plan", marks=pytest.mark.full),
        pytest.param((), id="error"),
    ],
)
def test_no_cluster_starts_if_pytest_runs_no_test(tmp_path: Path, options: tuple[str, ...]) -> None:
    project = Project(tmp_path)
    project.write("conftest.py", RECORD_STARTS)
    project.write("test_that_runs.py", NOT_SKIPPED)
    if not options:
        project.write("test_broken.py", "import no_such_module")
    run = project.run(*options)
    assert ("test_that_runs" if options else "no_such_module") in run.output
    assert not (tmp_path / "starts").exists(), run.output


def test_cluster_starts_for_a_test_whose_conditions_are_false(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("conftest.py", RECORD_STARTS)
    project.write("test_that_runs.py", NOT_SKIPPED)
    run = project.run()
    assert run.counts == {"passed": 1}, run.output
    assert (tmp_path / "starts").read_text() == "1"


def test_assertion_in_a_function_of_a_rule_fails_the_test(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("test_rules.py", RULES)
    run = project.run()
    assert run.counts == {"passed": 2, "error": 1}, run.output
    assert "RuleFailed: a function of a rule raised AssertionError" in run.output
    assert 'assert request.api == "Fetch"' in run.output


@pytest.mark.full
def test_cluster_starts_while_a_test_before_it_runs(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("test_warm.py", WARM)
    run = project.run()
    assert run.counts == {"passed": 2}, run.output


@pytest.mark.full
def test_killed_run_leaves_no_process_and_the_next_run_removes_its_files(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("test_waiting.py", WAITING)
    process = project.start()
    wait_until((tmp_path / "pids").exists)
    pids = (tmp_path / "pids").read_text().split()
    process.kill()
    process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert len(project.left()) == 1
    (tmp_path / "test_waiting.py").unlink()
    project.write("test_next.py", NEXT_RUN)
    run = project.run()
    assert run.counts == {"passed": 1}, run.output
    assert project.left() == []


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true, at most TIMEOUT_S seconds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
