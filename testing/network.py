"""Blocked and slow links between brokers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

BLOCKED = None
"""Delay of a link that passes nothing."""
Delay = float | None
"""Delay in milliseconds, or BLOCKED."""
Row = tuple[str, int, Delay, Delay]
"""Host and port of a broker, and the delays of the directions to it and from it."""


class Network:
    """Delays between the brokers of a cluster, by (from, to)."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        self._node_ids = tuple(node_ids)
        self._delays: dict[tuple[int, int], Delay] = {}

    def set(self, source: int, target: int, delay: Delay) -> None:
        """Set the delay from one broker to another. Raise ValueError if a broker does not exist, or both are equal."""
        for node_id in (source, target):
            if node_id not in self._node_ids:
                raise ValueError(
                    f"broker {node_id} does not exist; the brokers are {', '.join(map(str, self._node_ids))}"
                )
        if source == target:
            raise ValueError(f"a broker has no link to itself: {source}")
        self._delays[source, target] = delay

    def heal(self) -> None:
        """Remove all delays."""
        self._delays.clear()

    def rows(self, node_id: int, address_of: Callable[[int], tuple[str, int]]) -> list[Row]:
        """Return the links of a broker as it applies them."""
        others = [each for each in self._node_ids if each != node_id]
        delays = self._delays
        return [
            (*address_of(other), delays.get((node_id, other), 0.0), delays.get((other, node_id), 0.0))
            for other in others
        ]
