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


class CommitCondition(Protocol):
    """Decide how far one leader term commits."""

    def acknowledgeable(self, offset: int) -> None:
        """Note that this broker has all offsets below `offset`. The condition calls `advance` now, later, or both."""

    def close(self) -> None:
        """End the leader term: `advance` is called no more."""


def delayed_by(make_condition: Callable[[str, int, Advance], CommitCondition]) -> type[LeaderTerm]:
    """Return a class of leader terms, each with a commit condition `make_condition(topic, partition, advance)`."""

    class DelayedLeaderTerm(LeaderTerm):
        __slots__ = ("_condition",)

        def __init__(
            self, watermarks: Watermarks, state: LeaderAndIsr, context: LeaderContext, **callbacks: Any
        ) -> None:
            self._condition = make_condition(watermarks.log.topic, watermarks.log.partition, super().advance_own_end)
            super().__init__(watermarks, state, context, **callbacks)

        def advance_own_end(self, offset: int) -> None:
            self._condition.acknowledgeable(offset)

        def close(self, error: ErrorCode) -> None:
            self._condition.close()
            super().close(error)

    return DelayedLeaderTerm
