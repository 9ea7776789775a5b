"""Named invariants, and the error that is raised if one does not hold.

The transition of the object checks the condition in place, so a check that passes costs no call:

    if offset < self.end_offset:
        raise LOG_END_ADVANCES.violated(offset=offset, end_offset=self.end_offset)

The condition of an expensive check begins with `CHECKS.expensive and`. Only tests and the simulator set that switch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final


class Cost(Enum):
    """Cost class of an invariant. It decides where the invariant is checked."""

    CHEAP = "always"
    EXPENSIVE = "tests, simulation"


class InvariantViolation(AssertionError):
    """An invariant does not hold: the program has a bug, or its memory is damaged.

    The object must not be changed any more.
    """

    def __init__(self, invariant: Invariant, values: dict[str, Any]) -> None:
        self.invariant = invariant
        self.values = values
        shown = ", ".join(f"{name}={value!r}" for name, value in values.items())
        super().__init__(f"invariant {invariant.name} of {invariant.subject} violated ({shown}): {invariant.statement}")


class LogViolation(InvariantViolation, OSError):
    """An invariant of a log does not hold. It is an OSError: callers treat it as a failed disk operation of the log."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """A statement about one object that holds after each of its transitions."""

    name: str
    subject: str
    """Class of the object."""
    statement: str
    source: str
    """KIP, Kafka class, paper section or decision record that the statement comes from."""
    cost: Cost = Cost.CHEAP

    def violated(self, **values: Any) -> InvariantViolation:
        """Return the error to raise, and report it to the observer. `values` contradict the statement."""
        return CHECKS.reported(InvariantViolation(self, values))


@dataclass(frozen=True, slots=True)
class LogInvariant(Invariant):
    """An invariant of a log, of one of its parts or of its files."""

    def violated(self, **values: Any) -> LogViolation:
        """Return the error to raise, and report it to the observer. `values` contradict the statement."""
        violation = LogViolation(self, values)
        CHECKS.reported(violation)
        return violation


class Checks:
    """Settings of all checks in this process."""

    def __init__(self) -> None:
        self.expensive = False
        """Check expensive invariants, too. Brokers in production never set this."""
        self.observer: Callable[[InvariantViolation], None] | None = None
        """Called with each violation, even if a caller catches the error."""

    def reported(self, violation: InvariantViolation) -> InvariantViolation:
        """Pass `violation` to the observer, and return it."""
        if self.observer is not None:
            self.observer(violation)
        return violation


CHECKS: Final = Checks()
