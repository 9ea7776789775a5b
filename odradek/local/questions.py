"""Questions to a running cluster: asked by a process of the broker's own client, answered as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Unanswered(RuntimeError):
    """The request failed; the message is its reason in one line."""

    def __init__(self, reason: str, exit_code: int = 1) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


def question(*arguments: str) -> Any:
    """Run one administrative request and return its decoded answer. Raises Unanswered."""
    finished = subprocess.run(
        [sys.executable, "-P", "-m", "odradek.client", *arguments], capture_output=True, text=True, check=False
    )
    if finished.returncode != 0:
        raise Unanswered(finished.stderr.strip() or "no answer", finished.returncode)
    return json.loads(finished.stdout)


def answer_lines(*arguments: str) -> Iterator[str]:
    """Run one request whose answer is a line of JSON a record, and return the lines as they come. Raises Unanswered."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "odradek.client", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        yield from process.stdout
        reason = process.stderr.read()
        if process.wait() != 0:
            raise Unanswered(reason.strip() or "no answer", process.returncode)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def await_serving(bootstrap: str, brokers: int) -> None:
    """Wait until every partition has a leader and enough replicas in sync to take writes. Raises Unanswered."""
    question("serving", "--bootstrap", bootstrap, "--brokers", str(brokers))


def await_in_sync(bootstrap: str, brokers: int) -> int | None:
    """Wait until every replica is in sync. Returns the active controller's node id. Raises Unanswered."""
    controller: int | None = question("in-sync", "--bootstrap", bootstrap, "--brokers", str(brokers))["controller"]
    return controller
