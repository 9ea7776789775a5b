"""Commands `odradek produce`, `consume`, `groups` and `configs`, beside other clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.command_line import ODRADEK, TIMEOUT_S, json_output, odradek, terminal

if TYPE_CHECKING:
    from pathlib import Path

    from odradek import LocalCluster
    from tests.support.kafka_broker import KafkaBroker

pytestmark = pytest.mark.interop


@pytest.fixture
def topic(bootstrap_options: tuple[str, str]) -> str:
    """Create a topic with three partitions, and return its name."""
    name = f"records-{time.time_ns():x}"
    json_output("topics", "create", name, "--partitions", "3", *bootstrap_options)
    return name


def piped(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return odradek(*arguments, stdin=text)


def consumed(*arguments: str) -> list[dict[str, Any]]:
    finished = odradek("consume", *arguments, "--json")
    assert finished.returncode == 0, finished.stderr
    return [json.loads(line) for line in finished.stdout.splitlines()]


def test_produced_records_are_consumed(topic: str, bootstrap_options: tuple[str, str]) -> None:
    header = ("--header", "source=shell", "--header", "empty")
    sent = json_output("produce", topic, "hello", "--key", "k", "--partition", "1", *header, *bootstrap_options)
    assert sent["records"] == 1
    assert sent["partitions"] == [{"partition": 1, "base_offset": 0, "records": 1}]
    [record] = consumed(topic, *bootstrap_options)
    assert (record["partition"], record["offset"], record["key"], record["value"]) == (1, 0, "k", "hello")
    assert record["headers"] == [["source", "shell"], ["empty", None]]
    assert "1@0" in odradek("consume", topic, *bootstrap_options).stdout


def test_partition_of_a_key_is_that_of_the_java_client(
    topic: str, bootstrap_options: tuple[str, str], cluster: LocalCluster
) -> None:
    keys = ["", "a", "key-1", "ключ", "longer than one word"]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2"})
    for key in keys:
        producer.produce(topic, value="librdkafka", key=key.encode())
    producer.flush(TIMEOUT_S)
    lines = "".join(f"{key}|odradek\n" for key in keys)
    finished = piped(lines, "produce", topic, "--key-separator", "|", *bootstrap_options)
    assert finished.returncode == 0, finished.stderr
    placed: dict[str, dict[str, int]] = {}
    for record in consumed(topic, *bootstrap_options):
        placed.setdefault(record["key"], {})[record["value"]] = record["partition"]
    assert all(places["librdkafka"] == places["odradek"] for places in placed.values())
    assert sorted(placed) == sorted(keys)


def test_aborted_transaction_is_not_consumed_without_uncommitted(
    topic: str, bootstrap_options: tuple[str, str]
) -> None:
    lines = "".join(f"{number}\n" for number in range(2500))
    aborted = piped(lines, "produce", topic, "--abort", "--json", *bootstrap_options)
    assert json.loads(aborted.stdout)["transaction"] == "aborted", aborted.stderr
    committed = piped(
        "one\ntwo\nthree\n", "produce", topic, "--transactional-id", f"{topic}-id", "--json", *bootstrap_options
    )
    assert json.loads(committed.stdout)["transaction"] == "committed", committed.stderr
    assert sorted(row["value"] for row in consumed(topic, *bootstrap_options)) == ["one", "three", "two"]
    assert len(consumed(topic, "--uncommitted", *bootstrap_options)) == 2503
    assert json_output("txns", "blocking", "--topic", topic, *bootstrap_options) == []


def test_copy_from_consume_to_produce_preserves_all_bytes(
    topic: str, bootstrap_options: tuple[str, str], cluster: LocalCluster
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, value=b"\xff\x00", key=b"\xfe", headers=[("h", b"\x80"), ("h", None)], partition=0)
    producer.produce(topic, value=None, key=b"gone", partition=0)
    producer.flush(TIMEOUT_S)
    original = odradek("consume", topic, "--json", *bootstrap_options)
    copied = piped(original.stdout, "produce", topic, "--from-json", "--partition", "2", *bootstrap_options)
    assert copied.returncode == 0, copied.stderr

    def content(partition: str) -> list[tuple[Any, ...]]:
        rows = consumed(topic, "--partition", partition, *bootstrap_options)
        return [(row["key"], row["value"], row["headers"]) for row in rows]

    assert content("2") == content("0")
    assert content("0")[0] == ({"base64": "/g=="}, {"base64": "/wA="}, [["h", {"base64": "gA=="}], ["h", None]])


def test_consume_respects_from_and_max(topic: str, bootstrap_options: tuple[str, str]) -> None:
    piped("".join(f"{number}\n" for number in range(9)), "produce", topic, "--partition", "0", *bootstrap_options)
    partition_0 = ("--partition", "0")
    assert [row["value"] for row in consumed(topic, *partition_0, "--from", "6", *bootstrap_options)] == ["6", "7", "8"]
    assert [row["value"] for row in consumed(topic, *partition_0, "--max", "2", *bootstrap_options)] == ["0", "1"]
    assert consumed(topic, "--from", "latest", *bootstrap_options) == []


def test_consume_follow_prints_new_records_until_interrupted(topic: str, bootstrap_options: tuple[str, str]) -> None:
    following = subprocess.Popen(
        [str(ODRADEK), "consume", topic, "--follow", "--json", *bootstrap_options],
        stdout=subprocess.PIPE,
        text=True,
        env=terminal(),
        start_new_session=True,
    )
    assert following.stdout is not None
    for value in ("first", "second"):
        assert odradek("produce", topic, value, *bootstrap_options).returncode == 0
        assert json.loads(following.stdout.readline())["value"] == value
    os.killpg(following.pid, signal.SIGINT)  # Ctrl-C signals all processes of the group
    assert following.wait(TIMEOUT_S) == 130
    following.stdout.close()


def test_interrupted_produce_aborts_its_transaction(topic: str, bootstrap_options: tuple[str, str]) -> None:
    identity = f"{topic}-interrupted"
    sending = subprocess.Popen(
        [str(ODRADEK), "produce", topic, "--transactional-id", identity, *bootstrap_options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=terminal(),
        start_new_session=True,
    )
    assert sending.stdin is not None
    sending.stdin.write("".join(f"{number}\n" for number in range(1500)))
    sending.stdin.flush()
    deadline = time.monotonic() + TIMEOUT_S
    while not consumed(topic, "--uncommitted", *bootstrap_options):
        assert time.monotonic() < deadline
    os.killpg(sending.pid, signal.SIGINT)
    sending.wait(TIMEOUT_S)
    sending.communicate()
    assert sending.returncode == 130
    assert json_output("txns", "describe", identity, *bootstrap_options)["transaction_state"] in {
        "CompleteAbort",
        "PrepareAbort",
    }
    assert consumed(topic, *bootstrap_options) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("consume", "no-such-topic"), 1, "odradek topics list"),
        (("produce", "no-such-topic", "value"), 1, "odradek topics create no-such-topic"),
        (("produce", "any", "--key", "k"), 2, "--key-separator"),
        (("groups", "describe", "no-such-group"), 1, "odradek groups list"),
        (("groups", "delete", "no-such-group"), 1, "odradek groups list"),
        (("groups", "reset", "g", "--all-topics", "--to-earliest"), 1, "--topic"),
        (("groups", "reset", "g", "--topic", "t"), 2, "--to-earliest"),
        (("groups", "reset", "g", "--to-latest"), 2, "--all-topics"),
        (("groups", "reset", "g", "--topic", "no-such-topic", "--to-latest"), 1, "no-such-topic"),
        (("configs", "describe", "topic"), 2, "the name of the topic is missing"),
        (("configs", "alter", "topic", "t"), 2, "--set"),
        (("configs", "alter", "topic", "t", "--set", "nonsense"), 2, "name=value"),
        (("configs", "describe", "broker", "one"), 2, "expected a node id"),
        (("topics", "create", "t", "--config", "retention.ms"), 2, "name=value"),
        (("topics", "describe", "no-such-topic"), 1, "odradek topics list"),
        (("groups", "list", "--state", "Sleepy"), 2, "PreparingRebalance"),
        (("groups", "list", "--type", "sleepy"), 2, "classic"),
        (("groups", "reset", "g", "--from-file", "/no/such/file"), 2, "/no/such/file: No such file"),
        (("txns", "list", "--state", "Sleepy"), 2, "PrepareAbort"),
        (("txns", "describe", "no-such-id"), 1, "odradek txns list"),
        (("configs", "describe", "broker", "77"), 1, "broker 77"),
    ],
)
def test_invalid_operation_is_an_error_of_one_line_with_the_next_step(
    bootstrap_options: tuple[str, str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    finished = odradek(*arguments, *bootstrap_options)
    assert (finished.returncode, message in finished.stderr) == (code, True), finished.stderr
    assert len(finished.stderr.strip().splitlines()) == 1


def member(cluster: LocalCluster, group: str, topic: str, protocol: str) -> Consumer:
    """Return a member of the group that has consumed and committed all present records."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "client.id": f"{group}-client",
        }
    )
    consumer.subscribe([topic])
    message = None
    while message is None:
        message = consumer.poll(TIMEOUT_S)
    assert message.error() is None
    consumer.commit(message=message, asynchronous=False)
    return consumer


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_listed_described_reset_and_deleted(
    cluster: LocalCluster, topic: str, bootstrap_options: tuple[str, str], protocol: str
) -> None:
    group = f"{topic}-{protocol}"
    piped("".join(f"{number}\n" for number in range(5)), "produce", topic, "--partition", "1", *bootstrap_options)
    open_one = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": group})
    open_one.init_transactions(TIMEOUT_S)
    open_one.begin_transaction()
    open_one.produce(topic, b"open", partition=1)
    open_one.flush(TIMEOUT_S)
    consumer = member(cluster, group, topic, protocol)
    rows = {row["group"]: row for row in json_output("groups", "list", *bootstrap_options)}
    assert (rows[group]["type"], rows[group]["state"]) == (protocol, "Stable")
    described = json_output("groups", "describe", group, *bootstrap_options)
    [member_row] = described["members"]
    assert member_row["client_id"] == f"{group}-client"
    assert member_row["assignment"] == {topic: [0, 1, 2]}
    row = next(row for row in described["partitions"] if row["partition"] == 1)
    assert (row["committed_offset"], row["lag"], row["stable_lag"]) == (1, 5, 4)
    assert row["member_id"] == member_row["member_id"]
    assert next(row for row in described["partitions"] if row["partition"] == 0)["committed_offset"] is None
    lags = {row["group"]: row for row in json_output("status", "--dir", str(cluster.directory.path))["groups"]}
    assert (lags[group]["lag"], lags[group]["stable_lag"]) == (5, 4)
    refused = odradek("groups", "reset", group, "--topic", topic, "--to-earliest", "--execute", *bootstrap_options)
    assert (refused.returncode, "stop its consumers first" in refused.stderr) == (1, True)
    refused = odradek("groups", "delete", group, *bootstrap_options)
    assert (refused.returncode, "stop its consumers first" in refused.stderr) == (1, True)
    consumer.close()
    open_one.abort_transaction(TIMEOUT_S)
    assert "stable_lag" in odradek("groups", "describe", group, *bootstrap_options).stdout
    planned = json_output("groups", "reset", group, "--topic", f"{topic}:1", "--shift-by", "2", *bootstrap_options)
    assert planned["partitions"] == [{"topic": topic, "partition": 1, "committed_offset": 1, "new_offset": 3}]
    committed = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    assert committed.committed([TopicPartition(topic, 1)], TIMEOUT_S)[0].offset == 1
    json_output("groups", "reset", group, "--topic", f"{topic}:1", "--shift-by", "2", "--execute", *bootstrap_options)
    assert committed.committed([TopicPartition(topic, 1)], TIMEOUT_S)[0].offset == 3
    committed.close()
    assert json_output("groups", "delete", group, *bootstrap_options) == {"group": group, "deleted": True}
    assert group not in [row["group"] for row in json_output("groups", "list", *bootstrap_options)]


@pytest.mark.parametrize(
    ("specification", "expected"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [4, 4]),
        (("--to-current",), [1, 1]),
        (("--to-offset", "3"), [3, 3]),
        (("--to-offset", "99"), [4, 4]),
        (("--shift-by", "-7"), [0, 0]),
        (("--by-duration", "P1D"), [0, 0]),
        (("--to-datetime", "2099-01-01T00:00:00"), [4, 4]),
        (("--from-file",), [2, 4]),
    ],
)
def test_reset_accepts_each_specification(
    topic: str, bootstrap_options: tuple[str, str], tmp_path: Path, specification: tuple[str, ...], expected: list[int]
) -> None:
    for partition in "01":
        piped("a\nb\nc\nd\n", "produce", topic, "--partition", partition, *bootstrap_options)
    group = f"{topic}-reset"
    scope = ("--topic", f"{topic}:0,1")
    json_output("groups", "reset", group, *scope, "--to-offset", "1", "--execute", *bootstrap_options)
    if specification == ("--from-file",):
        plan = tmp_path / "plan.csv"
        plan.write_text(f"{topic},0,2\n{topic},1,7\n")
        json_output("groups", "reset", group, "--from-file", str(plan), "--execute", *bootstrap_options)
    else:
        json_output("groups", "reset", group, "--all-topics", *specification, "--execute", *bootstrap_options)
    rows = json_output("groups", "describe", group, *bootstrap_options)["partitions"]
    assert [row["committed_offset"] for row in rows] == expected
    assert [row["lag"] for row in rows] == [4 - offset for offset in expected]


def test_topic_configurations_are_described_and_altered(topic: str, bootstrap_options: tuple[str, str]) -> None:
    rows = json_output("configs", "describe", "topic", topic, *bootstrap_options)
    assert [row["name"] for row in rows if row["source"] == "topic"] == []
    changed = json_output(
        "configs",
        "alter",
        "topic",
        topic,
        "--set",
        "retention.ms=1000",
        "--append",
        "cleanup.policy=compact",
        *bootstrap_options,
    )
    assert changed["changed"] == ["retention.ms", "cleanup.policy"]
    rows = {row["name"]: row for row in json_output("configs", "describe", "topic", topic, *bootstrap_options)}
    assert {name: row["value"] for name, row in rows.items() if row["source"] == "topic"} == {
        "cleanup.policy": "delete,compact",
        "retention.ms": "1000",
    }
    assert rows["retention.ms"]["source"] == "topic"
    refused = odradek("configs", "alter", "topic", topic, "--set", "retention.ms=soon", *bootstrap_options)
    assert (refused.returncode, "retention.ms" in refused.stderr) == (1, True)
    json_output("configs", "alter", "topic", topic, "--delete", "retention.ms", "--dry-run", *bootstrap_options)
    assert "retention.ms" in odradek("configs", "describe", "topic", topic, *bootstrap_options).stdout
    json_output("configs", "alter", "topic", topic, "--delete", "retention.ms", *bootstrap_options)
    assert "retention.ms" not in odradek("configs", "describe", "topic", topic, *bootstrap_options).stdout
    everything = json_output("configs", "describe", "topic", topic, "--all", *bootstrap_options)
    assert next(row for row in everything if row["name"] == "retention.ms")["source"] == "default"


def test_broker_configurations_are_described_and_altered(
    bootstrap_options: tuple[str, str], cluster: LocalCluster
) -> None:
    json_output("configs", "alter", "broker", "--set", "log.retention.ms=86400000", *bootstrap_options)
    try:
        rows = {row["name"]: row for row in json_output("configs", "describe", "broker", "1", *bootstrap_options)}
        assert (rows["log.retention.ms"]["value"], rows["log.retention.ms"]["source"]) == (
            "86400000",
            "all brokers, dynamic",
        )
        assert rows["node.id"]["source"] == "broker, static"
    finally:
        json_output("configs", "alter", "broker", "--delete", "log.retention.ms", *bootstrap_options)


def test_commands_work_with_apache_kafka(kafka_broker: KafkaBroker) -> None:
    bootstrap_options = ("--bootstrap", kafka_broker.bootstrap)
    topic = f"kafka-{time.time_ns():x}"
    json_output("topics", "create", topic, "--partitions", "1", *bootstrap_options)
    sent = piped("a\nb\n", "produce", topic, "--transaction", "--json", *bootstrap_options)
    assert json.loads(sent.stdout)["transaction"] == "committed", sent.stderr
    assert piped("c\n", "produce", topic, "--abort", *bootstrap_options).returncode == 0
    assert [row["value"] for row in consumed(topic, *bootstrap_options)] == ["a", "b"]
    group = f"{topic}-group"
    json_output("groups", "reset", group, "--topic", topic, "--to-earliest", "--execute", *bootstrap_options)
    described = json_output("groups", "describe", group, *bootstrap_options)
    assert (described["type"], described["state"]) == ("classic", "Empty")
    assert [(row["committed_offset"], row["lag"]) for row in described["partitions"]] == [(0, 5)]
    assert group in [row["group"] for row in json_output("groups", "list", *bootstrap_options)]
    json_output("groups", "delete", group, *bootstrap_options)
    json_output("configs", "alter", "topic", topic, "--set", "retention.ms=1000", *bootstrap_options)
    assert "retention.ms" in odradek("configs", "describe", "topic", topic, *bootstrap_options).stdout
