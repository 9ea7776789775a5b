"""End of a process with its parent process: a killed test, or a killed command line, leaves no run behind."""

import ctypes
import os
import signal
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the process `parent` ends. It must be the parent process.

    An application that loops without `await` ends, too.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os.kill(os.getpid(), signal.SIGKILL)
