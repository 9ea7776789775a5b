"""A compacted topic as its readers see it, against a plain model: of each key the newest committed record counts.

Whoever has read from the start has been shown, of each key, the newest committed record of what it has read; or none that was
committed, where that record is a tombstone that has had its time. What it is shown lies where it was written, and in that order
(I3 compares the values, I5 says that nothing aborted is among them).
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from tests.sim.checkers.evidence import Evidence
from tests.sim.checkers.visibility import COMMITTED, PLAIN, PartitionModel, Slot
from tests.sim.history import FETCH, NEVER, OK, Operation, Partition

Newest = dict[bytes, list[Slot]]
"""Of each key its committed records, from the lowest offset up."""


def check_table(evidence: Evidence) -> Iterator[str]:
    """I10: see the module."""
    for partition, retention_ms in evidence.compacted.items():
        model = evidence.partitions.get(partition) or PartitionModel()
        newest: Newest = {}
        for slot in model.visible():
            newest.setdefault(slot.key or b"", []).append(slot)
        for each in _readings(evidence, partition):
            evidence.count("readings of a compacted topic")
            yield from _check_reading(each, model, newest, retention_ms)


def _readings(evidence: Evidence, partition: Partition) -> Iterator[list[Operation]]:
    """The reads of each client from offset 0 on, to where it stopped or began anew."""
    begun: dict[str, list[Operation]] = {}
    for operation in evidence.history.of(FETCH):
        if operation.partition != partition or operation.outcome != OK:
            continue
        before = begun.get(operation.process)
        if before is not None and operation.offset:
            before.append(operation)
            continue
        if before is not None:
            yield before
        begun[operation.process] = [operation]
    yield from begun.values()


def _check_reading(
    reading: Sequence[Operation], model: PartitionModel, newest: Newest, retention_ms: int
) -> Iterator[str]:
    shown: dict[bytes, Slot] = {}
    last = -1
    who = f"{reading[0].process} (isolation {reading[0].isolation})"
    where = f"{reading[0].partition[0]}-{reading[0].partition[1]}"
    for operation in reading:
        for offset, _ in operation.records:
            if offset <= last:
                yield f"I4 order: {who} was given offset {offset} of {where} after {last}"
            last = offset
            slot = model.slots.get(offset)
            if slot is not None and slot.status in {PLAIN, COMMITTED}:
                shown[slot.key or b""] = slot
    end = reading[-1].next_offset
    bounds = [operation.stable_bound for operation in reading]
    stable = max(bounds) if min(bounds) >= 0 else NEVER
    brief = reading[-1].completed_at - reading[0].invoked_at < retention_ms / 1000
    certain = brief and len({operation.node for operation in reading}) == 1
    for key, slots in newest.items():
        place = bisect_left(slots, end, key=lambda slot: slot.offset)
        wanted = slots[place - 1] if place else None
        seen = shown.get(key)
        if wanted is None or seen is wanted or (place < len(slots) and slots[place].offset < stable):
            continue  # the last: it has given way to one that was committed, and that this reader would have come to
        if wanted.tombstone and (seen is None or not certain):
            continue
        what = "nothing" if seen is None else f"offset {seen.offset}"
        yield f"I10 {where}: {who} has read to {end}: of key {key!r} it was shown {what}, not the {'tombstone' if wanted.tombstone else 'value'} at {wanted.offset}"
