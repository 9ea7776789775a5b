"""Result of one seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.simulation.environment.trace import Trace
    from tests.sim.history import History
    from tests.sim.transition_coverage import Cell


@dataclass
class Result:
    """Findings, digest and counters of one seed. The seed passed if `findings` is empty."""

    seed: int
    findings: list[str]
    digest: str
    counters: dict[str, int]
    operations: int
    transactions: int
    faults: int
    virtual_seconds: float
    steps: int
    wall_seconds: float = 0.0
    options: str = ""
    brokers: int = 1
    groups: bool = False
    compaction: bool = False
    table: bool = False
    hostile: bool = False
    security: bool = False
    disk_faults: bool = False
    cells: dict[Cell, int] = field(default_factory=dict)
    history: History | None = field(default=None, repr=False)
    trace: Trace | None = field(default=None, repr=False)

    @property
    def passed(self) -> bool:
        return not self.findings
