"""Keeps the producer running until its work is done, and kills it on the way.

A kill is SIGKILL to a process that was started here, at a moment drawn beforehand. What the producer was doing is learnt
afterwards, from the last line that it managed to write.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek import run_module
from odradek.pipeline.faults.relay import Relay
from odradek.pipeline.flights.plan import Kill, KillKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from odradek.pipeline.faults.broker_kills import BrokerDeath
    from odradek.pipeline.faults.relay import Caught


class ProducerFailed(RuntimeError):
    """The producer ended by itself without having finished."""


@dataclass(frozen=True, slots=True)
class Task:
    """What the producer is told; see its options."""

    bootstrap: str
    feed: Path
    topic: str
    progress_topic: str
    transactional_id: str
    seed: int
    console: Path


@dataclass(frozen=True, slots=True)
class Death:
    """One kill that was carried out, and what the producer had said last."""

    kill: Kill
    life: int
    at: float
    doing: str
    attempt: str
    caught: Caught | None

    @property
    def in_window(self) -> bool:
        """Proven to lie between an EndTxn and its answer: sent before the kill, its answer withheld, no word of an outcome."""
        caught = self.caught
        return (
            self.doing == "committing"
            and caught is not None
            and caught.killed_at is not None
            and caught.sent_at < caught.killed_at
        )


@dataclass(slots=True)
class Campaign:
    """What happened. Times are seconds of time.monotonic. ``broker_deaths`` is None where no broker may be killed."""

    deaths: list[Death] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    commits: list[tuple[float, int]] = field(default_factory=list)
    aborts: list[float] = field(default_factory=list)
    broker_deaths: list[BrokerDeath] | None = None
    lives: int = 0
    began: float = 0.0


class Supervisor:
    """Runs one campaign in the calling thread; `stop` may be called from another."""

    def __init__(
        self,
        task: Task,
        kills: Sequence[Kill],
        on_event: Callable[[dict[str, Any]], None],
        gates: Sequence[int] = (),
    ) -> None:
        """``gates``: hours, in order, each of which is not begun before an `open_gate` of its own."""
        self._task = task
        self._gates = list(gates)
        self._gate_lock = threading.Lock()
        self._kills = list(kills)
        self._on_event = on_event
        self._process: subprocess.Popen[str] | None = None
        self._stopped = threading.Event()
        self.campaign = Campaign()

    def run(self) -> bool:
        """True when the producer has finished its work, False after `stop`. Raises ProducerFailed."""
        self.campaign.began = time.monotonic()
        relay = Relay(self._task.bootstrap)
        relayed = relay.start()
        try:
            while not self._stopped.is_set() and not self._live(relay, relayed):
                pass
        finally:
            relay.stop()
        return not self._stopped.is_set()

    def open_gate(self) -> None:
        """Let the producer pass the next gate, this one and those that follow it."""
        with self._gate_lock:
            self._gates.pop(0)
            if self._process is not None and self._process.stdin is not None:
                with contextlib.suppress(OSError, ValueError):  # it was killed a moment ago: the next one has no gate
                    self._process.stdin.write("o")
                    self._process.stdin.flush()

    def stop(self) -> None:
        self._stopped.set()
        if self._process is not None:
            self._process.kill()

    def _live(self, relay: Relay, relayed: str) -> bool:
        """One life of the producer. True when it finished its work."""
        self.campaign.lives += 1
        kill = self._kills[0] if self._kills else None
        in_window = kill is not None and kill.kind is KillKind.WINDOW
        with self._gate_lock:
            process = self._process = self._launch(relayed if in_window else self._task.bootstrap)
        if self._stopped.is_set():
            process.kill()
        timer: threading.Timer | None = None
        armed = False
        last: dict[str, Any] = {"event": "starting"}
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            last = json.loads(line)
            self._note(last)
            if kill is not None and not armed and committed_hour(last) >= kill.after_hour:
                armed = True
                if in_window:
                    relay.arm(kill.delay_seconds, process.kill)
                else:
                    timer = threading.Timer(kill.delay_seconds, process.kill)
                    timer.start()
        code = process.wait()
        at = time.monotonic()
        if timer is not None:
            timer.cancel()
            timer.join()
        with self._gate_lock, contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        if kill is not None and armed and code == -signal.SIGKILL and not self._stopped.is_set():
            self._mourn(
                Death(kill, self.campaign.lives, at, last["event"], last.get("attempt", ""), relay.take_caught())
            )
            return False
        if code and not self._stopped.is_set():
            console = self._task.console.read_text(encoding="utf-8", errors="replace")
            raise ProducerFailed(f"the producer ended with {code} while {last['event']}: {console[-1000:]}")
        return True

    def _launch(self, bootstrap: str) -> subprocess.Popen[str]:
        task = self._task
        command = run_module.command("odradek.pipeline.producer", "--bootstrap", bootstrap)
        command += ["--progress-bootstrap", task.bootstrap, "--feed", str(task.feed)]
        command += ["--topic", task.topic, "--progress-topic", task.progress_topic]
        command += ["--transactional-id", task.transactional_id]
        command += ["--life", str(self.campaign.lives), "--seed", str(task.seed)]
        command += ["--gates", *map(str, self._gates)]
        with task.console.open("ab") as console:
            return subprocess.Popen(
                command,
                env=run_module.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=console,
                text=True,
                start_new_session=True,  # Ctrl-C reaches this process alone, which ends the producer itself
            )

    def _note(self, event: dict[str, Any]) -> None:
        now = time.monotonic()
        if event["event"] == "committed":
            self.campaign.acknowledged.append(event["attempt"])
            self.campaign.commits.append((now, event["rows"]))
        elif event["event"] == "aborted":
            self.campaign.aborts.append(now)
        self._on_event(event | {"at": now})

    def _mourn(self, death: Death) -> None:
        self._kills.pop(0)
        self.campaign.deaths.append(death)
        if death.caught is not None and death.caught.error == 0:
            # The producer never heard it, but the broker said it: from here on this commit must not be forgotten.
            self.campaign.acknowledged.append(death.attempt)
        self._on_event({"event": "killed", "death": death, "at": death.at})


def committed_hour(event: dict[str, Any]) -> int:
    """The last hour that is committed as far as this event tells, -1 for none."""
    if event["event"] == "committed":
        return int(event["hour"])
    return int(event["hour"]) - 1 if event["event"] == "resumed" else -1
