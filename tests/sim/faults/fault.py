"""One fault of a run, as data: generated before the run, so that a fault can be removed without moving the others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

PRODUCE, FETCH, INIT, ADD, END, MARKERS, ALTER_PARTITION = 0, 1, 22, 24, 26, 27, 56

FRAME_KINDS: Final = ("lose_response", "hold_request", "replay_request", "tear_request", "tear_response")
SLOW_THREADS: Final = "slow_threads"
"""Slow operations that occupy all shared threads of a disk for some time."""
SLOW_METADATA_THREAD: Final = "slow_metadata_thread"
"""A slow operation that occupies the thread of the metadata log of a broker for some time."""
DAYS: Final = "clock_days"
"""A jump of the wall clock of one broker beyond the retention of its logs."""
CLOCK_KINDS: Final = frozenset({"clock", DAYS})
LEADER, COORDINATOR, CONTROLLER, ANY = "leader", "coordinator", "controller", "any"
ROLES: Final = (LEADER, COORDINATOR, CONTROLLER, ANY)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that is injected `steps` loop steps after the history has `operations` operations.

    `target` is a role: the fault hits the broker that has the role then. `other` is the far end of a link. The kind
    defines the meaning of `number`.
    """

    kind: str
    operations: int
    steps: int
    api_key: int = -1
    seconds: float = 0.0
    number: int = 0
    target: str = ""
    other: str = ""
    one_way: bool = False


def in_order(faults: Sequence[Fault]) -> list[Fault]:
    return sorted(faults, key=lambda fault: (fault.operations, fault.steps))


def soon_enough(faults: Sequence[Fault], certain: int, *, by: int, generated_below: int) -> list[Fault]:
    """Return the faults in order, with the first `certain` moved so that they are due within `by` operations.

    `generated_below`: exclusive bound of `operations` when the faults were generated.
    """
    faults = in_order(faults)
    sooner = [
        replace(fault, operations=fault.operations * by // generated_below) if fault.operations > by else fault
        for fault in faults[:certain]
    ]
    return in_order([*sooner, *faults[certain:]])
