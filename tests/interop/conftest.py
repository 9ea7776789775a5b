"""Fixtures of tests with real clients and broker processes. The results are the input of docs/clients.md."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek import LocalCluster
from tests.interop import client_table
from tests.interop.drivers.aio import AioDriver
from tests.interop.drivers.base import TIMEOUT_S
from tests.interop.drivers.confluent import ConfluentDriver
from tests.interop.drivers.go import GoDriver
from tests.interop.drivers.java import JavaDriver
from tests.interop.drivers.kafka_python import KafkaPythonDriver
from tests.support.jars import CLIENT_3_9, PREVIOUS
from tests.support.kafka_broker import KafkaBroker
from tests.support.tool_comparison import ToolComparison
from tests.support.tool_jvm import tool_jvm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.drivers.base import Driver

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
}
DRIVERS: dict[str, Callable[[], Driver]] = {
    "confluent-kafka": ConfluentDriver,
    "kafka-python": KafkaPythonDriver,
    "aiokafka": AioDriver,
    "Java 4.4": JavaDriver,
    "Java 4.3": partial(JavaDriver, "Java 4.3", PREVIOUS),
    "Java 3.9": partial(JavaDriver, "Java 3.9", CLIENT_3_9),
}
OLDER_CLIENTS = ("Java 4.3", "Java 3.9")
"""Clients of which `make test` runs only the tests marked `core`."""
EXTRA_DRIVERS: dict[str, Callable[[], Driver]] = {"franz-go": GoDriver}
"""Clients that need not be installed. They have no column in docs/clients.md."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if params.get("driver") in OLDER_CLIENTS and item.get_closest_marker("core") is None:
            item.add_marker(pytest.mark.full)


@pytest.fixture(scope="session")
def odradek_cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """Start Apache Kafka as the referee of tests that compare both brokers."""
    with KafkaBroker(overrides=SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def pair(odradek_cluster: LocalCluster, kafka_broker: KafkaBroker) -> ToolComparison:
    """Return both brokers, for commands that run on each of them."""
    return ToolComparison(tool_jvm(), {"odradek": odradek_cluster.bootstrap, "kafka": kafka_broker.bootstrap})


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Start a broker for the tests of one file."""
    with LocalCluster(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def bootstrap_options(cluster: LocalCluster) -> tuple[str, str]:
    """Return the options of `odradek` commands that select the broker of the file."""
    return "--bootstrap", cluster.bootstrap


@pytest.fixture
def name() -> str:
    """Return a name for topics, groups and ids of one test, which is the same on both brokers."""
    return f"tool-{time.time_ns():x}"


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    chosen = request.config.getoption("--broker")
    running = request.getfixturevalue("kafka_broker" if chosen == "kafka" else "odradek_cluster")
    address: str = running.bootstrap
    return address


@pytest.fixture(scope="session")
def drivers() -> Iterator[Callable[[str], Driver]]:
    """Return drivers by name. All tests share each driver, because a JVM starts slowly."""
    drivers_by_name: dict[str, Driver] = {}

    def get(name: str) -> Driver:
        if name not in drivers_by_name:
            drivers_by_name[name] = (DRIVERS | EXTRA_DRIVERS)[name]()
        return drivers_by_name[name]

    yield get
    for driver in drivers_by_name.values():
        driver.close()


@pytest.fixture(params=list(DRIVERS))
def driver(request: pytest.FixtureRequest, drivers: Callable[[str], Driver]) -> Driver:
    return drivers(request.param)


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """Create a topic with two partitions for each test."""
    return make_topic(bootstrap, f"t-{abs(hash(request.node.nodeid)):x}-{time.time_ns():x}")


@pytest.fixture
def other_topic(bootstrap: str, topic: str) -> str:
    """Create a second topic with two partitions, for the output of a test."""
    return make_topic(bootstrap, f"{topic}-out")


def make_topic(bootstrap: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(TIMEOUT_S)
    return name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    report = yield
    feature = item.get_closest_marker("feature")
    if feature is not None and (report.when == "call" or report.failed):
        params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        client = feature.kwargs.get("client") or params.get("driver")
        if client is not None:  # drivers of EXTRA_DRIVERS are not parameters of a test
            client_table.record(str(client), str(feature.args[0]), passed=bool(report.passed))
    return report
