"""kafka-transactions prints the same output with both brokers."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers.base import TIMEOUT_S, Driver, ProducerOptions
from tests.interop.group_helpers import make_topic
from tests.support.command_line import odradek
from tests.support.hanging import leave_hanging
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.tool_comparison import ToolComparison

TOOLS = "Kafka's tools 4.3"
TOOL = "kafka-transactions"
HANGING_PRODUCER_ID = 7_000_000
"""Producer id that no coordinator assigned."""
WRITTEN_BEFORE_MS = 6_030_000
"""Age of the hanging transaction: 100.5 minutes. The tool prints whole minutes, so the output is stable for 29 s."""
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def open_transaction(driver: Driver, bootstrap: str, topic: str) -> None:
    producer = driver.producer(
        bootstrap, ProducerOptions(transactional_id=f"{topic}-id", transaction_timeout_ms=600_000)
    )
    producer.init()
    producer.begin()
    producer.send(topic, b"open")
    producer.flush()


@pytest.mark.feature("kafka-transactions: list, describe, describe-producers, abort", client=TOOLS)
def test_list_and_describe_print_the_same(pair: ToolComparison, name: str, drivers: Callable[[str], Driver]) -> None:
    pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "1")
    for bootstrap in pair.bootstraps.values():
        open_transaction(drivers("Java 4.4"), bootstrap, name)
    for arguments in (("list",), ("describe", "--transactional-id", f"{name}-id")):
        rows = {broker: columns(lines, f"{name}-id") for broker, lines in pair.both(TOOL, *arguments).items()}
        assert rows["odradek"] == rows["kafka"]
    producers = pair.both(TOOL, "describe-producers", "--topic", name, "--partition", "0")
    rows = {broker: columns(lines) for broker, lines in producers.items()}
    assert rows["odradek"] == rows["kafka"]
    for bootstrap in pair.bootstraps.values():
        start = ("--topic", name, "--partition", "0", "--start-offset", "0")
        finished = pair.tools.run(TOOL, "--bootstrap-server", bootstrap, "abort", *start)
        if bootstrap == pair.bootstraps["odradek"]:
            # A coordinator knows the transaction, so a client cannot end it by a marker. Apache Kafka writes it.
            assert finished.returncode == 1
            assert "invalid state" in finished.stdout + finished.stderr
            aborted = odradek("txns", "abort", f"{name}-id", "--bootstrap", bootstrap)
            assert aborted.returncode == 0, aborted.stderr
        else:
            assert finished.returncode == 0, finished.stderr
        wait_for_end(drivers("confluent-kafka"), bootstrap, name)


def columns(lines: list[str], transactional_id: str | None = None) -> list[list[str]]:
    """Return the header and the row of one id, or the only row, without the producer id and the times."""
    header = lines[1].split()
    rows = [line.split() for line in lines[2:] if transactional_id is None or transactional_id in line.split()]
    assert len(rows) == 1, lines
    differing = {"ProducerId", "CurrentTransactionStartTimeMs", "TransactionDurationMs"}
    return [header, [value for title, value in zip(header, rows[0], strict=True) if title not in differing]]


def wait_for_end(driver: Driver, bootstrap: str, topic: str) -> None:
    """Wait until a read_committed consumer reads a record after the aborted transaction."""
    producer = driver.producer(bootstrap, ProducerOptions())
    producer.send(topic, b"after")
    producer.flush()
    deadline = time.monotonic() + TIMEOUT_S
    while [message.value for message in driver.consume(bootstrap, topic, [0], "read_committed")] != [b"after"]:
        assert time.monotonic() < deadline


@pytest.mark.feature("kafka-transactions: unknown ids and refused requests", client=TOOLS)
def test_commands_for_unknown_ids_and_partitions_print_the_same(
    pair: ToolComparison, drivers: Callable[[str], Driver], name: str
) -> None:
    make_topic(pair, name)
    producers = []
    for bootstrap in pair.bootstraps.values():
        producer = drivers("confluent-kafka").producer(bootstrap, ProducerOptions(transactional_id=f"id-{name}"))
        producer.init()
        producer.begin()
        producer.send(name, b"open", partition=1)
        producer.flush()
        producers.append(producer)
    for options in (("--topic", name), ("--topic", name, "--partition", "1"), ("--broker-id", "1")):
        assert len(pair.same(TOOL, "find-hanging", *options, "--max-transaction-timeout", "0", about=name)) <= 2
    assert len(pair.same(TOOL, "list", "--transactional-id-pattern", "no-such.*")) == 2
    patterns = (("--duration-filter", "3600000"), ("--transactional-id-pattern", "id-no-.*"))
    for options in patterns:
        pair.same(TOOL, "list", *options, about=name)
    pair.same(TOOL, "describe", "--transactional-id", f"no-{name}")
    pair.same(TOOL, "abort", "--topic", name, "--partition", "0", "--start-offset", "0")
    for producer in producers:
        producer.abort()
        producer.close()


@contextmanager
def unverified(pair: ToolComparison) -> Iterator[None]:
    """Disable the verification of partitions by the coordinator on both brokers."""
    setting = "transaction.partition.verification.enable"
    brokers = ("kafka-configs", "--entity-type", "brokers", "--entity-default")
    applied = f"{setting}=false sensitive=false synonyms={{DYNAMIC_DEFAULT_BROKER_CONFIG"
    assert pair.same(*brokers, "--alter", "--add-config", f"{setting}=false")[0] == "exit 0"
    try:
        describe_broker = ("kafka-configs", "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
        pair.until(lambda lines: any(line.startswith(applied) for line in lines), *describe_broker)
        yield
    finally:
        assert pair.same(*brokers, "--alter", "--delete-config", setting)[0] == "exit 0"


async def write_hanging(bootstrap: str, topic: str, written_ms: int) -> None:
    host, port = bootstrap.rsplit(":", 1)
    client = await RawClient.connect(host, int(port))
    await leave_hanging(client, topic, HANGING_PRODUCER_ID, written_ms)
    client.close()


@pytest.mark.feature(
    "kafka-transactions: find-hanging, describe-producers, abort of a hanging transaction", client=TOOLS
)
def test_hanging_transaction_is_found_and_aborted(pair: ToolComparison, name: str) -> None:
    make_topic(pair, name)
    written_ms = int(time.time() * 1_000) - WRITTEN_BEFORE_MS
    with unverified(pair):
        for bootstrap in pair.bootstraps.values():
            asyncio.run(write_hanging(bootstrap, name, written_ms))
    partition = ("--topic", name, "--partition", "0")
    row = f"{name} 0 {HANGING_PRODUCER_ID} 0 -1 0 TIME 100"
    for scope in (partition, ("--topic", name), ("--broker-id", "1"), ("--broker-id", "1", *partition)):
        assert pair.same(TOOL, "find-hanging", *scope, about=name) == ["exit 0", row]
    assert pair.same(TOOL, "find-hanging", *partition, "--max-transaction-timeout", "101", about=name) == ["exit 0"]
    producers = ("describe-producers", *partition)
    assert pair.same(TOOL, *producers)[2:] == [f"{HANGING_PRODUCER_ID} 0 -1 0 TIME 0"]
    for options in ((), ("--broker-id", "1")):
        pair.same(TOOL, *producers, *options)
    for wrong in ("7", "1"):
        assert pair.same(TOOL, "abort", *partition, "--start-offset", wrong)[0] == "exit 1"
    assert pair.same(TOOL, "abort", *partition, "--start-offset", "0") == ["exit 0"]
    assert pair.same(TOOL, "find-hanging", *partition, about=name) == ["exit 0"]
    pair.same(TOOL, *producers)
    pair.same("kafka-get-offsets", "--topic", name)
