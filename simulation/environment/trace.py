"""Trace of a run: all events in order, folded into one hash. Equal seeds give equal hashes, in any process."""

import hashlib
from collections import deque
from typing import Any, Final

LINES_KEPT_MAX: Final = 4000


class Trace:
    """Running hash over (step, virtual time, kind, details) of every event that crosses a seam.

    Only the last lines are kept in memory. With `printing`, each line is printed immediately.
    """

    def __init__(self, *, printing: bool = False) -> None:
        self.events = 0
        self.printing = printing
        self.lines: deque[str] = deque(maxlen=LINES_KEPT_MAX)
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, step: int, now: float, kind: str, *details: Any) -> None:
        line = f"{step} {now:.6f} {kind} {' '.join(map(str, details))}"
        self.events += 1
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self.lines.append(line)
        if self.printing:
            print(line, flush=True)

    def digest(self) -> str:
        return self._hash.hexdigest()
