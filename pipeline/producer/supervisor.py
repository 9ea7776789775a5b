"""Start the producer, kill it as planned, and restart it until it has written the whole feed.

A kill is SIGKILL to the producer process, at a time that was generated from the seed. The last line of the producer's
output then shows its last step.
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

    from odradek.pipeline.cluster.access import Access
    from odradek.pipeline.faults.broker_kills import BrokerOutage
    from odradek.pipeline.faults.relay import HeldCommit


class ProducerFailed(RuntimeError):
    """The producer ended before it finished its work, and no planned kill was the cause."""


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Options of the producer process (`pipeline/producer/__main__.py`), and the file for its standard error.

    The access goes to the standard input of the process, because command lines are readable by all users.
    """

    access: Access
    feed: Path
    topic: str
    progress_topic: str
    transactional_id: str
    seed: int
    console: Path


@dataclass(frozen=True, slots=True)
class ProducerKill:
    """One kill of the producer that was carried out.

    Attributes:
        plan: The planned kill.
        run: Number of the producer run that was killed, from 1.
        at: Time of the producer's end, in seconds of time.monotonic.
        last_event: Last event that the producer reported.
        attempt: Name of the attempt that this event concerns, or "".
        held_commit: Commit whose response the relay withheld; None if it withheld none.
    """

    plan: Kill
    run: int
    at: float
    last_event: str
    attempt: str
    held_commit: HeldCommit | None

    @property
    def in_window(self) -> bool:
        """Return True if the kill is proven to lie between an EndTxn request and its response.

        The relay forwarded the request before the kill and withheld the response. The producer's last report is that it
        commits.
        """
        held = self.held_commit
        return (
            self.last_event == "committing"
            and held is not None
            and held.killed_at is not None
            and held.sent_at < held.killed_at
        )


@dataclass(slots=True)
class Campaign:
    """Record of all runs of the producer. Times are seconds of time.monotonic.

    Attributes:
        kills: Kills of the producer that were carried out.
        acknowledged: Names of the attempts whose commit a broker acknowledged.
        commits: (time, rows) of each commit that the producer reported, in order of time.
        aborts: Time of each abort that the producer reported.
        broker_outages: Broker kills that were carried out; None if the demo did not start the brokers.
        runs: Number of producer processes that were started.
        began: Start of the campaign.
    """

    kills: list[ProducerKill] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    commits: list[tuple[float, int]] = field(default_factory=list)
    aborts: list[float] = field(default_factory=list)
    broker_outages: list[BrokerOutage] | None = None
    runs: int = 0
    began: float = 0.0


class Supervisor:
    """Run one campaign. `run` blocks its thread; `end_pause` and `stop` are thread-safe.

    Args:
        options: Options of the producer.
        kills: Planned kills in order.
        on_event: Receives each event of the producer with the key "at" added, and an event "killed" for each kill.
        pauses: Hours in order. The producer begins each of them only after an `end_pause` call for it.
    """

    def __init__(
        self,
        options: ProducerOptions,
        kills: Sequence[Kill],
        on_event: Callable[[dict[str, Any]], None],
        pauses: Sequence[int] = (),
    ) -> None:
        self._options = options
        self._pauses = list(pauses)
        self._pause_lock = threading.Lock()
        self._kills = list(kills)
        self._on_event = on_event
        self._process: subprocess.Popen[str] | None = None
        self._stopped = threading.Event()
        self.campaign = Campaign()

    def run(self) -> bool:
        """Run the producer until it has finished. Return False if `stop` ended the campaign before that.

        Raise ProducerFailed if a producer process fails.
        """
        self.campaign.began = time.monotonic()
        relay = Relay(self._options.access)
        relayed = relay.start()
        try:
            while not self._stopped.is_set() and not self._run_producer(relay, relayed):
                pass
        finally:
            relay.stop()
        return not self._stopped.is_set()

    def end_pause(self) -> None:
        """End the first pause that has not ended, for the present and all later producer processes."""
        with self._pause_lock:
            self._pauses.pop(0)
            if self._process is not None and self._process.stdin is not None:
                # If the producer was just killed, the write fails. The next producer starts without this pause.
                with contextlib.suppress(OSError, ValueError):
                    self._process.stdin.write("e")
                    self._process.stdin.flush()

    def stop(self) -> None:
        """End the campaign, and kill the producer."""
        self._stopped.set()
        if self._process is not None:
            self._process.kill()

    def _run_producer(self, relay: Relay, relayed: Access) -> bool:
        """Run one producer process to its end. Return False if a planned kill ended it, otherwise True.

        Raise ProducerFailed if the process fails.
        """
        self.campaign.runs += 1
        kill = self._kills[0] if self._kills else None
        in_window = kill is not None and kill.kind is KillKind.WINDOW
        with self._pause_lock:
            process = self._process = self._launch(relayed if in_window else self._options.access)
        if self._stopped.is_set():
            process.kill()
        timer: threading.Timer | None = None
        armed = False
        last: dict[str, Any] = {"event": "starting"}
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            last = json.loads(line)
            self._record(last)
            if kill is not None and not armed and committed_hour(last) >= kill.after_hour:
                armed = True
                if in_window:
                    relay.arm(kill.delay_seconds, process.kill)
                else:
                    timer = threading.Timer(kill.delay_seconds, process.kill)
                    timer.start()
        code = process.wait()
        ended_at = time.monotonic()
        if timer is not None:
            timer.cancel()
            timer.join()
        with self._pause_lock, contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        if kill is not None and armed and code == -signal.SIGKILL and not self._stopped.is_set():
            attempt = last.get("attempt", "")
            held_commit = relay.take_held_commit()
            self._record_kill(ProducerKill(kill, self.campaign.runs, ended_at, last["event"], attempt, held_commit))
            return False
        if code and not self._stopped.is_set():
            console = self._options.console.read_text(encoding="utf-8", errors="replace")
            raise ProducerFailed(
                f"the producer ended with exit code {code} after the event {last['event']!r}: {console[-1000:]}"
            )
        return True

    def _launch(self, access: Access) -> subprocess.Popen[str]:
        options = self._options
        command = run_module.command("odradek.pipeline.producer", "--feed", str(options.feed))
        command += ["--topic", options.topic, "--progress-topic", options.progress_topic]
        command += ["--transactional-id", options.transactional_id]
        command += ["--run", str(self.campaign.runs), "--seed", str(options.seed)]
        command += ["--pauses", *map(str, self._pauses)]
        with options.console.open("ab") as console:
            process = subprocess.Popen(
                command,
                env=run_module.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=console,
                text=True,
                # In its own session, the producer does not receive the SIGINT of Ctrl-C. Only this process receives it,
                # and stops the producer.
                start_new_session=True,
            )
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended, and its exit code is reported
            process.stdin.write(f"{access.encode()}\n{options.access.encode()}\n")
            process.stdin.flush()
        return process

    def _record(self, event: dict[str, Any]) -> None:
        now = time.monotonic()
        if event["event"] == "committed":
            self.campaign.acknowledged.append(event["attempt"])
            self.campaign.commits.append((now, event["rows"]))
        elif event["event"] == "aborted":
            self.campaign.aborts.append(now)
        self._on_event(event | {"at": now})

    def _record_kill(self, kill: ProducerKill) -> None:
        self._kills.pop(0)
        self.campaign.kills.append(kill)
        if kill.held_commit is not None and kill.held_commit.error == 0:
            # The producer did not receive the response, but the broker acknowledged the commit: it must not be lost.
            self.campaign.acknowledged.append(kill.attempt)
        self._on_event({"event": "killed", "kill": kill, "at": kill.at})


def committed_hour(event: dict[str, Any]) -> int:
    """Return the last hour that is committed according to an event of the producer, or -1 if it contains none."""
    if event["event"] == "committed":
        return int(event["hour"])
    return int(event["hour"]) - 1 if event["event"] == "resumed" else -1
