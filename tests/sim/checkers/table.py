"""I10 for readers of a compacted topic, against a plain model: of each key, the newest committed record counts.

A reader from offset 0 receives, for each key, the newest committed record below its position. If that record is a
tombstone whose delete.retention.ms has passed, it may receive no committed record of the key. It receives records at
their original offsets and in their order. I3 compares the values; I5 checks that none is aborted.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from tests.sim.checkers.evidence import Evidence
from tests.sim.checkers.visibility import COMMITTED, PLAIN, PartitionModel, Slot
from tests.sim.history import FETCH, NEVER, OK, Operation, Partition

Newest = dict[bytes, list[Slot]]
"""By key: its committed records in ascending offset order."""


def check_table(evidence: Evidence) -> Iterator[str]:
    """I10: readers of each compacted topic receive the newest committed record of each key."""
    for partition, retention_ms in evidence.compacted.items():
        model = evidence.partitions.get(partition) or PartitionModel()
        newest: Newest = {}
        for slot in model.visible():
            newest.setdefault(slot.key or b"", []).append(slot)
        for reading in _readings(evidence, partition):
            evidence.count("readings of a compacted topic")
            yield from _check_reading(reading, model, newest, retention_ms)


def _readings(evidence: Evidence, partition: Partition) -> Iterator[list[Operation]]:
    """Yield the fetches of each client from offset 0 to the end of that pass over the topic."""
    passes: dict[str, list[Operation]] = {}
    for operation in evidence.history.of(FETCH):
        if operation.partition != partition or operation.outcome != OK:
            continue
        before = passes.get(operation.process)
        if before is not None and operation.offset:
            before.append(operation)
            continue
        if before is not None:
            yield before
        passes[operation.process] = [operation]
    yield from passes.values()


def _check_reading(
    reading: Sequence[Operation], model: PartitionModel, newest: Newest, retention_ms: int
) -> Iterator[str]:
    received_by_key: dict[bytes, Slot] = {}
    last = -1
    reader = f"{reading[0].process} (isolation {reading[0].isolation})"
    where = f"{reading[0].partition[0]}-{reading[0].partition[1]}"
    for operation in reading:
        for offset, _ in operation.records:
            if offset <= last:
                yield f"I4 order: {reader} received offset {offset} of {where} after {last}"
            last = offset
            slot = model.slots.get(offset)
            if slot is not None and slot.status in {PLAIN, COMMITTED}:
                received_by_key[slot.key or b""] = slot
    end = reading[-1].next_offset
    bounds = [operation.stable_bound for operation in reading]
    stable = max(bounds) if min(bounds) >= 0 else NEVER
    within_retention = reading[-1].completed_at - reading[0].invoked_at < retention_ms / 1000
    certain = within_retention and len({operation.node for operation in reading}) == 1
    for key, slots in newest.items():
        place = bisect_left(slots, end, key=lambda slot: slot.offset)
        expected = slots[place - 1] if place else None
        received = received_by_key.get(key)
        if expected is None or received is expected or (place < len(slots) and slots[place].offset < stable):
            continue  # the newest record gave way to a committed record behind `end`
        if expected.tombstone and (received is None or not certain):
            continue
        what = "nothing" if received is None else f"offset {received.offset}"
        kind = "tombstone" if expected.tombstone else "value"
        yield f"I10 {where}: {reader} read to {end} and got {what} for key {key!r}, not the {kind} at {expected.offset}"
