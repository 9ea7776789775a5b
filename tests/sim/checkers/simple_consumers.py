"""I7 for simple consumers: offsets that a client without membership sets and deletes, one operation after another."""

from collections.abc import Iterator
from typing import Final

from tests.sim.checkers.evidence import Evidence
from tests.sim.history import INFO, OFFSETS, OK, SIMPLE, Partition

NO_OFFSET: Final = -1


def check_simple_consumer(evidence: Evidence) -> Iterator[str]:
    """I7: OffsetFetch returns the offset that the simple consumer wrote last, or one that it wrote with unknown
    outcome.
    """
    groups = evidence.groups
    if groups is None or not groups.alone:
        return
    written: dict[Partition, int] = {}
    uncertain: dict[Partition, dict[int, None]] = {}
    for operation in evidence.history.of(SIMPLE, OFFSETS):
        if operation.group != groups.alone:
            continue
        if operation.kind == SIMPLE:
            for place, offset in operation.offsets:
                if operation.outcome == OK:
                    written[place] = offset
                elif operation.outcome == INFO:
                    uncertain.setdefault(place, {})[offset] = None
            continue
        if operation.outcome != OK or not operation.coordinated:
            continue
        offsets = dict(operation.offsets)
        evidence.count("offsets returned to a simple consumer")
        for place in operation.partitions:
            current, last = offsets.get(place, NO_OFFSET), written.get(place, NO_OFFSET)
            if current != last and current not in uncertain.get(place, {}):
                yield (
                    f"I7 {groups.alone}: OffsetFetch returned {current} for {place} (event {operation.invoked}), "
                    f"the offset written last is {last}"
                )


CHECKERS: Final = (check_simple_consumer,)
