"""The client processes of a run. The end of its standard input makes a client process finish and exit."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.clients.common import COMMITTER, HUNG, IDEMPOTENT, PLAIN, TRANSACTIONAL, TRANSFORMER, ClientSpec
from tests.chaos.security import user_of
from tests.chaos.system import bootstrap
from tests.support.jars import REFERENCE, ROOT
from tests.support.kafka_tools import LOGGING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.process_guard import ProcessGuard
    from tests.chaos.system import System

READER, FINAL, POLLER = "reader", "final", "poller"
STOP_SECONDS: Final = 75.0
"""Maximum time for all client processes to exit after the end of their standard input, in seconds."""
JAVA_SOURCES: Final = tuple(
    ROOT / "tests" / "chaos" / "clients" / name for name in ("ChaosClient.java", "ChaosMember.java")
)
JAVA_CLASSES: Final = ROOT / "build" / "chaos" / "classes"
JVM: Final = ("java", "-Xmx96M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

ALLOWED: Final = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
"""Begin of the options that permit Kafka's Java client to read a token file."""

Role = tuple[str, str]
"""Client library and kind of a client process. The kind of a reader contains its isolation level."""
FULL_CLIENTS: Final[tuple[Role, ...]] = (
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
    ("kafka_python", "reader committed"),
    ("java", "reader committed"),
    ("confluent", POLLER),
)
SHORT_CLIENTS: Final[tuple[Role, ...]] = (
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
MEMBERS: Final = (TRANSFORMER, COMMITTER)
CLASSIC, CONSUMER = "classic", "consumer"
MemberRole = tuple[str, str, str, str]
"""Client library, kind, group and group protocol of a group member."""
FULL_GROUPS: Final[tuple[MemberRole, ...]] = (
    *(("confluent", TRANSFORMER, "confluent-classic", CLASSIC),) * 2,
    *(("confluent", TRANSFORMER, "confluent-consumer", CONSUMER),) * 2,
    *(("aio", TRANSFORMER, "aio-classic", CLASSIC),) * 2,
    *(("java", TRANSFORMER, "java-classic", CLASSIC),) * 2,
    *(("java", TRANSFORMER, "java-consumer", CONSUMER),) * 2,
    ("confluent", COMMITTER, "committers-classic", CLASSIC),
    ("java", COMMITTER, "committers-classic", CLASSIC),
    ("confluent", COMMITTER, "committers-consumer", CONSUMER),
    ("java", COMMITTER, "committers-consumer", CONSUMER),
)
SHORT_GROUPS: Final[tuple[MemberRole, ...]] = (
    *(("confluent", TRANSFORMER, "confluent-classic", CLASSIC),) * 2,
    *(("java", TRANSFORMER, "java-consumer", CONSUMER),) * 2,
    *(("confluent", COMMITTER, "committers-consumer", CONSUMER),) * 2,
)
INPUT_PAUSE_SECONDS: Final = 0.6
"""Mean pause between two transactions of a producer of the groups' inputs, in seconds."""


def compile_java() -> None:
    """Compile the Java clients if a source file is newer than the class files.

    Raises:
        RuntimeError: javac failed.
    """
    compiled = JAVA_CLASSES / "ChaosMember.class"
    if compiled.exists() and compiled.stat().st_mtime > max(source.stat().st_mtime for source in JAVA_SOURCES):
        return
    JAVA_CLASSES.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-nowarn", "-d", str(JAVA_CLASSES), "-cp", f"{REFERENCE}/*", *map(str, JAVA_SOURCES)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise RuntimeError(f"compilation of the Java clients failed:\n{finished.stderr[-2000:]}")


@dataclass(frozen=True)
class Topics:
    """Topics of a run with their partition counts: of clients without a group, of group inputs and of group outputs."""

    plain: dict[str, int]
    inputs: dict[str, int]
    outputs: dict[str, int]

    @property
    def all(self) -> dict[str, int]:
        return self.plain | self.inputs | self.outputs


@dataclass(eq=False)
class ClientProcess:
    """One running or exited client process. `stop_requested`: the supervisor has stopped, killed or replaced it."""

    library: str
    spec: ClientSpec
    process: subprocess.Popen[bytes]
    stop_requested: bool = False

    @property
    def is_producer(self) -> bool:
        return self.spec.kind in PRODUCERS

    @property
    def is_member(self) -> bool:
        return bool(self.spec.group)

    @property
    def name(self) -> str:
        group = f" of {self.spec.group}" if self.is_member else ""
        return f"{self.spec.process} ({self.library}, {self.spec.kind}{group})"

    def signal(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def request_stop(self) -> None:
        self.stop_requested = True
        self.signal(signal.SIGCONT)
        assert self.process.stdin is not None
        self.process.stdin.close()


class Fleet:
    """All client processes of a run, including exited ones. Each process has a number that no other process gets."""

    def __init__(self, directory: Path, system: System, topics: Topics, seed: int, guard: ProcessGuard) -> None:
        self.directory = directory
        self.bootstrap = bootstrap(system.ports)
        self._security = system.security
        self.topics = topics
        self.rng = Random(f"clients {seed}")
        self.members: list[ClientProcess] = []
        self._guard = guard
        self._count = 0

    def start(self, roles: tuple[Role, ...], groups: tuple[MemberRole, ...]) -> None:
        for number, (library, kind) in enumerate(roles):
            tid = f"tx-{library}-{number}" if kind == TRANSACTIONAL else ""
            self.launch(library, kind, tid)
        for number in range(2):
            details = {"topics": self.topics.inputs, "pause_seconds": INPUT_PAUSE_SECONDS}
            self.launch("confluent", TRANSACTIONAL, f"tx-input-{number}", **details)
        for role in groups:
            self.join(role)

    def join(self, role: MemberRole) -> ClientProcess:
        """Start another member of a group."""
        library, kind, group, protocol = role
        details = {"group": group, "protocol": protocol, "outputs": self.topics.outputs, "topics": self.topics.inputs}
        return self.launch(library, kind, f"{group}/{self._count + 1}" if kind == TRANSFORMER else "", **details)

    def launch(self, library: str, kind: str, transactional_id: str = "", **details: Any) -> ClientProcess:
        base_kind, _, level = kind.partition(" ")
        all_topics = base_kind in {FINAL, POLLER}
        spec = ClientSpec(
            number=0,
            process="",
            bootstrap=self.bootstrap,
            journal="",
            seed=0,
            kind=base_kind,
            transactional_id=transactional_id,
            security="" if self._security is None else str(self._security.properties(user_of(library, base_kind))),
            committed=level != "uncommitted",
            **{"topics": self.topics.all if all_topics else self.topics.plain, **details},
        )
        return self._launch(library, spec)

    def _launch(self, library: str, draft: ClientSpec) -> ClientProcess:
        self._count += 1
        name = f"c{self._count:03}"
        journal = str(self.directory / f"{name}.jsonl")
        seed = self.rng.getrandbits(40)
        spec = replace(draft, number=self._count, process=name, journal=journal, seed=seed)
        member = ClientProcess(library, spec, self._spawn(library, spec))
        self.members.append(member)
        self._guard.watch(member.process.pid)
        return member

    def _spawn(self, library: str, spec: ClientSpec) -> subprocess.Popen[bytes]:
        if library == "java":
            java = [*JVM, f"-Dlog4j2.configurationFile={LOGGING}", "-cp", f"{JAVA_CLASSES}:{REFERENCE}/*"]
            if self._security is not None:
                file = self._security.tokens.token_file
                java += [f"{ALLOWED}.urls={file.as_uri()}", f"{ALLOWED}.files={file}"]
            command = [*java, "ChaosMember" if spec.group else "ChaosClient", *spec.arguments()]
        else:
            roles = {READER: "reader", FINAL: "reader", POLLER: "", TRANSFORMER: "member", COMMITTER: "member"}
            role = roles.get(spec.kind, "producer")
            module = f"{library}_{role}" if role else POLLER
            command = [sys.executable, "-m", f"tests.chaos.clients.{module}", spec.text()]
        with (self.directory / "clients.log").open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def running(self) -> list[ClientProcess]:
        return [member for member in self.members if member.process.poll() is None and not member.stop_requested]

    def producers(self) -> list[ClientProcess]:
        return [member for member in self.running() if member.is_producer]

    def group_members(self) -> list[ClientProcess]:
        return [member for member in self.running() if member.is_member]

    def replace(self, member: ClientProcess) -> ClientProcess:
        """Start another process with the same role and the same transactional id."""
        return self._launch(member.library, member.spec)

    def replace_hung(self) -> None:
        """Replace each process that has exited because a call of its library did not return."""
        for member in list(self.members):
            if member.process.poll() == HUNG and not member.stop_requested:
                member.stop_requested = True
                self.replace(member)

    def unexpected_exits(self) -> list[str]:
        """Return one line per process that exited although the supervisor neither stopped nor killed it."""
        return [
            f"{member.name} exited with code {member.process.returncode}"
            for member in self.members
            if member.process.poll() not in {None, HUNG} and not member.stop_requested
        ]

    def stop(self, members: list[ClientProcess]) -> list[str]:
        """Stop the processes, and return one line per process that could not complete its pending operations."""
        for member in members:
            member.request_stop()
        failures, deadline = [], time.monotonic() + STOP_SECONDS
        for member in members:
            try:
                code = member.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
                failures.append(f"{member.name} did not stop within {STOP_SECONDS:.0f} s")
            else:
                if code not in {0, HUNG}:
                    failures.append(f"{member.name} could not complete its operations (exit code {code})")
        return failures

    def kill_all(self) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.stop_requested = True
                member.process.kill()
                member.process.wait()
            assert member.process.stdin is not None
            member.process.stdin.close()
