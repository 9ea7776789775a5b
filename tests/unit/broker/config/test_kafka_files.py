"""Files of Apache Kafka: properties without effect, unknown names, other names, and all faults together."""

from __future__ import annotations

import pytest

from odradek.broker.config.checks import CHECKS, CHECKS_OF_PROCESSES
from odradek.broker.config.properties import PROPERTIES
from odradek.broker.config.property import ConfigError
from odradek.broker.config.sources import SUGGESTIONS_MAX, load
from odradek.broker.config.without_effect import WITHOUT_EFFECT
from odradek.broker_interface import OTHER_NAMES


def in_file(*lines: str, strict: bool = False) -> str:
    """Return the faults of a file."""
    with pytest.raises(ConfigError) as caught:
        load(
            properties="\n".join(lines),
            properties_name="f",
            environment={},
            strict=strict,
            checks=(*CHECKS, *CHECKS_OF_PROCESSES),
        )
    return str(caught.value)


def test_properties_without_effect_are_accepted_and_kept_from_each_source() -> None:
    config = load(
        properties="num.io.threads=8\nsocket.send.buffer.bytes=1\nlog.dirs=/d",
        environment={"ODRADEK_BACKGROUND_THREADS": "3"},
        assignments=["num.io.threads=9"],
    )
    assert config.without_effect == {
        "num.io.threads": "9",
        "socket.send.buffer.bytes": "1",
        "background.threads": "3",
    }
    assert not config.unknown
    assert config.given == {"log.dirs"}


def test_all_faults_of_a_file_are_reported_each_with_its_line() -> None:
    faults = in_file(
        "num.io.threads=abc",
        "node.id=1",
        "compression.type=foo",
        "log.dirs=/a,/b",
        "broker.heartbeat.interval.ms=99999",
        "listeners=PLAINTEXT://:9092",
        "create.topic.policy.class.name=org.example.Policy",
        "listener.name.plaintext.sasl.server.max.receive.size=0",
        "controller.quorum.voters=1@h:1,2@h:2",
    ).splitlines()
    starts = [
        "num.io.threads: 'abc' is not an integer of 32 bits (f line 1)",
        "compression.type: 'foo' is not one of",
        "create.topic.policy.class.name: 'org.example.Policy' is refused: No classes of Java are loaded. Remove the",
        "listener.name.plaintext.sasl.server.max.receive.size: 0 is below the smallest allowed value, 1 (f line 8)",
        "log.dirs: '/a,/b' names more than one directory; keep one.",
        "broker.heartbeat.interval.ms: must be less than broker.session.timeout.ms (f line 5)",
        "inter.broker.listener.name: not set",
        "cluster.secret.file: not set, but the cluster has other nodes.",
    ]
    assert [fault[: len(start)] for fault, start in zip(faults, starts, strict=True)] == starts


def test_condition_on_an_invalid_property_is_not_reported() -> None:
    voters = "controller.quorum.voters=1@127.0.0.1:1,2@127.0.0.1:2"
    assert in_file("log.dirs=/d", "inter.broker.listener.name=A", "listeners=", voters).splitlines() == [
        "listeners: at least one item is required (f line 3)"
    ]


def test_unknown_name_in_a_file_is_a_warning_with_a_suggestion() -> None:
    text = "log.dirs=/d\nnum.network.thread=1\nlistener.name.plaintext.num.partitions=1"
    config = load(properties=text, properties_name="f", environment={})
    assert config.unknown == (
        "num.network.thread: no such property (f line 2); did you mean num.network.threads?",
        "listener.name.plaintext.num.partitions: no such property of a listener (f line 3)",
    )


def test_many_unknown_names_have_no_suggestions() -> None:
    unknown = "".join(f"num.network.threads{number}=1\n" for number in range(SUGGESTIONS_MAX + 1))
    config = load(properties="log.dirs=/d\n" + unknown, environment={})
    assert [message.endswith("did you mean num.network.threads?") for message in config.unknown] == [
        *[True] * SUGGESTIONS_MAX,
        False,
    ]


def test_unknown_name_in_a_file_is_a_fault_if_strict() -> None:
    assert in_file("log.dirs=/d", "inter.broker.listener.name=PLAINTEXT", "no.such.property=1", strict=True) == (
        "no.such.property: no such property (f line 3)"
    )


def test_property_of_a_listener_that_does_not_exist_is_a_fault() -> None:
    faults = in_file("log.dirs=/d", "inter.broker.listener.name=PLAINTEXT", "listener.name.other.ssl.client.auth=none")
    assert faults == "listener.name.other.ssl.client.auth: no listener of that name is in listeners (f line 3)"


@pytest.mark.parametrize(("text", "node_id"), [("broker.id=5", 5), ("node.id=0", 0), ("broker.id=5\nnode.id=6", 6)])
def test_broker_id_means_node_id_unless_that_is_set(text: str, node_id: int) -> None:
    config = load(properties=f"{text}\nlog.dir=/d", environment={})
    assert (config.node_id, config.log_dirs) == (node_id, "/d")


def test_property_with_an_effect_is_not_listed_as_one_without() -> None:
    assert [name for name in WITHOUT_EFFECT if name in PROPERTIES or name in OTHER_NAMES] == []
