"""Work on many records in slices: generators that request pauses and threads, and the counter of their work."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from typing import TypeAlias

T = TypeVar("T")
Pause: TypeAlias = Callable[[], Any] | None
"""Request of a generator to its caller: a function requests its call in a thread, None requests a pause."""
SlicedWork: TypeAlias = Generator[Pause, Any, T]
"""Generator that yields pauses, receives the results of functions, and returns T. Functions do not change it."""

PAUSE_UNITS = 128
"""Default work between two pauses, in units. A unit of compaction is the work on one record; 128 units take about half
a millisecond."""


class WorkSlice:
    """Counter of the work since the last pause."""

    def __init__(self, units: int = PAUSE_UNITS) -> None:
        """Count slices of `units` units."""
        self._units = units
        self._remaining = units

    def spend(self, units: int = 1) -> bool:
        """Count `units` of work. Return True if a pause is due."""
        self._remaining -= units
        if self._remaining > 0:
            return False
        self._remaining = self._units
        return True


def run_unsliced(work: SlicedWork[T]) -> T:
    """Run the work to its end without pauses and threads. Only for data of this broker, tools and tests."""
    request = result = None
    try:
        request = work.send(None)
        while True:
            result = None
            if request is not None:
                try:
                    result = request()
                except Exception as error:  # noqa: BLE001  the generator decides what its function may raise
                    request = work.throw(error)
                    continue
            request = work.send(result)
    except StopIteration as stop:
        return cast("T", stop.value)
