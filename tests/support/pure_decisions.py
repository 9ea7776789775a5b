"""Hold cores to the contract of runtime/shard.py: `decide` changes nothing.

A snapshot of the whole state of a shard is taken before and after a sample of its decisions; the two must be equal.
What a core is given from outside (configuration, topics, random ids) and what only remembers values is not state.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import BuiltinMethodType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from odradek.cluster.controller.core import Controller
from odradek.coordinator.group.core import GroupShard
from odradek.coordinator.group.state import State
from odradek.coordinator.txn.core import TransactionShard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOT_STATE: Final = frozenset(
    {
        "config",
        "configs",
        "features",
        "new_id",
        "next_offset",
        "rng",
        "topic_hashes",
        "_config",
        "_decisions",
        "_features",
        "_stats",
        "_take_producer_id",
    }
)
"""Attributes of shards and of their states: ports, constants, and memos of values that depend on nothing else."""
PORTS_OF_GROUPS: Final = frozenset({"topics"})
NOTES_OF_DOUBLES: Final = frozenset({"asked", "recorded_checks"})
"""Attributes in which fake groups record their calls."""
_ATOMS: Final = (int, float, str, bytes, bool, type(None), UUID, Enum, type, range)
_CALLABLES: Final = (FunctionType, MethodType, BuiltinMethodType)


class ImpureDecision(AssertionError):
    """`decide` has changed the state of its shard."""


def snapshot(core: Any) -> Any:
    """Return the state of a shard as nested tuples, in which equal means equal."""
    if isinstance(core, GroupShard):
        return snapshot(core.state)
    if isinstance(core, State):
        return _fields(core, NOT_STATE | PORTS_OF_GROUPS)
    if isinstance(core, Controller):
        image = core.state.image  # built at the first access
        return (_plain(image), _fields(core.state, NOT_STATE | {"_delta"}))
    return _fields(core, NOT_STATE)


def _plain(value: Any) -> Any:
    if isinstance(value, _ATOMS):
        return value
    if isinstance(value, dict):
        pairs = tuple((_plain(key), _plain(each)) for key, each in value.items())
        return (type(value).__name__, pairs, *_own_slots(value))
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, set | frozenset):
        return frozenset(map(_plain, value))
    if isinstance(value, _CALLABLES):
        return id(value)
    return _fields(value, NOTES_OF_DOUBLES)


def _own_slots(value: Any) -> tuple[Any, ...]:
    return tuple(_plain(getattr(value, name)) for name in getattr(type(value), "__slots__", ()))


def _fields(value: Any, left_out: frozenset[str]) -> Any:
    slots = [name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())]
    names = [*dict.fromkeys((*slots, *getattr(value, "__dict__", {})))]
    if not names:
        return tuple(map(_plain, value)) if hasattr(value, "__iter__") else repr(value)
    return (
        type(value).__name__,
        tuple((name, _plain(getattr(value, name))) for name in names if name not in left_out and hasattr(value, name)),
    )


def difference(before: Any, after: Any, path: str = "") -> str:
    """Where two snapshots differ first, and how."""
    if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            if one != other:
                name = before[0] if number and isinstance(before[0], str) else number
                return difference(one, other, f"{path}/{name}")
    return f"{path}: {before!r:.300} became {after!r:.300}"


@dataclass
class PureDecisions:
    """`decide` of a shard; one decision of `every` is checked. Raise ImpureDecision."""

    every: int = 5
    decided: int = 0

    def decide(
        self, core: Any, command: Any, now_ms: int, original: Callable[[Any, Any, int], Any] | None = None
    ) -> Any:
        decide = original or type(core).decide
        self.decided += 1
        if self.decided % self.every:
            return decide(core, command, now_ms)
        before = snapshot(core)
        try:
            return decide(core, command, now_ms)
        finally:
            after = snapshot(core)
            if after != before:
                raise ImpureDecision(f"{type(command).__name__} has changed {difference(before, after)}")


class PureShard:
    """A shard for an engine, a sample of whose decisions is checked."""

    def __init__(self, core: Any, every: int = 5) -> None:
        self._core = core
        self._checks = PureDecisions(every)

    def decide(self, command: Any, now_ms: int) -> Any:
        return self._checks.decide(self._core, command, now_ms)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)


@contextmanager
def decisions_checked(every: int) -> Iterator[None]:
    """Check one of `every` decisions of all shards that are made in this process."""
    checks = PureDecisions(every)
    originals = {core: core.decide for core in (TransactionShard, GroupShard, Controller)}

    def checked(original: Callable[[Any, Any, int], Any]) -> Callable[[Any, Any, int], Any]:
        return lambda core, command, now_ms: checks.decide(core, command, now_ms, original)

    for core, original in originals.items():
        setattr(core, "decide", checked(original))  # noqa: B010  mypy: a method is replaced
    try:
        yield
    finally:
        for core, original in originals.items():
            setattr(core, "decide", original)  # noqa: B010  as above
