"""Options that select entries by their client and their idle time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

SECOND_MS = 1_000
Idle = Annotated[
    float | None, typer.Option("--idle", help="Select what was not used for this time.", metavar="SECONDS")
]
ClientId = Annotated[str | None, typer.Option("--client-id", help="Select what this client id has added.")]
Address = Annotated[str | None, typer.Option("--address", help="Select what clients of this address have added.")]


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions of a command. All conditions that are set must hold."""

    idle_s: float | None
    client_id: str | None
    address: str | None

    @property
    def is_empty(self) -> bool:
        """Return True if no condition is set."""
        return self.idle_s is None and self.client_id is None and self.address is None

    def matches(self, idle_ms: int | None, client_id: str | None, address: str | None) -> bool:
        """Return True if an entry meets the conditions. A value that is not known meets none."""
        if self.idle_s is not None and (idle_ms is None or idle_ms < self.idle_s * SECOND_MS):
            return False
        if self.client_id is not None and client_id != self.client_id:
            return False
        return self.address is None or address == self.address
