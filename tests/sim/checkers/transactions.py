"""I6 every transaction all or nothing, I8 fencing."""

from collections.abc import Iterator

from tests.sim.checkers.evidence import Evidence
from tests.sim.checkers.records import name
from tests.sim.checkers.visibility import ABORTED, COMMITTED, OPEN, Slot
from tests.sim.history import ADD, END, INFO, INIT, OK, PRODUCE, Operation

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
    """I8: once InitProducerId has answered, nothing asked later in the name of an older incarnation succeeds.

    Under TV2 each end of a transaction starts a new epoch: what is asked later with the epoch before cannot be acknowledged either (the end
    itself may be repeated).
    """
    by_id: dict[str, list[Operation]] = {}
    for operation in evidence.history.operations:
        if operation.transactional_id is not None:
            by_id.setdefault(operation.transactional_id, []).append(operation)
    for operations in by_id.values():
        yield from _check_fencing_of(operations)


def _check_fencing_of(operations: list[Operation]) -> Iterator[str]:
    births: dict[tuple[int, int], Operation] = {}
    fences: list[Operation] = []
    for operation in sorted(operations, key=lambda each: each.completed):
        if operation.outcome == OK and _gives_identity(operation):
            identity = (operation.result_producer_id, operation.result_producer_epoch)
            births.setdefault(identity, operation)
            fences.append(operation)
    for operation in operations:
        if operation.outcome != OK or operation.kind not in {PRODUCE, ADD, END}:
            continue
        mine = (operation.producer_id, operation.producer_epoch)
        birth = births.get(mine)
        for fence in fences:
            if fence.completed >= operation.invoked:
                break
            theirs = (fence.result_producer_id, fence.result_producer_epoch)
            older = birth is None or birth.completed < fence.invoked
            if theirs != mine and older and (fence.kind == INIT or operation.kind != END):
                yield (
                    f"I8 not fenced: {operation.kind} by {mine} of {operation.transactional_id} (event {operation.invoked}) succeeded after "
                    f"{fence.kind} had answered {theirs} (event {fence.completed})"
                )
                break


def _gives_identity(operation: Operation) -> bool:
    return operation.kind == INIT or (operation.kind == END and operation.generation == TV2)
