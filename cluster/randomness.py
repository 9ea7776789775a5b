"""The random generator that cores receive: the node's own `random.Random`, or a fixed one in tests."""

from __future__ import annotations

from typing import Any, Protocol


class Randomness(Protocol):
    """The methods of `random.Random` that the cores use. Pure modules do not import `random`."""

    def getrandbits(self, k: int, /) -> int: ...

    def randrange(self, stop: int, /) -> int: ...

    def shuffle(self, x: Any, /) -> None: ...
