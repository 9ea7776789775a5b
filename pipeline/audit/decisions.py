"""The decisions of a transactional id, read from its transitions. This module is pure.

A decision is a Prepare record with the Complete record after it. Its partitions are those of the Prepare record and of
the Ongoing record before it: a Complete record has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.client.consumer.transitions import COMMITS, COMPLETE, PREPARED
from odradek.pipeline.audit.evidence import NO_OFFSET
from odradek.protocol.txn_state import TxnState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.client import TopicPartition
    from odradek.client.consumer.transitions import Transition

EPOCH_MAX: Final = 32_767
TV2: Final = 2


@dataclass(slots=True)
class Decision:
    """A commit or an abort of a transactional id. Times are in ms since 1970, or -1 if the log does not have them.

    Attributes:
        transactional_id: Transactional id.
        commit: True for a commit.
        producer_id: Producer id of the markers.
        producer_epoch: Epoch of the markers.
        client_version: Transaction version of the end: 2 with TV2.
        log_partition: Partition of `__transaction_state`.
        offset: Offset of the Prepare record, or of the Complete record if the Prepare record is not in the log.
        has_prepare: True if the Prepare record is in the log.
        partitions: Partitions that need a marker.
        data_epoch: Epoch of the Ongoing record, or -1 if it is not in the log.
        begin_ms: Time of the first partition.
        prepare_ms: Time of the Prepare record.
        complete_ms: Time of the Complete record, or of the record after it; None if no later record is in the log.
        problems: Contradictions between the records.
    """

    transactional_id: str
    commit: bool
    producer_id: int
    producer_epoch: int
    client_version: int
    log_partition: int
    offset: int
    has_prepare: bool
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    data_epoch: int = -1
    begin_ms: int = -1
    prepare_ms: int = -1
    complete_ms: int | None = None
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class History:
    """Decisions of a transactional id in the order of its log.

    Attributes:
        decisions: Decisions.
        current: Last record of the id; None if there is none.
        begins_at: Offset of the first record of the id, or NO_OFFSET if there is none.
    """

    decisions: list[Decision]
    current: Transition | None
    begins_at: int

    def is_open(self, producer_id: int, producer_epoch: int, partition: TopicPartition) -> bool:
        """Return True if the current record is Ongoing, and the transaction includes the producer's partition."""
        now = self.current
        return (
            now is not None
            and now.state is TxnState.ONGOING
            and (now.producer_id, now.producer_epoch) == (producer_id, producer_epoch)
            and partition in now.partitions
        )


def history_of(transitions: Sequence[Transition], *, is_whole: bool, last_gap: int = NO_OFFSET) -> History:
    """Return the decisions of one transactional id. `transitions` are in the order of their offsets.

    `is_whole` is True if no record of the id was removed from the log. None was removed after the offset `last_gap`.
    """
    decisions: list[Decision] = []
    before: Transition | None = None
    for now in transitions:
        if before is not None and _repeats(before, now):
            continue
        open_decision = decisions[-1] if decisions and decisions[-1].complete_ms is None else None
        if now.state in PREPARED:
            decisions.append(_prepared(now, before, is_whole=is_whole))
        elif now.state in COMPLETE and (open_decision is None or before is None or before.state not in PREPARED):
            decisions.append(_without_prepare(now, is_whole=is_whole))
        elif open_decision is not None:
            open_decision.complete_ms = now.update_ms if now.update_ms >= 0 else now.timestamp_ms
            if now.state in COMPLETE and before is not None:
                _check_complete(open_decision, now, before)
        if now.state in PREPARED and open_decision is not None:
            open_decision.complete_ms = now.update_ms
        if open_decision is not None and before is not None and now.state not in COMPLETE and before.offset > last_gap:
            open_decision.problems.append(_followed(before, now))
        before = now
    first = transitions[0].offset if transitions else NO_OFFSET
    return History(decisions, transitions[-1] if transitions else None, first)


def _repeats(before: Transition, now: Transition) -> bool:
    """Return True if a coordinator may have written its last record again, after an append without a response."""
    return (
        now.state in (*PREPARED, *COMPLETE)
        and (now.state, now.producer_id, now.producer_epoch)
        == (before.state, before.producer_id, before.producer_epoch)
        and now.partitions == before.partitions
    )


def _followed(before: Transition, now: Transition) -> str:
    return f"{before.state_name} is followed by {now.state_name}"


def _prepared(now: Transition, before: Transition | None, *, is_whole: bool) -> Decision:
    decision = Decision(
        now.transactional_id,
        now.state in COMMITS,
        now.producer_id,
        now.producer_epoch,
        now.client_version,
        now.log_partition,
        now.offset,
        has_prepare=True,
        partitions=dict.fromkeys(now.partitions),
        begin_ms=now.start_ms,
        prepare_ms=now.update_ms,
    )
    if before is None or before.state is not TxnState.ONGOING:
        if is_whole and now.partitions:
            decision.problems.append(f"{now.state_name} with partitions, but without an Ongoing record before it")
        return decision
    decision.partitions |= dict.fromkeys(before.partitions)
    decision.data_epoch = before.producer_epoch
    if now.producer_id != before.producer_id or not epoch_follows(before.producer_epoch, decision):
        decision.problems.append(
            f"prepared as {now.producer_id}/{now.producer_epoch} after Ongoing as "
            f"{before.producer_id}/{before.producer_epoch}"
        )
    lacking = [str(each) for each in before.partitions if each not in set(now.partitions)]
    if lacking:
        decision.problems.append(f"the Prepare record lacks {', '.join(lacking)} of the Ongoing record")
    return decision


def epoch_follows(data: int, decision: Decision) -> bool:
    """Return True if the epoch of a decision's markers may follow the epoch `data` of its transaction.

    TV2 raises the epoch at each end. A classic commit keeps it. An abort by the broker raises it in both, and Apache
    Kafka before KAFKA-19367 raises it twice with TV2.
    """
    marker = decision.producer_epoch
    raised = min(data + 1, EPOCH_MAX)
    if decision.client_version >= TV2:
        return marker == raised or (not decision.commit and marker == min(data + 2, EPOCH_MAX))
    return marker == data or (not decision.commit and marker == raised)


def _without_prepare(now: Transition, *, is_whole: bool) -> Decision:
    decision = Decision(
        now.transactional_id,
        now.state in COMMITS,
        now.producer_id,
        now.producer_epoch,
        now.client_version,
        now.log_partition,
        now.offset,
        has_prepare=False,
        begin_ms=now.start_ms,
        complete_ms=now.update_ms,
    )
    if is_whole:
        decision.problems.append(f"{now.state_name} without a Prepare record, although no record was removed")
    return decision


def _check_complete(decision: Decision, now: Transition, before: Transition) -> None:
    """Check that a Complete record continues the Prepare record before it."""
    if (now.state in COMMITS) != decision.commit:
        decision.problems.append(_followed(before, now))
    after = before.producer_id, before.producer_epoch
    if before.next_producer_id != -1:
        after = before.next_producer_id, max(before.next_producer_epoch, 0)  # Kafka before KIP-939 leaves epoch 0 out
    if (now.producer_id, now.producer_epoch) != after:
        decision.problems.append(
            f"completed as {now.producer_id}/{now.producer_epoch} instead of {after[0]}/{after[1]}"
        )
