"""Verify one input: the code under test succeeds or raises a typed error, in bounded memory and with bounded work."""

from __future__ import annotations

import gc
import hashlib
import sys
import traceback
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any

    from tests.fuzz.target import Target

ROOT = Path(__file__).resolve().parents[2]
STEPS = "steps"
MEMORY = "memory"
STEPS_OF_FIRST_RUN_MAX = 1_000_000
"""Maximum lines of the first execution of an input, which may compile decoders. A greater number is a hang."""


@dataclass(frozen=True)
class Finding:
    """A failure of the code under test. Findings with the same kind and place have probably the same cause."""

    kind: str
    place: str
    text: str
    trace: str = ""
    """Traceback of the exception; empty if a bound was exceeded."""

    @property
    def key(self) -> str:
        """Return the name of the finding in file names."""
        return hashlib.sha256(f"{self.kind} {self.place}".encode()).hexdigest()[:10]


class StepsExceeded(BaseException):
    """The code under test has executed more lines than its bound. A BaseException passes its `except Exception`."""


def slow(target: Target) -> Finding:
    """Return the preliminary finding for an input that is slow. Its lines are counted in another process.

    Lines of instrumented bytecode cannot be counted.
    """
    return Finding(STEPS, target.name, "slow")


def run_once(target: Target, data: bytes) -> tuple[Finding | None, int]:
    """Run one input without measurement. Return the finding, and the memory that the target permits in addition."""
    try:
        return None, target.run(data)
    except target.typed:
        return None, 0
    except Exception as error:
        kind, trace = type(error).__name__, "".join(traceback.format_exception(error))
        return Finding(kind, _place(error.__traceback__), f"{kind}: {error}", trace), 0


def verify(target: Target, data: bytes) -> Finding | None:
    """Run one input with measured memory and work."""
    return verify_steps(target, data) or verify_memory(target, data)


def verify_memory(target: Target, data: bytes) -> Finding | None:
    """Run one input with measured memory. Measure again if it is exceeded: the first run may fill caches."""
    finding = _measure_memory(target, data)
    return _measure_memory(target, data) if finding is not None and finding.kind == MEMORY else finding


def verify_steps(target: Target, data: bytes) -> Finding | None:
    """Run one input with counted lines. Count again if they are exceeded: the first run may compile decoders."""
    bound = target.steps.of(data)
    finding, steps = _count_steps(target, data, max(bound, STEPS_OF_FIRST_RUN_MAX))
    if steps <= bound:
        return finding
    return _count_steps(target, data, bound)[0]


def _measure_memory(target: Target, data: bytes) -> Finding | None:
    gc.collect(0)
    tracemalloc.start()
    try:
        finding, permitted = run_once(target, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    bound = target.memory.of(data) + permitted
    if finding is None and peak > bound:
        return Finding(MEMORY, target.name, f"peak of {peak:,} bytes, the bound is {bound:,}")
    return finding


def _count_steps(target: Target, data: bytes, limit: int) -> tuple[Finding | None, int]:
    """Run one input until it exceeds `limit` lines. Return the finding and the executed lines."""
    counter = _StepCounter(limit)
    before = sys.gettrace()
    sys.settrace(counter.enter)
    try:
        finding, _ = run_once(target, data)
    except StepsExceeded as exceeded:
        place = _place(exceeded.__traceback__)
        text = f"more than {limit:,} executed lines, the last of them at {place}"
        finding = Finding(STEPS, target.name, text)
    finally:
        sys.settrace(before)
    return finding, counter.steps


class _StepCounter:
    """Trace function that counts executed lines."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.steps = 0

    def enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.steps += 1
            if self.steps > self._limit:
                raise StepsExceeded
        return self._line


def _place(entry: TracebackType | None) -> str:
    """Return file and line of the innermost frame of this repository outside of this package."""
    place = "?"
    while entry is not None:
        path = Path(entry.tb_frame.f_code.co_filename)
        own = path.parent == Path(__file__).parent or path.name.startswith("test_")
        if not own and (path.is_relative_to(ROOT) or not path.is_absolute()):
            shown = path.relative_to(ROOT) if path.is_absolute() else path
            place = f"{shown}:{entry.tb_lineno}"
        entry = entry.tb_next
    return place
