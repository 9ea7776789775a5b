"""Campaign: many seeds of one setup, and the report of a failed seed with its reduction and its command."""

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from odradek.simulation.errors import RunFailed
from odradek.simulation.forks import run_all_forked, run_forked
from odradek.simulation.setup import WHOLE, Reduction, Setup
from odradek.simulation.shrink import RUNS_MAX, Progress, Shrinking, no_progress
from odradek.simulation.target import command_of

if TYPE_CHECKING:
    from odradek.simulation.result import Result

EVENTS_MAX: Final = 30
"""Last events in the report of a failed seed. The command that replays the seed prints more."""


def run_seeds(setup: Setup, seeds: Sequence[int], *, processes: int = 1) -> "Iterator[Result]":
    """Yield the result of each seed, in the order of the seeds. Raise RunFailed with the seed if one has no result."""
    results = run_all_forked((functools.partial(setup.run, seed) for seed in seeds), processes=processes)
    for seed in seeds:
        try:
            yield next(results)
        except RunFailed as error:
            raise RunFailed(f"The run of seed {seed} failed:\n{error}") from None


def report(
    setup: Setup, target: str, failed: "Result", *, runs_max: int = RUNS_MAX, progress: Progress = no_progress
) -> str:
    """Repeat and reduce a failed seed. Return the findings, the smaller failure and the command that replays it."""
    seed = failed.seed

    def runner(reduction: Reduction) -> "Result":
        return run_forked(functools.partial(setup.run, seed, reduction))

    lines = [f"seed {seed} failed after {failed.virtual_seconds:.1f} virtual seconds, trace {failed.digest}"]
    lines += [f"finding: {finding}" for finding in failed.findings]
    shrinking = Shrinking(setup, failed, runner, runs_max=runs_max, progress=progress)
    if runs_max:
        difference = first_difference(failed, runner(WHOLE))
        if difference:
            return "\n".join([*lines, *difference, f"replay: {_command(target, seed, WHOLE)}"])
        shrinking.shrink()
    smaller, reduction = shrinking.result, shrinking.reduction
    if reduction != WHOLE:
        lines.append(
            f"reduced to {len(smaller.faults)} of {len(failed.faults)} faults and "
            f"{smaller.virtual_seconds:.1f} virtual seconds, trace {smaller.digest}, in {shrinking.runs} runs:"
        )
        lines += [f"  finding: {finding}" for finding in smaller.findings]
    lines += [f"  fault: {fault}" for fault in smaller.faults]
    lines += [f"  {line}" for line in smaller.last_events(EVENTS_MAX)]
    lines.append(f"replay: {_command(target, seed, reduction)}")
    if reduction != WHOLE:
        lines.append(f"replay without the reduction: {_command(target, seed, WHOLE)}")
    return "\n".join(lines)


def _command(target: str, seed: int, reduction: Reduction) -> str:
    return command_of(target, ["--seed", str(seed), *reduction.options()])


def first_difference(first: "Result", second: "Result") -> list[str]:
    """Return lines about the first event in which two runs of one seed differ, or none if their traces are equal."""
    if first.digest == second.digest:
        return []
    lines = ["The seed does not repeat. Remove what the application takes from outside, such as the order of a set."]
    for number, (event, other) in enumerate(zip(first.events, second.events, strict=False)):
        if event != other:
            return [*lines, f"event {number} was: {event}", f"event {number} is:  {other}"]
    return [*lines, "Their events are equal. The difference is in messages, which --trace prints."]
