"""Description of one fuzz target: the code under test, its typed errors, its seeds and its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.fuzz.mutations import damaged

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

KIB = 1024


@dataclass(frozen=True)
class Bound:
    """Maximum of a resource: a constant, and an amount per byte of the input."""

    constant: int
    per_byte: int

    def of(self, data: bytes) -> int:
        return self.constant + self.per_byte * len(data)


@dataclass(frozen=True)
class Target:
    """One fuzz target. `run` processes one input and raises no exception except those in `typed`.

    `run` returns the bytes that the code under test may allocate beyond `memory`, for example a charge. It raises
    AssertionError if a property does not hold.
    """

    name: str
    run: Callable[[bytes], int]
    seeds: Callable[[], list[bytes]]
    """Return valid inputs. They need not be in the corpus, because the code generates them."""
    typed: tuple[type[Exception], ...] = ()
    memory: Bound = Bound(64 * KIB, 64)
    """Maximum peak of traced memory, in bytes."""
    steps: Bound = Bound(20_000, 100)
    """Maximum executed lines of Python."""
    bytes_max: int = 4 * KIB
    """Maximum bytes of a generated input."""
    mutate: Callable[[bytes, Random], bytes] = damaged
