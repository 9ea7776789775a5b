"""Leader terms whose commits a test delays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from odradek.broker.partition.leader_term import LeaderTerm

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.broker.partition.leader_term import LeaderAndIsr, LeaderContext
    from odradek.broker.partition.watermarks import Watermarks
    from odradek.protocol.errors import ErrorCode

    Advance = Callable[[int], None]


class Gate(Protocol):
    """Decide how far one leader term commits."""

    def acknowledgeable(self, offset: int) -> None:
        """Note that this broker has all offsets below `offset`. The gate calls `advance` now, later, or both."""

    def close(self) -> None:
        """End the leader term: `advance` is called no more."""


def held_by(make_gate: Callable[[str, int, Advance], Gate]) -> type[LeaderTerm]:
    """Return a class of leader terms that commit up to the offset of their `make_gate(topic, partition, advance)`."""

    class HeldLeaderTerm(LeaderTerm):
        __slots__ = ("_gate",)

        def __init__(
            self, watermarks: Watermarks, state: LeaderAndIsr, context: LeaderContext, **callbacks: Any
        ) -> None:
            self._gate = make_gate(watermarks.log.topic, watermarks.log.partition, super().advance_own_end)
            super().__init__(watermarks, state, context, **callbacks)

        def advance_own_end(self, offset: int) -> None:
            self._gate.acknowledgeable(offset)

        def close(self, error: ErrorCode) -> None:
            self._gate.close()
            super().close(error)

    return HeldLeaderTerm
