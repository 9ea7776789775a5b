"""Results of the judgment of transactions: decisions, markers, violations and open data. This module is pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.client import TopicPartition
    from odradek.pipeline.audit.alignment import Fit
    from odradek.pipeline.audit.decisions import Decision
    from odradek.pipeline.audit.evidence import Event, LogRange

OPEN: Final = "Ongoing"
IN_DOUBT: Final = "in doubt"
COMPLETING: Final = "completing"
HANGING: Final = "hanging"
UNKNOWN: Final = "unknown"


class Status(Enum):
    """Result for a decision. EMPTY: it concerns no partition, so that there is nothing to prove."""

    PROVEN = "proven"
    VIOLATED = "violated"
    UNDECIDABLE = "not decidable"
    EMPTY = "without partitions"


class Kind(Enum):
    """Kind of a violation."""

    MISSING_MARKER = "marker missing"
    WRONG_KIND = "marker of the wrong kind"
    WRONG_EPOCH = "marker with the wrong epoch"
    NO_DECISION = "marker without a decision"
    LATE_DATA = "data after the marker"
    STRAY_DATA = "data without a transaction"
    DATA_EPOCH = "data with the wrong epoch"
    TRANSITIONS = "records that contradict each other"
    DAMAGED = "damaged batch"


class Violation(NamedTuple):
    """A violation, with the place in the logs. Fields without a value are empty or -1."""

    kind: Kind
    transactional_id: str
    producer_id: int
    producer_epoch: int
    topic: str
    partition: int
    offset: int
    detail: str

    def __str__(self) -> str:
        name = self.transactional_id or "an unknown transactional id"
        where = f"{self.topic}-{self.partition} at offset {self.offset}"
        return f"{self.kind.value}: {name}, producer {self.producer_id}/{self.producer_epoch}, {where}: {self.detail}"


class JudgedMarker(NamedTuple):
    """A marker with its relation to a decision. `decision_offset` is that of the Prepare record, or NO_OFFSET."""

    transactional_id: str
    marker: Event
    fit: Fit
    decision_offset: int


class OpenData(NamedTuple):
    """Data of a producer without a marker after it. It holds back the last stable offset at its first offset."""

    transactional_id: str
    data: Event
    state: str


@dataclass(frozen=True, slots=True)
class JudgedDecision:
    """A decision with its result. `reason` is empty for PROVEN."""

    decision: Decision
    status: Status
    reason: str


@dataclass(slots=True)
class Judgment:
    """Results for one transactional id."""

    decisions: list[JudgedDecision] = field(default_factory=list)
    markers: list[JudgedMarker] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    open_data: list[OpenData] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Context:
    """Partitions that were read.

    Attributes:
        logs: Ranges of the data partitions.
        state_logs: Ranges of the partitions of `__transaction_state` by index.
        state_is_whole: True if all partitions of `__transaction_state` were read, and no record was removed from them.
    """

    logs: Mapping[TopicPartition, LogRange]
    state_logs: Mapping[int, LogRange]
    state_is_whole: bool
