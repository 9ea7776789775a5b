"""Judge the decisions of one transactional id by the markers and the data in the partitions. This module is pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.client import TopicPartition
from odradek.pipeline.audit.alignment import Fit
from odradek.pipeline.audit.chain import Chain, epoch_fits
from odradek.pipeline.audit.decisions import history_of
from odradek.pipeline.audit.evidence import NO_OFFSET, Event, EventKind
from odradek.pipeline.audit.judgment import (
    COMPLETING,
    HANGING,
    IN_DOUBT,
    OPEN,
    UNKNOWN,
    Context,
    JudgedDecision,
    JudgedMarker,
    Judgment,
    Kind,
    OpenData,
    Status,
    Violation,
)
from odradek.protocol.internal_topics import TRANSACTION_STATE
from odradek.protocol.txn_state import NEVER_TIMES_OUT_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.client.consumer.transitions import Transition
    from odradek.pipeline.audit.chain import Step
    from odradek.pipeline.audit.decisions import Decision

_VIOLATIONS: Final = {
    Fit.MISSING: Kind.MISSING_MARKER,
    Fit.WRONG_KIND: Kind.WRONG_KIND,
    Fit.WRONG_EPOCH: Kind.WRONG_EPOCH,
    Fit.UNEXPECTED: Kind.NO_DECISION,
}
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
        chain = Chain(log, decisions, events, self._lacks_history)
        for step in chain.steps:
            self._note(chain, step)
        self._judge_data(chain)

    def _note(self, chain: Chain, step: Step) -> None:
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

    def _judge_data(self, chain: Chain) -> None:
        """Check that the data belongs to the transaction that the marker after it ends, or to an open one."""
        before: int | None = None
        for index, event in enumerate(chain.events):
            if event.kind is not EventKind.DATA:
                before = index if index in chain.decided_by else before
                continue
            if before is not None and event.producer_epoch < (marker := chain.events[before]).producer_epoch:
                detail = f"the marker at offset {marker.first_offset} has epoch {marker.producer_epoch}"
                self._data_violation(Kind.LATE_DATA, chain, event, detail, chain.decided_by[before])
                continue
            closing = chain.next_marker(index)
            if closing is None:
                self._judge_open(chain, event)
            elif closing in chain.decided_by and not chain.log.may_lack_after(event.last_offset):
                decision = chain.decided_by[closing]
                if not epoch_fits(event.producer_epoch, decision) and not chain.lacks_marker_of(event.producer_epoch):
                    detail = f"the decision in {_place(decision)} has epoch {decision.producer_epoch}"
                    self._data_violation(Kind.DATA_EPOCH, chain, event, detail, decision)

    def _judge_open(self, chain: Chain, data: Event) -> None:
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

    def _open_state(self, chain: Chain, data: Event) -> str:
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
        self, kind: Kind, chain: Chain, data: Event, detail: str, decision: Decision | None = None
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


def _name(commit: bool) -> str:
    return "COMMIT" if commit else "ABORT"


def _place(decision: Decision) -> str:
    return f"{TRANSACTION_STATE}-{decision.log_partition} at offset {decision.offset}"
