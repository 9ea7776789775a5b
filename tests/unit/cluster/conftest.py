"""Run the tests of this folder in virtual time: short election time-outs must not depend on the load of the machine."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from odradek.simulation.environment.loop import SimLoop

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Mapping


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], AbstractEventLoop]]:
    return {"virtual time": lambda: SimLoop(Random(1))}
