"""The client processes: started, killed, paused and replaced by their process ids, told to stop by the end of their standard input."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final

from tests.chaos.clients.common import IDEMPOTENT, PLAIN, TRANSACTIONAL, Order
from tests.support.kafka_broker import JARS, ROOT
from tests.support.kafka_tools import LOGGING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.guardian import Guardian

READER, FINAL, POLLER = "reader", "final", "poller"
STOP_SECONDS: Final = 75.0
JAVA_SOURCE: Final = ROOT / "tests" / "chaos" / "clients" / "ChaosClient.java"
JAVA_CLASSES: Final = ROOT / "build" / "chaos" / "classes"
JVM: Final = ("java", "-Xmx96M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

Role = tuple[str, str]
"""Client library, kind; a reader's kind says what it reads."""
FULL: Final[tuple[Role, ...]] = (
    ("confluent", TRANSACTIONAL),
    ("confluent", TRANSACTIONAL),
    ("confluent", IDEMPOTENT),
    ("confluent", PLAIN),
    ("aio", TRANSACTIONAL),
    ("aio", IDEMPOTENT),
    ("java", TRANSACTIONAL),
    ("java", TRANSACTIONAL),
    ("java", IDEMPOTENT),
    ("java", PLAIN),
    ("confluent", "reader committed"),
    ("confluent", "reader uncommitted"),
    ("aio", "reader committed"),
    ("java", "reader committed"),
    ("confluent", POLLER),
)
SHORT: Final[tuple[Role, ...]] = (
    ("confluent", TRANSACTIONAL),
    ("confluent", IDEMPOTENT),
    ("confluent", PLAIN),
    ("aio", TRANSACTIONAL),
    ("java", TRANSACTIONAL),
    ("java", "reader committed"),
    ("confluent", "reader uncommitted"),
    ("confluent", POLLER),
)
PRODUCERS: Final = (PLAIN, IDEMPOTENT, TRANSACTIONAL)


def compile_java() -> None:
    """Compile the Java client if its source is newer than what was compiled."""
    done = JAVA_CLASSES / "ChaosClient.class"
    if done.exists() and done.stat().st_mtime > JAVA_SOURCE.stat().st_mtime:
        return
    JAVA_CLASSES.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-nowarn", "-d", str(JAVA_CLASSES), "-cp", f"{JARS}/*", str(JAVA_SOURCE)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"{JAVA_SOURCE.name} does not compile:\n{finished.stderr[-2000:]}")


@dataclass(eq=False)
class Member:
    """One client process."""

    library: str
    order: Order
    process: subprocess.Popen[bytes]
    told_to_stop: bool = False

    @property
    def is_producer(self) -> bool:
        return self.order.kind in PRODUCERS

    @property
    def name(self) -> str:
        return f"{self.order.process} ({self.library}, {self.order.kind})"

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def tell_to_stop(self) -> None:
        self.told_to_stop = True
        self.signal(signal.SIGCONT)
        assert self.process.stdin is not None
        self.process.stdin.close()


class Fleet:
    """All clients of a run, the ended ones too. Numbers of processes are never given twice."""

    def __init__(self, directory: Path, bootstrap: str, topics: dict[str, int], seed: int, guardian: Guardian) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.topics = topics
        self.rng = Random(f"clients {seed}")
        self.members: list[Member] = []
        self._guardian = guardian
        self._count = 0

    def start(self, roles: tuple[Role, ...]) -> None:
        for number, (library, kind) in enumerate(roles):
            tid = f"tx-{library}-{number}" if kind == TRANSACTIONAL else ""
            self.launch(library, kind, tid)

    def launch(self, library: str, kind: str, transactional_id: str = "") -> Member:
        self._count += 1
        name = f"c{self._count:03}"
        what, _, level = kind.partition(" ")
        order = Order(
            number=self._count,
            process=name,
            bootstrap=self.bootstrap,
            journal=str(self.directory / f"{name}.jsonl"),
            seed=self.rng.getrandbits(40),
            kind=what,
            topics=self.topics,
            transactional_id=transactional_id,
            committed=level != "uncommitted",
        )
        member = Member(library, order, self._spawn(library, order))
        self.members.append(member)
        self._guardian.watch(member.process.pid)
        return member

    def _spawn(self, library: str, order: Order) -> subprocess.Popen[bytes]:
        if library == "java":
            java = [*JVM, f"-Dlog4j2.configurationFile={LOGGING}", "-cp", f"{JAVA_CLASSES}:{JARS}/*", "ChaosClient"]
            command = [*java, *order.arguments()]
        else:
            role = {READER: "reader", FINAL: "reader", POLLER: ""}.get(order.kind, "producer")
            module = f"{library}_{role}" if role else POLLER
            command = [sys.executable, "-P", "-m", f"tests.chaos.clients.{module}", order.text()]
        with (self.directory / "clients.log").open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def living(self, *, producers: bool = False) -> list[Member]:
        alive = [member for member in self.members if member.process.poll() is None and not member.told_to_stop]
        return [member for member in alive if member.is_producer] if producers else alive

    def replace(self, member: Member) -> Member:
        """Another process in the same role, with the same transactional id."""
        order = replace(member.order)
        kind = order.kind if member.is_producer or order.committed else f"{order.kind} uncommitted"
        return self.launch(member.library, kind, order.transactional_id)

    def died(self) -> list[str]:
        """Clients that have ended although nobody asked them to."""
        return [
            f"{member.name} ended with exit code {member.process.returncode}"
            for member in self.members
            if member.process.poll() is not None and not member.told_to_stop
        ]

    def stop(self, members: list[Member]) -> list[str]:
        """Tell them to stop and wait. Returns those that could not finish what they had begun."""
        for member in members:
            member.tell_to_stop()
        stuck, deadline = [], time.monotonic() + STOP_SECONDS
        for member in members:
            try:
                code = member.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
                stuck.append(f"{member.name} did not stop within {STOP_SECONDS:.0f} s")
            else:
                if code:
                    stuck.append(f"{member.name} could not finish (exit code {code})")
        return stuck

    def kill_all(self) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.told_to_stop = True
                member.process.kill()
                member.process.wait()
            assert member.process.stdin is not None
            member.process.stdin.close()
