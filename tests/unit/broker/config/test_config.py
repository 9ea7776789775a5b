"""Configuration of a node: sources, precedence, validation, and the format of .properties files."""

import dataclasses

import pytest

from odradek.broker.config import doc as config_doc
from odradek.broker.config.addresses import parse_listeners
from odradek.broker.config.properties import PROPERTIES, Config
from odradek.broker.config.property import ConfigError, Kind, Password, Property
from odradek.broker.config.sources import load, with_host_name
from odradek.broker_interface import variable_name
from odradek.protocol.security_protocol import SecurityProtocol

REQUIRED = "log.dirs=/data"


def loaded(*assignments: str, properties: str = "", environment: dict[str, str] | None = None) -> Config:
    return load(properties=properties, environment=environment or {}, assignments=(REQUIRED, *assignments))


def test_default_of_each_property_is_valid() -> None:
    for prop in PROPERTIES.values():
        text = prop.render(prop.default)
        if text:
            assert prop.parse(text) == prop.default, prop.name


def test_each_property_is_an_attribute_of_config() -> None:
    fields = {field.name for field in dataclasses.fields(Config)} - {"given", "overrides", "without_effect", "unknown"}
    assert fields == {prop.attribute for prop in PROPERTIES.values()}


def test_environment_variables_of_the_command_line_are_ignored() -> None:
    environment = {"ODRADEK_BOOTSTRAP": "127.0.0.1:9092", "ODRADEK_CLIENT_CONFIG": "client.properties"}
    assert loaded(environment=environment).given == frozenset({"log.dirs"})


def test_environment_takes_precedence_over_the_file_and_assignments_over_both() -> None:
    config = loaded(
        "num.partitions=7",
        properties="num.partitions=5\nmessage.max.bytes=1000\nlog.segment.bytes=2000",
        environment={"ODRADEK_NUM_PARTITIONS": "6", "ODRADEK_MESSAGE_MAX_BYTES": "1001", "PATH": "/bin"},
    )
    assert (config.num_partitions, config.message_max_bytes, config.log_segment_bytes) == (7, 1001, 2000)
    assert config.given == {"log.dirs", "num.partitions", "message.max.bytes", "log.segment.bytes"}


def test_names_of_environment_variables_are_unique() -> None:
    assert len({variable_name(name) for name in PROPERTIES}) == len(PROPERTIES)
    assert variable_name("odradek.validate.records") == "ODRADEK_VALIDATE_RECORDS"


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("num.partitions=abc", "num.partitions: 'abc' is not an integer of 32 bits (--set)"),
        ("num.partitions=0", "num.partitions: 0 is below the smallest allowed value, 1 (--set)"),
        ("num.partitions=2147483648", "num.partitions: '2147483648' is not an integer of 32 bits (--set)"),
        ("auto.create.topics.enable=yes", "auto.create.topics.enable: 'yes' is not true or false (--set)"),
        ("odradek.initial.transaction.version=3", "odradek.initial.transaction.version: 3 is above"),
        ("log.cleanup.policy=shred", "log.cleanup.policy: 'shred' is not one of compact, delete (--set)"),
        ("no.such.name=1", "no.such.name: no such property (--set)"),
        ("num.partition=1", "num.partition: no such property (--set); did you mean num.partitions?"),
        ("num.partitions", "num.partitions: not of the form name=value (--set)"),
        ("log.dirs=", "log.dirs: not set"),
        ("log.dirs=/a,/b", "log.dirs: '/a,/b' names more than one directory"),
        ("listeners=", "listeners: at least one item is required"),
        ("listeners=A://h:1,", "listeners: 'A://h:1,' has an empty item (--set)"),
        ("advertised.listeners=", "advertised.listeners: at least one item is required (--set)"),
        ("controller.listener.names=,", "controller.listener.names: ',' has an empty item"),
        ("controller.quorum.voters=1@h:1,,2@h:2", "controller.quorum.voters: '1@h:1,,2@h:2' has an empty item"),
        ("group.consumer.assignors=", "group.consumer.assignors: at least one item is required"),
        ("log.cleaner.min.cleanable.ratio=1_0", "log.cleaner.min.cleanable.ratio: '1_0' is not a number"),
        ("listeners=PLAINTEXT:9092", "listeners: 'PLAINTEXT:9092' is not of the form NAME://host:port"),
        ("listeners=PLAINTEXT://h:65536", "listeners: 'PLAINTEXT://h:65536' is not of the form"),
        (
            "listeners=SASL_SSL://h:1",
            "sasl.enabled.mechanisms: not set, but the listener SASL_SSL uses SASL",
        ),
        ("listener.security.protocol.map=A", "listener.security.protocol.map: 'A' is not of the form NAME:PROTOCOL"),
        ("listener.security.protocol.map=A:TLS", "listener.security.protocol.map: 'A:TLS' is not of the form"),
        ("listener.security.protocol.map=A:SSL,a:SSL", "listener.security.protocol.map: A is listed twice"),
        ("listener.security.protocol.map=A:SSL", "listener.security.protocol.map: no entry for the listener PLAINTEXT"),
        (
            "listener.name.other.sasl.server.max.receive.size=1",
            "listener.name.other.sasl.server.max.receive.size: no listener of that name is in listeners (--set)",
        ),
        ("listener.name.plaintext.num.partitions=1", "listener.name.plaintext.num.partitions: no such property of a"),
        (
            "listener.name.plaintext.sasl.server.max.receive.size=0",
            "listener.name.plaintext.sasl.server.max.receive.size: 0 is below the smallest allowed value, 1 (--set)",
        ),
        ("listeners=A://h:1,B://h:1", "listeners: two listeners have the same port"),
        ("listeners=A://h:1,a://h:2", "listeners: A is listed twice"),
        ("advertised.listeners=OTHER://h:1", "advertised.listeners: OTHER is not in listeners"),
        ("advertised.listeners=PLAINTEXT://:1", "advertised.listeners: PLAINTEXT needs a host"),
        (
            "queued.max.request.bytes=1000",
            "queued.max.request.bytes: 1000 is less than the maximum size of one request",
        ),
        ("broker.heartbeat.interval.ms=9000", "broker.heartbeat.interval.ms: must be less than"),
    ],
)
def test_invalid_value_or_name_raises_one_line(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(assignment)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_error_in_a_file_names_file_and_line() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions: 'x' is not .* \(server\.properties line 3\)"):
        load(properties="# c\nlog.dirs=/d\nnum.partitions=x", properties_name="server.properties", environment={})


def test_last_value_of_a_repeated_name_in_a_file_counts_as_in_java() -> None:
    config = loaded(properties="num.partitions=x\nnum.partitions = 3\nno.such=1\nno.such=2")
    assert (config.num_partitions, len(config.unknown)) == (3, 1)
    assert "line 4" in config.unknown[0]


def test_malformed_escape_is_one_of_the_faults_of_a_file() -> None:
    text = "num.partitions=x\nmetric.reporters=C:\\users\nlog.dir=C:\\users\nnode.id=y\n\\users=1"
    with pytest.raises(ConfigError) as caught:
        load(properties=text, environment={})
    *malformed, node_id, partitions = sorted(str(caught.value).splitlines())
    fault = "four hexadecimal digits must follow \\u; write a backslash as \\\\"
    assert malformed == [f"file line {line}: {fault}" for line in (2, 3, 5)]
    assert node_id.startswith("node.id: 'y' is not ")
    assert partitions.startswith("num.partitions: 'x' is not ")


def test_unknown_environment_variable_raises_with_a_suggestion() -> None:
    with pytest.raises(
        ConfigError,
        match=r"ODRADEK_NUM_PARTITION: no such property \(environment\); did you mean ODRADEK_NUM_PARTITIONS\?",
    ):
        loaded(environment={"ODRADEK_NUM_PARTITION": "1"})


def test_advertised_address_defaults_to_the_address_of_the_listener() -> None:
    config = loaded("listeners=A://127.0.0.1:1,B://[::1]:0,C://0.0.0.0:3", "advertised.listeners=C://host:33")
    a, b, c = parse_listeners(config)
    assert (a.host, a.port, a.advertised_host, a.advertised_port) == ("127.0.0.1", 1, "127.0.0.1", 1)
    assert (b.host, b.port, b.advertised_host) == ("::1", 0, "::1")
    assert (c.host, c.advertised_host, c.advertised_port) == ("", "host", 33)


def test_listener_on_all_interfaces_advertises_the_host_name() -> None:
    config = with_host_name(loaded("listeners=PLAINTEXT://:9092"), "box")
    assert parse_listeners(config)[0].advertised_host == "box"
    mixed = with_host_name(loaded("listeners=A://[::1]:1,B://:2,C://:3", "advertised.listeners=C://c:4"), "box")
    advertised = [(listener.advertised_host, listener.advertised_port) for listener in parse_listeners(mixed)]
    assert advertised == [("::1", 1), ("box", 2), ("c", 4)]
    with_address = loaded("listeners=PLAINTEXT://127.0.0.1:9092")
    assert with_host_name(with_address, "box") is with_address


def test_generated_documentation_is_current() -> None:
    assert config_doc.PATH.read_text() == config_doc.render(), "python -m odradek.broker.config.doc --write"


def test_listener_without_an_entry_has_plaintext_only_without_the_map() -> None:
    config = loaded("listeners=INTERNAL://h:1,PLAINTEXT://h:2")
    assert [each.security_protocol for each in parse_listeners(config)] == [SecurityProtocol.PLAINTEXT] * 2


def test_map_gives_each_listener_its_protocol() -> None:
    config = loaded("listeners=SSL://h:1", "listener.security.protocol.map=ssl:plaintext")
    assert parse_listeners(config)[0].security_protocol is SecurityProtocol.PLAINTEXT


def test_property_of_one_listener_overrides_that_of_the_node() -> None:
    config = loaded(
        "listeners=IN://h:1,IN.B://h:2,C://h:3",
        "sasl.server.max.receive.size=10",
        "listener.name.in.sasl.server.max.receive.size=20",
        "listener.name.in.b.sasl.server.max.receive.size=30",
    )
    sizes = [config.on_listener(name).sasl_server_max_receive_size for name in ("IN", "IN.B", "C")]
    assert sizes == [20, 30, 10]
    assert config.sasl_server_max_receive_size == 10


def test_password_is_hidden_in_text_and_compared_by_its_value() -> None:
    password = Property("x.password", Kind.PASSWORD, None, "").parse_static(" secret ")
    assert password == Password("secret") != Password("other")
    assert len({password, Password("secret")}) == 1
    assert f"{password} {password!r} {[password]}" == "[hidden] [hidden] [[hidden]]"
