"""Read-process-write with member processes that join, leave, and are killed in a transaction: one output per input.

aiokafka does not implement KIP-447. It sends no member id with transactional offsets, and does not wait for the offsets
of open transactions. Its members have exactly one output per input only if one member runs at a time. They therefore
run in sequence with one transactional id.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from odradek import LocalCluster
from odradek.pipeline.cluster.access import Access
from odradek.pipeline.flights.progress_topic import await_stable
from tests.interop.conftest import SETTINGS, make_topic
from tests.interop.drivers.base import Fenced, GroupOptions, ProducerOptions
from tests.interop.drivers.confluent import ConfluentDriver
from tests.interop.drivers.driver_process import DriverProcess
from tests.interop.drivers.java import JavaDriver
from tests.interop.drivers.line_process import ClientFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

PARTITIONS = [0, 1]
RECORDS = 300
POLL_S = 0.2
LONGEST_S = 60.0
FEATURE = "groups: member processes join, leave and are killed during read-process-write"
TRANSACTION_MS = 3_000
SESSION_MS = 3_000
SHORT = {
    "group.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Start a broker with short session time-outs, so that killed members are removed soon."""
    with LocalCluster(settings=SETTINGS | SHORT) as running:
        yield running


class Copier:
    """A process with one member of the group and one producer."""

    def __init__(self, client: str, bootstrap: str, source: str, output: str, protocol: str, number: int) -> None:
        self._driver = JavaDriver() if client == "Java 4.4" else DriverProcess(client)
        self._bootstrap = bootstrap
        self._source = source
        self._output = output
        self._group = GroupOptions(f"g-{source}", protocol, session_ms=SESSION_MS)
        self._options = ProducerOptions(transactional_id=f"{source}-{number}", transaction_timeout_ms=TRANSACTION_MS)
        self._open()

    def _open(self) -> None:
        self._producer = self._driver.producer(self._bootstrap, self._options)
        self._producer.init()
        self.member = self._driver.member(self._bootstrap, self._source, self._group)

    def begin(self) -> bool:
        """Copy available records without a commit. Return False if there were none."""
        messages = self.member.poll(POLL_S)
        if messages:
            self._producer.begin()
            for message in messages:
                self._producer.send(self._output, message.value, partition=message.partition)
            self._producer.flush()
            self._producer.send_offsets(self.member)
        return bool(messages)

    def step(self) -> None:
        """Copy available records in one transaction. After a failure, restart both clients at the committed offsets."""
        try:
            if self.begin():
                self._producer.commit()
        except (ClientFailed, Fenced):
            self._producer.close()
            self.member.close()
            self._open()

    def leave(self) -> None:
        self._producer.close()
        self.member.close()
        self._driver.close()

    def kill(self) -> None:
        self._driver.kill()


class Input:
    """Input records, which the test writes in several parts."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = ConfluentDriver().producer(bootstrap, ProducerOptions(idempotent=True))
        self._topic = topic
        self.contents: list[bytes] = []

    def write(self) -> None:
        for number in range(RECORDS):
            content = b"%06d" % len(self.contents)
            self.contents.append(content)
            self._producer.send(self._topic, content, partition=number % len(PARTITIONS))
        self._producer.flush()


def wait_until(ready: Callable[[], bool], copiers: list[Copier]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not ready():
        assert time.monotonic() < deadline, [copier.member.assigned() for copier in copiers]
        for copier in copiers:
            copier.step()


def share(copiers: list[Copier]) -> bool:
    return sorted(copier.member.assigned() for copier in copiers) == [[0], [1]]


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> str:
    """Return the name of a client in docs/clients.md. Each member is a process with its own driver."""
    name: str = request.param
    return name


@pytest.mark.feature(FEATURE)
@pytest.mark.parametrize(
    ("driver", "protocol"),
    [
        pytest.param("Java 4.4", "classic", marks=pytest.mark.full),
        pytest.param("Java 4.4", "consumer", marks=pytest.mark.full),
        ("confluent-kafka", "consumer"),
        ("kafka-python", "classic"),
    ],
    indirect=["driver"],
)
def test_each_input_has_one_output(cluster: LocalCluster, driver: str, protocol: str) -> None:
    source, output = topics(cluster, driver, protocol)
    inputs = Input(cluster.bootstrap, source)

    def copier(number: int) -> Copier:
        return Copier(driver, cluster.bootstrap, source, output, protocol, number)

    first, second = copier(1), copier(2)
    inputs.write()
    wait_until(lambda: share([first, second]), [first, second])
    inputs.write()
    while not second.begin():
        first.step()
    second.kill()  # it has an open transaction with offsets of the group
    inputs.write()
    wait_until(lambda: first.member.assigned() == PARTITIONS, [first])
    third = copier(3)
    wait_until(lambda: share([first, third]), [first, third])
    inputs.write()
    third.step()
    third.leave()
    copy_the_rest(first, inputs)
    check_output(cluster, output, inputs)


@pytest.mark.feature(FEATURE)
@pytest.mark.parametrize("driver", ["aiokafka"], indirect=True)
def test_each_input_has_one_output_with_members_in_sequence(cluster: LocalCluster, driver: str) -> None:
    source, output = topics(cluster, driver, "classic")
    inputs = Input(cluster.bootstrap, source)
    first = Copier(driver, cluster.bootstrap, source, output, "classic", 1)
    inputs.write()
    wait_until(lambda: first.member.assigned() == PARTITIONS, [first])
    inputs.write()
    while not first.begin():
        pass
    first.kill()
    copy_the_rest(Copier(driver, cluster.bootstrap, source, output, "classic", 1), inputs)
    check_output(cluster, output, inputs)


def topics(cluster: LocalCluster, client: str, protocol: str) -> list[str]:
    name = f"{client.split(maxsplit=1)[0]}-{protocol}"
    return [make_topic(cluster.bootstrap, f"{prefix}-{name}") for prefix in ("in", "out")]


def copy_the_rest(copier: Copier, inputs: Input) -> None:
    ends = [len(inputs.contents) // len(PARTITIONS)] * len(PARTITIONS)
    wait_until(lambda: copier.member.committed(PARTITIONS) == ends, [copier])
    copier.leave()


def check_output(cluster: LocalCluster, output: str, inputs: Input) -> None:
    await_stable(Access(cluster.bootstrap), {output: len(PARTITIONS)})
    copied = ConfluentDriver().consume(cluster.bootstrap, output, PARTITIONS, "read_committed")
    assert sorted(message.value or b"" for message in copied) == inputs.contents
