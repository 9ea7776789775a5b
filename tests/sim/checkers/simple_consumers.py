"""I7 of a simple consumer: offsets that nobody's member sets and deletes, one operation after another."""

from collections.abc import Iterator
from typing import Final

from tests.sim.checkers.evidence import Evidence
from tests.sim.history import ALONE, INFO, OFFSETS, OK, Partition

NO_OFFSET: Final = -1


def check_alone(evidence: Evidence) -> Iterator[str]:
    """I7: what it is told of an offset is what it has said last, or what it never heard the end of, which may have happened, or happen yet."""
    found = evidence.groups
    if found is None or not found.alone:
        return
    said: dict[Partition, int] = {}
    perhaps: dict[Partition, dict[int, None]] = {}
    for operation in evidence.history.of(ALONE, OFFSETS):
        if operation.group != found.alone:
            continue
        if operation.kind == ALONE:
            for place, offset in operation.offsets:
                if operation.outcome == OK:
                    said[place] = offset
                elif operation.outcome == INFO:
                    perhaps.setdefault(place, {})[offset] = None
            continue
        if operation.outcome != OK or not operation.coordinated:
            continue
        told = dict(operation.offsets)
        evidence.count("offsets told to a simple consumer")
        for place in operation.partitions:
            at, last = told.get(place, NO_OFFSET), said.get(place, NO_OFFSET)
            if at != last and at not in perhaps.get(place, {}):
                yield f"I7 {found.alone}: {at} of {place} is told (event {operation.invoked}), what was said last is {last}"


CHECKERS: Final = (check_alone,)
