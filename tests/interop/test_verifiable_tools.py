"""Programs of Kafka's system tests, and the console consumer: the same command prints the same for both brokers."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.drivers.base import ProducerOptions
from tests.interop.group_helpers import PARTITIONS, PROTOCOLS, WRITTEN_MS, make_topic, write_records
from tests.support.tool_comparison import ADDRESS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.drivers.base import Driver
    from tests.support.tool_comparison import ToolComparison
    from tests.support.tool_jvm import Finished

TOOLS = "Kafka's tools 4.3"
RECORDS = 60
CONSUMER, PRODUCER, COPIER = "kafka-verifiable-consumer", "kafka-verifiable-producer", "TransactionalMessageCopier"
TIME_FIELDS = {"timestamp", "time", "time_ms", "avg_throughput", "target_throughput"}
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def events(finished: Finished) -> list[dict[str, Any]]:
    """Return the events that a program printed, without times."""
    assert finished.returncode == 0, finished.stderr
    printed = [json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{")]
    assert printed
    return [{key: value for key, value in event.items() if key not in TIME_FIELDS} for event in printed]


def named(printed: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the events of one name, without empty assignments, which a member may receive during a rebalance."""
    return [event for event in printed if event["name"] == name and event.get("partitions") != []]


def same(events_by_broker: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    assert events_by_broker["odradek"] == events_by_broker["kafka"]
    return events_by_broker["odradek"]


def without_repeats(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the reports without repetitions. The tool writes a report after each poll, also after an empty one."""
    return [report for previous, report in pairwise([{}, *reports]) if report != previous]


@pytest.mark.feature("kafka-verifiable-producer", client=TOOLS)
@pytest.mark.parametrize("acks", ["-1", "1"])
def test_verifiable_producer_reports_the_same(pair: ToolComparison, name: str, acks: str) -> None:
    make_topic(pair, name)
    count = ("--max-messages", str(RECORDS), "--repeating-keys", "7", "--value-prefix", "1")
    finished = pair.finished(PRODUCER, "--topic", name, *count, "--acks", acks)
    events_by_broker = {broker: sorted(events(tool_run), key=json.dumps) for broker, tool_run in finished.items()}
    assert len(named(same(events_by_broker), "producer_send_success")) == RECORDS


@pytest.mark.feature("kafka-verifiable-consumer, both protocols", client=TOOLS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("options", [(), ("--enable-autocommit",)])
def test_verifiable_consumer_reports_the_same(
    pair: ToolComparison, drivers: Callable[[str], Driver], name: str, protocol: str, options: tuple[str, ...]
) -> None:
    make_topic(pair, name)
    for bootstrap in pair.bootstraps.values():
        write_records(drivers, bootstrap, name, RECORDS)
    group = ("--group-id", f"g-{name}", "--group-protocol", protocol, "--max-messages", str(RECORDS), "--verbose")
    finished = pair.finished(CONSUMER, "--topic", name, *group, *options)
    outputs = {broker: events(tool_run) for broker, tool_run in finished.items()}
    for kind in ("startup_complete", "partitions_assigned", "shutdown_complete"):
        same({broker: named(printed, kind) for broker, printed in outputs.items()})
    # The number of records per poll and per commit varies between runs.
    consumed = {
        broker: sorted(named(printed, "record_data"), key=lambda event: (event["partition"], event["offset"]))
        for broker, printed in outputs.items()
    }
    assert len(same(consumed)) == RECORDS
    pair.same("kafka-consumer-groups", "--describe", "--group", f"g-{name}", ordered=False)


@pytest.mark.feature("TransactionalMessageCopier: an assigned partition, and a group", client=TOOLS)
@pytest.mark.parametrize("group_mode", [False, True])
@pytest.mark.parametrize("aborts", [False, True])
def test_transactional_message_copier_reports_the_same(
    pair: ToolComparison, drivers: Callable[[str], Driver], name: str, group_mode: bool, aborts: bool
) -> None:
    output = f"{name}-out"
    for topic in (name, output):
        make_topic(pair, topic)
    for bootstrap in pair.bootstraps.values():
        write_records(drivers, bootstrap, name, RECORDS)
    places = ("--input-topic", name, "--input-partition", "0", "--output-topic", output, "--broker-list", ADDRESS)
    transactions = ("--transaction-size", "7", "--consumer-group", f"g-{name}", "--use-group-metadata")
    chance = ("--enable-random-aborts",) if aborts else ()
    expected = RECORDS if group_mode else RECORDS // 2
    # a subscribed consumer does not know the end offset
    mode = ("--group-mode", "--max-messages", str(expected)) if group_mode else ()
    running = pair.start(COPIER, "--transactional-id", f"id-{name}", *places, *transactions, *chance, *mode)
    reports = {broker: without_repeats(events(tool_run.wait())) for broker, tool_run in running.items()}
    if group_mode:  # a poll returns fewer records if the fetch from the other partition is not complete yet
        reports = {
            broker: [report for report in printed if report["stage"] != "ProcessLoop"]
            for broker, printed in reports.items()
        }
    if aborts:  # the number of aborts is random
        reports = {broker: [{**printed[-1], "totalProcessed": 0}] for broker, printed in reports.items()}
    assert same(reports)[-1]["consumed"] == expected
    pair.same("kafka-consumer-groups", "--describe", "--group", f"g-{name}", ordered=False)
    for bootstrap in pair.bootstraps.values():
        copied = drivers("confluent-kafka").consume(bootstrap, output, PARTITIONS, "read_committed")
        assert len(copied) == expected
        assert len({message.value for message in copied}) == expected


@pytest.mark.feature("kafka-console-consumer: isolation levels, groups, output of record fields", client=TOOLS)
def test_console_consumer_prints_the_same(pair: ToolComparison, drivers: Callable[[str], Driver], name: str) -> None:
    make_topic(pair, name)
    for bootstrap in pair.bootstraps.values():
        producer = drivers("Java 4.4").producer(bootstrap, ProducerOptions(transactional_id=f"id-{name}"))
        producer.init()
        for number in range(6):
            producer.begin()
            for partition in PARTITIONS:
                value = b"%d-%d" % (number, partition)
                headers = (("number", b"%d" % number), ("none", None))
                stamp = WRITTEN_MS + number
                producer.send(name, value, key=b"k", headers=headers, partition=partition, timestamp=stamp)
            producer.flush()
            (producer.abort if number % 3 == 1 else producer.commit)()
        producer.close()
    fields = ("key", "timestamp", "headers", "partition", "offset", "epoch")
    printing = [word for field in fields for word in ("--formatter-property", f"print.{field}=true")]
    for isolation, expected in (("read_committed", 8), ("read_uncommitted", 12)):
        read = ("--topic", name, "--from-beginning", "--isolation-level", isolation)
        count = ("--max-messages", str(expected))
        for protocol in PROTOCOLS:
            group = ("--group", f"g-{isolation}-{name}", "--command-property", f"group.protocol={protocol}")
            lines = pair.same("kafka-console-consumer", *read, *count, *group, *printing, ordered=False)
            assert sum(line.startswith("CreateTime:") for line in lines) == expected
            pair.same("kafka-consumer-groups", "--describe", "--group", group[1], ordered=False)
            pair.same("kafka-consumer-groups", "--delete", "--group", group[1])
        one_partition = ("--topic", name, "--partition", "0", "--isolation-level", isolation)
        for start in ("earliest", "5"):
            end = ("--max-messages", "2")
            lines = pair.same("kafka-console-consumer", *one_partition, "--offset", start, *end, *printing)
            assert sum(line.startswith("CreateTime:") for line in lines) == 2
