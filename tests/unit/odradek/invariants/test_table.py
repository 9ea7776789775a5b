"""Table of invariants: each row has a check in the product and a test that breaks it."""

from __future__ import annotations

from collections import Counter

import pytest

from odradek.invariants.invariant import CHECKS, Checks, Cost, Invariant, InvariantViolation, LogViolation
from odradek.invariants.storage import LOG_OFFSETS
from odradek.invariants.table import INVARIANTS
from tests.support import invariant_page, invariant_sources
from tests.support.invariants import violation_of

CHECK_SITES = invariant_sources.checks()
BREAKING_TESTS = invariant_sources.breaking_tests()


def test_names_follow_their_constants() -> None:
    assert {constant: row.name for constant, row in INVARIANTS.items()} == {
        constant: constant.lower().replace("_", "-") for constant in INVARIANTS
    }


def test_each_subject_is_a_class_of_the_product() -> None:
    assert {row.subject for row in INVARIANTS.values()} - invariant_sources.subjects() == set()


def test_each_invariant_is_checked_by_a_transition() -> None:
    assert set(INVARIANTS) - {check.constant for check in CHECK_SITES} == set()


def test_each_invariant_is_broken_by_exactly_one_test() -> None:
    assert Counter(test.constant for test in BREAKING_TESTS) == dict.fromkeys(INVARIANTS, 1)


def test_checks_of_expensive_invariants_depend_on_the_switch() -> None:
    wrong = [check for check in CHECK_SITES if check.expensive != (INVARIANTS[check.constant].cost is Cost.EXPENSIVE)]
    assert wrong == []


def test_the_page_is_up_to_date() -> None:
    assert invariant_page.main(["--check"]) == 0


def test_expensive_checks_are_off_unless_a_test_enables_them() -> None:
    assert not Checks().expensive
    assert CHECKS.expensive  # the fixture of tests.support.invariants


def test_a_violation_names_the_invariant_and_the_values() -> None:
    with violation_of(LOG_OFFSETS), pytest.raises(OSError, match=r"log-offsets of PartitionLog violated \(offset=5\)"):
        raise LOG_OFFSETS.violated(offset=5)


def test_a_violation_of_a_log_is_an_assertion_error_and_an_os_error() -> None:
    assert issubclass(LogViolation, AssertionError)
    assert issubclass(LogViolation, OSError)
    assert issubclass(LogViolation, InvariantViolation)


def test_violation_without_an_observer_has_its_values() -> None:
    invariant = Invariant("name", "Object", "It holds.", "KIP-1")
    observer, CHECKS.observer = CHECKS.observer, None
    try:
        assert invariant.violated(value=1).values == {"value": 1}
    finally:
        CHECKS.observer = observer
