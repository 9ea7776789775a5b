"""`odradek acls` and Kafka's kafka-acls against a broker with an authorizer."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from odradek import LocalCluster
from odradek.commands.application import app
from tests.support.kafka_broker import KafkaBroker
from tests.support.tool_comparison import ToolComparison
from tests.support.tool_jvm import tool_jvm

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": "true",
}
TIMEOUT_S = 30
ATTEMPTS = 10


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalCluster]:
    with LocalCluster(settings=SETTINGS) as running:
        yield running


def acls(cluster: LocalCluster, *words: str) -> str:
    finished = CliRunner().invoke(app, ["acls", *words, "--bootstrap", cluster.bootstrap])
    assert finished.exit_code == 0, finished.output
    return finished.stdout


def acls_json(cluster: LocalCluster, *words: str) -> Any:
    return json.loads(acls(cluster, *words, "--json"))


def produced(cluster: LocalCluster, topic: str) -> str:
    """Return the error of one produced record as text."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 10_000})
    errors: list[object] = []
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT_S)
    return repr(errors[0])


def test_added_acl_is_listed_explained_obeyed_and_removed(secured: LocalCluster, name: str) -> None:
    resource = f"topic:{name}"
    assert produced(secured, name) == "None"
    added = acls(secured, "add", "deny", "ANONYMOUS", "write", resource)
    assert added == f"added: DENY WRITE on TOPIC LITERAL {name} to User:ANONYMOUS from *\n"
    acls(secured, "add", "allow", "alice", "read,describe-configs", f"topic:{name[:6]}", "--prefixed", "--host", "::1")
    rows = acls_json(secured, "list", "--resource", resource, "--applying")
    assert [(row["resource"], row["host"], row["operation"], row["permission_type"]) for row in rows] == [
        (f"topic:{name[:6]}*", "::1", "read", "allow"),
        (f"topic:{name[:6]}*", "::1", "describe_configs", "allow"),
        (resource, "*", "write", "deny"),
    ]
    table = acls(secured, "list", "--user", "alice")
    assert max(map(len, table.splitlines())) <= 80
    assert "TOPIC_AUTHORIZATION_FAILED" in produced(secured, name)
    explained = acls(secured, "explain", "ANONYMOUS", "write", resource)
    assert explained == f"denied\nrule: ACL DENY WRITE on TOPIC LITERAL {name} to User:ANONYMOUS from *\n"
    assert acls_json(secured, "explain", "admin", "write", resource) == {
        "allowed": True,
        "rule": "super user",
        "acl": None,
    }
    for host, allowed in (("::1", True), ("127.0.0.1", False), ("", False)):
        found = acls_json(secured, "explain", "alice", "read", resource, "--host", host)
        assert found["allowed"] is allowed
    removed = acls(secured, "remove", "--user", "ANONYMOUS", "--resource", resource)
    assert removed.splitlines()[-1] == "removed 1 ACL"
    assert acls(secured, "remove", "--user", "alice").splitlines()[-1] == "removed 2 ACLs"
    assert produced(secured, name) == "None"


def test_invalid_words_are_named(secured: LocalCluster) -> None:
    for words, problem in (
        (("add", "permit", "alice", "read", "topic:t"), "permission permit: expected allow or deny"),
        (("add", "allow", "alice", "reed", "topic:t"), "operation reed: unknown; expected all, read, write,"),
        (("add", "allow", "alice", "read", "queue:t"), "resource queue:t: unknown type; expected topic,"),
        (("explain", "alice", "read", "topic"), "resource topic: the name is missing"),
        (("remove",), "no ACL is named"),
    ):
        finished = CliRunner().invoke(app, ["acls", *words, "--bootstrap", secured.bootstrap])
        assert finished.exit_code == 2
        assert problem in finished.stderr
    invalid = ("add", "allow", "alice", "read", "topic:t", "--host", "10.0.0.0/99", "--bootstrap", secured.bootstrap)
    refused = CliRunner().invoke(app, ["acls", *invalid])
    assert refused.exit_code == 1
    assert "Invalid CIDR notation '10.0.0.0/99'" in refused.stderr


ADDITIONS = [
    ("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "t"),
    ("--add", "--deny-principal", "User:bob", "--deny-host", "10.0.0.1", "--operation", "All", "--topic", "t"),
    ("--add", "--allow-principal", "User:alice", "--producer", "--topic", "t", "--idempotent"),
    ("--add", "--allow-principal", "User:alice", "--consumer", "--topic", "t", "--group", "g"),
    (
        "--add",
        "--allow-principal",
        "User:*",
        "--operation",
        "Describe",
        "--topic",
        "t-",
        "--resource-pattern-type",
        "prefixed",
    ),
    ("--add", "--allow-principal", "User:carol", "--operation", "TwoPhaseCommit", "--transactional-id", "x"),
    ("--add", "--allow-principal", "User:carol", "--operation", "Alter", "--cluster"),
    ("--add", "--allow-principal", "User:carol", "--operation", "DescribeTokens", "--user-principal", "User:dave"),
]
LISTS = [
    ("--list",),
    ("--list", "--topic", "t"),
    ("--list", "--topic", "t-1", "--resource-pattern-type", "match"),
    ("--list", "--topic", "t-", "--resource-pattern-type", "prefixed"),
    ("--list", "--principal", "User:alice"),
    ("--list", "--cluster"),
]
REMOVALS = [
    ("--remove", "--force", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "t"),
    ("--remove", "--force", "--topic", "t", "--resource-pattern-type", "any"),
    ("--remove", "--force", "--group", "g"),
]


@pytest.mark.full
def test_kafka_acls_prints_the_same_as_against_apache_kafka() -> None:
    settings = {**SETTINGS, "super.users": "User:ANONYMOUS"}
    with LocalCluster(settings=settings) as odradek, KafkaBroker(overrides=settings) as kafka:
        pair = ToolComparison(tool_jvm(), {"odradek": odradek.bootstrap, "kafka": kafka.bootstrap})
        for words in (*ADDITIONS, *LISTS, *REMOVALS, ("--list",)):
            outputs = pair.both("kafka-acls", *words)
            for _ in range(ATTEMPTS):  # a broker applies an ACL after the response of the controller
                if len({tuple(sorted(lines)) for lines in outputs.values()}) == 1:
                    break
                time.sleep(0.05)
                outputs = pair.both("kafka-acls", *words)
            assert sorted(outputs["odradek"]) == sorted(outputs["kafka"]), words
            assert outputs["odradek"][0] == "exit 0", outputs


@pytest.mark.full
def test_kafka_acls_without_an_authorizer_fails_as_with_apache_kafka(pair: ToolComparison) -> None:
    pair.same("kafka-acls", "--list")
    pair.same("kafka-acls", *ADDITIONS[0], about="SecurityDisabled")
