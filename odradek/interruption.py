"""Ctrl-C on a command: one line on standard error, exit code 130, and no child process that remains."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as in shells."""
MESSAGE: Final = "interrupted"


def exit_with(main: Callable[[], int]) -> NoReturn:
    """Run a command, and exit with its exit code. After Ctrl-C, print one line, and exit with INTERRUPTED."""
    try:
        code = main()
    except KeyboardInterrupt:
        # Finalizers of objects that were interrupted in their constructors would print tracebacks at the end of Python.
        sys.unraisablehook = lambda _: None
        print(MESSAGE, file=sys.stderr)
        code = INTERRUPTED
    sys.exit(code)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in this thread. Threads and processes that it starts meanwhile keep SIGINT blocked.

    Ctrl-C signals all processes of the terminal's group. Only the first of them reports it and ends the others.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
