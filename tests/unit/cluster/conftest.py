"""Tests of this folder run in virtual time: elections of a few tens of milliseconds must not depend on how busy a machine is."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.sim.environment.loop import SimLoop

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Mapping


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], AbstractEventLoop]]:
    return {"virtual time": lambda: SimLoop(Random(1))}
