"""Runs in child processes: each seed starts from the same state of this process, whatever earlier seeds have changed.

Module state of the application and of its client, such as counters and caches, would otherwise pass from one seed to
the next. A seed of a campaign would then differ from the same seed alone.
"""

import gc
import importlib
import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from odradek.interruption import interrupts_blocked
from odradek.simulation.errors import Escaped, RunFailed
from odradek.simulation.parent import end_with_parent
from odradek.simulation.stall import CHECK_SECONDS, steps_watched

if TYPE_CHECKING:
    from odradek.simulation.result import Result

Run = Callable[[], "Result"]
real_exit = os._exit
"""`os._exit` of Python. During a run, `odradek.simulation.seams` replaces it."""


class _Child:
    """A child process with one run, and the pipe on which its result arrives."""

    def __init__(self, run: Run) -> None:
        context: Any = multiprocessing.get_context("fork")
        self.results, results = context.Pipe(duplex=False)
        self._process = context.Process(target=_main, args=(run, results, os.getpid()))
        with interrupts_blocked():
            self._process.start()
        results.close()

    def result(self) -> "Result":
        """Wait for the result. Raise RunFailed if there is none."""
        try:
            outcome = self.results.recv()
        except EOFError:
            self._process.join()
            raise RunFailed(f"The process of the run ended with exit code {self._process.exitcode}.") from None
        self._process.join()
        if isinstance(outcome, str):
            raise RunFailed(outcome)
        found: Result = outcome
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def run_forked(run: Run) -> "Result":
    """Run in a child process. Return the result without the final state, which may hold values that do not pickle."""
    return next(run_all_forked([run], processes=1))


def run_all_forked(runs: Iterable[Run], *, processes: int) -> Iterator["Result"]:
    """Run in up to `processes` child processes at a time. Yield the results in the order of the runs."""
    importlib.import_module("odradek.simulation.runner")  # here, so that no child has to
    with suppress(ImportError):  # the application may use another client
        importlib.import_module("aiokafka")
    gc.collect()
    gc.freeze()  # so that the collector of a child does not copy the pages of this process
    waiting = iter(runs)
    children: list[_Child] = []
    try:
        for run in waiting:
            children.append(_Child(run))
            if len(children) == processes:
                yield children.pop(0).result()
        while children:
            yield children.pop(0).result()
    finally:
        for child in children:
            child.end()
        gc.unfreeze()


def _main(run: Run, results: Connection, parent: int) -> None:
    end_with_parent(parent)

    def end(problem: str) -> None:
        """End the process immediately, because the application can catch each exception."""
        results.send(problem)
        real_exit(1)

    try:
        with steps_watched(end, CHECK_SECONDS):
            outcome: Any = replace(run(), state=None)
    except Escaped as error:
        outcome = "".join(traceback.format_exception(error)[1:])
    except BaseException:  # noqa: BLE001  the parent process reports it
        outcome = traceback.format_exc()
    results.send(outcome)
    results.close()
