"""Placeholder until its decisions are written."""

from typing import Any, Final

from coordinator.group.state import State
from runtime.shard import Loaded

DECISIONS: Final[dict[type[Any], Any]] = {}
APPLICATIONS: Final[dict[type[Any], Any]] = {}


def on_loaded(state: State, now_ms: int) -> Loaded:
    return Loaded()
