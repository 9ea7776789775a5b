"""``python -m tests.chaos.detection``: how long a dead broker stays unnoticed, and how often a living one is held dead.

Three real brokers. In turn, idle and under Kafka's own producers at full speed: kill -9 and SIGSTOP of each of them several times; then minutes of
that load without any fault, in which every verdict is a false one. Figures are printed, and kept with ``--write``; no test judges them.
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
from tests.support.kafka_broker import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKERS: Final = 3
TOPIC: Final = "load"
PARTITIONS: Final = 6
RECORD_BYTES: Final = 1_000
PRODUCERS: Final = 2
WARM_UP_SECONDS: Final = 5.0
NOTICE_SECONDS_MAX: Final = 20.0
LOOK_SECONDS: Final = 0.01
JARS: Final = ROOT / "build" / "jars" / "kafka"
KEPT: Final = ROOT / "docs" / "membership.md"
SECTION: Final = re.compile(r"(?<=<!-- measured -->\n).*(?=<!-- /measured -->)", re.DOTALL)
FAILURE: Final = "node failure declared"
RETURN: Final = "failed node returned"


@dataclass
class Journal:
    """The log of one broker, read as it grows."""

    path: Path
    position: int = 0

    def skip(self) -> None:
        self.position = self.path.stat().st_size

    def news(self) -> list[dict[str, object]]:
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


def now_of(entry: dict[str, object]) -> float:
    return datetime.fromisoformat(str(entry["timestamp"])).timestamp()


def processor_times() -> tuple[int, int]:
    """(busy, all) ticks of the machine."""
    values = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(values) - values[3] - values[4], sum(values)


def busy_since(before: tuple[int, int]) -> float:
    """The part of all processors that was busy."""
    busy, every = processor_times()
    return (busy - before[0]) / max(every - before[1], 1)


@contextmanager
def producers(bootstrap: str, count: int) -> Iterator[None]:
    """Kafka's ProducerPerformance, `count` of them, as fast as they can. RuntimeError when one has not lasted to the end."""
    command = ["java", "-Xmx256M", "-cp", f"{JARS}/*", "org.apache.kafka.tools.ProducerPerformance"]
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
            raise RuntimeError("a producer has ended: there was not that load all the time")


class Measurement:
    def __init__(self, cluster: LocalCluster, console: Console) -> None:
        self.cluster = cluster
        self.console = console
        self.figures = Figures()
        self.journals = {node: Journal(cluster.directory.log(node)) for node in range(1, BROKERS + 1)}

    def faults(self, repetitions: int, load: str) -> None:
        before = processor_times()
        self._faults(repetitions, load)
        self.figures.busy[load] = busy_since(before)

    def _faults(self, repetitions: int, load: str) -> None:
        for fault in ("kill -9", "SIGSTOP"):
            for repetition in range(repetitions):
                node = 1 + repetition % BROKERS
                taken = self.kill(node) if fault == "kill -9" else self.stop(node)
                self.figures.milliseconds.setdefault((fault, load), []).extend(taken)
                self.console.print(f"{fault} of broker {node}, {load}: {', '.join(str(each) for each in taken)} ms")

    def kill(self, node: int) -> list[int]:
        survivors = self.skip(node)
        began = time.time()
        self.cluster.kill(node)
        taken = self.notice(survivors, node, FAILURE, began)
        self.cluster.start(node)
        time.sleep(WARM_UP_SECONDS)
        return taken

    def stop(self, node: int) -> list[int]:
        survivors = self.skip(node)
        began = time.time()
        self.cluster.pause(node)
        taken = self.notice(survivors, node, FAILURE, began)
        self.cluster.resume(node)
        self.notice(survivors, node, RETURN, began)
        time.sleep(WARM_UP_SECONDS)
        return taken

    def skip(self, node: int) -> list[int]:
        survivors = [each for each in self.journals if each != node]
        for each in survivors:
            self.journals[each].skip()
        return survivors

    def notice(self, survivors: list[int], node: int, event: str, began: float) -> list[int]:
        """Milliseconds from `began` until each survivor has written `event` about `node`; -1 for one that never did."""
        found: dict[int, int] = {}
        while len(found) < len(survivors) and time.time() - began < NOTICE_SECONDS_MAX:
            time.sleep(LOOK_SECONDS)
            for each in survivors:
                for entry in self.journals[each].news():
                    if entry.get("event") == event and entry.get("member") == node:
                        found.setdefault(each, round(1_000 * (now_of(entry) - began)))
        return [found.get(each, -1) for each in survivors]

    def watch(self, minutes: float) -> None:
        """Run only load. Each failure declaration is a false one."""
        for journal in self.journals.values():
            journal.skip()
        before = processor_times()
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            time.sleep(min(1.0, max(0.0, end - time.monotonic())))
            for node, journal in self.journals.items():
                for entry in journal.news():
                    if entry.get("event") == FAILURE:
                        self.figures.false_declarations.append(f"{node}: {entry}")
                        self.console.print(f"FALSE FAILURE DECLARATION by broker {node}: {entry}")
        self.figures.minutes = minutes
        self.figures.busy["minutes of load"] = busy_since(before)


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
        made.result(timeout=30)


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
    """Replace the measured part of the document."""
    lines = [" | ".join(HEADINGS), " | ".join("---" for _ in HEADINGS), *(" | ".join(row) for row in figures.rows())]
    table = "\n".join(f"| {line} |" for line in lines)
    busy = ", ".join(f"{load}: {part:.0%}" for load, part in figures.busy.items())
    text = (
        f"{table}\n\nWrong failure declarations in {figures.minutes:g} minutes of the same load without a fault:"
        f" {len(figures.false_declarations)}. Processor use: {busy}.\n"
    )
    KEPT.write_text(SECTION.sub(lambda _: text, KEPT.read_text()))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.detection", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=6, help="of each fault, idle and under load (default 6)")
    parser.add_argument("--minutes", type=float, default=5.0, help="of load without faults (default 5)")
    parser.add_argument("--load", action="store_true", help="only under load")
    parser.add_argument("--write", action="store_true", help="keep the figures in docs/membership.md")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    console = Console()
    settings = {
        "odradek.log.format": "json",
        # minutes of load at full speed shall not fill the disk
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
        if not given.load:
            measurement.faults(given.repetitions, "idle")
        with producers(cluster.bootstrap, PRODUCERS):
            time.sleep(WARM_UP_SECONDS)
            measurement.faults(given.repetitions, "loaded")
            measurement.watch(given.minutes)
    show(measurement.figures, console)
    if given.write:
        keep(measurement.figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
