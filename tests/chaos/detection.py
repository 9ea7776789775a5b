"""Measure the failure detector with real processes: ``python -m tests.chaos.detection``.

The measurement starts three brokers. It sends kill -9 and SIGSTOP to each broker several times: first while the brokers
are idle, then while Kafka's ProducerPerformance runs at full speed. It then runs the same load for some minutes without
a fault; each failure declaration in these minutes is a false one. The figures are printed, and written to
docs/membership.md with ``--write``. No test has limits for them.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from odradek.local.local_cluster import LocalCluster
from tests.support.jars import PREVIOUS, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKERS: Final = 3
TOPIC: Final = "load"
PARTITIONS: Final = 6
RECORD_BYTES: Final = 1_000
PRODUCERS: Final = 2
WARM_UP_SECONDS: Final = 5.0
DETECTION_SECONDS_MAX: Final = 20.0
"""Maximum wait for a log entry after a signal, in seconds."""
POLL_SECONDS: Final = 0.01
DOCUMENT: Final = ROOT / "docs" / "membership.md"
SECTION: Final = re.compile(r"(?<=<!-- measured -->\n).*(?=<!-- /measured -->)", re.DOTALL)
FAILURE: Final = "node failure declared"
RETURN: Final = "failed node returned"


@dataclass
class BrokerLog:
    """The JSON log of one broker, read incrementally."""

    path: Path
    position: int = 0

    def skip(self) -> None:
        self.position = self.path.stat().st_size

    def new_entries(self) -> list[dict[str, object]]:
        with self.path.open("rb") as file:
            file.seek(self.position)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self.position += len(complete)
        return [json.loads(line) for line in complete.splitlines() if line.startswith(b"{")]


@dataclass
class Figures:
    """Times to the failure declaration by (fault, load): milliseconds per survivor, -1 if never; and processor use."""

    milliseconds: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    minutes: float = 0.0
    false_declarations: list[str] = field(default_factory=list)
    busy: dict[str, float] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, ...]]:
        """Return (fault, load, failure declarations, minimum, median, maximum) for each fault and load."""
        return [
            (fault, load, str(len(taken)), f"{min(taken)}", f"{median(taken):.0f}", f"{max(taken)}")
            for (fault, load), taken in self.milliseconds.items()
        ]


def timestamp_of(entry: dict[str, object]) -> float:
    return datetime.fromisoformat(str(entry["timestamp"])).timestamp()


def processor_times() -> tuple[int, int]:
    """Return the machine's processor time since boot, in ticks: (busy, total)."""
    values = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(values) - values[3] - values[4], sum(values)


def busy_since(before: tuple[int, int]) -> float:
    """Return the fraction of processor time that was busy since `before`, a result of `processor_times`."""
    busy, total = processor_times()
    return (busy - before[0]) / max(total - before[1], 1)


@contextmanager
def producers(bootstrap: str, count: int) -> Iterator[None]:
    """Run `count` processes of Kafka's ProducerPerformance without a throughput limit.

    Raises:
        RuntimeError: a producer process exited before the end of the context.
    """
    command = ["java", "-Xmx256M", "-cp", f"{PREVIOUS}/*", "org.apache.kafka.tools.ProducerPerformance"]
    command += [
        "--topic",
        TOPIC,
        "--num-records",
        "2000000000",
        "--record-size",
        str(RECORD_BYTES),
        "--throughput",
        "-1",
    ]
    command += ["--producer-props", f"bootstrap.servers={bootstrap}", "acks=all"]
    started: list[subprocess.Popen[bytes]] = []
    with ExitStack() as running:
        for _ in range(count):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            running.callback(process.wait)
            running.callback(process.kill)
            started.append(process)
        yield
        if any(process.poll() is not None for process in started):
            raise RuntimeError("a producer process exited early, so the load was not constant; repeat the measurement")


class Measurement:
    def __init__(self, cluster: LocalCluster, console: Console) -> None:
        self.cluster = cluster
        self.console = console
        self.figures = Figures()
        self.logs = {node: BrokerLog(cluster.directory.log(node)) for node in range(1, BROKERS + 1)}

    def faults(self, repetitions: int, load: str) -> None:
        before = processor_times()
        self._faults(repetitions, load)
        self.figures.busy[load] = busy_since(before)

    def _faults(self, repetitions: int, load: str) -> None:
        for fault in ("kill -9", "SIGSTOP"):
            for repetition in range(repetitions):
                node = 1 + repetition % BROKERS
                delays = self.kill(node) if fault == "kill -9" else self.stop(node)
                self.figures.milliseconds.setdefault((fault, load), []).extend(delays)
                self.console.print(f"{fault} of broker {node}, {load}: {', '.join(str(delay) for delay in delays)} ms")

    def kill(self, node: int) -> list[int]:
        survivors = self.skip_logs_of_survivors(node)
        signaled_at = time.time()
        self.cluster.kill(node)
        delays = self.delays_until(survivors, node, FAILURE, signaled_at)
        self.cluster.start(node)
        time.sleep(WARM_UP_SECONDS)
        return delays

    def stop(self, node: int) -> list[int]:
        survivors = self.skip_logs_of_survivors(node)
        signaled_at = time.time()
        self.cluster.pause(node)
        delays = self.delays_until(survivors, node, FAILURE, signaled_at)
        self.cluster.resume(node)
        self.delays_until(survivors, node, RETURN, signaled_at)
        time.sleep(WARM_UP_SECONDS)
        return delays

    def skip_logs_of_survivors(self, node: int) -> list[int]:
        """Skip the present log entries of all brokers except `node`, and return the ids of these brokers."""
        survivors = [survivor for survivor in self.logs if survivor != node]
        for survivor in survivors:
            self.logs[survivor].skip()
        return survivors

    def delays_until(self, survivors: list[int], node: int, event: str, signaled_at: float) -> list[int]:
        """Return the milliseconds from `signaled_at` until each survivor logs `event` about `node`, or -1."""
        delays: dict[int, int] = {}
        while len(delays) < len(survivors) and time.time() - signaled_at < DETECTION_SECONDS_MAX:
            time.sleep(POLL_SECONDS)
            for survivor in survivors:
                for entry in self.logs[survivor].new_entries():
                    if entry.get("event") == event and entry.get("member") == node:
                        delays.setdefault(survivor, round(1_000 * (timestamp_of(entry) - signaled_at)))
        return [delays.get(survivor, -1) for survivor in survivors]

    def watch(self, minutes: float) -> None:
        """Wait `minutes` under load without a fault. Count each failure declaration as a false one."""
        for log in self.logs.values():
            log.skip()
        before = processor_times()
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            time.sleep(min(1.0, max(0.0, end - time.monotonic())))
            for node, log in self.logs.items():
                for entry in log.new_entries():
                    if entry.get("event") == FAILURE:
                        self.figures.false_declarations.append(f"{node}: {entry}")
                        self.console.print(f"FALSE FAILURE DECLARATION by broker {node}: {entry}")
        self.figures.minutes = minutes
        self.figures.busy["minutes of load"] = busy_since(before)


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
        future.result(timeout=30)


HEADINGS: Final = ("fault", "machine", "failure declarations", "minimum, ms", "median, ms", "maximum, ms")


def show(figures: Figures, console: Console) -> None:
    table = Table(*HEADINGS, title="From the signal to the failure declaration of each survivor")
    for row in figures.rows():
        table.add_row(*row)
    console.print(table)
    console.print(
        f"{len(figures.false_declarations)} false failure declarations in {figures.minutes:g} minutes of load"
    )
    console.print(", ".join(f"{load}: processors {busy:.0%} busy" for load, busy in figures.busy.items()))


def keep(figures: Figures) -> None:
    """Replace the measured section of docs/membership.md."""
    lines = [" | ".join(HEADINGS), " | ".join("---" for _ in HEADINGS), *(" | ".join(row) for row in figures.rows())]
    table = "\n".join(f"| {line} |" for line in lines)
    busy = ", ".join(f"{load}: {part:.0%}" for load, part in figures.busy.items())
    text = (
        f"{table}\n\nWrong failure declarations in {figures.minutes:g} minutes of the same load without a fault:"
        f" {len(figures.false_declarations)}. Processor use: {busy}.\n"
    )
    DOCUMENT.write_text(SECTION.sub(lambda _: text, DOCUMENT.read_text()))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.detection", description=__doc__)
    parser.add_argument(
        "--repetitions", type=int, default=6, help="repetitions of each fault, idle and under load (default 6)"
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="minutes of load without faults (default 5)")
    parser.add_argument("--load", action="store_true", help="measure only under load")
    parser.add_argument("--write", action="store_true", help="write the figures to docs/membership.md")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    console = Console()
    settings = {
        "odradek.log.format": "json",
        # Retention limits the disk space that minutes of load at full speed use.
        "log.segment.bytes": 16 * 1024 * 1024,
        "log.retention.bytes": 64 * 1024 * 1024,
        "log.retention.check.interval.ms": 1_000,
        "log.segment.delete.delay.ms": 1_000,
        "log.initial.task.delay.ms": 1_000,
    }
    with LocalCluster(BROKERS, settings=settings) as cluster:
        create_topic(cluster.bootstrap)
        measurement = Measurement(cluster, console)
        time.sleep(WARM_UP_SECONDS)
        if not options.load:
            measurement.faults(options.repetitions, "idle")
        with producers(cluster.bootstrap, PRODUCERS):
            time.sleep(WARM_UP_SECONDS)
            measurement.faults(options.repetitions, "loaded")
            measurement.watch(options.minutes)
    show(measurement.figures, console)
    if options.write:
        keep(measurement.figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
