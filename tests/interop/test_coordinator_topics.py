"""Records of groups and transactions in the topics of their coordinators, decoded by Kafka's tools.

The tools are kafka-dump-log and the formatters of the console consumer. The same work on both brokers must produce the
same records.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers.base import GroupOptions, ProducerOptions
from tests.interop.group_helpers import PROTOCOLS, make_topic, read_with_members, write_records
from tests.support.tool_comparison import comparable_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from odradek import LocalCluster
    from tests.interop.drivers.base import Driver
    from tests.support.kafka_broker import KafkaBroker
    from tests.support.tool_comparison import ToolComparison

TOOLS = "Kafka's tools 4.3"
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NUMBERS = "|".join(
    (
        *("commitTimestamp", "expireTimestamp", "currentStateTimestamp", "assignmentTimestamp", "metadataHash"),
        *("producerId", "previousProducerId", "nextProducerId"),
        *("transactionStartTimestampMs", "transactionLastUpdateTimestampMs"),
    )
)
IDS = "topicId|leader|memberId"
VARYING = [
    (re.compile(rf'("(?:{NUMBERS})":)-?\d+'), r"\1N"),
    (re.compile(rf'("(?:{IDS})":)"[^"]*"'), r'\1"ID"'),
]
SET = re.compile(r'(?<="transactionPartitions":\[)[^]].*?}(?=])')
"""Fields that Kafka prints in the order of a hash table."""
FORMATTERS = {
    "__consumer_offsets": ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter"),
    "__transaction_state": ("TransactionLogMessageFormatter",),
}
ROW = re.compile(r'\n|(?<=})(?={"key":)')
"""Formatters write objects without a separator."""
QUIET_MS = 1_500
"""Milliseconds without a record after which the console consumer ends."""


@pytest.fixture(scope="module")
def directories(odradek_cluster: LocalCluster, kafka_broker: KafkaBroker) -> dict[str, Path]:
    return {"odradek": odradek_cluster.directory.data(1), "kafka": kafka_broker.data_directory}


def work(drivers: Callable[[str], Driver], bootstrap: str, name: str, protocol: str) -> None:
    """Run a group that commits offsets, then commits in a transaction, aborts one, and leaves."""
    java = drivers("Java 4.4")
    write_records(drivers, bootstrap, name, 20)
    member = java.member(bootstrap, name, GroupOptions(f"g-{name}", protocol))
    read_with_members([member], 20)
    member.commit()
    producer = java.producer(bootstrap, ProducerOptions(transactional_id=f"id-{name}"))
    producer.init()
    for end in (producer.commit, producer.abort):
        write_records(drivers, bootstrap, name, 10)
        read_with_members([member], 10)
        producer.begin()
        producer.send(name, b"in a transaction", partition=1)
        producer.flush()
        producer.send_offsets(member)
        end()
    member.close()
    producer.close()
    # EndTxn returns before the transaction is complete. The next producer waits for its last record.
    successor = java.producer(bootstrap, ProducerOptions(transactional_id=f"id-{name}"))
    successor.init()
    successor.close()


def lines_of_test(name: str, printed: str) -> list[str]:
    """Return the lines about one test in order, without values that must differ."""
    lines = [line[line.find("key:") :] for line in ROW.split(printed) if name in line]
    assert lines, printed
    text = SET.sub(lambda match: ",".join(sorted(re.split(",(?={)", match[0]))), "\n".join(lines))
    for pattern, instead in VARYING:
        text = pattern.sub(instead, text)
    return comparable_lines(text)


@pytest.mark.feature("kafka-dump-log: --offsets-decoder, --transaction-log-decoder", client=TOOLS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_records_of_coordinators_equal_those_of_kafka(
    pair: ToolComparison, directories: dict[str, Path], drivers: Callable[[str], Driver], name: str, protocol: str
) -> None:
    make_topic(pair, name)
    for bootstrap in pair.bootstraps.values():
        work(drivers, bootstrap, name, protocol)
    for topic, option in (
        ("__consumer_offsets", "--offsets-decoder"),
        ("__transaction_state", "--transaction-log-decoder"),
    ):
        records = {}
        for broker, directory in directories.items():
            files = sorted(str(path) for path in directory.glob(f"{topic}-*/*.log"))
            finished = pair.tools.run("kafka-dump-log", "--files", ",".join(files), option)
            assert finished.returncode == 0, finished.stderr
            records[broker] = lines_of_test(name, finished.stdout)
        assert records["odradek"] == records["kafka"]


@pytest.mark.feature("kafka-console-consumer: formatters of the coordinators' topics", client=TOOLS)
def test_formatters_of_the_console_consumer_print_the_same(
    pair: ToolComparison, drivers: Callable[[str], Driver], name: str
) -> None:
    make_topic(pair, name)
    for bootstrap in pair.bootstraps.values():
        work(drivers, bootstrap, name, "classic")
    for topic, formatters in FORMATTERS.items():
        for formatter in formatters:
            formatted = ("--formatter", f"org.apache.kafka.tools.consumer.{formatter}", "--from-beginning")
            finished = pair.finished(
                "kafka-console-consumer", "--topic", topic, *formatted, "--timeout-ms", str(QUIET_MS)
            )
            records = {broker: lines_of_test(name, tool_run.stdout) for broker, tool_run in finished.items()}
            assert records["odradek"] == records["kafka"]
