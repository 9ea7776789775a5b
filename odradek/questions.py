"""Questions to a running cluster: asked by a process of the broker's own client, answered as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


class Unanswered(RuntimeError):
    """The request failed; the message is its reason in one line."""

    def __init__(self, reason: str, exit_code: int = 1) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


def question(*arguments: str) -> Any:
    """Run one administrative request and return its decoded answer. Raises Unanswered."""
    finished = subprocess.run(
        [sys.executable, "-P", "-m", "broker.admin", *arguments], capture_output=True, text=True, check=False
    )
    if finished.returncode != 0:
        raise Unanswered(finished.stderr.strip() or "no answer", finished.returncode)
    return json.loads(finished.stdout)


def await_serving(bootstrap: str, brokers: int) -> None:
    """Wait until every partition has a leader and enough replicas in sync to take writes. Raises Unanswered."""
    question("serving", "--bootstrap", bootstrap, "--brokers", str(brokers))


def await_in_sync(bootstrap: str, brokers: int) -> int | None:
    """Wait until every replica is in sync. Returns the active controller's node id. Raises Unanswered."""
    controller: int | None = question("in-sync", "--bootstrap", bootstrap, "--brokers", str(brokers))["controller"]
    return controller
