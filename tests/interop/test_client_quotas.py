"""Quotas that kafka-configs sets are felt by real clients while they hold, and not afterwards: on both brokers alike.

What a client is told to wait it keeps in a metric of its own. How long that is depends on how its batches fall; whether it has to wait does not.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.side_by_side import ADDRESS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.side_by_side import SideBySide

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PRODUCER, CONSUMER = "kafka-producer-perf-test", "kafka-consumer-perf-test"
RATE = 50_000
RECORD_BYTES = 1_000
RECORDS = 540
"""What may be used in ten seconds passes at once; four fifths of a second's worth is beyond that."""
PATIENCE_MS = 10_000
FEW = 2
"""Records of somebody who has to wait a second after every request."""


class Client:
    """A program of Kafka's under a client id of its own."""

    def __init__(self, pair: SideBySide, name: str) -> None:
        self._pair = pair
        self._name = name
        self._entity = ("kafka-configs", "--entity-type", "clients", "--entity-name", name)

    @contextmanager
    def limited(self, quota: str, value: str) -> Iterator[None]:
        describe = (*self._entity, "--describe")
        assert self._pair.same(*self._entity, "--alter", "--add-config", f"{quota}={value}")[0] == "exit 0"
        self._pair.until(lambda lines: any(quota in line for line in lines), *describe)
        try:
            yield
        finally:
            assert self._pair.same(*self._entity, "--alter", "--delete-config", quota)[0] == "exit 0"
            self._pair.until(lambda lines: not any(quota in line for line in lines), *describe)

    def waits_to_write(self, records: int) -> dict[str, bool]:
        load = ("--topic", self._name, "--num-records", str(records), "--record-size", str(RECORD_BYTES))
        properties = (f"bootstrap.servers={ADDRESS}", f"client.id={self._name}", "acks=all")
        more = ("--throughput", "-1", "--print-metrics", "--command-property", *properties)
        return self._waits("produce", PRODUCER, *load, *more)

    def waits_to_read(self) -> dict[str, bool]:
        """In several fetches. The tool ends with its last record; its patience is for a group that is slow to come together."""
        patience = ("--timeout", str(PATIENCE_MS))
        load = ("--topic", self._name, "--num-records", str(RECORDS), "--fetch-size", str(RATE), *patience)
        return self._waits("fetch", CONSUMER, *load, "--print-metrics", "--command-property", f"client.id={self._name}")

    def _waits(self, what: str, tool: str, *arguments: str) -> dict[str, bool]:
        finished = self._pair.finished(tool, *arguments)
        assert [each.returncode for each in finished.values()] == [0, 0], finished
        return {name: longest(what, each.stdout) > 0 for name, each in finished.items()}


def longest(what: str, printed: str) -> float:
    """The longest wait, in milliseconds."""
    found = re.search(rf"{what}-throttle-time-max:\S*\s+: ([\d.]+)", printed)
    assert found is not None, printed
    return float(found[1])


@pytest.fixture
def client(pair: SideBySide, name: str) -> Client:
    assert pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "1")[0] == "exit 0"
    return Client(pair, name)


EACH, NEITHER = {"odradek": True, "kafka": True}, {"odradek": False, "kafka": False}


@pytest.mark.feature("quotas: producer_byte_rate, consumer_byte_rate, request_percentage", client="Java 4.3")
def test_bytes_that_are_written_and_read(client: Client) -> None:
    with client.limited("producer_byte_rate", str(RATE)):
        assert client.waits_to_write(RECORDS) == EACH
    assert client.waits_to_write(RECORDS) == NEITHER
    with client.limited("consumer_byte_rate", str(RATE)):
        assert client.waits_to_read() == EACH
    assert client.waits_to_read() == NEITHER


@pytest.mark.feature("quotas: producer_byte_rate, consumer_byte_rate, request_percentage", client="Java 4.3")
def test_time_that_requests_take(client: Client) -> None:
    with client.limited("request_percentage", "0.001"):
        assert client.waits_to_write(FEW) == EACH
    assert client.waits_to_write(FEW) == NEITHER
