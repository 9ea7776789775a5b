"""Takes faults out of a failing run for as long as it still fails."""

from dataclasses import replace

from tests.sim.faults.fault import Fault
from tests.sim.options.run_options import Options
from tests.sim.run import run_seed


def shrink_faults(options: Options) -> list[Fault] | None:
    """The faults that are needed; None when the run passes as it is.

    First halves are tried, then smaller and smaller parts, then single faults. One broker that is left behind counts as a fault, too.
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
