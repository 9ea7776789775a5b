"""All named invariants. `docs/invariants.md` shows each with the code that checks it and the test that breaks it."""

from __future__ import annotations

from typing import Final

from odradek.invariants import coordinator, partition, raft, shard, storage
from odradek.invariants.invariant import Invariant

MODULES: Final = (storage, partition, raft, shard, coordinator)
INVARIANTS: Final = {
    constant: value for module in MODULES for constant, value in vars(module).items() if isinstance(value, Invariant)
}
"""Invariants by the names of their constants."""
