"""Result of one seed: findings, faults, digest of the trace, and the last events as text."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.simulation.faults import Fault
    from odradek.simulation.final_state import State

EVENTS_EXPLAINED_MAX: Final = 120


class Outcome(Enum):
    """Outcome of a seed: FAILED if it has a finding."""

    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the application, a fault or a broker, at `at` seconds after the start of the application."""

    at: float
    source: str
    text: str

    def __str__(self) -> str:
        return f"{self.at:12.6f}  {self.source:<14} {self.text}"


@dataclass(frozen=True, slots=True)
class Result:
    """Findings and events of one seed. Equal seeds, options and versions give equal results in every process.

    Only `wall_seconds` differs.
    """

    seed: int
    findings: Sequence[str]
    faults: Sequence["Fault"]
    """The faults of the run. Pass a part of them to `run` to leave the others out."""
    events: Sequence[Event]
    digest: str
    """Hash over all messages, connections, faults and log events of the run."""
    virtual_seconds: float
    wall_seconds: float
    state: "State | None"
    """The final state, or None if it could not be read."""

    @property
    def outcome(self) -> Outcome:
        return Outcome.FAILED if self.findings else Outcome.PASSED

    @property
    def passed(self) -> bool:
        return not self.findings

    def explain(self, *, events_max: int = EVENTS_EXPLAINED_MAX) -> str:
        """Return the outcome, the findings, the faults and the last `events_max` events as text."""
        lines = [
            f"seed {self.seed} {self.outcome.value}: {self.virtual_seconds:.1f} virtual seconds, trace {self.digest}",
            *(f"finding: {finding}" for finding in self.findings),
            *(f"fault: {fault}" for fault in self.faults),
            *self.last_events(events_max),
        ]
        return "\n".join(lines)

    def last_events(self, events_max: int) -> list[str]:
        """Return the last events as lines, and a line with the number of the events before them."""
        left_out = max(len(self.events) - events_max, 0)
        return [*([f"({left_out} earlier events)"] if left_out else []), *map(str, self.events[left_out:])]
