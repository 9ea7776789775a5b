"""Select the smallest inputs that reach different paths, for the checked-in corpus."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import odradek
from tests.fuzz.folders import CORPUS_BYTES_MAX, CORPUS_INPUTS_MAX
from tests.fuzz.verdict import run_once

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType, FrameType
    from typing import Any

    from tests.fuzz.target import Target

PACKAGE = f"{Path(odradek.__file__).parent}/"
"""Folder of odradek's modules. The repository may have the same name, with the tests and all libraries in it."""
Edge = tuple[object, int, int]
"""Two lines of a function that were executed one after the other."""


def selected(target: Target, candidates: Iterable[bytes]) -> list[bytes]:
    """Return inputs, small ones first, that each reach a path that no input before reaches, up to the limits."""
    chosen: list[bytes] = []
    known: set[Edge] = set()
    for seed in target.seeds():
        known |= edges(target, seed)
    size = 0
    for data in sorted(set(candidates), key=lambda data: (len(data), data)):
        if len(chosen) == CORPUS_INPUTS_MAX or size + len(data) > CORPUS_BYTES_MAX:
            break
        reached = edges(target, data)
        if not reached <= known:
            known |= reached
            chosen.append(data)
            size += len(data)
    return chosen


def edges(target: Target, data: bytes) -> set[Edge]:
    """Return the pairs of consecutive lines of odradek that the input executes.

    The garbage collector does not run meanwhile: it would execute finalizers of other objects.
    """
    found: set[Edge] = set()
    last: dict[FrameType, int] = {}

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return line if is_own(frame.f_code) else None

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            found.add((frame.f_code, last.get(frame, 0), frame.f_lineno))
            last[frame] = frame.f_lineno
        return line

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(enter)
    try:
        run_once(target, data)
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return found


def is_own(code: CodeType) -> bool:
    """Return True for odradek's modules and for compiled decoders."""
    return code.co_filename.startswith(PACKAGE) or code.co_filename.startswith("<protocol codec")
