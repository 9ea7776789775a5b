"""The client processes: started, killed, paused and replaced by their process ids, told to stop by the end of their standard input."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.clients.common import HUNG, IDEMPOTENT, PLAIN, TAKER, TRANSACTIONAL, TRANSFORMER, Order
from tests.support.kafka_broker import JARS, ROOT
from tests.support.kafka_tools import LOGGING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.process_guard import Guardian

READER, FINAL, POLLER = "reader", "final", "poller"
STOP_SECONDS: Final = 75.0
JAVA_SOURCES: Final = tuple(
    ROOT / "tests" / "chaos" / "clients" / name for name in ("ChaosClient.java", "ChaosMember.java")
)
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
MEMBERS: Final = (TRANSFORMER, TAKER)
CLASSIC, CONSUMER = "classic", "consumer"
MemberRole = tuple[str, str, str, str]
"""Client library, kind, group, protocol."""
FULL_GROUPS: Final[tuple[MemberRole, ...]] = (
    *(("confluent", TRANSFORMER, "confluent-classic", CLASSIC),) * 2,
    *(("confluent", TRANSFORMER, "confluent-consumer", CONSUMER),) * 2,
    *(("aio", TRANSFORMER, "aio-classic", CLASSIC),) * 2,
    *(("java", TRANSFORMER, "java-classic", CLASSIC),) * 2,
    *(("java", TRANSFORMER, "java-consumer", CONSUMER),) * 2,
    ("confluent", TAKER, "takers-classic", CLASSIC),
    ("java", TAKER, "takers-classic", CLASSIC),
    ("confluent", TAKER, "takers-consumer", CONSUMER),
    ("java", TAKER, "takers-consumer", CONSUMER),
)
SHORT_GROUPS: Final[tuple[MemberRole, ...]] = (
    *(("confluent", TRANSFORMER, "confluent-classic", CLASSIC),) * 2,
    *(("java", TRANSFORMER, "java-consumer", CONSUMER),) * 2,
    *(("confluent", TAKER, "takers-consumer", CONSUMER),) * 2,
)
FEED_PAUSE_SECONDS: Final = 0.6
"""Between the transactions of who writes the inputs of the groups."""


def compile_java() -> None:
    """Compile the Java clients if a source is newer than what was compiled."""
    done = JAVA_CLASSES / "ChaosMember.class"
    if done.exists() and done.stat().st_mtime > max(source.stat().st_mtime for source in JAVA_SOURCES):
        return
    JAVA_CLASSES.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-nowarn", "-d", str(JAVA_CLASSES), "-cp", f"{JARS}/*", *map(str, JAVA_SOURCES)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"the Java clients do not compile:\n{finished.stderr[-2000:]}")


@dataclass(frozen=True)
class Topics:
    """Names and numbers of partitions: what producers and readers use, what groups read, and what they make of it."""

    plain: dict[str, int]
    inputs: dict[str, int]
    outputs: dict[str, int]

    @property
    def all(self) -> dict[str, int]:
        return self.plain | self.inputs | self.outputs


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
    def is_member(self) -> bool:
        return bool(self.order.group)

    @property
    def name(self) -> str:
        group = f" of {self.order.group}" if self.is_member else ""
        return f"{self.order.process} ({self.library}, {self.order.kind}{group})"

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

    def __init__(self, directory: Path, bootstrap: str, topics: Topics, seed: int, guardian: Guardian) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.topics = topics
        self.rng = Random(f"clients {seed}")
        self.members: list[Member] = []
        self._guardian = guardian
        self._count = 0

    def start(self, roles: tuple[Role, ...], groups: tuple[MemberRole, ...]) -> None:
        for number, (library, kind) in enumerate(roles):
            tid = f"tx-{library}-{number}" if kind == TRANSACTIONAL else ""
            self.launch(library, kind, tid)
        for number in range(2):
            feed = {"topics": self.topics.inputs, "pause_seconds": FEED_PAUSE_SECONDS}
            self.launch("confluent", TRANSACTIONAL, f"tx-feed-{number}", **feed)
        for role in groups:
            self.join(role)

    def join(self, role: MemberRole) -> Member:
        """A further member of a group."""
        library, kind, group, protocol = role
        of_group = {"group": group, "protocol": protocol, "outputs": self.topics.outputs, "topics": self.topics.inputs}
        return self.launch(library, kind, f"{group}/{self._count + 1}" if kind == TRANSFORMER else "", **of_group)

    def launch(self, library: str, kind: str, transactional_id: str = "", **details: Any) -> Member:
        what, _, level = kind.partition(" ")
        everything = what in {FINAL, POLLER}
        order = Order(
            number=0,
            process="",
            bootstrap=self.bootstrap,
            journal="",
            seed=0,
            kind=what,
            transactional_id=transactional_id,
            committed=level != "uncommitted",
            **{"topics": self.topics.all if everything else self.topics.plain, **details},
        )
        return self._launch(library, order)

    def _launch(self, library: str, draft: Order) -> Member:
        self._count += 1
        name = f"c{self._count:03}"
        journal = str(self.directory / f"{name}.jsonl")
        seed = self.rng.getrandbits(40)
        order = replace(draft, number=self._count, process=name, journal=journal, seed=seed)
        member = Member(library, order, self._spawn(library, order))
        self.members.append(member)
        self._guardian.watch(member.process.pid)
        return member

    def _spawn(self, library: str, order: Order) -> subprocess.Popen[bytes]:
        if library == "java":
            java = [*JVM, f"-Dlog4j2.configurationFile={LOGGING}", "-cp", f"{JAVA_CLASSES}:{JARS}/*"]
            command = [*java, "ChaosMember" if order.group else "ChaosClient", *order.arguments()]
        else:
            known = {READER: "reader", FINAL: "reader", POLLER: "", TRANSFORMER: "member", TAKER: "member"}
            role = known.get(order.kind, "producer")
            module = f"{library}_{role}" if role else POLLER
            command = [sys.executable, "-m", f"tests.chaos.clients.{module}", order.text()]
        with (self.directory / "clients.log").open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def living(self) -> list[Member]:
        return [member for member in self.members if member.process.poll() is None and not member.told_to_stop]

    def producers(self) -> list[Member]:
        return [member for member in self.living() if member.is_producer]

    def group_members(self) -> list[Member]:
        return [member for member in self.living() if member.is_member]

    def replace(self, member: Member) -> Member:
        """Another process in the same role, with the same transactional id."""
        return self._launch(member.library, member.order)

    def revive(self) -> None:
        """Another process for each that has ended because its library does not come back."""
        for member in list(self.members):
            if member.process.poll() == HUNG and not member.told_to_stop:
                member.told_to_stop = True
                self.replace(member)

    def died(self) -> list[str]:
        """Clients that have ended although nobody asked them to."""
        return [
            f"{member.name} ended with exit code {member.process.returncode}"
            for member in self.members
            if member.process.poll() not in {None, HUNG} and not member.told_to_stop
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
                if code not in {0, HUNG}:
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
