"""One fault of a run, as data: drawn before the run begins, so that one can be taken out and the rest keep their places."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

PRODUCE, FETCH, INIT, ADD, END, MARKERS, ALTER_PARTITION = 0, 1, 22, 24, 26, 27, 56

FRAME_KINDS: Final = ("lose_response", "hold_request", "replay_request", "tear_request", "tear_response")
LEADER, COORDINATOR, CONTROLLER, ANY = "leader", "coordinator", "controller", "any"
ROLES: Final = (LEADER, COORDINATOR, CONTROLLER, ANY)


@dataclass(frozen=True, slots=True)
class Fault:
    """Happens `steps` loop steps after the history has `operations` operations, so at any step of the run.

    `target` is a role, taken by whoever has it when the fault strikes, `other` the far end of a link; `number` is what the kind makes of it.
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


def soon_enough(faults: Sequence[Fault], certain: int, *, by: int, drawn_below: int) -> list[Fault]:
    """In order; of faults that were drawn below so many operations, the first `certain` are brought forward where they are due after `by`."""
    faults = in_order(faults)
    sooner = [
        replace(fault, operations=fault.operations * by // drawn_below) if fault.operations > by else fault
        for fault in faults[:certain]
    ]
    return in_order([*sooner, *faults[certain:]])
