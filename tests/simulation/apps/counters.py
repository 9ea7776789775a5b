"""Applications without a client: they run in a fraction of a second."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import odradek
from odradek.simulation import Faults
from odradek.simulation.faults import CRASH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.simulation import Sim, State

STEPS: Final = 10
runs = 0
"""Runs in this process. Each seed starts with 0."""


def all_counted(state: State) -> Iterator[str]:
    """Check that each step was counted once, and that each seed found the module unchanged."""
    if set(state.reported("run of this process")) != {1}:
        yield "an earlier run changed the module"
    counted = state.reported("counted")
    if counted != [STEPS]:
        yield f"counted {counted}"


async def count(sim: Sim, *, step_first: bool) -> None:
    """Count steps in `sim.durable`. With `step_first`, a crash between the step and its mark repeats the step."""
    global runs  # noqa: PLW0603
    runs += sim.incarnation == 1
    sim.record("run of this process", runs)
    while sim.durable.get("done", 0) < STEPS:
        if step_first:
            sim.durable["steps"] = sim.durable.get("steps", 0) + 1
        await asyncio.sleep(1)
        if not step_first:
            sim.durable["steps"] = sim.durable.get("steps", 0) + 1
        sim.durable["done"] = sim.durable.get("done", 0) + 1
    sim.record("counted", sim.durable["steps"])


simulated = odradek.simulated(
    seeds=range(2, 10), brokers=1, checkers=[all_counted], faults=Faults(kinds=[CRASH], at_least=3, seconds=5)
)


@simulated
async def correct(sim: Sim) -> None:
    """Count each step once."""
    await count(sim, step_first=False)


@simulated
async def repeats_a_step(sim: Sim) -> None:
    """Count a step again after a crash."""
    await count(sim, step_first=True)


async def escapes(sim: Sim) -> None:
    """Start a thread."""
    threading.Thread(target=print, args=(sim,)).start()


@odradek.simulated(seeds=1, brokers=1)
async def loops(sim: Sim) -> None:
    """Write the pid of the run to the file that LOOPING names, and loop without `await`."""
    file = Path(os.environ["LOOPING"])
    file.with_suffix(".new").write_text(str(os.getpid()))
    file.with_suffix(".new").rename(file)
    while True:
        pass
