"""Options of the sink, with the names of Spark's own Kafka sink."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from odradek.client import RetryPolicy, Settings, TopicPartition
from odradek.spark.errors import InvalidInput
from odradek.spark.security import SECURITY_NAMES, security_of
from odradek.spark.source_values import topic_name

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_LEDGER_TOPIC: Final = "odradek-spark-ledger"
"""Topic whose partition 0 the committed offsets of all sinks refer to."""
DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 300_000
"""Default of `kafka.transaction.timeout.ms`, in milliseconds.

A batch must end within it. The transaction of a driver that does not return blocks read_committed consumers for this
time. Brokers allow at most 15 minutes by default (transaction.max.timeout.ms).
"""
SINK_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
MILLISECONDS: Final = 1_000.0
FIXED: Final = {
    "kafka.acks": ("all", "-1"),
    "kafka.enable.idempotence": ("true",),
}
"""Options of Kafka's producers with one supported value."""
NUMBERS: Final = (
    "kafka.delivery.timeout.ms", "kafka.request.timeout.ms", "kafka.retry.backoff.max.ms", "kafka.retry.backoff.ms",
    "kafka.transaction.timeout.ms",
)  # fmt: skip
NAMES: Final = (
    "kafka.bootstrap.servers", "kafka.client.id", "ledgertopic", "mode", "sink", "topic", *FIXED, *NUMBERS,
    *SECURITY_NAMES,
)  # fmt: skip
"""Supported options in lower case: Spark does not distinguish upper and lower case in names of options."""


class Mode(StrEnum):
    """Way in which the rows of a batch become visible together."""

    TRANSACTION = "txn"
    TWO_PHASE = "2pc"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Valid options of a sink.

    Attributes:
        bootstrap: `host:port,...` of some brokers.
        sink: Name of the sink, unique among all running queries of the cluster.
        topic: Topic of all rows. None if the rows have a column `topic`.
        ledger_topic: Topic of the ledger.
        transaction_timeout_ms: Time after which the coordinator aborts an open transaction, in milliseconds.
        settings: Settings of all connections.
        mode: One transaction per batch, or one per task with a two-phase commit.
    """

    bootstrap: str
    sink: str
    topic: str | None
    ledger_topic: str
    transaction_timeout_ms: int
    settings: Settings
    mode: Mode = Mode.TRANSACTION

    @property
    def transactional_id(self) -> str:
        """Transactional id of all transactions of the sink, and name of the group of its ledger."""
        return f"spark.{self.sink}"

    @property
    def task_prefix(self) -> str:
        """Prefix of the transactional ids of tasks. No sink name contains a slash, so no other sink has it."""
        return f"{self.transactional_id}/"

    def task_id(self, task: int) -> str:
        """Return the transactional id of a task in mode 2pc."""
        return f"{self.task_prefix}{task}"

    @property
    def ledger(self) -> TopicPartition:
        """Partition whose committed offset is the id of the last written batch + 1."""
        return TopicPartition(self.ledger_topic, 0)


def sink_options(options: Mapping[str, str | None], others: frozenset[str] = frozenset()) -> SinkOptions:
    """Check the options of a sink. `others` are names in lower case that the caller handles.

    Raises:
        InvalidInput: An option is unknown, missing or has an invalid value.
    """
    given = {name.lower(): str(value).strip() for name, value in options.items()}
    unknown = sorted(name for name in options if name.lower() not in {*NAMES, *others})
    if unknown:
        raise InvalidInput(f"unknown option {', '.join(unknown)}; the sink knows {', '.join(sorted(NAMES))}")
    if len(given) < len(options):
        raise InvalidInput("an option is given twice, in upper and lower case; remove one of them")
    for name, value in options.items():
        if value is None:
            raise InvalidInput(f"option {name} has the value None; give a text, or remove the option")
    for name in ("kafka.bootstrap.servers", "sink"):
        if not given.get(name):
            raise InvalidInput(f"option {name} is missing")
    for name in ("topic", "ledgerTopic"):
        if name.lower() in given:
            topic_name(name, given[name.lower()])
    if not SINK_NAME.fullmatch(given["sink"]):
        raise InvalidInput(f"option sink: {given['sink']!r} is no name; use 1 to 200 letters, digits, '.', '_' or '-'")
    for name, values in FIXED.items():
        if given.get(name, values[0]).lower() not in values:
            raise InvalidInput(f"option {name}: the sink supports {values[0]} alone")
    mode = given.get("mode", Mode.TRANSACTION.value)
    if mode not in {each.value for each in Mode}:
        raise InvalidInput(f"option mode: {mode!r} is no mode; use {' or '.join(each.value for each in Mode)}")
    retry = RetryPolicy(
        deadline_s=_milliseconds(given, "kafka.delivery.timeout.ms", 30_000) / MILLISECONDS,
        backoff_s=_milliseconds(given, "kafka.retry.backoff.ms", 100) / MILLISECONDS,
        backoff_max_s=_milliseconds(given, "kafka.retry.backoff.max.ms", 1_000) / MILLISECONDS,
    )
    settings = Settings(
        client_id=given.get("kafka.client.id", f"spark.{given['sink']}"),
        request_timeout_s=_milliseconds(given, "kafka.request.timeout.ms", 30_000) / MILLISECONDS,
        retry=retry,
        security=security_of(given),
    )
    return SinkOptions(
        given["kafka.bootstrap.servers"],
        given["sink"],
        given.get("topic"),
        given.get("ledgertopic", DEFAULT_LEDGER_TOPIC),
        _milliseconds(given, "kafka.transaction.timeout.ms", DEFAULT_TRANSACTION_TIMEOUT_MS),
        settings,
        Mode(mode),
    )


def _milliseconds(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) == 0 or int(text) >= 2**31:
        raise InvalidInput(f"option {name}: {text!r} is no positive number of milliseconds")
    return int(text)
