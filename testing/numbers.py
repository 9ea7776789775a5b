"""Checks of numbers in the arguments of tests, which need not have the annotated types."""

from __future__ import annotations

import math
from typing import Any


def is_whole(number: Any, low: int) -> bool:
    """Return True if the argument is an integer from `low` on."""
    return isinstance(number, int) and not isinstance(number, bool) and number >= low


def is_finite(number: Any) -> bool:
    """Return True if the argument is a finite number from 0 on."""
    return isinstance(number, int | float) and 0 <= number < math.inf


def milliseconds(ms: float) -> float:
    """Return the argument. Raise ValueError if it is not a finite number from 0 on."""
    if not is_finite(ms):
        raise ValueError(f"ms={ms!r}: use a number of milliseconds from 0 on")
    return ms
