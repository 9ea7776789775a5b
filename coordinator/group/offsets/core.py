"""Placeholder until its decisions are written."""

from typing import Any, Final

from coordinator.group.records import Entry
from coordinator.group.state import State
from runtime.shard import Loaded, Marker

DECISIONS: Final[dict[type[Any], Any]] = {}
APPLICATIONS: Final[dict[type[Any], Any]] = {}


def apply_in_transaction(state: State, offset: int, entry: Entry, producer_id: int) -> None: ...


def apply_marker(state: State, offset: int, marker: Marker) -> None: ...


def on_loaded(state: State, now_ms: int) -> Loaded:
    return Loaded()
