"""Fixtures of the pipeline tests. All tests share one broker and one Spark session, because a JVM starts slowly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.sink_rig import SinkRig


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore the ResourceWarning of pyspark, which leaves the socket of each `collect` to the garbage collector."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a module that sets ON_KAFKA against Apache Kafka, too, in the full run."""
    if not getattr(metafunc.module, "ON_KAFKA", False) or "broker" not in metafunc.fixturenames:
        return
    if metafunc.config.getoption("--broker") == "odradek":
        metafunc.parametrize("broker", ["odradek", pytest.param("kafka", marks=pytest.mark.full)], indirect=True)


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> str:
    """Return the system under test: that of `pytest_generate_tests`, or of the option `--broker`."""
    chosen: str = getattr(request, "param", request.config.getoption("--broker"))
    return chosen


@pytest.fixture
def bootstrap(broker: str, request: pytest.FixtureRequest) -> str:
    """Return the address of a broker, which all tests of the session share."""
    address: str = request.getfixturevalue(f"{broker}_bootstrap")
    return address


@pytest.fixture(scope="session")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a broker process of Apache Kafka, whose cleaner looks for work often."""
    from tests.support.kafka_broker import KafkaBroker

    settings = {"log.cleaner.backoff.ms": "500"}
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), overrides=settings, heap="-Xmx512M") as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def odradek_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a broker process of Odradek."""
    from odradek.pipeline.cluster.demo_cluster import DemoCluster

    directory = tmp_path_factory.mktemp("broker")
    options = ["--two-phase-commit"]
    cluster = DemoCluster(directory / "data", directory / "broker.log", brokers=1, options=options)
    try:
        yield cluster.access.bootstrap
    finally:
        cluster.stop()


@pytest.fixture
def two_phase_bootstrap(broker: str, bootstrap: str) -> str:
    """Return the address of a broker that permits two-phase commits. Apache Kafka does not serve them."""
    if broker == "kafka":
        pytest.skip("Apache Kafka serves no two-phase commit (KIP-939)")
    return bootstrap


@pytest.fixture
def rig(bootstrap: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SinkRig:
    """Return a sink in the mode that the constant MODE of the module names."""
    from odradek.spark import exactly_once
    from tests.support.sink_rig import SinkRig

    mode = request.module.MODE
    monkeypatch.setattr(exactly_once, "_sessions", {})
    if mode == "2pc":
        request.getfixturevalue("two_phase_bootstrap")
    return SinkRig(bootstrap, monkeypatch, mode)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from odradek.pipeline.spark.session import start_session, stop_session
    from tests.support.pyspark_versions import connector_fits

    console = tmp_path_factory.mktemp("spark") / "spark.log"
    settings = {} if connector_fits() else {"spark.jars": ""}
    session = start_session("tests", "local[2]", console=console, settings=settings)
    yield session
    stop_session(session)


@pytest.fixture
def topics(bootstrap: str, request: pytest.FixtureRequest) -> Topics:
    """Topics with names that no other test uses."""
    return Topics(bootstrap, request.node.name)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
