"""I1 no acknowledged record lost, I2 none twice, I3 one value per offset, I4 order, I5 no aborted or uncommitted record read, I9 watermarks."""

from collections.abc import Iterator, Sequence

from tests.sim.checkers.evidence import Evidence
from tests.sim.checkers.visibility import COMMITTED, PLAIN, PartitionModel, Slot
from tests.sim.history import FAIL, FETCH, LIST, OK, PRODUCE, READ_COMMITTED, Operation

ALL = -1
REFUSALS_OF_A_MOMENT = frozenset({3, 5, 6, 56, 74, 75, 78})
"""A reader may be told: no such partition (yet), no leader, not the leader, storage error, another leader epoch, offset not available yet."""


def check_acknowledged(evidence: Evidence) -> Iterator[str]:
    """I1, I3: what was acknowledged at an offset is there, with that value."""
    for operation in evidence.history.of(PRODUCE):
        if operation.outcome != OK or (evidence.replicated and operation.acks != ALL):
            continue
        slots = evidence.partitions[operation.partition].slots
        for index, value in enumerate(operation.values):
            offset = operation.result_offset + index
            slot = slots.get(offset)
            if slot is None:
                yield f"I1 lost: {name(value)} was acknowledged at {where(operation, offset)}, nothing is there"
            elif slot.value != value:
                yield f"I3 two values: {name(value)} was acknowledged at {where(operation, offset)}, {name(slot.value)} is there"


def check_written_once(evidence: Evidence) -> Iterator[str]:
    """I2: a value is in the log at most once; one whose every attempt was refused is not there at all; one that nobody wrote neither."""
    attempts: dict[bytes, list[Operation]] = {}
    for operation in evidence.history.of(PRODUCE):
        for value in operation.values:
            attempts.setdefault(value, []).append(operation)
    seen: dict[bytes, tuple[tuple[tuple[str, int], int], Slot]] = {}
    for partition, model in evidence.partitions.items():
        for slot in model.slots.values():
            place = (partition, slot.offset)
            before = seen.get(slot.value)
            if before is not None and _may_repeat(evidence, attempts.get(slot.value, ()), before[1], slot):
                evidence.count("records that their client has sent again without numbers, or with new ones")
            elif before is not None:
                yield f"I2 duplicate: {name(slot.value)} is at {before[0]} and at {place}"
            seen[slot.value] = (place, slot)
            tried = attempts.get(slot.value)
            if tried is None:
                yield f"I2 unknown: {name(slot.value)} at {place} was never sent"
            elif all(operation.outcome == FAIL for operation in tried):
                yield f"I2 refused yet written: {name(slot.value)} at {place}, error {tried[0].error}"


def _may_repeat(evidence: Evidence, attempts: Sequence[Operation], before: Slot, again: Slot) -> bool:
    """No broker can tell a repetition that has no sequence number, or the number of another epoch."""
    same_numbers = before.producer_id >= 0 and (before.producer_id, before.producer_epoch) == (
        again.producer_id,
        again.producer_epoch,
    )
    return bool(attempts) and not same_numbers and all(each.process in evidence.repeaters for each in attempts)


def check_order(evidence: Evidence) -> Iterator[str]:
    """I4: of one producer and partition, what was acknowledged later lies later."""
    last: dict[tuple[str, tuple[str, int], int, int], Operation] = {}
    for operation in evidence.history.of(PRODUCE):
        if operation.outcome != OK:
            continue
        key = (operation.process, operation.partition, operation.producer_id, operation.producer_epoch)
        before = last.get(key)
        if (
            before is not None
            and before.base_sequence < operation.base_sequence
            and before.result_offset >= operation.result_offset
        ):
            yield f"I4 order: sequence {operation.base_sequence} at {where(operation, operation.result_offset)} after {before.result_offset}"
        last[key] = operation


def check_reads(evidence: Evidence) -> Iterator[str]:
    """I3, I5: each Fetch delivered exactly what the log holds in its range, for read_committed exactly the committed records."""
    for operation in evidence.history.of(FETCH):
        if operation.outcome == OK:
            yield from _check_read(evidence, operation)
        elif operation.error > 0 and operation.error not in REFUSALS_OF_A_MOMENT:
            yield f"I4 refused read: error {operation.error} at {where(operation, operation.offset)}"


def _check_read(evidence: Evidence, operation: Operation) -> Iterator[str]:
    committed = operation.isolation == READ_COMMITTED
    model = evidence.partitions.get(operation.partition) or PartitionModel()
    for offset, value in operation.records:
        slot = model.slots.get(offset)
        if slot is None or slot.value != value:
            yield f"I3 read {name(value)} at {where(operation, offset)}, the log has {name(slot.value) if slot else 'nothing'}"
        elif committed and slot.status not in {PLAIN, COMMITTED}:
            yield f"I5 aborted read: {name(value)} at {where(operation, offset)} is {slot.status}"
    read = {offset for offset, _ in operation.records}
    whole = operation.partition not in evidence.compacted  # else `check_table` says what may be missing
    for offset in range(operation.offset, operation.next_offset) if whole else ():
        slot = model.slots.get(offset)
        if slot is not None and offset not in read and (not committed or _is_visible(slot)):
            yield f"I4 skipped: {name(slot.value)} at {where(operation, offset)} was passed over"
    # Who asks a leader of the past for what its successor has told of is given nothing: there only what was delivered can be too early.
    if (
        committed
        and operation.next_offset > max(operation.offset, operation.stable_bound)
        and operation.stable_bound >= 0
    ):
        yield f"I5 early read: up to {where(operation, operation.next_offset)}, stable was at most {operation.stable_bound}"


def check_watermarks(evidence: Evidence) -> Iterator[str]:
    """I9: high watermark and last stable offset never go back, the latter is not above the former, nor above what is stable."""
    samples: dict[tuple[tuple[str, int], str], list[tuple[int, int, int]]] = {}
    for operation in evidence.history.of(FETCH, LIST):
        if operation.outcome != OK:
            continue
        high, stable = _sample(operation)
        if operation.kind == FETCH and stable > high:
            yield f"I9 last stable offset {stable} above high watermark {high} of {operation.partition}"
        if stable > operation.stable_bound >= 0:
            yield f"I9 last stable offset {stable} of {operation.partition}, stable was at most {operation.stable_bound}"
        # The watermarks inside a Fetch answer may go back after an election; what ListOffsets says may not (KIP-207).
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
    """An answer that was there before the next question was asked binds it."""
    answered = sorted(rows, key=lambda row: row[1])
    position, highest = 0, -1
    for invoked, _, value in sorted(rows):
        while answered[position][1] < invoked:
            highest = max(highest, answered[position][2])
            position += 1
        if value < highest:
            yield f"{what} went back from {highest} to {value}"


def _is_visible(slot: Slot) -> bool:
    return slot.status in {PLAIN, COMMITTED}


def name(value: bytes) -> str:
    """A value without its padding."""
    return value[:8].decode(errors="replace")


def where(operation: Operation, offset: int) -> str:
    return (
        f"{operation.partition[0]}-{operation.partition[1]}@{offset} (event {operation.invoked} of {operation.process})"
    )
