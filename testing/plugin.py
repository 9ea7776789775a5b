"""The pytest plugin of Odradek: the fixtures `kafka` and `kafka_cluster`, and the marker `kafka`.

pytest imports this module in each environment that has Odradek. It imports the rest at the first use of a fixture, and
starts no process for tests that do not use one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from odradek.testing.kafka import Kafka
    from odradek.testing.kafka_cluster import KafkaCluster
    from odradek.testing.pool import ClusterPool
    from odradek.testing.spec import ClusterSpec, KafkaClusterFactory, Requirements

MARKER = "kafka"
FIXTURE = "kafka"
LOG_LINES = 30
"""Lines at the end of each broker's log in the report of a failed test."""
LOG_BYTES = 16_384
"""Bytes at the end of a log in which these lines are searched."""


class RuleFailed(Exception):
    """A function of a rule of the test has raised an exception."""


_POOL = pytest.StashKey["ClusterPool"]()
_KEEP_LOGS = pytest.StashKey[bool]()
_USED = pytest.StashKey["list[KafkaCluster]"]()


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line(
        "markers", f"{MARKER}(brokers=1, topics={{}}, settings={{}}, security=None): cluster of the fixture {FIXTURE}"
    )


# ---- fixtures -------------------------------------------------------------------------------------------------------


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Provide a cluster of real brokers, with parameters from the marker `kafka`. Tests share it and leave no topic."""
    from odradek.testing.kafka import Kafka

    requirements = _requirements(request.node)
    pool = _pool(request.config)
    cluster = pool.cluster(requirements.spec)
    _used(request.node).append(cluster)
    try:
        for name, partitions in requirements.topics.items():
            cluster.create_topic(name, partitions)
        yield Kafka(cluster, request.node.name)
    finally:
        errors = cluster.faults.errors
        _reset(pool, requirements.spec, cluster)
        _raise(errors)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[KafkaClusterFactory]:
    """Provide a function that starts clusters of this test alone. They end with the test."""
    from odradek.testing.spec import ClusterSpec

    pool = _pool(request.config)
    started: list[KafkaCluster] = []

    def start(
        brokers: int = 1, *, settings: dict[str, object] | None = None, security: str | None = None
    ) -> KafkaCluster:
        cluster = pool.start(ClusterSpec.of(brokers, settings, security))
        started.append(cluster)
        _used(request.node).append(cluster)
        return cluster

    yield start  # type: ignore[misc]  # the protocol has wider types
    errors = [error for cluster in started for error in cluster.faults.errors]
    for cluster in started:
        cluster.close()
    _raise(errors)


def _raise(errors: list[BaseException]) -> None:
    """Fail the test if functions of its rules have failed."""
    if errors:
        raise RuleFailed(f"a function of a rule raised {errors[0]!r}; the broker handled the request") from errors[0]


def _reset(pool: ClusterPool, spec: ClusterSpec, cluster: KafkaCluster) -> None:
    """Make the cluster ready for the next test. If that fails, the next test gets a new cluster."""
    try:
        cluster.reset()
    except Exception:
        pool.discard(spec)
        raise


def _pool(config: pytest.Config) -> ClusterPool:
    from odradek.testing.pool import ClusterPool

    if _POOL not in config.stash:
        config.stash[_POOL] = ClusterPool()
    return config.stash[_POOL]


def _used(item: pytest.Item) -> list[KafkaCluster]:
    return item.stash.setdefault(_USED, [])


def _requirements(item: pytest.Item) -> Requirements:
    from odradek.testing.spec import BadMarker, Requirements, requirements_of

    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return Requirements()
    if sum(each.name == MARKER for each in item.own_markers) > 1:
        raise pytest.UsageError(f"{item.nodeid}: a test has one marker {MARKER}; put all arguments into one of them")
    try:
        return requirements_of(marker.kwargs, marker.args)
    except BadMarker as error:
        raise pytest.UsageError(f"{item.nodeid}: {error}") from None


# ---- start in the background ----------------------------------------------------------------------------------------


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the cluster of the first test that needs one. A worker of xdist does not know its tests yet."""
    config = session.config
    if hasattr(config, "workerinput") or _runs_nothing(session):
        return
    first = next(filter(_needs_cluster, session.items), None)
    if first is not None:
        _warm(first)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Start the cluster of the next test while this test runs."""
    for each in (item, nextitem):
        if each is not None and _needs_cluster(each):
            _warm(each)
    return (yield)


def _runs_nothing(session: pytest.Session) -> bool:
    """Return True if pytest ends after the collection."""
    option = session.config.option
    return bool(option.collectonly or (session.testsfailed and not option.continue_on_collection_errors))


def _warm(item: pytest.Item) -> None:
    with suppress(pytest.UsageError, OSError):  # the fixture reports it, such as a full disk of temporary files
        _pool(item.config).warm(_requirements(item).spec)


def _needs_cluster(item: pytest.Item) -> bool:
    """Return True if the test uses the fixture `kafka`, and no marker keeps it from running.

    If a condition of `skipif` is text, its fixture starts the cluster when the test runs.
    """
    is_plan = getattr(item.config.option, "setupplan", False)  # --setup-plan shows fixtures, and executes none
    return _uses_kafka(item) and not is_plan and not _never_runs(item)


def _never_runs(item: pytest.Item) -> bool:
    """Return True if a marker certainly skips the test, or expects its failure without a run."""
    if any(True for _ in item.iter_markers("skip")) or any(map(_holds, item.iter_markers("skipif"))):
        return True
    expected = next(filter(_holds, item.iter_markers("xfail")), None)
    return expected is not None and not item.config.option.runxfail and not expected.kwargs.get("run", True)


def _holds(marker: pytest.Mark) -> bool:
    """Return True if the marker has no condition, or a true one. A condition that is text is not evaluated."""
    conditions = (marker.kwargs["condition"],) if "condition" in marker.kwargs else marker.args
    return not conditions or any(bool(each) for each in conditions if not isinstance(each, str))


def _uses_kafka(item: pytest.Item) -> bool:
    """Return True if the test uses this plugin's fixture `kafka`. A project can have a fixture with the same name."""
    known = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    definitions = known.get(FIXTURE, ())
    return bool(definitions) and definitions[-1].func.__module__ == __name__


# ---- logs and end ---------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of the brokers to the report of a failed test, and keep the log files."""
    report = yield
    clusters = item.stash.get(_USED, [])
    if report.failed and clusters:
        item.config.stash[_KEEP_LOGS] = True
        for cluster in clusters:
            for node_id in cluster.node_ids:
                path = cluster.directory.log(node_id)
                if path.exists():
                    report.sections.append((f"log of broker {node_id}: {path}", _last_lines(path.read_bytes())))
            injected = [str(each) for each in cluster.faults.log]
            if injected:
                report.sections.append(("injected faults", "\n".join(injected)))
    return report


def _last_lines(content: bytes) -> str:
    return "\n".join(content[-LOG_BYTES:].decode(errors="replace").splitlines()[-LOG_LINES:])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End all clusters. Later, xdist interrupts a worker that takes more than 5 seconds to end."""
    _close_pool(session.config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End all clusters of a session that did not finish."""
    _close_pool(config)


def _close_pool(config: pytest.Config) -> None:
    pool = config.stash.get(_POOL, None)
    if pool is not None:
        del config.stash[_POOL]
        pool.close(keep_logs=config.stash.get(_KEEP_LOGS, False))
