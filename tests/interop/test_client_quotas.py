"""Client quotas that kafka-configs sets throttle clients while they are set, on both brokers.

A metric of the client contains the throttle time. The time depends on the batches of the client, so the tests compare
only whether a client is throttled.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.tool_comparison import ADDRESS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.tool_comparison import ToolComparison

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PRODUCER, CONSUMER = "kafka-producer-perf-test", "kafka-consumer-perf-test"
RATE = 50_000
RECORD_BYTES = 1_000
RECORDS = 540
"""Records that exceed the quota: it permits the bytes of 10 s without throttling, and these are the bytes of 10.8 s."""
CONSUMER_TIMEOUT_MS = 10_000
FEW_RECORDS = 2
"""Records of a client that is throttled for one second after each request."""


class Client:
    """One of Kafka's performance tools, with its own client id."""

    def __init__(self, pair: ToolComparison, name: str) -> None:
        self._pair = pair
        self._name = name
        self._entity = ("kafka-configs", "--entity-type", "clients", "--entity-name", name)

    @contextmanager
    def quota_set(self, quota: str, value: str) -> Iterator[None]:
        describe = (*self._entity, "--describe")
        assert self._pair.same(*self._entity, "--alter", "--add-config", f"{quota}={value}")[0] == "exit 0"
        self._pair.until(lambda lines: any(quota in line for line in lines), *describe)
        try:
            yield
        finally:
            assert self._pair.same(*self._entity, "--alter", "--delete-config", quota)[0] == "exit 0"
            self._pair.until(lambda lines: not any(quota in line for line in lines), *describe)

    def throttled_writes(self, records: int) -> dict[str, bool]:
        load = ("--topic", self._name, "--num-records", str(records), "--record-size", str(RECORD_BYTES))
        properties = (f"bootstrap.servers={ADDRESS}", f"client.id={self._name}", "acks=all")
        options = ("--throughput", "-1", "--print-metrics", "--command-property", *properties)
        return self._throttled("produce", PRODUCER, *load, *options)

    def throttled_reads(self) -> dict[str, bool]:
        """Return by broker whether a consumer with several fetches is throttled. The tool ends with its last record.

        Its time-out allows for a slow rebalance.
        """
        timeout = ("--timeout", str(CONSUMER_TIMEOUT_MS))
        load = ("--topic", self._name, "--num-records", str(RECORDS), "--fetch-size", str(RATE), *timeout)
        return self._throttled(
            "fetch", CONSUMER, *load, "--print-metrics", "--command-property", f"client.id={self._name}"
        )

    def _throttled(self, metric: str, tool: str, *arguments: str) -> dict[str, bool]:
        finished = self._pair.finished(tool, *arguments)
        assert [tool_run.returncode for tool_run in finished.values()] == [0, 0], finished
        return {name: longest_throttle_ms(metric, tool_run.stdout) > 0 for name, tool_run in finished.items()}


def longest_throttle_ms(metric: str, output: str) -> float:
    """Return the longest throttle time in milliseconds."""
    match = re.search(rf"{metric}-throttle-time-max:\S*\s+: ([\d.]+)", output)
    assert match is not None, output
    return float(match[1])


@pytest.fixture
def client(pair: ToolComparison, name: str) -> Client:
    assert pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "1")[0] == "exit 0"
    return Client(pair, name)


THROTTLED, NOT_THROTTLED = {"odradek": True, "kafka": True}, {"odradek": False, "kafka": False}


@pytest.mark.feature("quotas: producer_byte_rate, consumer_byte_rate, request_percentage", client="Java 4.3")
def test_producer_and_consumer_byte_rates_throttle_clients(client: Client) -> None:
    with client.quota_set("producer_byte_rate", str(RATE)):
        assert client.throttled_writes(RECORDS) == THROTTLED
    assert client.throttled_writes(RECORDS) == NOT_THROTTLED
    with client.quota_set("consumer_byte_rate", str(RATE)):
        assert client.throttled_reads() == THROTTLED
    assert client.throttled_reads() == NOT_THROTTLED


@pytest.mark.feature("quotas: producer_byte_rate, consumer_byte_rate, request_percentage", client="Java 4.3")
def test_request_percentage_throttles_clients(client: Client) -> None:
    with client.quota_set("request_percentage", "0.001"):
        assert client.throttled_writes(FEW_RECORDS) == THROTTLED
    assert client.throttled_writes(FEW_RECORDS) == NOT_THROTTLED
