"""Options of the source, with the names and rules of Spark's own Kafka source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.client import EARLIEST, LATEST, IsolationLevel, RetryPolicy, Settings, TopicPartition
from odradek.spark import source_values as values
from odradek.spark.errors import InvalidInput
from odradek.spark.security import SECURITY_NAMES, security_of

if TYPE_CHECKING:
    from collections.abc import Mapping

SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribePattern")
TRIGGER_OPTIONS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""Options of streaming queries alone. Batch queries ignore them, as in Spark's own source."""
ENDINGS: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
"""Options of batch queries alone."""
NAMES: Final = (
    *SUBSCRIPTIONS, *TRIGGER_OPTIONS, *ENDINGS, "failOnDataLoss", "includeHeaders", "includeTransactions",
    "maxRecordsPerPartition", "minPartitions", "startingOffsets", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "startingTimestamp", "kafka.bootstrap.servers", "kafka.client.id",
    "kafka.default.api.timeout.ms", "kafka.fetch.max.bytes", "kafka.isolation.level", "kafka.request.timeout.ms",
    "kafka.retry.backoff.max.ms", "kafka.retry.backoff.ms", *SECURITY_NAMES,
)  # fmt: skip
"""Supported options. Spark does not distinguish upper and lower case in names of options."""
DEFAULT_CLIENT_ID: Final = "spark-odradek-source"
DEFAULT_API_TIMEOUT_MS: Final = 60_000
"""Default of `kafka.default.api.timeout.ms`, in milliseconds: that of Kafka's consumers."""
DEFAULT_FETCH_BYTES: Final = 8 * 2**20
"""Default of `kafka.fetch.max.bytes`. A task holds two responses of this size and the columns of one."""
DEFAULT_TRIGGER_DELAY: Final = "15m"


@dataclass(frozen=True, slots=True)
class Topics:
    """Option `subscribe`: all partitions of the named topics."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Option `subscribePattern`: all partitions of the topics that contain a match. Internal topics are omitted."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """Option `assign`: the named partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Everywhere:
    """EARLIEST or LATEST, for all partitions."""

    value: int


@dataclass(frozen=True, slots=True)
class ByOffset:
    """One offset, EARLIEST or LATEST for each partition."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """One timestamp in milliseconds for each partition."""

    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """A timestamp in milliseconds, for all partitions."""

    timestamp: int


Bound = Everywhere | ByOffset | ByTimestamp | AtTimestamp


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """Limits of a micro-batch: minimum and maximum of its offsets, and the seconds after which the minimum is void."""

    offsets_min: int | None
    offsets_max: int | None
    delay_s_max: float

    def __bool__(self) -> bool:
        """Return True if there is a limit."""
        return self.offsets_min is not None or self.offsets_max is not None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Valid options of the source.

    Attributes:
        bootstrap: `host:port,...` of some brokers.
        subscription: The partitions.
        start: Begin of the first batch. None selects the default: EARLIEST in batch queries, LATEST in streams.
        end: End of a batch query.
        unmatched_start_is_end: Begin at the end of a partition that has no record at or after the start timestamp.
            Otherwise the query fails.
        partitions_min: Approximate minimum number of tasks.
        records_max: Maximum offsets per task.
        headers: Add the column `headers`.
        transactions: Add the columns of transactions, and the markers as rows.
        fail_on_data_loss: Fail if records were deleted before they were read. Otherwise skip them with a warning.
        isolation: Isolation level. It is READ_UNCOMMITTED with `transactions`.
        fetch_bytes_max: Maximum size of a Fetch response in bytes.
        limits: Limits of a micro-batch.
        settings: Settings of all connections.
    """

    bootstrap: str
    subscription: Topics | Pattern | Assignment
    start: Bound | None
    end: Bound | None
    unmatched_start_is_end: bool
    partitions_min: int | None
    records_max: int | None
    headers: bool
    transactions: bool
    fail_on_data_loss: bool
    isolation: IsolationLevel
    fetch_bytes_max: int
    limits: TriggerLimits
    settings: Settings


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Check the options of a source.

    Raises:
        InvalidInput: An option is unknown, missing or has an invalid value.
    """
    known = {name.lower(): name for name in NAMES}
    unknown = sorted(name for name in options if name.lower() not in known)
    if unknown:
        raise InvalidInput(f"unknown option {', '.join(unknown)}; the source knows {', '.join(sorted(NAMES))}")
    given = {known[name.lower()]: str(value).strip() for name, value in options.items()}
    if not given.get("kafka.bootstrap.servers"):
        raise InvalidInput("option kafka.bootstrap.servers is missing")
    transactions = values.flag(given, "includeTransactions", default=False)
    limits = TriggerLimits(
        values.number(given, "minOffsetsPerTrigger", values.LONG_MAX),
        values.number(given, "maxOffsetsPerTrigger", values.LONG_MAX),
        values.duration_s(given, "maxTriggerDelay", DEFAULT_TRIGGER_DELAY),
    )
    if limits.offsets_min is not None and limits.offsets_max is not None and limits.offsets_min > limits.offsets_max:
        raise InvalidInput("option minOffsetsPerTrigger is higher than maxOffsetsPerTrigger")
    return SourceOptions(
        bootstrap=given["kafka.bootstrap.servers"],
        subscription=_subscription(given),
        start=_bound(given, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"),
        end=_bound(given, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"),
        unmatched_start_is_end=values.choice(given, "startingOffsetsByTimestampStrategy", ("error", "latest"))
        == "latest",
        partitions_min=values.number(given, "minPartitions", values.INT_MAX),
        records_max=values.number(given, "maxRecordsPerPartition", values.LONG_MAX),
        headers=values.flag(given, "includeHeaders", default=False),
        transactions=transactions,
        fail_on_data_loss=values.flag(given, "failOnDataLoss", default=True),
        isolation=_isolation(given, transactions=transactions),
        fetch_bytes_max=values.number(given, "kafka.fetch.max.bytes", values.INT_MAX) or DEFAULT_FETCH_BYTES,
        limits=limits,
        settings=_settings(given),
    )


def check_stream(given: Mapping[str, str]) -> None:
    """Raise InvalidInput if an option of a streaming query is for batch queries alone."""
    lower = {name.lower() for name in given}
    for name in ENDINGS:
        if name.lower() in lower:
            raise InvalidInput(f"option {name} is for batch queries alone; remove it")


def check_batch(options: SourceOptions) -> tuple[Bound, Bound]:
    """Return begin and end of a batch query. Raise InvalidInput if they are the wrong way round."""
    start, end = options.start or Everywhere(EARLIEST), options.end or Everywhere(LATEST)
    if LATEST in _values(start):
        raise InvalidInput("option startingOffsets: a batch query cannot begin at the latest offset")
    if EARLIEST in _values(end):
        raise InvalidInput("option endingOffsets: a batch query cannot end at the earliest offset")
    if isinstance(start, AtTimestamp) and isinstance(end, AtTimestamp) and start.timestamp > end.timestamp:
        problem = f"option startingTimestamp: {start.timestamp} is after endingTimestamp {end.timestamp}"
        raise InvalidInput(f"{problem}; exchange them")
    for kind in (ByOffset, ByTimestamp):
        if isinstance(start, kind) and isinstance(end, kind):
            first, last = _by_partition(start), _by_partition(end)
            if first.keys() != last.keys():
                raise InvalidInput("starting and ending options have different partitions; name the same ones in both")
            for key in first:
                if first[key] > last[key] >= 0:
                    raise InvalidInput(f"{key} begins at {first[key]}, after its end {last[key]}; exchange them")
    return start, end


def _by_partition(bound: Bound) -> Mapping[TopicPartition, int]:
    if isinstance(bound, ByOffset):
        return bound.offsets
    return bound.timestamps if isinstance(bound, ByTimestamp) else {}


def _values(bound: Bound) -> set[int]:
    """Return the offsets of a bound that may be EARLIEST or LATEST."""
    if isinstance(bound, Everywhere):
        return {bound.value}
    return set(bound.offsets.values()) if isinstance(bound, ByOffset) else set()


def _subscription(given: Mapping[str, str]) -> Topics | Pattern | Assignment:
    found = [name for name in SUBSCRIPTIONS if name in given]
    if len(found) != 1:
        raise InvalidInput(f"{len(found)} of the options {', '.join(SUBSCRIPTIONS)} are given; give exactly one")
    [name] = found
    text = given[name]
    if name == "subscribe":
        names = tuple(dict.fromkeys(values.topic_name(name, each.strip()) for each in text.split(",") if each.strip()))
        if not names:
            raise InvalidInput("option subscribe names no topic; separate topics by commas")
        return Topics(names)
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidInput(f"option subscribePattern is no regular expression: {error}") from error
        if not text:
            raise InvalidInput("option subscribePattern is empty; give a regular expression")
        return Pattern(text)
    example = '{"topic": [0, 1]}'
    partitions = values.partitions(given, name, example)
    if not partitions:
        raise InvalidInput(f"option assign names no partition; give for example {example}")
    return Assignment(partitions)


def _bound(given: Mapping[str, str], timestamp: str, timestamps: str, offsets: str) -> Bound | None:
    """Return a bound. A timestamp has precedence over timestamps of partitions, and these over offsets."""
    if timestamp in given:
        return AtTimestamp(values.timestamp(given, timestamp))
    if timestamps in given:
        example = '{"topic": {"0": 1700000000000}}'
        return ByTimestamp(values.per_partition(given, timestamps, example, 0))
    if offsets in given:
        named = {"earliest": EARLIEST, "latest": LATEST}.get(given[offsets].lower())
        if named is not None:
            return Everywhere(named)
        example = 'earliest, latest or {"topic": {"0": 23, "1": -2}} with -1 for latest and -2 for earliest'
        return ByOffset(values.per_partition(given, offsets, example, EARLIEST))
    return None


def _isolation(given: Mapping[str, str], *, transactions: bool) -> IsolationLevel:
    name = "kafka.isolation.level"
    level = IsolationLevel[values.choice(given, name, ("read_committed", "read_uncommitted")).upper()]
    if not transactions:
        return level
    if name in given and level is IsolationLevel.READ_COMMITTED:
        raise InvalidInput(f"option includeTransactions reads uncommitted records; remove {name}")
    return IsolationLevel.READ_UNCOMMITTED


def _settings(given: Mapping[str, str]) -> Settings:
    def seconds(name: str, default_ms: int) -> float:
        return (values.number(given, name, values.INT_MAX) or default_ms) / 1_000

    retry = RetryPolicy(
        deadline_s=seconds("kafka.default.api.timeout.ms", DEFAULT_API_TIMEOUT_MS),
        backoff_s=seconds("kafka.retry.backoff.ms", 100),
        backoff_max_s=seconds("kafka.retry.backoff.max.ms", 1_000),
    )
    return Settings(
        client_id=given.get("kafka.client.id", DEFAULT_CLIENT_ID),
        request_timeout_s=seconds("kafka.request.timeout.ms", 30_000),
        retry=retry,
        security=security_of(given),
    )
