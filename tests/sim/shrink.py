"""Removal of faults from a failing run while it still fails."""

from dataclasses import replace

from tests.sim.faults.fault import Fault
from tests.sim.options.run_options import Options
from tests.sim.run import run_seed


def shrink_faults(options: Options) -> list[Fault] | None:
    """Return the faults that are needed for the seed to fail, or None if it passes.

    Halves of the list are removed first, then smaller parts, then single faults. A broker left behind after the faults
    is not removed.
    """
    if not fails(options, options.faults):
        return None
    faults = list(options.faults)
    size = max(1, len(faults) // 2)
    while size:
        position = 0
        while position < len(faults):
            fewer = faults[:position] + faults[position + size :]
            if fails(options, fewer):
                faults = fewer
            else:
                position += size
        size //= 2
    return faults


def fails(options: Options, faults: list[Fault]) -> bool:
    return not run_seed(options.seed, options=replace(options, faults=faults)).passed
