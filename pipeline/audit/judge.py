"""Judge the decisions of one transactional id by the markers and the data in the partitions. This module is pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client import TopicPartition
from odradek.pipeline.audit.alignment import Expected, Fit, Found, align
from odradek.pipeline.audit.decisions import TV2, epoch_follows, history_of
from odradek.pipeline.audit.evidence import NO_OFFSET, NO_TIME, Event, EventKind
from odradek.protocol.internal_topics import TRANSACTION_STATE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odradek.client.consumer.transitions import Transition
    from odradek.pipeline.audit.alignment import Pair
    from odradek.pipeline.audit.decisions import Decision
    from odradek.pipeline.audit.evidence import LogRange


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


_VIOLATIONS: Final = {
    Fit.MISSING: Kind.MISSING_MARKER,
    Fit.WRONG_KIND: Kind.WRONG_KIND,
    Fit.WRONG_EPOCH: Kind.WRONG_EPOCH,
    Fit.UNEXPECTED: Kind.NO_DECISION,
}
OPEN: Final = "Ongoing"
IN_DOUBT: Final = "in doubt"
COMPLETING: Final = "completing"
HANGING: Final = "hanging"
UNKNOWN: Final = "unknown"
NEVER_TIMES_OUT_MS: Final = 2_147_483_647
"""Time-out in ms of a transaction that takes part in a two-phase commit (KIP-939)."""
_OPEN_REASONS: Final = {
    Fit.PENDING: "its completion is not in the log",
    Fit.REMOVED: "the marker may be below the first offset of the log",
    Fit.FORMER_TOPIC: "the topic may have been created again after the decision",
}


def judge(
    transactional_id: str, transitions: Sequence[Transition], events: Sequence[Event], context: Context
) -> Judgment:
    """Judge one transactional id.

    Args:
        transactional_id: The id; empty if no transition names the producer of the events.
        transitions: All transitions of the id, in the order of their offsets.
        events: All events of the producer ids of the transactional id.
        context: The partitions that were read.
    """
    return _Judge(transactional_id, transitions, events, context).judged()


class _Judge:
    def __init__(
        self, transactional_id: str, transitions: Sequence[Transition], events: Sequence[Event], context: Context
    ) -> None:
        self._id = transactional_id
        self._context = context
        self._result = Judgment()
        self._lacks_history = not context.state_is_whole
        no_record_removed, last_gap = False, NO_OFFSET
        if transitions:
            log = context.state_logs[transitions[0].log_partition]
            self._lacks_history = log.may_lack_before(transitions[0].offset)
            no_record_removed, last_gap = log.is_whole, log.last_gap
        self._history = history_of(transitions, is_whole=no_record_removed, last_gap=last_gap)
        self._events: dict[tuple[int, TopicPartition], list[Event]] = {}
        for event in sorted(events, key=lambda each: each.first_offset):
            key = event.producer_id, TopicPartition(event.topic, event.partition)
            self._events.setdefault(key, []).append(event)
        self._open_reasons: dict[int, str] = {}
        """Reason why a decision is not decidable, by the offset of the decision."""
        self._violated: dict[int, str] = {}
        """First violation of a decision, by the offset of the decision."""

    def judged(self) -> Judgment:
        chains: dict[tuple[int, TopicPartition], list[Decision]] = {key: [] for key in self._events}
        for decision in self._history.decisions:
            for problem in decision.problems:
                place = TopicPartition(TRANSACTION_STATE, decision.log_partition)
                self._violation(
                    Kind.TRANSITIONS,
                    decision.producer_id,
                    decision.producer_epoch,
                    place,
                    decision.offset,
                    problem,
                    decision,
                )
            for partition in decision.partitions:
                chains.setdefault((decision.producer_id, partition), []).append(decision)
        for (producer_id, partition), decisions in chains.items():
            self._judge_partition(partition, decisions, self._events.get((producer_id, partition), []))
        self._result.decisions = [self._decided(decision) for decision in self._history.decisions]
        return self._result

    def _decided(self, decision: Decision) -> JudgedDecision:
        if decision.offset in self._violated:
            return JudgedDecision(decision, Status.VIOLATED, self._violated[decision.offset])
        if not decision.has_prepare:
            return JudgedDecision(decision, Status.UNDECIDABLE, "its Prepare record was removed from the log")
        if decision.offset in self._open_reasons:
            return JudgedDecision(decision, Status.UNDECIDABLE, self._open_reasons[decision.offset])
        return JudgedDecision(decision, Status.PROVEN if decision.partitions else Status.EMPTY, "")

    def _judge_partition(self, partition: TopicPartition, decisions: list[Decision], events: list[Event]) -> None:
        log = self._context.logs.get(partition)
        if log is None:
            for decision in decisions:
                self._open_reasons.setdefault(decision.offset, f"{partition} was not read")
            return
        chain = _Chain(log, decisions, events, self._lacks_history)
        for step in chain.steps:
            self._note(chain, step)
        self._judge_data(chain)

    def _note(self, chain: _Chain, step: _Step) -> None:
        """Record the result of one decision, one marker, or both."""
        decision, marker = step.decision, step.marker
        if marker is not None:
            offset = NO_OFFSET if decision is None else decision.offset
            self._result.markers.append(JudgedMarker(self._id, marker, step.fit, offset))
        if step.fit in _OPEN_REASONS and decision is not None:
            self._open_reasons.setdefault(decision.offset, f"{chain.partition}: {_OPEN_REASONS[step.fit]}")
        elif step.fit is Fit.MISSING and decision is not None:
            if chain.log.may_lack_after(step.after):
                reason = "its log is damaged" if chain.log.defect else "compaction may have removed the marker"
                self._open_reasons.setdefault(decision.offset, f"{chain.partition}: {reason}")
                return
            detail = f"no {_name(decision.commit)} marker of the decision in {_place(decision)}"
            offset = chain.last_data_after(step.after)
            self._violation(
                Kind.MISSING_MARKER,
                decision.producer_id,
                decision.producer_epoch,
                chain.partition,
                offset,
                detail,
                decision,
            )
        elif step.fit in _VIOLATIONS and marker is not None:
            kind = _VIOLATIONS[step.fit]
            is_commit = marker.kind is EventKind.COMMIT
            detail = f"{_name(is_commit)} marker with coordinator epoch {marker.coordinator_epoch}"
            if decision is not None:
                needed = f"{_name(decision.commit)} with epoch {decision.producer_epoch}"
                detail += f"; the decision in {_place(decision)} requires {needed}"
            self._violation(
                kind, marker.producer_id, marker.producer_epoch, chain.partition, marker.first_offset, detail, decision
            )

    def _judge_data(self, chain: _Chain) -> None:
        """Check that the data belongs to the transaction that the marker after it ends, or to an open one."""
        before: Event | None = None
        for index, event in enumerate(chain.events):
            if event.kind is not EventKind.DATA:
                before = event if index in chain.decided_by else before
                continue
            if before is not None and event.producer_epoch < before.producer_epoch:
                detail = f"the marker at offset {before.first_offset} has epoch {before.producer_epoch}"
                self._data_violation(Kind.LATE_DATA, chain, event, detail, chain.decided_by[chain.events.index(before)])
                continue
            closing = chain.next_marker(index)
            if closing is None:
                self._judge_open(chain, event)
            elif closing in chain.decided_by and not chain.log.may_lack_after(event.last_offset):
                decision = chain.decided_by[closing]
                if not _epoch_fits(event.producer_epoch, decision) and not chain.lacks_marker_of(event.producer_epoch):
                    detail = f"the decision in {_place(decision)} has epoch {decision.producer_epoch}"
                    self._data_violation(Kind.DATA_EPOCH, chain, event, detail, decision)

    def _judge_open(self, chain: _Chain, data: Event) -> None:
        """Judge data without a marker after it."""
        state = self._open_state(chain, data)
        self._result.open_data.append(OpenData(self._id, data, state))
        if state != HANGING or chain.last_fit is Fit.MISSING:  # the missing marker is the violation
            return
        marker = next((each for each in reversed(chain.events) if each.kind is not EventKind.DATA), None)
        if marker is None:
            self._data_violation(Kind.STRAY_DATA, chain, data, "no transaction in the log includes it")
        else:
            detail = f"the marker at offset {marker.first_offset} ended its transaction"
            self._data_violation(Kind.LATE_DATA, chain, data, detail)

    def _open_state(self, chain: _Chain, data: Event) -> str:
        current = self._history.current
        if self._history.is_open(data.producer_id, data.producer_epoch, chain.partition):
            in_doubt = current is not None and current.timeout_ms == NEVER_TIMES_OUT_MS
            return IN_DOUBT if in_doubt else OPEN
        if chain.last_fit is Fit.PENDING:
            return COMPLETING
        no_owner = current is None and self._lacks_history
        if no_owner or data.first_offset >= chain.log.judged_below or chain.log.may_lack_after(data.last_offset):
            return UNKNOWN
        return HANGING

    def _data_violation(
        self, kind: Kind, chain: _Chain, data: Event, detail: str, decision: Decision | None = None
    ) -> None:
        self._violation(
            kind, data.producer_id, data.producer_epoch, chain.partition, data.first_offset, detail, decision
        )

    def _violation(
        self,
        kind: Kind,
        producer_id: int,
        producer_epoch: int,
        where: TopicPartition,
        offset: int,
        detail: str,
        decision: Decision | None,
    ) -> None:
        found = Violation(kind, self._id, producer_id, producer_epoch, where.topic, where.partition, offset, detail)
        self._result.violations.append(found)
        if decision is not None:
            self._violated.setdefault(decision.offset, f"{kind.value} in {where}")


class _Step(NamedTuple):
    """One decision, one marker, or both. `after` is the last offset of the marker before it."""

    decision: Decision | None
    marker: Event | None
    fit: Fit
    after: int


class _Chain:
    """Decisions and events of one producer in one partition, matched."""

    def __init__(
        self, log: LogRange, decisions: Sequence[Decision], events: Sequence[Event], lacks_history: bool
    ) -> None:
        self.log = log
        self.partition = TopicPartition(log.topic, log.partition)
        self.events = events
        self.decided_by: dict[int, Decision] = {}
        """Decision of each marker that matches one, by the index of the marker in `events`."""
        self._markers = [index for index, event in enumerate(events) if event.kind is not EventKind.DATA]
        found = [_found(events, index, log.judged_below) for index in self._markers]
        pairs = align(
            [Expected(each.commit, each.producer_epoch, each.prepare_ms, each.complete_ms) for each in decisions],
            found,
            may_lack_found=log.start > 0,
            may_lack_expected=lacks_history,
        )
        self.steps: list[_Step] = []
        after = NO_OFFSET
        for number, (expected, position, matched) in enumerate(pairs):
            fit = matched
            decision = None if expected is None else decisions[expected]
            marker = None if position is None else events[self._markers[position]]
            if fit is Fit.MISSING and decision is not None and self._may_precede_topic(decision, after):
                fit = Fit.FORMER_TOPIC
            if fit is Fit.BY_OPERATOR and _precedes_commit(pairs, number, found):
                fit = Fit.UNEXPECTED
            if fit is Fit.MATCH and decision is not None and position is not None:
                self.decided_by[self._markers[position]] = decision
            self.steps.append(_Step(decision, marker, fit, after))
            after = after if marker is None else marker.last_offset

    @property
    def last_fit(self) -> Fit | None:
        """Result of the last decision, or None if there is no decision."""
        return next((step.fit for step in reversed(self.steps) if step.decision is not None), None)

    def lacks_marker_of(self, data_epoch: int) -> bool:
        """Return True if the marker is missing of a decision to which data with `data_epoch` may belong.

        Such data runs into the next transaction. The missing marker is the violation.
        """
        return any(
            step.fit is Fit.MISSING and step.decision is not None and _epoch_fits(data_epoch, step.decision)
            for step in self.steps
        )

    def next_marker(self, index: int) -> int | None:
        """Return the index of the first marker after an event, or None."""
        at = bisect_right(self._markers, index)
        return self._markers[at] if at < len(self._markers) else None

    def last_data_after(self, offset: int) -> int:
        """Return the last offset of the data after `offset` and before the next marker, or NO_OFFSET."""
        data = self._data_after(offset)
        return data[-1].last_offset if data else NO_OFFSET

    def _data_after(self, offset: int) -> list[Event]:
        """Return the data after `offset` and before the next marker."""
        following = (event for event in self.events if event.first_offset > offset)
        return list(takewhile(lambda event: event.kind is EventKind.DATA, following))

    def _may_precede_topic(self, decision: Decision, after: int) -> bool:
        """Return True if the marker of a decision may have been in a deleted topic with the same name.

        Then all markers in the log are later than the decision, and no data after the offset `after` is a part of its
        transaction. With TV1, only the time of the data shows this.
        """
        complete_ms = decision.complete_ms
        if complete_ms is None or NO_TIME < self.log.first_marker_ms <= complete_ms:
            return False
        return not any(
            _epoch_fits(data.producer_epoch, decision)
            and (decision.client_version >= TV2 or data.first_ms <= complete_ms)
            for data in self._data_after(after)
        )


def _found(events: Sequence[Event], index: int, judged_below: int) -> Found:
    marker, before = events[index], events[index - 1] if index else None
    data_epoch = before.producer_epoch if before is not None and before.kind is EventKind.DATA else None
    newer = marker.first_offset >= judged_below
    return Found(marker.kind is EventKind.COMMIT, marker.producer_epoch, marker.first_ms, data_epoch, newer)


def _precedes_commit(pairs: Sequence[Pair], number: int, found: Sequence[Found]) -> bool:
    """Return True if the next marker commits the transaction of a decision, and no data is between both markers.

    Then the marker has aborted a part of a committed transaction.
    """
    following = pairs[number + 1] if number + 1 < len(pairs) else None
    if following is None or following.fit is not Fit.MATCH or following.found is None:
        return False
    marker = found[following.found]
    return marker.commit and marker.data_epoch is None


def _epoch_fits(data_epoch: int, decision: Decision) -> bool:
    """Return True if data with `data_epoch` may belong to the transaction of the decision."""
    if decision.data_epoch >= 0:
        return data_epoch == decision.data_epoch
    return epoch_follows(data_epoch, decision)


def _name(commit: bool) -> str:
    return "COMMIT" if commit else "ABORT"


def _place(decision: Decision) -> str:
    return f"{TRANSACTION_STATE}-{decision.log_partition} at offset {decision.offset}"
