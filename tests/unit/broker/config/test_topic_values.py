"""What the settings of topics may be: levels of compression, and what is accepted only where it is off."""

import pytest

from odradek.broker.config.property import ConfigError
from odradek.broker.config.topics import TopicSettings
from odradek.broker.replication.throttle import is_listed
from odradek.protocol.errors import ErrorCode, Refusal
from tests.support.broker_context import config

E = ErrorCode
NO_TIERS = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."


@pytest.mark.parametrize(
    ("name", "good", "bad", "message"),
    [
        ("compression.gzip.level", "-1", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.gzip.level", "9", "10", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "17", "18", "Value must be no more than 17"),
        ("compression.lz4.level", "1", "0", "Value must be at least 1"),
        ("compression.zstd.level", "-131072", "-131073", "Value must be at least -131072"),
        ("preallocate", "false", "maybe", "Expected value to be either true or false"),
    ],
)
def test_values_of_topics_are_checked_in_kafkas_words(name: str, good: str, bad: str, message: str) -> None:
    made = TopicSettings(config())
    made.validate("t", {name: good})
    made.log_config({name: good})
    with pytest.raises(Refusal) as caught:
        made.validate("t", {name: bad})
    assert caught.value.message == f"Invalid value {bad} for configuration {name}: {message}"


@pytest.mark.parametrize(
    ("name", "default", "other", "message"),
    [
        ("remote.storage.enable", "false", "true", NO_TIERS),
        ("remote.log.copy.disable", "false", "true", NO_TIERS),
        ("remote.log.delete.on.disable", "false", "true", NO_TIERS),
        ("local.retention.ms", "-2", "1000", NO_TIERS),
        ("local.retention.bytes", "-2", "1000", NO_TIERS),
        (
            "preallocate",
            "false",
            "true",
            "Preallocation of segments is not supported: the size of a file is the end of its log.",
        ),
    ],
)
def test_what_does_not_exist_here_can_be_said_to_be_off(name: str, default: str, other: str, message: str) -> None:
    made = TopicSettings(config())
    made.validate("t", {name: default})
    made.log_config({name: default})
    assert made.text(name, {}) == default
    with pytest.raises(Refusal) as caught:
        made.validate("t", {name: other})
    assert (caught.value.error, caught.value.message) == (E.INVALID_CONFIG, message)


def test_a_node_cannot_be_told_to_preallocate() -> None:
    with pytest.raises(
        ConfigError, match=r"log\.preallocate: 'true' is refused: Preallocation of segments is not supported"
    ):
        config("log.preallocate=true")


def test_storage_gets_the_levels_of_compression() -> None:
    made = TopicSettings(config("compression.zstd.level=5"))
    assert made.log_config({"compression.type": "zstd"}).compression_level == 5
    assert made.log_config({"compression.type": "lz4", "compression.lz4.level": "3"}).compression_level == 3
    assert made.log_config({"compression.type": "snappy"}).compression_level is None
    assert made.log_config({"compression.gzip.level": "9"}).compression_level is None


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
def test_items_of_lists_are_not_empty(text: str, message: str) -> None:
    """KIP-1161, as Apache Kafka 4.3.1 puts it; of what was set before, the items that there are hold."""
    made = TopicSettings(config())
    with pytest.raises(Refusal) as caught:
        made.validate("t", {"cleanup.policy": text})
    assert (caught.value.error, caught.value.message) == (E.INVALID_CONFIG, message)
    with pytest.raises(Refusal) as caught:
        made.validate_broker({"log.cleanup.policy": text})
    said = message.replace("cleanup.policy", "log.cleanup.policy")
    assert (caught.value.error, caught.value.message) == (E.INVALID_REQUEST, said)
    if message is EMPTY and "x" not in text:
        held = tuple(item for item in ("delete", "compact") if item in text)
        assert made.log_config({"cleanup.policy": text}).cleanup_policy == held


@pytest.mark.parametrize("text", ["0:1,,1:2", "0:1,", ",", "*,", "0:1,0:1"])
def test_throttled_replicas_are_kept_as_they_were_given(text: str) -> None:
    made, name = TopicSettings(config()), "leader.replication.throttled.replicas"
    made.validate("t", {name: text})
    assert made.text(name, {name: text}) == text
    assert is_listed(made.log_config({name: text}).leader_replication_throttled_replicas, 0, 1) is (text != ",")


@pytest.mark.parametrize(
    ("text", "shown"),
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
def test_doubles_are_read_as_java_reads_them(text: str, shown: str) -> None:
    made, name = TopicSettings(config()), "min.cleanable.dirty.ratio"
    made.validate("t", {name: text})
    assert made.text(name, {name: text}) == shown


@pytest.mark.parametrize(
    ("text", "shown", "reason"),
    [
        ("1e3f", "1000.0", "Value must be no more than 1"),
        ("12345678d", "1.2345678E7", "Value must be no more than 1"),
        ("1e400", "Infinity", "Value must be no more than 1"),
        ("0x1p1024", "Infinity", "Value must be no more than 1"),
        ("-0x1p1024", "-Infinity", "Value must be at least 0"),
        ("Infinity", "Infinity", "Value must be no more than 1"),
        *((text, text, "Not a number of type DOUBLE") for text in (
            "inf", "nan", "NaNd", "infinity", "1_0", "0x1", "0x.p1", "0.5ff", "0.5 f", "0.5L", "1e", "", "\u0661", "\u00a00.5",
        )),
    ],
)  # fmt: skip
def test_doubles_that_are_refused(text: str, shown: str, reason: str) -> None:
    with pytest.raises(Refusal) as caught:
        TopicSettings(config()).validate("t", {"min.cleanable.dirty.ratio": text})
    assert caught.value.message == f"Invalid value {shown} for configuration min.cleanable.dirty.ratio: {reason}"


def test_a_bound_that_kafka_does_not_have_is_one_for_nan_too() -> None:
    """Kafka takes it, and its cleaner has no room for a single key from then on."""
    made = TopicSettings(config())
    made.validate_broker({"log.cleaner.io.max.bytes.per.second": "Infinity"})
    made.validate_broker({"log.cleaner.io.max.bytes.per.second": "NaN"})
    with pytest.raises(Refusal) as caught:
        made.validate_broker({"log.cleaner.io.buffer.load.factor": "NaN"})
    told = "Invalid value NaN for configuration log.cleaner.io.buffer.load.factor: Value must be at least 0.01"
    assert caught.value.message == told
