"""Validation of configurations of topics and brokers, with Kafka's error messages."""

import pytest

from odradek.broker.config import property as config_property
from odradek.broker.config.properties import NO_RECORD_LIMIT, NO_SHARE_GROUPS
from odradek.broker.config.property import ConfigError
from odradek.broker.config.topics import TopicSettings
from odradek.broker.replication.throttle import is_listed
from odradek.protocol.errors import MESSAGE_CHARACTERS_MAX, ErrorCode, Refusal
from tests.support.broker_context import config

E = ErrorCode
NO_TIERED_STORAGE = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
)


@pytest.mark.parametrize(
    ("name", "valid", "invalid", "message"),
    [
        ("compression.gzip.level", "-1", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.gzip.level", "9", "10", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "17", "18", "Value must be no more than 17"),
        ("compression.lz4.level", "1", "0", "Value must be at least 1"),
        ("compression.zstd.level", "-131072", "-131073", "Value must be at least -131072"),
        ("preallocate", "false", "maybe", "Expected value to be either true or false"),
    ],
)
def test_invalid_topic_value_is_refused_with_kafkas_message(name: str, valid: str, invalid: str, message: str) -> None:
    settings = TopicSettings(config())
    settings.validate("t", {name: valid})
    settings.log_config({name: valid})
    with pytest.raises(Refusal) as caught:
        settings.validate("t", {name: invalid})
    assert caught.value.message == f"Invalid value {invalid} for configuration {name}: {message}"


@pytest.mark.parametrize(
    ("name", "default", "other", "message"),
    [
        ("remote.storage.enable", "false", "true", NO_TIERED_STORAGE),
        ("remote.log.copy.disable", "false", "true", NO_TIERED_STORAGE),
        ("remote.log.delete.on.disable", "false", "true", NO_TIERED_STORAGE),
        ("local.retention.ms", "-2", "1000", NO_TIERED_STORAGE),
        ("local.retention.bytes", "-2", "1000", NO_TIERED_STORAGE),
        ("remote.copy.lag.ms", "0", "1000", NO_TIERED_STORAGE),
        ("remote.copy.lag.bytes", "-1", "1000", NO_TIERED_STORAGE),
        ("max.decompressed.message.bytes", "2147483639", "1000", NO_RECORD_LIMIT),
        ("errors.deadletterqueue.group.enable", "false", "true", NO_SHARE_GROUPS),
        (
            "preallocate",
            "false",
            "true",
            "Preallocation of segments is not supported: the size of a file is the end of its log.",
        ),
    ],
)
def test_unsupported_property_accepts_only_its_default(name: str, default: str, other: str, message: str) -> None:
    settings = TopicSettings(config())
    settings.validate("t", {name: default})
    settings.log_config({name: default})
    assert settings.text(name, {}) == default
    with pytest.raises(Refusal) as caught:
        settings.validate("t", {name: other})
    assert (caught.value.error, caught.value.message) == (E.INVALID_CONFIG, message)


def test_preallocation_in_a_node_configuration_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"log\.preallocate: 'true' is refused: Preallocation of segments is not supported"
    ):
        config("log.preallocate=true")


def test_log_config_has_the_level_of_the_compression_type() -> None:
    settings = TopicSettings(config("compression.zstd.level=5"))
    assert settings.log_config({"compression.type": "zstd"}).compression_level == 5
    assert settings.log_config({"compression.type": "lz4", "compression.lz4.level": "3"}).compression_level == 3
    assert settings.log_config({"compression.type": "snappy"}).compression_level is None
    assert settings.log_config({"compression.gzip.level": "9"}).compression_level is None


EMPTY = "Configuration 'cleanup.policy' values must not be empty."
UNKNOWN = "Invalid value x for configuration cleanup.policy: String must be one of: compact, delete"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("delete,,compact", EMPTY),
        ("delete,", EMPTY),
        (",delete", EMPTY),
        (" , ", EMPTY),
        ("x,", UNKNOWN),
        (",x", EMPTY),
        ("delete,x,", UNKNOWN),
    ],
)
def test_list_with_an_empty_item_is_refused(text: str, message: str) -> None:
    """The messages are those of Apache Kafka 4.3.1 (KIP-1161). In a stored list, empty items are ignored."""
    settings = TopicSettings(config())
    with pytest.raises(Refusal) as caught:
        settings.validate("t", {"cleanup.policy": text})
    assert (caught.value.error, caught.value.message) == (E.INVALID_CONFIG, message)
    with pytest.raises(Refusal) as caught:
        settings.validate_broker("1", {"log.cleanup.policy": text})
    broker_message = message.replace("cleanup.policy", "log.cleanup.policy")
    assert (caught.value.error, caught.value.message) == (E.INVALID_REQUEST, broker_message)
    if message is EMPTY and "x" not in text:
        remaining = tuple(item for item in ("delete", "compact") if item in text)
        assert settings.log_config({"cleanup.policy": text}).cleanup_policy == remaining


@pytest.mark.parametrize("text", ["0:1,,1:2", "0:1,", ",", "*,", "0:1,0:1"])
def test_throttled_replicas_are_stored_unchanged(text: str) -> None:
    settings, name = TopicSettings(config()), "leader.replication.throttled.replicas"
    settings.validate("t", {name: text})
    assert settings.text(name, {name: text}) == text
    assert is_listed(settings.log_config({name: text}).leader_replication_throttled_replicas, 0, 1) is (text != ",")


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("0.25f", "0.25"),
        ("1d", "1.0"),
        ("1.D", "1.0"),
        (".5", "0.5"),
        ("0x1p-2", "0.25"),
        ("0X.8P+0F", "0.5"),
        ("\t\x010.5\n", "0.5"),
        ("9e-4", "9.0E-4"),
        ("-0.0", "-0.0"),
        ("1e-400", "0.0"),
        ("NaN", "NaN"),
        ("+NaN", "NaN"),
    ],
)
def test_doubles_are_parsed_and_rendered_as_in_java(text: str, rendered: str) -> None:
    settings, name = TopicSettings(config()), "min.cleanable.dirty.ratio"
    settings.validate("t", {name: text})
    assert settings.text(name, {name: text}) == rendered


@pytest.mark.parametrize(
    ("text", "rendered", "reason"),
    [
        ("1e3f", "1000.0", "Value must be no more than 1"),
        ("12345678d", "1.2345678E7", "Value must be no more than 1"),
        ("1e400", "Infinity", "Value must be no more than 1"),
        ("0x1p1024", "Infinity", "Value must be no more than 1"),
        ("-0x1p1024", "-Infinity", "Value must be at least 0"),
        ("Infinity", "Infinity", "Value must be no more than 1"),
        *((text, text, "Not a number of type DOUBLE") for text in (
            "inf", "nan", "NaNd", "infinity", "1_0", "0x1", "0x.p1", "0.5ff", "0.5 f", "0.5L", "1e", "", "\u0661",
            "\u00a00.5",
        )),
    ],
)  # fmt: skip
def test_invalid_double_is_refused_with_kafkas_message(text: str, rendered: str, reason: str) -> None:
    with pytest.raises(Refusal) as caught:
        TopicSettings(config()).validate("t", {"min.cleanable.dirty.ratio": text})
    assert caught.value.message == f"Invalid value {rendered} for configuration min.cleanable.dirty.ratio: {reason}"


def test_nan_is_refused_as_a_load_factor_but_not_as_a_rate() -> None:
    """Kafka accepts NaN as a load factor. Its cleaner then has no capacity for any key."""
    settings = TopicSettings(config())
    settings.validate_broker("1", {"log.cleaner.io.max.bytes.per.second": "Infinity"})
    settings.validate_broker("1", {"log.cleaner.io.max.bytes.per.second": "NaN"})
    with pytest.raises(Refusal) as caught:
        settings.validate_broker("1", {"log.cleaner.io.buffer.load.factor": "NaN"})
    message = "Invalid value NaN for configuration log.cleaner.io.buffer.load.factor: Value must be at least 0.01"
    assert caught.value.message == message


@pytest.mark.parametrize("name", ["min.cleanable.dirty.ratio", "retention.ms"])
@pytest.mark.parametrize("text", ["1" * 32_766 + "x", "0" * 1_001, "." * 1_001, "1." + "1" * 32_000])
def test_long_number_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """A regular expression with two ways to match digits took a minute for 32,767 of them."""
    for expression in ("_DECIMAL", "_HEXADECIMAL", "_INTEGER"):
        monkeypatch.setattr(config_property, expression, None)
    with pytest.raises(Refusal) as refused:
        TopicSettings(config()).validate("t", {name: text})
    assert refused.value.error is E.INVALID_CONFIG
    assert len(refused.value.message or "") <= MESSAGE_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("text", "items"),
    [("a , b", ("a", "b")), ("a\t,\n b ", ("a", "b")), ("a b", ("a b",)), ("a, ,b", ("a", "", "b")), (",", ("", ""))],
)
def test_blanks_around_commas_are_removed(text: str, items: tuple[str, ...]) -> None:
    assert config_property._list(text) == items
