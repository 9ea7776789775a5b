"""Does what the plan says, and notes it in the history. Every fault is undone by itself; after a burst everything is healed besides."""

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
from tests.chaos.proxy import ANSWER, BOTH, CLIENTS, REQUEST
from tests.chaos.system import System, bootstrap, doors
from tests.support.kafka_broker import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.fleet import Fleet, Member
    from tests.chaos.process_guard import Guardian

TRAP_PATIENCE_SECONDS: Final = 8.0
STORM_KILLS: Final = 3
STORM_PAUSE_SECONDS: Final = 0.7
RIVAL_SECONDS: Final = 4.0
METADATA_SECONDS: Final = 2.0
REPLACE_SECONDS: Final = 0.3


class ProxyProcess:
    """The proxy, and its commands."""

    def __init__(self, system: System, journal: Path, log: Path) -> None:
        command = [sys.executable, "-m", "tests.chaos.proxy", str(journal), *doors(system.ports)]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._answer("ready")

    def tell(self, do: str, **details: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **details}) + "\n")
        self.process.stdin.flush()
        self._answer("done")

    def _answer(self, expected: str) -> None:
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        if said != expected:
            raise RuntimeError(f"the proxy says {said!r} instead of {expected!r}")

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Nemesis:
    def __init__(
        self, system: System, proxy: ProxyProcess, fleet: Fleet, guardian: Guardian, directory: Path, began: float
    ) -> None:
        self.system = system
        self.proxy = proxy
        self.fleet = fleet
        self.guardian = guardian
        self.journal = Journal(directory / "nemesis.jsonl", "nemesis")
        self.journal.write("clock", "info", wall=time.time())
        self.began = began
        self.paused_clients: dict[Member, None] = {}
        self.paused_nodes: dict[int, None] = {}
        self._busy: dict[int, asyncio.Lock] = {node: asyncio.Lock() for node in system.ports}
        self._admin = admin_client(bootstrap(system.ports), "nemesis")

    async def run(self, bursts: list[Burst]) -> None:
        for burst in bursts:
            await self.until(burst.begin)
            tasks = [asyncio.create_task(self.strike(fault)) for fault in burst.faults]
            for task in tasks:
                await task
            if burst.faults:
                await self.heal()
            await self.until(burst.end)

    async def until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, self.began + at - now()))

    async def strike(self, fault: Fault) -> None:
        await self.until(fault.at)
        number = self.journal.invoke("fault", fault=fault.details())
        if fault.kind in CLIENT_FAULTS:
            await self.strike_client(fault)
        elif fault.kind in MEMBER_FAULTS:
            await self.strike_member(fault)
        elif fault.kind in FRAME_FAULTS:
            self.proxy.tell(
                "trap",
                action=fault.kind,
                api_keys=fault.api_keys,
                source=fault.other,
                target=fault.node,
                seconds=fault.seconds,
                patience=TRAP_PATIENCE_SECONDS,
            )
        else:
            work: Callable[[Fault], Any] = getattr(self, f"do_{fault.kind}")
            await work(fault)
        self.journal.complete("fault", number, "ok")

    async def heal(self) -> None:
        self.proxy.tell("heal")
        for node in list(self.paused_nodes):
            await self.resume(node)
        for node in self.system.ports:
            if node not in self.system.running():
                await self.start(node)
        for member in list(self.paused_clients):
            member.signal(signal.SIGCONT)
        self.paused_clients.clear()
        self.journal.write("healed", "info")

    # -- processes

    async def choose(self, fault: Fault) -> int:
        """The node of the plan, or the leader of a data partition, or a coordinator: a third each."""
        wanted = fault.number % 3
        if wanted == 0:
            return fault.node
        coordinators = ["__transaction_state", "__consumer_offsets"]
        topics = coordinators if wanted == 1 else list(self.fleet.topics.all)
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

    async def kill(self, node: int, *, of_interest: bool = True) -> None:
        async with self._busy[node]:
            if node in self.system.running():
                if of_interest:
                    self.journal.write("kill", "info", node=node)
                await asyncio.to_thread(self.system.kill, node)
                self.paused_nodes.pop(node, None)

    async def start(self, node: int) -> None:
        async with self._busy[node]:
            if node not in self.system.running():
                await asyncio.to_thread(self.system.start_node, node)
                self.guardian.watch(self.system.process_id(node))
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
        await self.kill(fault.node, of_interest=False)
        await self.kill(fault.other, of_interest=False)
        await asyncio.sleep(fault.seconds)
        await self.start(fault.node)
        await self.start(fault.other)

    async def do_storm(self, fault: Fault) -> None:
        node = await self.choose(fault)
        for _ in range(STORM_KILLS):
            await self.kill(node, of_interest=False)
            await self.start(node)
            await asyncio.sleep(STORM_PAUSE_SECONDS)

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

    # -- links

    async def shut(self, links: list[tuple[int, int]], directions: tuple[str, ...], fault: Fault) -> None:
        for source, target in links:
            self.proxy.tell("shut", source=source, target=target, directions=directions)
        await asyncio.sleep(fault.seconds)
        for source, target in links:
            if (
                fault.number & 1
            ):  # half of the cuts end like a lost route, with the old connections going on; half with new ones
                self.proxy.tell("reset", source=source, target=target)
            self.proxy.tell("open", source=source, target=target)

    async def do_cut(self, fault: Fault) -> None:
        await self.shut([(fault.node, fault.other), (fault.other, fault.node)], BOTH, fault)

    async def do_one_way(self, fault: Fault) -> None:
        """What node sends does not reach other: its requests there, and its answers to what other asks."""
        self.proxy.tell("shut", source=fault.node, target=fault.other, directions=(REQUEST,))
        await self.shut([(fault.other, fault.node)], (ANSWER,), fault)
        self.proxy.tell("open", source=fault.node, target=fault.other)

    async def do_isolate(self, fault: Fault) -> None:
        """A node alone with its clients."""
        node = await self.choose(fault)
        others = [each for each in self.system.ports if each != node]
        await self.shut([link for each in others for link in ((node, each), (each, node))], BOTH, fault)

    async def do_clients_cut(self, fault: Fault) -> None:
        node = await self.choose(fault)
        await self.shut([(CLIENTS, node)], BOTH, fault)

    async def do_stall(self, fault: Fault) -> None:
        await self.shut([(fault.other, fault.node)], (REQUEST,) if fault.number & 2 else (ANSWER,), fault)

    async def do_reset(self, fault: Fault) -> None:
        self.proxy.tell("reset", source=fault.other, target=fault.node)

    # -- clients

    async def strike_client(self, fault: Fault) -> None:
        producers = self.fleet.producers()
        if not producers:
            return
        member = producers[fault.number % len(producers)]
        match fault.kind:
            case "client_kill":
                await self.kill_client(member, REPLACE_SECONDS)
            case "client_pause":
                await self.pause_client(member, fault.seconds)
            case "client_rival":
                rival = self.fleet.replace(member)
                await asyncio.sleep(RIVAL_SECONDS)
                rival.tell_to_stop()

    async def strike_member(self, fault: Fault) -> None:
        """A member of a group: killed and started again, paused for longer than its session (a zombie), let go, or given company."""
        members = self.fleet.group_members()
        if not members:
            return
        member = members[fault.number % len(members)]
        match fault.kind:
            case "member_kill":
                await self.kill_client(member, fault.seconds)
            case "member_pause":
                await self.pause_client(member, fault.seconds)
            case "member_leave":  # who comes with its transactional id may meet it in its last transaction
                member.tell_to_stop()
                await asyncio.sleep(fault.seconds / 4)
                self.fleet.replace(member)
            case "member_join":
                order = member.order
                another = self.fleet.join((member.library, order.kind, order.group, order.protocol))
                await asyncio.sleep(fault.seconds)
                another.tell_to_stop()

    async def kill_client(self, member: Member, seconds: float) -> None:
        member.told_to_stop = True
        member.process.kill()
        await asyncio.sleep(seconds)
        self.fleet.replace(member)

    async def pause_client(self, member: Member, seconds: float) -> None:
        self.paused_clients[member] = None
        member.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        member.signal(signal.SIGCONT)
        self.paused_clients.pop(member, None)
