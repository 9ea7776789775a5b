"""Invariants in tests: all checks are enabled, and a violation fails the test unless the test expects it."""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from odradek.invariants.invariant import CHECKS, InvariantViolation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from odradek.invariants.invariant import Invariant


@contextmanager
def checked() -> Iterator[list[InvariantViolation]]:
    """Check expensive invariants, too, and collect all violations, including those that the product catches."""
    before = CHECKS.expensive, CHECKS.observer
    violations: list[InvariantViolation] = []
    CHECKS.expensive, CHECKS.observer = True, violations.append
    try:
        yield violations
    finally:
        CHECKS.expensive, CHECKS.observer = before


@contextmanager
def cheap_only() -> Iterator[None]:
    """Disable expensive checks for a test with damaged files below the recovery point, which recovery does not read."""
    CHECKS.expensive = False
    try:
        yield
    finally:
        CHECKS.expensive = True


@contextmanager
def violation_of(invariant: Invariant) -> Iterator[None]:
    """Expect that the block violates `invariant` and no other invariant. The product may catch the error."""
    with checked() as violations, suppress(InvariantViolation):
        yield
    assert {violation.invariant.name for violation in violations} == {invariant.name}, violations


def breaks(invariant: Invariant) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark the test that violates `invariant`.

    Each invariant has exactly one such test (tests/unit/odradek/invariants).
    """

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        async def run_async(*args: Any, **fixtures: Any) -> None:
            with violation_of(invariant):
                await test(*args, **fixtures)

        @functools.wraps(test)
        def run(*args: Any, **fixtures: Any) -> None:
            with violation_of(invariant):
                test(*args, **fixtures)

        return run_async if inspect.iscoroutinefunction(test) else run

    return decorate


@pytest.fixture(autouse=True)
def _no_invariant_is_violated() -> Iterator[None]:
    with checked() as violations:
        yield
    assert not violations
