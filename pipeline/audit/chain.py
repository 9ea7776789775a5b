"""Match the decisions of one producer with its events in one partition. This module is pure."""

from __future__ import annotations

from bisect import bisect_right
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from odradek.client import TopicPartition
from odradek.pipeline.audit.alignment import Expected, Fit, Found, align
from odradek.pipeline.audit.decisions import TV2, epoch_follows
from odradek.pipeline.audit.evidence import NO_OFFSET, NO_TIME, Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.pipeline.audit.alignment import Pair
    from odradek.pipeline.audit.decisions import Decision
    from odradek.pipeline.audit.evidence import LogRange


class Step(NamedTuple):
    """One decision, one marker, or both. `after` is the last offset of the marker before it."""

    decision: Decision | None
    marker: Event | None
    fit: Fit
    after: int


class Chain:
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
        self.steps: list[Step] = []
        after = NO_OFFSET
        next_decisions = _next_decisions(pairs, decisions)
        for number, (expected, position, matched) in enumerate(pairs):
            fit = matched
            decision = None if expected is None else decisions[expected]
            marker = None if position is None else events[self._markers[position]]
            if fit is Fit.MISSING and decision is not None and self._may_precede_topic(decision, after):
                fit = Fit.FORMER_TOPIC
            if fit is Fit.BY_OPERATOR and marker is not None:
                commits_epoch = _commits_epoch(next_decisions[number], marker.producer_epoch)
                fit = Fit.UNEXPECTED if commits_epoch or _precedes_commit(pairs, number, found) else fit
            if fit is Fit.MATCH and decision is not None and position is not None:
                self.decided_by[self._markers[position]] = decision
            self.steps.append(Step(decision, marker, fit, after))
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
            step.fit is Fit.MISSING and step.decision is not None and epoch_fits(data_epoch, step.decision)
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
        transaction. With TV1, only the time of the data shows this. The log of a new topic lacks no offset.
        """
        complete_ms = decision.complete_ms
        if self.log.missing or complete_ms is None or NO_TIME < self.log.first_marker_ms <= complete_ms:
            return False
        return not any(
            epoch_fits(data.producer_epoch, decision)
            and (decision.client_version >= TV2 or data.first_ms <= complete_ms)
            for data in self._data_after(after)
        )


def _found(events: Sequence[Event], index: int, judged_below: int) -> Found:
    marker, before = events[index], events[index - 1] if index else None
    data_epoch = before.producer_epoch if before is not None and before.kind is EventKind.DATA else None
    newer = marker.first_offset >= judged_below
    return Found(marker.kind is EventKind.COMMIT, marker.producer_epoch, marker.first_ms, data_epoch, newer)


def _next_decisions(pairs: Sequence[Pair], decisions: Sequence[Decision]) -> list[Decision | None]:
    """Return the first decision after each pair, or None without one."""
    following: Decision | None = None
    reverse: list[Decision | None] = []
    for pair in reversed(pairs):
        reverse.append(following)
        following = following if pair.expected is None else decisions[pair.expected]
    return reverse[::-1]


def _commits_epoch(decision: Decision | None, epoch: int) -> bool:
    """Return True if a decision commits the transaction of an epoch.

    An ABORT marker with this epoch, before the marker of the decision, has aborted a part of that transaction. With
    TV1, many transactions have one epoch, and the result is False.
    """
    if decision is None or decision.client_version < TV2:
        return False
    return decision.commit and decision.data_epoch == epoch


def _precedes_commit(pairs: Sequence[Pair], number: int, found: Sequence[Found]) -> bool:
    """Return True if the next marker commits the transaction of a decision, and no data is between both markers.

    Then the marker has aborted a part of a committed transaction.
    """
    following = pairs[number + 1] if number + 1 < len(pairs) else None
    if following is None or following.fit is not Fit.MATCH or following.found is None:
        return False
    marker = found[following.found]
    return marker.commit and marker.data_epoch is None


def epoch_fits(data_epoch: int, decision: Decision) -> bool:
    """Return True if data with `data_epoch` may belong to the transaction of the decision."""
    if decision.data_epoch >= 0:
        return data_epoch == decision.data_epoch
    return epoch_follows(data_epoch, decision)
