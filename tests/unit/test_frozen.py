"""Classes of `frozen_dataclass`: equality, hash and immutability."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from odradek.frozen import frozen_dataclass


@frozen_dataclass(frozen=True, slots=True)
class Fast:
    name: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Slow:
    name: str
    number: int = 0


def test_equality_hash_and_replace_are_those_of_a_frozen_dataclass() -> None:
    fast = Fast("a", 1)
    assert fast == Fast("a", 1)
    assert fast != Fast("a", 2)
    assert hash(fast) == hash(Slow("a", 1))
    assert replace(fast, number=2) == Fast("a", 2)
    assert repr(fast) == "Fast(name='a', number=1)"
    with pytest.raises(AttributeError):
        fast.other = 1  # type: ignore[attr-defined]


def test_the_type_checker_refuses_assignments_and_the_constructor_does_not_pay_for_it() -> None:
    fast = Fast("a", 1)
    # `make check` fails if the type checker finds no error in this line: an unused comment is one.
    fast.number = 2  # type: ignore[misc]
    assert fast.number == 2


def test_a_mutable_class_is_refused() -> None:
    with pytest.raises(AssertionError, match="uses `dataclass`"):
        frozen_dataclass(frozen=False, slots=True)
