"""Injection of the planned faults. Each fault is undone at its end; after a burst, all remaining faults are undone."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException

from tests.chaos.admin_requests import admin_client
from tests.chaos.journal import Journal, now
from tests.chaos.plan import CLIENT_FAULTS, FRAME_FAULTS, MEMBER_FAULTS, Burst, Fault
from tests.chaos.proxy import BOTH, CLIENTS, REQUEST, RESPONSE
from tests.chaos.system import System, proxy_arguments
from tests.support.jars import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.fleet import ClientProcess, Fleet
    from tests.chaos.process_guard import ProcessGuard

FRAME_FAULT_LIFETIME_SECONDS: Final = 8.0
"""Time after which a frame fault that met no request expires, in seconds."""
REPEATED_KILLS: Final = 3
REPEATED_KILL_PAUSE_SECONDS: Final = 0.7
DUPLICATE_SECONDS: Final = 4.0
"""Time for which two producers with the same transactional id run, in seconds."""
METADATA_SECONDS: Final = 2.0
REPLACE_SECONDS: Final = 0.3
"""Delay from the kill of a client process to the start of its replacement, in seconds."""


class ProxyProcess:
    """The proxy process. `send` sends a command and waits until the proxy has applied it."""

    def __init__(self, system: System, journal: Path, log: Path) -> None:
        tls = "" if system.security is None else str(system.security.directory)
        command = [sys.executable, "-m", "tests.chaos.proxy", str(journal), tls, *proxy_arguments(system.ports)]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._expect("ready")

    def send(self, command: str, **details: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"command": command, **details}) + "\n")
        self.process.stdin.flush()
        self._expect("done")

    def _expect(self, expected: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if line != expected:
            raise RuntimeError(f"the proxy wrote {line!r} instead of {expected!r}; see its log")

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class FaultInjector:
    """Injects the faults of a plan into brokers, connections and clients, and records them in the journal."""

    def __init__(self, system: System, proxy: ProxyProcess, fleet: Fleet, guard: ProcessGuard, directory: Path) -> None:
        self.system = system
        self.proxy = proxy
        self.fleet = fleet
        self.guard = guard
        self.journal = Journal(directory / "fault-injector.jsonl", "fault-injector")
        self.journal.write("clock", "info", wall=time.time())
        self.began = now()
        self.paused_clients: dict[ClientProcess, None] = {}
        self.paused_nodes: dict[int, None] = {}
        self._busy: dict[int, asyncio.Lock] = {node: asyncio.Lock() for node in system.ports}
        self._admin = admin_client(system.access, "fault-injector")

    def begin(self) -> float:
        """Begin the time of the plan, and return it."""
        self.began = now()
        return self.began

    async def run(self, bursts: list[Burst]) -> None:
        for burst in bursts:
            await self.until(burst.begin)
            tasks = [asyncio.create_task(self.inject(fault)) for fault in burst.faults]
            for task in tasks:
                await task
            if burst.faults:
                await self.heal()
            await self.until(burst.end)

    async def until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, self.began + at - now()))

    async def inject(self, fault: Fault) -> None:
        await self.until(fault.at)
        number = self.journal.invoke("fault", fault=fault.details())
        if fault.kind in CLIENT_FAULTS:
            await self.inject_into_client(fault)
        elif fault.kind in MEMBER_FAULTS:
            await self.inject_into_member(fault)
        elif fault.kind in FRAME_FAULTS:
            self.proxy.send(
                "frame_fault",
                action=fault.kind,
                api_keys=fault.api_keys,
                source=fault.other,
                target=fault.node,
                seconds=fault.seconds,
                lifetime=FRAME_FAULT_LIFETIME_SECONDS,
            )
        else:
            work: Callable[[Fault], Any] = getattr(self, f"do_{fault.kind}")
            await work(fault)
        self.journal.complete("fault", number, "ok")

    async def heal(self) -> None:
        self.proxy.send("heal")
        for node in list(self.paused_nodes):
            await self.resume(node)
        for node in self.system.ports:
            if node not in self.system.running():
                await self.start(node)
        for member in list(self.paused_clients):
            member.signal(signal.SIGCONT)
        self.paused_clients.clear()
        self.journal.write("healed", "info")

    # ---- processes --------------------------------------------------------------------------------------------------

    async def choose(self, fault: Fault) -> int:
        """Return the target broker of a fault.

        One third of the faults targets the broker in the plan, one third a coordinator, one third the leader of a data
        partition.
        """
        selection = fault.number % 3
        if selection == 0:
            return fault.node
        coordinators = ["__transaction_state", "__consumer_offsets"]
        topics = coordinators if selection == 1 else list(self.fleet.topics.all)
        try:
            metadata = await asyncio.to_thread(self._admin.list_topics, timeout=METADATA_SECONDS)
        except KafkaException:
            return fault.node
        leaders = [
            partition.leader
            for topic in topics
            if topic in metadata.topics
            for partition in metadata.topics[topic].partitions.values()
            if partition.leader in self.system.ports
        ]
        return leaders[fault.number % len(leaders)] if leaders else fault.node

    async def kill(self, node: int, *, is_measured: bool = True) -> None:
        async with self._busy[node]:
            if node in self.system.running():
                if is_measured:
                    self.journal.write("kill", "info", node=node)
                await asyncio.to_thread(self.system.kill, node)
                self.paused_nodes.pop(node, None)

    async def start(self, node: int) -> None:
        async with self._busy[node]:
            if node not in self.system.running():
                await asyncio.to_thread(self.system.start_node, node)
                self.guard.watch(self.system.process_id(node))
                self.journal.write("start", "info", node=node)

    async def stop(self, node: int) -> None:
        async with self._busy[node]:
            if node in self.system.running():
                self.journal.write("stop", "info", node=node)
                await asyncio.to_thread(self.system.stop, node)

    async def resume(self, node: int) -> None:
        async with self._busy[node]:
            if self.paused_nodes.pop(node, self) is None and node in self.system.running():
                self.system.resume(node)

    async def do_kill(self, fault: Fault) -> None:
        node = await self.choose(fault)
        await self.kill(node)
        await asyncio.sleep(fault.seconds)
        await self.start(node)

    async def do_kill_two(self, fault: Fault) -> None:
        await self.kill(fault.node, is_measured=False)
        await self.kill(fault.other, is_measured=False)
        await asyncio.sleep(fault.seconds)
        await self.start(fault.node)
        await self.start(fault.other)

    async def do_repeated_kill(self, fault: Fault) -> None:
        node = await self.choose(fault)
        for _ in range(REPEATED_KILLS):
            await self.kill(node, is_measured=False)
            await self.start(node)
            await asyncio.sleep(REPEATED_KILL_PAUSE_SECONDS)

    async def do_pause(self, fault: Fault) -> None:
        node = await self.choose(fault)
        async with self._busy[node]:
            if node in self.system.running():
                self.journal.write("pause", "info", node=node, seconds=fault.seconds)
                self.system.pause(node)
                self.paused_nodes[node] = None
        await asyncio.sleep(fault.seconds)
        await self.resume(node)

    async def do_restart(self, fault: Fault) -> None:
        node = await self.choose(fault)
        await self.stop(node)
        await asyncio.sleep(fault.seconds)
        await self.start(node)

    async def do_rolling(self, fault: Fault) -> None:
        for node in self.system.ports:
            await self.stop(node)
            await self.start(node)
            await asyncio.to_thread(self.system.wait_ready)

    # ---- links ------------------------------------------------------------------------------------------------------

    async def block(self, links: list[tuple[int, int]], directions: tuple[str, ...], fault: Fault) -> None:
        """Block `links` for the duration of the fault. For half of the faults, reset the connections at the end."""
        for source, target in links:
            self.proxy.send("block", source=source, target=target, directions=directions)
        await asyncio.sleep(fault.seconds)
        for source, target in links:
            if fault.number & 1:
                self.proxy.send("reset", source=source, target=target)
            self.proxy.send("unblock", source=source, target=target)

    async def do_disconnect(self, fault: Fault) -> None:
        await self.block([(fault.node, fault.other), (fault.other, fault.node)], BOTH, fault)

    async def do_one_way(self, fault: Fault) -> None:
        """Block all frames from `node` to `other`: the requests of `node`, and its responses to requests of `other`."""
        self.proxy.send("block", source=fault.node, target=fault.other, directions=(REQUEST,))
        await self.block([(fault.other, fault.node)], (RESPONSE,), fault)
        self.proxy.send("unblock", source=fault.node, target=fault.other)

    async def do_isolate(self, fault: Fault) -> None:
        """Block the connections between a broker and all other brokers, but not those of its clients."""
        node = await self.choose(fault)
        others = [other for other in self.system.ports if other != node]
        await self.block([link for other in others for link in ((node, other), (other, node))], BOTH, fault)

    async def do_disconnect_clients(self, fault: Fault) -> None:
        node = await self.choose(fault)
        await self.block([(CLIENTS, node)], BOTH, fault)

    async def do_stall(self, fault: Fault) -> None:
        await self.block([(fault.other, fault.node)], (REQUEST,) if fault.number & 2 else (RESPONSE,), fault)

    async def do_reset(self, fault: Fault) -> None:
        self.proxy.send("reset", source=fault.other, target=fault.node)

    # ---- clients ----------------------------------------------------------------------------------------------------

    async def inject_into_client(self, fault: Fault) -> None:
        producers = self.fleet.producers()
        if not producers:
            return
        member = producers[fault.number % len(producers)]
        match fault.kind:
            case "client_kill":
                await self.kill_client(member, REPLACE_SECONDS)
            case "client_pause":
                await self.pause_client(member, fault.seconds)
            case "client_duplicate":
                duplicate = self.fleet.replace(member)
                await asyncio.sleep(DUPLICATE_SECONDS)
                duplicate.request_stop()

    async def inject_into_member(self, fault: Fault) -> None:
        """Inject a fault into a group member.

        The member is killed and replaced, paused for longer than its session time-out, or stopped and replaced, or
        another member joins its group.
        """
        members = self.fleet.group_members()
        if not members:
            return
        member = members[fault.number % len(members)]
        match fault.kind:
            case "member_kill":
                await self.kill_client(member, fault.seconds)
            case "member_pause":
                await self.pause_client(member, fault.seconds)
            case "member_leave":  # its replacement may initialize the transactional id during its last transaction
                member.request_stop()
                await asyncio.sleep(fault.seconds / 4)
                self.fleet.replace(member)
            case "member_join":
                spec = member.spec
                new_member = self.fleet.join((member.library, spec.kind, spec.group, spec.protocol))
                await asyncio.sleep(fault.seconds)
                new_member.request_stop()

    async def kill_client(self, member: ClientProcess, seconds: float) -> None:
        member.stop_requested = True
        member.process.kill()
        await asyncio.sleep(seconds)
        self.fleet.replace(member)

    async def pause_client(self, member: ClientProcess, seconds: float) -> None:
        self.paused_clients[member] = None
        member.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        member.signal(signal.SIGCONT)
        self.paused_clients.pop(member, None)
