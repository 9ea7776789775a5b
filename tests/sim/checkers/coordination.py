"""Invariants of a partition log and the coordinator's log:

I13 order of a log, I14 markers match decisions, I15 time-outs.
"""

from collections.abc import Iterator

from tests.sim.checkers.coordinator_log import (
    ALLOWED_BEFORE,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STATE_NAMES,
    Entry,
)
from tests.sim.checkers.evidence import Evidence
from tests.sim.history import PRODUCE, Operation, Partition

SLACK_MS = 2000
TV2 = 2


def check_grammar(evidence: Evidence) -> Iterator[str]:
    """I13: offsets, sequences and producer epochs of each partition are in order.

    A marker that ends no transaction may be late in runs that evict producers. A leader whose table of producers is
    full keeps no entry for a producer that has only markers: it cannot compare a delayed marker with the previous one.
    """
    tv2_values = {
        value for operation in evidence.history.of(PRODUCE) if is_tv2(operation) for value in operation.values
    }
    for (topic, index), model in evidence.partitions.items():
        for anomaly in [*model.anomalies, *([] if evidence.evicts_producers else model.late_markers)]:
            yield f"I13 {topic}-{index}: {anomaly}"
        for offset, sequence in model.late_starts.items():
            if model.slots[offset].value in tv2_values:
                yield f"I13 {topic}-{index}: offset {offset}: a new TV2 producer starts with sequence {sequence}"


def check_coordinator_log(evidence: Evidence) -> Iterator[str]:
    """I14: the states of each transactional id follow allowed transitions, and every decision is completed.

    Epochs of the client of a producer id never decrease, and no record increases one by more than one: a client that
    repeats a request knows only the next epoch. The identity of an ongoing transaction stays, also if InitProducerId
    keeps it (KIP-939), and its markers have the same epoch or the next one. With TV2, its end raises the identity of
    the client.
    """
    owners: dict[int, str] = {}
    for index, entries in evidence.coordinators.items():
        last: dict[str, Entry] = {}
        epochs: dict[int, int] = {}
        for entry in entries:
            where = f"I14 {entry.transactional_id} at __transaction_state-{index}@{entry.offset}"
            if entry.removed:
                last.pop(entry.transactional_id, None)
                continue
            before = last.get(entry.transactional_id)
            state = before.state if before is not None else None
            if state not in ALLOWED_BEFORE.get(entry.state, set()):
                yield (
                    f"{where}: {STATE_NAMES[entry.state]} after "
                    f"{STATE_NAMES[state] if state is not None else 'nothing'}"
                )
            producer_id, epoch = entry.client
            if epoch < epochs.get(producer_id, -1):
                yield f"{where}: epoch {epoch} of producer {producer_id} after {epochs[producer_id]}"
            for used in (entry.producer_id, producer_id):
                if owners.setdefault(used, entry.transactional_id) != entry.transactional_id:
                    yield f"{where}: producer {used} belongs to {owners[used]}"
            if epoch > epochs.get(producer_id, epoch) + 1:
                yield f"{where}: the epoch of producer {producer_id} increased by {epoch - epochs[producer_id]}"
            epochs[producer_id] = epoch
            if before is not None and before.state == ONGOING:
                yield from _end_or_continuation(evidence, where, before, entry)
            if before is not None and before.producer_id != entry.producer_id:
                evidence.count("epoch overflow")
            last[entry.transactional_id] = entry
        for entry in last.values():
            if entry.state in {ONGOING, PREPARE_COMMIT, PREPARE_ABORT}:
                yield f"I14 {entry.transactional_id} is left in {STATE_NAMES[entry.state]}"


def _end_or_continuation(evidence: Evidence, where: str, ongoing: Entry, entry: Entry) -> Iterator[str]:
    """Check the identities of the entry that follows the entry of an ongoing transaction."""
    continues = entry.state == ONGOING
    raised = 0 if continues else 1
    if (
        entry.producer_id != ongoing.producer_id
        or not ongoing.producer_epoch <= entry.producer_epoch <= ongoing.producer_epoch + raised
    ):
        yield (
            f"{where}: ({entry.producer_id}, {entry.producer_epoch}) in {STATE_NAMES[entry.state]} after "
            f"({ongoing.producer_id}, {ongoing.producer_epoch}) in Ongoing"
        )
    if entry.client == ongoing.client:
        if not continues and entry.client_version >= TV2:
            yield f"{where}: the client still has {entry.client} after the end of its transaction"
    elif continues:
        evidence.count("transaction kept")


def check_markers(evidence: Evidence) -> Iterator[str]:
    """I14: each completed decision has a marker in all its partitions, and each marker has a decision that names its
    partition.
    """
    written: dict[tuple[Partition, int, int, bool], None] = {}
    decided: dict[tuple[Partition, int, int, bool], None] = {}
    for partition, model in evidence.partitions.items():
        for marker in model.markers:
            written[partition, marker.producer_id, marker.producer_epoch, marker.commit] = None
    for entries in evidence.coordinators.values():
        prepared: dict[str, Entry] = {}
        for entry in entries:
            if entry.removed:
                continue
            if entry.state in {PREPARE_COMMIT, PREPARE_ABORT}:
                prepared[entry.transactional_id] = entry
                for partition in sorted(entry.partitions):
                    decided[partition, entry.producer_id, entry.producer_epoch, entry.state == PREPARE_COMMIT] = None
            elif entry.state in {COMPLETE_COMMIT, COMPLETE_ABORT} and entry.transactional_id in prepared:
                decision = prepared.pop(entry.transactional_id)
                yield from _missing_markers(evidence, decision, written)
    late = {
        (partition, frame.producer_id, frame.producer_epoch, frame.commit)
        for frame in evidence.late_frames
        for partition in frame.partitions
    }
    for partition, producer_id, epoch, commit in written:
        if (partition, producer_id, epoch, commit) not in decided and (
            partition,
            producer_id,
            epoch,
            commit,
        ) not in late:
            yield (
                f"I14 undecided marker of ({producer_id}, {epoch}) in {partition}: there is no decision to "
                f"{'commit' if commit else 'abort'}"
            )


def _missing_markers(
    evidence: Evidence, decision: Entry, written: dict[tuple[Partition, int, int, bool], None]
) -> Iterator[str]:
    for partition in sorted(decision.partitions):
        key = (partition, decision.producer_id, decision.producer_epoch, decision.state == PREPARE_COMMIT)
        if partition in evidence.partitions and key not in written:
            yield (
                f"I14 {decision.transactional_id} is complete, its marker of ({decision.producer_id}, "
                f"{decision.producer_epoch}) is missing in {partition}"
            )


def check_timeouts(evidence: Evidence) -> Iterator[str]:
    """I15: no transaction stays open long after its transaction.timeout.ms.

    The check uses the broker's wall clock, so runs with clock steps are skipped.
    """
    if evidence.clock_jumped:
        return
    for entries in evidence.coordinators.values():
        running: dict[str, Entry] = {}
        for entry in entries:
            before = running.pop(entry.transactional_id, None)
            if entry.state == ONGOING and not entry.removed:
                running[entry.transactional_id] = entry
            if before is None or entry.state not in {PREPARE_COMMIT, PREPARE_ABORT}:
                continue
            over_ms = entry.updated_ms - before.started_ms - before.timeout_ms
            if over_ms > evidence.scan_interval_ms + evidence.disturbance_ms + SLACK_MS:
                yield f"I15 {entry.transactional_id} ran {over_ms} ms over its time-out of {before.timeout_ms} ms"


def is_tv2(operation: Operation) -> bool:
    """Return True if the operation belongs to a TV2 transaction."""
    return operation.generation == 2 and operation.transactional_id is not None
