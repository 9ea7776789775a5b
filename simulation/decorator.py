"""The decorator `odradek.simulated`: a test that runs an application under many seeds."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.simulation.arguments import check_seeds
from odradek.simulation.errors import UnknownTarget
from odradek.simulation.setup import Setup
from odradek.simulation.target import ATTRIBUTE, additional_paths, target_of

if TYPE_CHECKING:
    from odradek.simulation.checkers import Checker
    from odradek.simulation.final_state import Topic
    from odradek.simulation.runner import Choice, Until

SEEDS: Final = 200


def simulated(
    *,
    seeds: int | Iterable[int] = SEEDS,
    brokers: int = 3,
    instances: int = 1,
    faults: "Choice" = None,
    settings: "Mapping[str, object] | None" = None,
    topics: "Mapping[str, Topic] | None" = None,
    until: "Until" = None,
    checkers: "Sequence[Checker]" = (),
) -> Callable[[Any], Callable[[], None]]:
    """Return a decorator that makes a test of an application: a coroutine function, or a class with a method `main`.

    The test fails with the first seed that has a finding. Its report has the command that replays the seed. The seeds
    run in child processes, so fixtures and patches of the test process do not apply to them.

    Args:
        seeds: Number of seeds, from 0, or the seeds.
        brokers: Number of brokers, 1 to 5.
        instances: Number of processes of the application.
        faults: How faults are generated, or the list of faults. None stands for `Faults()`.
        settings: Broker properties by Kafka's names.
        topics: Topics that exist before the start, with their records.
        until: Virtual seconds after which the application is ended, or a condition on its reports. With None, the run
            ends when all instances have returned.
        checkers: Functions of the final state that yield violations.

    Raises:
        ValueError: An argument is invalid.
    """
    chosen = check_seeds(seeds)

    def decorate(app: Any) -> Callable[[], None]:
        def test() -> None:
            import pytest

            code, text = _run(test, chosen)
            if code:
                pytest.fail(text, pytrace=False)

        setup = Setup(app, brokers, instances, faults, settings or {}, topics or {}, until, checkers)
        setup.check()
        setattr(test, ATTRIBUTE, setup)
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(test, name, getattr(app, name))
        return test

    return decorate


def _run(test: Callable[[], None], seeds: list[int]) -> tuple[int, str]:
    """Run the command line for the seeds in a child process. Return its exit code and its output."""
    try:
        target = target_of(test)
    except UnknownTarget as error:
        return 1, str(error)
    consecutive = seeds == list(range(seeds[0], seeds[-1] + 1)) if seeds else False
    selection = f"{seeds[0]}..{seeds[-1] + 1}" if consecutive else ",".join(map(str, seeds))
    options = ["--seeds", selection, "--first", "--parent", str(os.getpid())]
    command = [sys.executable, "-m", "odradek.simulation", target, *options]
    if "PYTEST_XDIST_WORKER" in os.environ:
        command += ["--jobs", "1"]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(additional_paths())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
