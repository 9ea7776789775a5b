"""One planted bug, as data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Planted:
    """A planted bug: `owner.name` is replaced by the result of `make(original)`.

    `durability` fixes the durability under which the bug has an effect.
    """

    title: str
    owner: Any
    name: str
    make: Callable[[Any], Any]
    checkers: tuple[str, ...]
    """Regular expressions for the beginning of the findings that show this bug.

    A finding of another check does not count, for example a run that does not end in time.
    """
    durability: str | None = None
    brokers: int = 1
    groups: bool = False
    hostile: bool = False
    """True if each run has a hostile client, otherwise the seed decides."""
    shared_listener: bool = False
    """True if the hostile client of each run uses the listener of the brokers."""
    owners: bool = False
    """True if each run has owners of two-phase commits, otherwise the seed decides."""
    security: bool = False
    """True if each run has SASL and ACLs. Otherwise no run has them."""
    damage: bool = False
    """True if logs are damaged in each run. Otherwise in no run."""
    outages: bool = False
    """True if each run has an outage, in which one broker loses power. Otherwise no run has one."""
    scenario: str = ""
    """One of `scenario_options.SCENARIOS`, which is the only fault of each run; empty for faults from the seed."""
