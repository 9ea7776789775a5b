"""The hostile client of a run: its process, the memory of the brokers beside it, and their logs."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.chaos.clients.hostile import HostileSpec
from tests.chaos.security import HOSTILE
from tests.chaos.system import BYTE_BUDGET_MIB
from tests.sim.checkers.hostile import UNREACHABLE
from tests.support.jars import ROOT

if TYPE_CHECKING:
    from tests.chaos.journal import MergedJournals
    from tests.chaos.process_guard import ProcessGuard
    from tests.chaos.snooping import Names
    from tests.chaos.system import System

MIB: Final = 1 << 20
BASE_MIB: Final = 192
"""Resident memory of a broker in MiB besides the byte budget: interpreter, logs, caches, and memory that the allocator
keeps.
"""
RESIDENT_MIB_MAX: Final = BYTE_BUDGET_MIB + BASE_MIB
SAMPLE_SECONDS: Final = 0.5
STOP_SECONDS: Final = 10.0
UNEXPECTED: Final = re.compile(r"^.*(?:unexpected exception|Traceback \(most recent call last\)).*$", re.MULTILINE)
"""A line in the log of a broker that shows a bug."""
FINDINGS_MAX: Final = 5


@dataclass
class HostileClient:
    """The process of the hostile client, which is started again if it ends."""

    directory: Path
    system: System
    seed: int
    guard: ProcessGuard
    names: Names | None = None
    """Names that the hostile client must not learn, in a secured run."""
    topics: dict[str, tuple[str, int]] | None = None
    """Topic id and partition count of the topics of the hostile client, in a secured run."""
    restarts: int = 0
    resident_mib: dict[int, int] = field(default_factory=dict)
    """Largest sample of the resident memory of each broker."""
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process with the next seed."""
        name = f"hostile-{self.restarts}"
        ports = self.system.ports
        spec = HostileSpec(
            seed=self.seed + self.restarts,
            process=name,
            journal=str(self.directory / f"{name}.jsonl"),
            cluster_id=self.system.cluster_id,
            clients={str(node): node_ports.clients for node, node_ports in ports.items()},
            brokers={str(node): node_ports.brokers for node, node_ports in ports.items()},
        )
        if self.names is not None and self.topics is not None:
            assert self.system.security is not None
            path = str(self.system.security.properties(HOSTILE))
            spec = replace(spec, security=path, topics=self.topics, names=asdict(self.names))
        with (self.directory / "hostile.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.chaos.clients.hostile", spec.text()]
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log)
        self.guard.watch(self._process.pid)

    async def watch(self) -> None:
        """Start the process again when it ends, and sample the memory of the brokers."""
        while True:
            if self._process is not None and self._process.poll() is not None:
                self.restarts += 1
                self.start()
            for node in self.system.running():
                with suppress(KeyError):  # a fault may end the broker in another thread
                    resident_mib = _resident_mib(self.system.process_id(node))
                    self.resident_mib[node] = max(self.resident_mib.get(node, 0), resident_mib)
            await asyncio.sleep(SAMPLE_SECONDS)

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def violations(self, journals: MergedJournals) -> list[str]:
        """Return what a hostile client must not cause."""
        findings = [
            f"I17 a broker carried out a request of a hostile client: {note['attack']}, {note['what']}"
            for note in _attacks(journals)
            if note["carried_out"]
        ][:FINDINGS_MAX]
        findings += [
            f"a user without ACLs learnt what it must not: {note['fact']}"
            for note in journals.notes
            if note["op"] == "learnt"
        ][:FINDINGS_MAX]
        findings += [
            f"broker {node} had {resident_mib} MiB resident memory, more than {RESIDENT_MIB_MAX} MiB"
            for node, resident_mib in self.resident_mib.items()
            if resident_mib > RESIDENT_MIB_MAX
        ]
        return findings

    def counters(self, journals: MergedJournals) -> dict[str, int]:
        """Return the number of attacks by kind, those that reached a broker, and the largest memory of a broker."""
        attacks = _attacks(journals)
        counts = Counter(f"hostile: {note['attack']}" for note in attacks if note["outcome"] != UNREACHABLE)
        counts |= Counter({"hostile attacks without a connection": 0, "hostile client started again": self.restarts})
        counts["hostile attacks without a connection"] += sum(note["outcome"] == UNREACHABLE for note in attacks)
        counts["largest resident memory of a broker, MiB"] = max(self.resident_mib.values(), default=0)
        return dict(counts)


def _attacks(journals: MergedJournals) -> list[dict[str, object]]:
    return [note for note in journals.notes if note["op"] == "hostile"]


def unexpected_lines(node: int, log: str) -> list[str]:
    """Return the lines in the log of a broker that show a bug."""
    return [f"broker {node} logged: {line.strip()[:300]}" for line in UNEXPECTED.findall(log)[:FINDINGS_MAX]]


def _resident_mib(pid: int) -> int:
    """Return the resident memory of a process in MiB; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    match = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    return 0 if match is None else int(match[1]) * 1024 // MIB
