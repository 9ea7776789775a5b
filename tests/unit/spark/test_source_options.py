from __future__ import annotations

from typing import Any

import pytest

from odradek.client import EARLIEST, LATEST, IsolationLevel, TopicPartition
from odradek.spark.errors import InvalidInput
from odradek.spark.source_options import (
    Assignment,
    AtTimestamp,
    ByOffset,
    ByTimestamp,
    Everywhere,
    Pattern,
    SourceOptions,
    Topics,
    check_batch,
    check_stream,
    source_options,
)
from odradek.spark.source_reader import check_limits

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "flights"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def options(**given: str) -> SourceOptions:
    return source_options(GIVEN | given)


def test_names_ignore_upper_and_lower_case_and_the_defaults_are_safe() -> None:
    found = source_options({"KAFKA.bootstrap.servers": "h:1", "SUBSCRIBE": " a, b,,a "})
    assert found.subscription == Topics(("a", "b"))
    assert found.isolation is IsolationLevel.READ_COMMITTED
    assert found.fail_on_data_loss
    assert (found.start, found.end, found.headers, found.transactions) == (None, None, False, False)
    assert not found.limits


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("subscribePattern", "flights-.*", Pattern("flights-.*")),
        ("assign", '{"t": [1, 0, 1]}', Assignment((T1, T0))),
    ],
)
def test_subscription_by_pattern_or_assignment(name: str, value: str, expected: object) -> None:
    assert source_options({"kafka.bootstrap.servers": "h:1", name: value}).subscription == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOffsets": "Earliest"}, Everywhere(EARLIEST)),
        ({"startingOffsets": "latest"}, Everywhere(LATEST)),
        ({"startingOffsets": '{"t": {"0": 23, "1": -2}}'}, ByOffset({T0: 23, T1: -2})),
        ({"startingOffsetsByTimestamp": '{"t": {"0": 5}}', "startingOffsets": "latest"}, ByTimestamp({T0: 5})),
        ({"startingTimestamp": "7", "startingOffsetsByTimestamp": '{"t": {"0": 5}}'}, AtTimestamp(7)),
    ],
)
def test_timestamp_has_precedence_over_timestamps_and_these_over_offsets(
    given: dict[str, str], expected: object
) -> None:
    assert options(**given).start == expected


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"topic": "t"}, r"unknown option topic; the source knows assign, .*, subscribePattern"),
        ({"kafka.group.id": "g"}, r"unknown option kafka\.group\.id"),
        ({"kafka.auto.offset.reset": "latest"}, r"unknown option kafka\.auto\.offset\.reset"),
        ({"kafka.key.deserializer": "d"}, r"unknown option kafka\.key\.deserializer"),
        ({"kafka.value.deserializer": "d"}, r"unknown option kafka\.value\.deserializer"),
        ({"kafka.enable.auto.commit": "true"}, r"unknown option kafka\.enable\.auto\.commit"),
        ({"kafka.interceptor.classes": "i"}, r"unknown option kafka\.interceptor\.classes"),
        ({"kafka.bootstrap.servers": ""}, r"option kafka\.bootstrap\.servers is missing"),
        ({"kafka.security.protocol": "TLS"}, r"options kafka\.\*: security\.protocol is TLS, which does not exist"),
        ({"assign": '{"t": [0]}'}, "2 of the options assign, subscribe, subscribePattern are given; give exactly one"),
        ({"subscribe": " , "}, "option subscribe names no topic"),
        ({"subscribe": "a, b c"}, "option subscribe: 'b c' is no name of a topic; use 1 to 249 letters"),
        ({"startingOffsets": "first"}, "option startingOffsets: 'first' is invalid; give for example earliest"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "option startingOffsets"),
        ({"startingOffsets": '{"t": {"zero": 3}}'}, "option startingOffsets"),
        ({"startingOffsets": '{"t": [3]}'}, "option startingOffsets"),
        ({"startingOffsets": '{"t": {"0": true}}'}, "option startingOffsets"),
        ({"endingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "option endingOffsetsByTimestamp"),
        ({"startingTimestamp": "now"}, "option startingTimestamp: 'now' is no time in milliseconds"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "'earliest' is invalid; give error or latest"),
        ({"minPartitions": "0"}, "option minPartitions: '0' is no positive number"),
        ({"maxRecordsPerPartition": "-5"}, "option maxRecordsPerPartition: '-5' is no positive number"),
        ({"includeHeaders": "yes"}, "option includeHeaders: 'yes' is invalid; give true or false"),
        ({"failOnDataLoss": ""}, "option failOnDataLoss: '' is invalid"),
        ({"kafka.isolation.level": "serializable"}, "give read_committed or read_uncommitted"),
        (
            {"includeTransactions": "true", "kafka.isolation.level": "read_committed"},
            "option includeTransactions reads uncommitted records",
        ),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger is higher than"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay: 'soon' is no duration"),
        ({"kafka.request.timeout.ms": "0"}, "'0' is no positive number"),
    ],
)
def test_invalid_option_is_refused_by_name(changed: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        source_options(GIVEN | changed)


@pytest.mark.parametrize("pattern", ["(", ""])
def test_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInput, match="option subscribePattern is"):
        source_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": pattern})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"startingOffsets": "latest"}, "a batch query cannot begin at the latest offset"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "a batch query cannot begin at the latest offset"),
        ({"endingOffsets": "earliest"}, "a batch query cannot end at the earliest offset"),
        (
            {"startingOffsets": '{"t": {"0": 3}}', "endingOffsets": '{"t": {"1": 5}}'},
            "starting and ending options have different partitions",
        ),
        (
            {"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 3}}'},
            "t-0 begins at 5, after its end 3",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 5}}', "endingOffsetsByTimestamp": '{"t": {"0": 3}}'},
            "t-0 begins at 5, after its end 3",
        ),
        (
            {"startingTimestamp": "5", "endingTimestamp": "3"},
            "option startingTimestamp: 5 is after endingTimestamp 3; exchange them",
        ),
    ],
)
def test_batch_query_with_bounds_that_exclude_each_other_is_refused(changed: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_batch(options(**changed))


def test_batch_query_reads_everything_by_default_and_ignores_limits_of_triggers() -> None:
    assert check_batch(options(maxOffsetsPerTrigger="5")) == (Everywhere(EARLIEST), Everywhere(LATEST))


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_stream_with_an_end_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"option {name} is for batch queries alone"):
        check_stream({name.lower(): "5"})


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_limit_of_triggers_is_refused_by_versions_without_limits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.spark.source_reader.find_spec", lambda _: None)
    with pytest.raises(InvalidInput, match=f"option {name} needs pyspark 4.2 or later; remove it"):
        check_limits({name.lower(): "5"})
    monkeypatch.setattr("odradek.spark.source_reader.find_spec", lambda _: object())
    check_limits({name.lower(): "5"})


@pytest.mark.parametrize(("text", "seconds"), [("15m", 900.0), ("500 ms", 0.5), ("2H", 7200.0), ("250", 0.25)])
def test_durations_have_the_units_of_spark(text: str, seconds: float) -> None:
    assert options(maxTriggerDelay=text).limits.delay_s_max == pytest.approx(seconds)


def test_kafka_options_become_settings_of_the_client() -> None:
    given: dict[str, Any] = {
        "kafka.client.id": "c",
        "kafka.request.timeout.ms": "1500",
        "kafka.default.api.timeout.ms": "9000",
        "kafka.fetch.max.bytes": "1000",
    }
    found = options(**given)
    assert (found.settings.client_id, found.settings.request_timeout_s) == ("c", 1.5)
    assert (found.settings.retry.deadline_s, found.fetch_bytes_max) == (9.0, 1000)
