"""Client quotas that kafka-configs sets throttle clients while they are set, on both brokers.

The throttle time is in a metric of the client. Its length depends on the batches of the client, so that the tests compare
only whether a client is throttled.
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
"""Bytes of a test. A quota permits the bytes of ten seconds without throttling; the test sends 0.8 s more."""
PATIENCE_MS = 10_000
FEW = 2
"""Records of a client that is throttled for a second after each request."""


class Client:
    """One of Kafka's performance tools, with its own client id."""

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
        """Return the throttle times of a consumer with several fetches. The tool ends with its last record.

        Its time-out allows for a slow rebalance.
        """
        patience = ("--timeout", str(PATIENCE_MS))
        load = ("--topic", self._name, "--num-records", str(RECORDS), "--fetch-size", str(RATE), *patience)
        return self._waits("fetch", CONSUMER, *load, "--print-metrics", "--command-property", f"client.id={self._name}")

    def _waits(self, what: str, tool: str, *arguments: str) -> dict[str, bool]:
        finished = self._pair.finished(tool, *arguments)
        assert [each.returncode for each in finished.values()] == [0, 0], finished
        return {name: longest(what, each.stdout) > 0 for name, each in finished.items()}


def longest(what: str, printed: str) -> float:
    """Return the longest throttle time in milliseconds."""
    found = re.search(rf"{what}-throttle-time-max:\S*\s+: ([\d.]+)", printed)
    assert found is not None, printed
    return float(found[1])


@pytest.fixture
def client(pair: SideBySide, name: str) -> Client:
    assert pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "1")[0] == "exit 0"
    return Client(pair, name)


EACH, NEITHER = {"odradek": True, "kafka": True}, {"odradek": False, "kafka": False}


@pytest.mark.feature("quotas: producer_byte_rate, consumer_byte_rate, request_percentage", client="Java 4.3")
def test_producer_and_consumer_byte_rates_throttle_clients(client: Client) -> None:
    with client.limited("producer_byte_rate", str(RATE)):
        assert client.waits_to_write(RECORDS) == EACH
    assert client.waits_to_write(RECORDS) == NEITHER
    with client.limited("consumer_byte_rate", str(RATE)):
        assert client.waits_to_read() == EACH
    assert client.waits_to_read() == NEITHER


@pytest.mark.feature("quotas: producer_byte_rate, consumer_byte_rate, request_percentage", client="Java 4.3")
def test_request_percentage_throttles_clients(client: Client) -> None:
    with client.limited("request_percentage", "0.001"):
        assert client.waits_to_write(FEW) == EACH
    assert client.waits_to_write(FEW) == NEITHER
