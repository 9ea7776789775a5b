"""Invariants of transactions: I6 atomicity, I8 fencing of producers."""

from collections.abc import Iterator

from tests.sim.checkers.evidence import Evidence
from tests.sim.checkers.records import name
from tests.sim.checkers.visibility import ABORTED, COMMITTED, OPEN, Slot
from tests.sim.history import ADD, DECIDE, END, INFO, INIT, OK, PRODUCE, TXN_COMMIT, Operation

TV2 = 2


def check_atomicity(evidence: Evidence) -> Iterator[str]:
    """I6: all records of a transaction are committed, or all are aborted, as the EndTxn response said.

    If one record of a transaction with unknown outcome is visible, the transaction was committed: then all its
    acknowledged records must be visible.
    """
    slots = {slot.value: slot for model in evidence.partitions.values() for slot in model.slots.values()}
    exposed = evidence.exposed_transactions()
    for number, operations in evidence.history.transactions().items():
        findings = list(_judge(number, operations, slots))
        if number in exposed:
            evidence.count("classic transactions exposed to a late EndTxn")
            evidence.count("classic transactions torn by a late EndTxn", 1 if findings else 0)
        else:
            yield from findings


def _judge(number: int, operations: list[Operation], slots: dict[bytes, Slot]) -> Iterator[str]:
    values = dict.fromkeys(value for operation in operations if operation.kind == PRODUCE for value in operation.values)
    written = [slots[value] for value in values if value in slots]
    committed = [slot for slot in written if slot.status == COMMITTED]
    not_committed = [slot for slot in written if slot.status != COMMITTED]
    subject = f"transaction {number} of {operations[0].transactional_id} ({operations[0].process})"
    if committed and not_committed:
        yield (
            f"I6 torn: of {subject} {name(committed[0].value)} is committed, {name(not_committed[0].value)} "
            f"{not_committed[0].status}"
        )
    open_slots = [slot for slot in written if slot.status == OPEN]
    if open_slots:
        yield f"I6 hanging: {name(open_slots[0].value)} of {subject} is still open"
    ends = [operation for operation in operations if operation.kind == END]
    confirmed = next((operation for operation in ends if operation.outcome == OK), None)
    if confirmed is not None and confirmed.commit:
        lost = [slot for slot in written if slot.status == ABORTED]
        if lost:
            yield f"I6 commit lost: {subject} was committed, {name(lost[0].value)} is aborted"
    elif committed and confirmed is not None:
        yield f"I6 abort lost: {subject} was aborted, {name(committed[0].value)} is committed"
    elif committed and not any(operation.commit and operation.outcome in {OK, INFO} for operation in ends):
        yield (
            f"I6 commit without request: {subject} received no request to commit (or only refused ones), "
            f"{name(committed[0].value)} is committed"
        )


def check_decisions(evidence: Evidence) -> Iterator[str]:
    """I6: a transaction of a two-phase commit ends as its owner has decided, however long the owner is away (KIP-939).

    The broker never ends it on its own, so each of its records has the status of the decision.
    """
    slots = {slot.value: slot for model in evidence.partitions.values() for slot in model.slots.values()}
    transactions = evidence.history.transactions()
    for decision in evidence.history.of(DECIDE):
        evidence.count("decided to commit" if decision.commit else "decided to abort")
        decided = COMMITTED if decision.commit else ABORTED
        for operation in transactions[decision.transaction]:
            for value in operation.values if operation.kind == PRODUCE else ():
                if value in slots and slots[value].status != decided:
                    yield (
                        f"I6 decision ignored: {decision.transactional_id} decided that transaction "
                        f"{decision.transaction} is {decided}, {name(value)} is {slots[value].status}"
                    )


def check_fencing(evidence: Evidence) -> Iterator[str]:
    """I8: after an InitProducerId response, no request of an older producer epoch succeeds or becomes visible.

    A Produce request counts at the time at which its batch was written, not when it was sent. A deposed leader may do
    the following, as Apache Kafka's brokers may:
    1. The leader is paused after it wrote a batch, and a new leader is elected.
    2. InitProducerId completes elsewhere, which aborts the transaction of the batch.
    3. The old leader resumes, receives the batch again, and responds that it has the batch.
    The response is true: the in-sync replicas held the batch before the fence. A batch written after the fence is a
    violation. InitProducerId responds when the abort of the open transaction is complete. By then its markers have
    invalidated all verification guards of the older epoch.

    Under TV2, each end of a transaction starts a new epoch. A request sent later with the former epoch cannot succeed,
    except a repeated EndTxn. EndTxn responds before its markers are written, so earlier requests may still add to that
    transaction.
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
    identities: dict[tuple[int, int], Operation] = {}
    fences: list[Operation] = []
    for operation in sorted(operations, key=lambda operation: operation.completed):
        if operation.outcome == OK and _assigns_identity(operation):
            assigned = (operation.result_producer_id, operation.result_producer_epoch)
            identities.setdefault(assigned, operation)
            fences.append(operation)
    for operation in operations:
        if not _has_effect(operation, visible):
            continue
        identity_used = (operation.producer_id, operation.producer_epoch)
        own_init = identities.get(identity_used)
        for fence in fences:
            newer_identity = (fence.result_producer_id, fence.result_producer_epoch)
            older = own_init is None or own_init.completed < fence.invoked
            binding = fence.kind == INIT or operation.kind != END
            if (
                newer_identity != identity_used
                and older
                and binding
                and _effective_at(operation, fence, written_at) >= fence.completed
            ):
                yield (
                    f"I8 not fenced: {operation.kind} by {identity_used} of {operation.transactional_id} "
                    f"(event {operation.invoked}) "
                    f"{'succeeded' if operation.outcome == OK else 'became visible'} "
                    f"after {fence.kind} had returned {newer_identity} "
                    f"(event {fence.completed})"
                )
                break


def _has_effect(operation: Operation, visible: dict[bytes, None]) -> bool:
    if operation.outcome == OK:
        return operation.kind in {PRODUCE, ADD, END, TXN_COMMIT}
    return operation.kind == PRODUCE and operation.values[0] in visible


def _effective_at(operation: Operation, fence: Operation, written_at: dict[bytes, int]) -> int:
    """Return the position in the order of events at which the operation took effect for this fence.

    `check_fencing` gives the reason.
    """
    if operation.kind != PRODUCE:
        return operation.invoked
    written = written_at.get(operation.values[0], operation.invoked)
    return written if fence.kind == INIT else min(written, operation.invoked)


def _assigns_identity(operation: Operation) -> bool:
    return operation.kind == INIT or (operation.kind == END and operation.generation == TV2)
