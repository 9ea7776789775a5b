"""Invariants of records: I1 no acknowledged record is lost; I2 no duplicates; I3 one value per offset; I4 order; I5
read_committed; I9 high watermarks and last stable offsets.

I5: a read_committed consumer receives no aborted and no uncommitted record.
"""

from collections.abc import Iterator, Sequence

from tests.sim.checkers.evidence import Evidence
from tests.sim.checkers.visibility import COMMITTED, PLAIN, SEQUENCES, PartitionModel, Slot
from tests.sim.history import FAIL, FETCH, LIST, OK, PRODUCE, READ_COMMITTED, Operation

ALL_REPLICAS = -1
RETRIABLE_READ_ERRORS = frozenset({3, 5, 6, 56, 74, 75, 78})
"""Errors that a Fetch may return for a moment:

UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH,
UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE.
"""

OFFSET_OUT_OF_RANGE = 1


def check_acknowledged(evidence: Evidence) -> Iterator[str]:
    """I1, I3: the log holds each acknowledged record at its acknowledged offset, with its value."""
    for operation in evidence.history.of(PRODUCE):
        if operation.outcome != OK or (evidence.replicated and operation.acks != ALL_REPLICAS):
            continue
        slots = evidence.partitions[operation.partition].slots
        for index, value in enumerate(operation.values):
            offset = operation.result_offset + index
            slot = slots.get(offset)
            if slot is None:
                yield (
                    f"I1 lost: {name(value)} was acknowledged at {where(operation, offset)}, the log has no record "
                    "there"
                )
            elif slot.value != value:
                yield (
                    f"I3 two values: {name(value)} was acknowledged at {where(operation, offset)}, "
                    f"{name(slot.value)} is there"
                )


def check_written_once(evidence: Evidence) -> Iterator[str]:
    """I2: a value is in the log at most once.

    A value whose attempts all failed, or that no client sent, is not in the log.
    """
    attempts: dict[bytes, list[Operation]] = {}
    for operation in evidence.history.of(PRODUCE):
        for value in operation.values:
            attempts.setdefault(value, []).append(operation)
    seen: dict[bytes, tuple[tuple[tuple[str, int], int], Slot]] = {}
    for partition, model in evidence.partitions.items():
        for slot in model.slots.values():
            place = (partition, slot.offset)
            before = seen.get(slot.value)
            if before is not None and _is_client_resend(evidence, attempts.get(slot.value, ()), before[1], slot):
                evidence.count("records resent by their client without sequence, or with a new producer epoch")
            elif before is not None:
                yield f"I2 duplicate: {name(slot.value)} is at {before[0]} and at {place}"
            seen[slot.value] = (place, slot)
            attempted = attempts.get(slot.value)
            if attempted is None:
                yield f"I2 unknown: {name(slot.value)} at {place} was never sent"
            elif all(operation.outcome == FAIL for operation in attempted):
                yield f"I2 refused yet written: {name(slot.value)} at {place}, error {attempted[0].error}"


def _is_client_resend(evidence: Evidence, attempts: Sequence[Operation], before: Slot, again: Slot) -> bool:
    """Return True if a client sent the value again without a sequence number or with a new producer epoch.

    No broker can detect such a duplicate.
    """
    same_numbers = before.producer_id >= 0 and (before.producer_id, before.producer_epoch) == (
        again.producer_id,
        again.producer_epoch,
    )
    return bool(attempts) and not same_numbers and all(attempt.process in evidence.repeaters for attempt in attempts)


def _is_later(sequence: int, before: int) -> bool:
    """Return True if `sequence` is at most half of all sequences after `before`: the highest is followed by 0."""
    return 0 < (sequence - before) % SEQUENCES < SEQUENCES // 2


def check_order(evidence: Evidence) -> Iterator[str]:
    """I4: records of one producer in one partition have ascending offsets in the order of their sequences."""
    last: dict[tuple[str, tuple[str, int], int, int], Operation] = {}
    for operation in evidence.history.of(PRODUCE):
        if operation.outcome != OK:
            continue
        key = (operation.process, operation.partition, operation.producer_id, operation.producer_epoch)
        before = last.get(key)
        if (
            before is not None
            and _is_later(operation.base_sequence, before.base_sequence)
            and before.result_offset >= operation.result_offset
        ):
            yield (
                f"I4 order: sequence {operation.base_sequence} at {where(operation, operation.result_offset)} "
                f"after {before.result_offset}"
            )
        last[key] = operation


def check_reads(evidence: Evidence) -> Iterator[str]:
    """I3, I5: each Fetch returned exactly the records of the log in its range.

    With read_committed: exactly the committed ones. A deposed leader may lack offsets that a client has read from its
    successor: it responds with OFFSET_OUT_OF_RANGE, unless a leader epoch fences it (`_may_lack_offset`).
    """
    last_epochs: dict[tuple[str, tuple[str, int]], int] = {}
    for operation in evidence.history.of(FETCH):
        key = (operation.process, operation.partition)
        if operation.outcome == OK:
            if operation.next_offset > operation.offset:
                last_epochs[key] = operation.leader_epoch
            yield from _check_read(evidence, operation)
        elif evidence.replicated and _may_lack_offset(operation, last_epochs.get(key, -1)):
            evidence.count("read without a leader epoch refused by a deposed leader")
        elif operation.error > 0 and operation.error not in RETRIABLE_READ_ERRORS:
            yield f"I4 refused read: error {operation.error} at {where(operation, operation.offset)}"


def _may_lack_offset(operation: Operation, last_epoch: int) -> bool:
    """Return True if the broker was a deposed leader that may lack the offset, and no leader epoch fences it.

    `last_epoch` is the leader epoch in the request that last moved the position of the client, or -1. The leader of
    that epoch had all records below the position, and they were committed. So the leader of an equal or later epoch has
    them, and a broker with another epoch than the request responds with an error of fencing. Requests below version 9
    have no leader epoch. Their broker may respond in a later epoch than the client knows, and a leader between both
    epochs may lack the offset. No leader lacks offset 0.
    """
    is_fenced = 0 <= last_epoch <= operation.leader_epoch
    return operation.error == OFFSET_OUT_OF_RANGE and operation.deposed and operation.offset > 0 and not is_fenced


def _check_read(evidence: Evidence, operation: Operation) -> Iterator[str]:
    committed = operation.isolation == READ_COMMITTED
    model = evidence.partitions.get(operation.partition) or PartitionModel()
    for offset, value in operation.records:
        slot = model.slots.get(offset)
        if slot is None or slot.value != value:
            yield (
                f"I3 read {name(value)} at {where(operation, offset)}, the log has "
                f"{name(slot.value) if slot else 'nothing'}"
            )
        elif committed and slot.status not in {PLAIN, COMMITTED}:
            yield f"I5 aborted read: {name(value)} at {where(operation, offset)} is {slot.status}"
    read = {offset for offset, _ in operation.records}
    whole = operation.partition not in evidence.compacted  # `check_table` checks compacted partitions
    for offset in range(operation.offset, operation.next_offset) if whole else ():
        slot = model.slots.get(offset)
        if slot is not None and offset not in read and (not committed or _is_visible(slot)):
            yield f"I4 skipped: {name(slot.value)} at {where(operation, offset)} was skipped"
    # A deposed leader may return an empty response for offsets that only its successor has. So only delivered records
    # are compared with the stable bound.
    if (
        committed
        and operation.next_offset > max(operation.offset, operation.stable_bound)
        and operation.stable_bound >= 0
    ):
        yield (
            f"I5 early read: up to {where(operation, operation.next_offset)}, the last stable offset was at most "
            f"{operation.stable_bound}"
        )


def check_watermarks(evidence: Evidence) -> Iterator[str]:
    """I9: the high watermark and the last stable offset never decrease.

    The last stable offset is at most the high watermark, and at most the last stable offset of the checkers' own model.
    """
    samples: dict[tuple[tuple[str, int], str], list[tuple[int, int, int]]] = {}
    for operation in evidence.history.of(FETCH, LIST):
        if operation.outcome != OK:
            continue
        high, stable = _sample(operation)
        if operation.kind == FETCH and stable > high:
            yield f"I9 last stable offset {stable} above high watermark {high} of {operation.partition}"
        if stable > operation.stable_bound >= 0:
            yield (
                f"I9 last stable offset {stable} of {operation.partition}, the last stable offset was at most "
                f"{operation.stable_bound}"
            )
        # After an election, the high watermark of Fetch responses may decrease. ListOffsets may not decrease (KIP-207).
        for mark, value in (("high watermark", high), ("last stable offset", stable)):
            if value >= 0 and operation.kind == LIST:
                samples.setdefault((operation.partition, mark), []).append(
                    (operation.invoked, operation.completed, value)
                )
    for (partition, mark), rows in samples.items():
        yield from _check_monotonic(f"I9 {mark} of {partition}", rows)


def _sample(operation: Operation) -> tuple[int, int]:
    if operation.kind == FETCH:
        return operation.high_watermark, operation.last_stable_offset
    if operation.isolation == READ_COMMITTED:
        return -1, operation.result_offset
    return operation.result_offset, -1


def _check_monotonic(what: str, rows: list[tuple[int, int, int]]) -> Iterator[str]:
    """Yield a finding for attempt response that is below a response completed before its request was sent."""
    completed = sorted(rows, key=lambda row: row[1])
    position, highest = 0, -1
    for invoked, _, value in sorted(rows):
        while completed[position][1] < invoked:
            highest = max(highest, completed[position][2])
            position += 1
        if value < highest:
            yield f"{what} went back from {highest} to {value}"


def _is_visible(slot: Slot) -> bool:
    return slot.status in {PLAIN, COMMITTED}


def name(value: bytes) -> str:
    """Return a value without its padding."""
    return value[:8].decode(errors="replace")


def where(operation: Operation, offset: int) -> str:
    return (
        f"{operation.partition[0]}-{operation.partition[1]}@{offset} (event {operation.invoked} of {operation.process})"
    )
