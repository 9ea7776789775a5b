"""I6 every transaction all or nothing, I8 fencing."""

from collections.abc import Iterator

from tests.sim.checkers.evidence import Evidence
from tests.sim.checkers.records import name
from tests.sim.checkers.visibility import ABORTED, COMMITTED, OPEN, Slot
from tests.sim.history import ADD, END, INFO, INIT, OK, PRODUCE, TXN_COMMIT, Operation

TV2 = 2


def check_atomicity(evidence: Evidence) -> Iterator[str]:
    """I6: the values of a transaction share one fate, and it is the one that the producer was told, if it was told one.

    A transaction of unknown outcome of which one value is visible must have committed, so all that it had acknowledged must be visible.
    """
    slots = {slot.value: slot for model in evidence.partitions.values() for slot in model.slots.values()}
    exposed = evidence.exposed_transactions()
    for number, operations in evidence.history.transactions().items():
        found = list(_judge(number, operations, slots))
        if number in exposed:
            evidence.count("classic transactions exposed to a late EndTxn")
            evidence.count("classic transactions torn by a late EndTxn", 1 if found else 0)
        else:
            yield from found


def _judge(number: int, operations: list[Operation], slots: dict[bytes, Slot]) -> Iterator[str]:
    values = dict.fromkeys(value for operation in operations if operation.kind == PRODUCE for value in operation.values)
    present = [slots[value] for value in values if value in slots]
    committed = [slot for slot in present if slot.status == COMMITTED]
    others = [slot for slot in present if slot.status != COMMITTED]
    who = f"transaction {number} of {operations[0].transactional_id} ({operations[0].process})"
    if committed and others:
        yield f"I6 torn: of {who} {name(committed[0].value)} is committed, {name(others[0].value)} {others[0].status}"
    hanging = [slot for slot in present if slot.status == OPEN]
    if hanging:
        yield f"I6 hanging: {name(hanging[0].value)} of {who} is still open"
    ends = [operation for operation in operations if operation.kind == END]
    confirmed = next((operation for operation in ends if operation.outcome == OK), None)
    if confirmed is not None and confirmed.commit:
        lost = [slot for slot in present if slot.status == ABORTED]
        if lost:
            yield f"I6 commit lost: {who} was committed, {name(lost[0].value)} is aborted"
    elif committed and confirmed is not None:
        yield f"I6 abort lost: {who} was aborted, {name(committed[0].value)} is committed"
    elif committed and not any(operation.commit and operation.outcome in {OK, INFO} for operation in ends):
        yield f"I6 uncalled commit: {who} was never asked to commit (or always refused), {name(committed[0].value)} is committed"


def check_fencing(evidence: Evidence) -> Iterator[str]:
    """I8: once InitProducerId has answered, nothing is done any more in the name of an older incarnation: acknowledged, or visible.

    A produce is judged by when its batch was written, not by when it was asked for: a leader that has been paused may wake after it was
    deposed, find the batch of a producer that asks once more in its log, and answer as it would have before. It cannot know better, its word
    is true (all replicas in sync have held that batch for long), and the fence, which came later, has aborted it: as with Apache Kafka.
    What was written after the fence was up cannot be excused: InitProducerId answers when the abort of what was open is complete, and by
    then its markers have taken away every guard that stood for the older epoch.

    Under TV2 each end of a transaction starts a new epoch: what is asked later with the epoch before cannot be acknowledged either (the end
    itself may be repeated). It is answered before its markers are written, so what was asked for earlier may still come into that transaction.
    """
    by_id: dict[str, list[Operation]] = {}
    for operation in evidence.history.operations:
        if operation.transactional_id is not None:
            by_id.setdefault(operation.transactional_id, []).append(operation)
    visible = {
        slot.value: None
        for model in evidence.partitions.values()
        for slot in model.slots.values()
        if slot.status == COMMITTED
    }
    for operations in by_id.values():
        yield from _check_fencing_of(operations, evidence.written_at, visible)


def _check_fencing_of(
    operations: list[Operation], written_at: dict[bytes, int], visible: dict[bytes, None]
) -> Iterator[str]:
    births: dict[tuple[int, int], Operation] = {}
    fences: list[Operation] = []
    for operation in sorted(operations, key=lambda each: each.completed):
        if operation.outcome == OK and _gives_identity(operation):
            identity = (operation.result_producer_id, operation.result_producer_epoch)
            births.setdefault(identity, operation)
            fences.append(operation)
    for operation in operations:
        if not _has_effect(operation, visible):
            continue
        mine = (operation.producer_id, operation.producer_epoch)
        birth = births.get(mine)
        for fence in fences:
            theirs = (fence.result_producer_id, fence.result_producer_epoch)
            older = birth is None or birth.completed < fence.invoked
            binding = fence.kind == INIT or operation.kind != END
            if theirs != mine and older and binding and _done_at(operation, fence, written_at) >= fence.completed:
                yield (
                    f"I8 not fenced: {operation.kind} by {mine} of {operation.transactional_id} (event {operation.invoked}) "
                    f"{'succeeded' if operation.outcome == OK else 'became visible'} after {fence.kind} had answered {theirs} "
                    f"(event {fence.completed})"
                )
                break


def _has_effect(operation: Operation, visible: dict[bytes, None]) -> bool:
    if operation.outcome == OK:
        return operation.kind in {PRODUCE, ADD, END, TXN_COMMIT}
    return operation.kind == PRODUCE and operation.values[0] in visible


def _done_at(operation: Operation, fence: Operation, written_at: dict[bytes, int]) -> int:
    """When the operation did what it did, as far as that fence is concerned: see `check_fencing`."""
    if operation.kind != PRODUCE:
        return operation.invoked
    written = written_at.get(operation.values[0], operation.invoked)
    return written if fence.kind == INIT else min(written, operation.invoked)


def _gives_identity(operation: Operation) -> bool:
    return operation.kind == INIT or (operation.kind == END and operation.generation == TV2)
