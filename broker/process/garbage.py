"""Collection of reference cycles in short pauses, however many partitions the broker has.

A collection of the oldest generation examines all objects of the process: with 10,000 partitions it holds the event
loop for more than 100 ms. So objects that survive the middle generation are frozen, which excludes them from later
collections. Reference counting still frees them. Decision 0108 has the reasons.
"""

from __future__ import annotations

import gc
import resource
import sys
from asyncio import get_running_loop
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

COLLECT_AFTER_OBJECTS: Final = 2_000
"""Allocations between collections of the youngest generation (Python's default: 700).

Reference counting frees nearly all objects of a request, so a collection finds little and delays requests. With more
allocations, collections are rarer and each one is longer: the middle generation has three times as many objects.
"""
COLLECT_MIDDLE_AFTER: Final = 1
"""Collections of the youngest generation before the next one is that of the middle one (Python's default: 10): every
third collection. It then has at most three times COLLECT_AFTER_OBJECTS objects."""
MIDDLE: Final = 1
"""Number of the middle generation."""
CHECK_INTERVAL_S: Final = 600.0
"""Seconds between two checks whether frozen cycles may hold much memory. A check takes less than 1 ms."""
GROWTH_FACTOR: Final = 2
"""Growth of the memory since the last collection of all objects that causes the next one."""
_logger = structlog.get_logger(__name__)


def _memory() -> tuple[int, int]:
    """Return the allocated memory blocks of at most 512 bytes, and the highest resident memory so far.

    The second one includes large buffers. Its unit depends on the system; only its growth matters.
    """
    return sys.getallocatedblocks(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class GarbageCollection:
    """The settings of Python's garbage collector in this process."""

    def __init__(self) -> None:
        self._memory = _memory()

    def begin(self) -> None:
        """Collect and freeze the objects of the imports, and freeze from now on what survives the middle generation.

        The process imports its modules without collections.
        """
        gc.enable()
        gc.set_threshold(COLLECT_AFTER_OBJECTS, COLLECT_MIDDLE_AFTER)
        gc.callbacks.append(self._after_collection)
        self._collect_all()

    def end(self) -> None:
        """Freeze no further objects."""
        gc.callbacks.remove(self._after_collection)

    def watch(self) -> None:
        """Freeze the objects of the start, and call `collect_if_doubled` every CHECK_INTERVAL_S from now on."""
        gc.collect()
        gc.freeze()
        self._memory = _memory()
        get_running_loop().call_later(CHECK_INTERVAL_S, self._check)

    def collect_if_doubled(self) -> bool:
        """Collect all objects if the memory has doubled since that was done last.

        The cause can be new partitions, or frozen objects in unreachable cycles. Return True if all objects were
        collected.
        """
        if all(now < GROWTH_FACTOR * before for now, before in zip(_memory(), self._memory, strict=True)):
            return False
        unreachable = self._collect_all()
        _logger.info("all objects collected", unreachable=unreachable, memory_blocks=self._memory[0])
        return True

    def _collect_all(self) -> int:
        """Collect all unreachable objects, also frozen ones. Return their number.

        A collection takes about 0.15 ms per 1,000 objects of the process.
        """
        gc.unfreeze()
        unreachable = gc.collect()
        gc.freeze()
        self._memory = _memory()
        return unreachable

    def _check(self) -> None:
        self.collect_if_doubled()
        get_running_loop().call_later(CHECK_INTERVAL_S, self._check)

    def _after_collection(self, phase: str, info: Mapping[str, int]) -> None:
        # The younger generations are empty now, so only objects that have survived a collection are frozen. The freeze
        # also resets the count of collections that would let Python collect the oldest generation.
        if phase == "stop" and info["generation"] == MIDDLE:
            gc.freeze()
