"""One run: the supervisor of the brokers, the proxy and the clients, from the first start to the verdict."""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from odradek.local.processes import BrokerFailed
from tests.chaos.admin_requests import admin_client, ask_ends
from tests.chaos.figures import Figures, add_detections, measure
from tests.chaos.final_offsets import behind, fetch_offsets, last_visible
from tests.chaos.fleet import (
    FINAL,
    FULL,
    FULL_GROUPS,
    SHORT,
    SHORT_GROUPS,
    Fleet,
    MemberRole,
    Role,
    Topics,
    compile_java,
)
from tests.chaos.journal import now, read
from tests.chaos.nemesis import Nemesis, ProxyProcess
from tests.chaos.plan import BURST_SECONDS, Burst, draw
from tests.chaos.process_guard import Guardian
from tests.chaos.segment_archive import Originals
from tests.chaos.system import SYSTEMS, System, bootstrap
from tests.chaos.verdict import CONSUMER_OFFSETS, TRANSACTION_STATE, Findings, NodeFiles, check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tests.chaos.fleet import Member

TOPICS: Final = Topics({"chaos-a": 3, "chaos-b": 3}, {"chaos-in": 4}, {"chaos-out": 3})
RECOVERY_SECONDS: Final = 12.0
"""After the last burst the clients go on for so long without faults."""
SHORT_RUN_SECONDS: Final = 60.0
SHORT_BURST_SECONDS: Final = (6.0, 9.0)
AT_REST_SECONDS: Final = 60.0
CALL_SECONDS: Final = 20.0
TICK_SECONDS: Final = 0.1
LAG_SECONDS: Final = 0.5
"""A tick that comes so much too late is a sign that the machine has no time for us."""
LAG_SHARE_MAX: Final = 0.03


@dataclass(frozen=True)
class Options:
    seconds: float
    seed: int
    brokers: int = 3
    system: str = "odradek"
    directory: Path | None = None

    @property
    def short(self) -> bool:
        return self.seconds <= SHORT_RUN_SECONDS

    @property
    def roles(self) -> tuple[Role, ...]:
        return SHORT if self.short else FULL

    @property
    def groups(self) -> tuple[MemberRole, ...]:
        return SHORT_GROUPS if self.short else FULL_GROUPS

    def plan(self) -> list[Burst]:
        widths = SHORT_BURST_SECONDS if self.short else BURST_SECONDS
        return draw(self.seed, self.seconds, self.brokers, burst_seconds=widths)


@dataclass
class Outcome:
    findings: Findings
    figures: Figures
    overloaded: bool

    @property
    def failed(self) -> bool:
        """Safety is judged always; what came too late only where there was time."""
        return bool(self.findings.violations) or (bool(self.findings.delays) and not self.overloaded)


@dataclass
class Load:
    """How late this process's own ticks came: the measure of a starved machine."""

    ticks: int = 0
    lost_seconds: float = 0.0
    worst_seconds: float = 0.0

    async def watch(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK_SECONDS)
            late = time.monotonic() - before - TICK_SECONDS
            self.ticks += 1
            self.worst_seconds = max(self.worst_seconds, late)
            if late > LAG_SECONDS:
                self.lost_seconds += late

    @property
    def overloaded(self) -> bool:
        return self.lost_seconds > LAG_SHARE_MAX * max(1, self.ticks) * TICK_SECONDS


class Run:
    """Owns every process. `say` gets a line whenever something has begun."""

    def __init__(self, options: Options, directory: Path, say: Callable[[str], None]) -> None:
        self.options = options
        self.directory = directory
        self.history = directory / "history"
        self.say = say
        self.findings = Findings()
        self.load = Load()
        self.at_rest = False
        self.fetched: dict[str, dict[tuple[str, int], int]] = {}
        self.system: System = SYSTEMS[options.system](directory / "cluster", options.brokers)
        replicas = {node: self.system.data(node) for node in self.system.ports}
        self.originals = Originals(directory / "cluster" / "originals", replicas, (TRANSACTION_STATE, CONSUMER_OFFSETS))
        self.files = NodeFiles(replicas, self.originals)

    async def run(self) -> Outcome:
        for old in (self.history, self.directory / "cluster"):
            shutil.rmtree(old, ignore_errors=True)
        self.history.mkdir(parents=True)
        compile_java()
        self.system.prepare()
        with Guardian() as guardian:
            proxy = ProxyProcess(self.system, self.history / "proxy.jsonl", self.directory / "proxy.log")
            guardian.watch(proxy.process.pid)
            fleet = Fleet(self.history, bootstrap(self.system.ports), TOPICS, self.options.seed, guardian)
            try:
                await self._live(proxy, fleet, guardian)
            finally:
                fleet.kill_all()
                self.system.close()
                proxy.close()
        self.say("reading the history and the files")
        return await asyncio.to_thread(self._judge, fleet)

    async def _live(self, proxy: ProxyProcess, fleet: Fleet, guardian: Guardian) -> None:
        self.say(f"starting {self.options.brokers} brokers of {self.system.name}")
        await asyncio.to_thread(self.system.start)
        for node in self.system.ports:
            guardian.watch(self.system.process_id(node))
        await asyncio.to_thread(self._create_topics)
        began = now()
        watch = asyncio.create_task(self.load.watch())
        linking = asyncio.create_task(self.originals.run())
        fleet.start(self.options.roles, self.options.groups)
        revival = asyncio.create_task(_revive(fleet))
        nemesis = Nemesis(self.system, proxy, fleet, guardian, self.history, began)
        self.say(f"{len(fleet.members)} clients; faults for {self.options.seconds:.0f} s")
        await nemesis.run(self.options.plan())
        await nemesis.until(self.options.seconds)
        await nemesis.heal()
        nemesis.journal.write("all healed", "info")
        self.say("healed; the clients go on for a while")
        await asyncio.sleep(RECOVERY_SECONDS)
        await self._settle(fleet)
        watch.cancel()
        linking.cancel()
        revival.cancel()

    async def _settle(self, fleet: Fleet) -> None:
        """No faults any more: everything that was begun comes to its end, and is read from the start."""
        findings = self.findings
        findings.violations += fleet.died()
        findings.violations += [f"broker {n} ended with exit code {code}" for n, code in self.system.dead().items()]
        try:
            await asyncio.to_thread(self.system.wait_ready)
        except (BrokerFailed, RuntimeError) as failed:
            findings.delays.append(f"L1 {failed}")
        living = fleet.living()
        self.say("clients finish")
        producers, others = _sorted(living)
        findings.delays += [f"L1 {each}" for each in await asyncio.to_thread(fleet.stop, producers)]
        self.say("groups take what is left")
        findings.delays += [f"L1 {each}" for each in await asyncio.to_thread(self._wait_for_groups)]
        findings.delays += [f"L1 {each}" for each in await asyncio.to_thread(fleet.stop, fleet.group_members())]
        restless = await asyncio.to_thread(self._wait_for_rest, [*TOPICS.all, TRANSACTION_STATE, CONSUMER_OFFSETS])
        self.at_rest = not restless
        findings.delays += [f"L1 {each}" for each in restless]
        findings.delays += [f"L1 {each}" for each in await asyncio.to_thread(self._fetch_offsets)]
        findings.delays += [f"L1 {each}" for each in await asyncio.to_thread(fleet.stop, others)]
        self.say("final reads")
        last = [fleet.launch("confluent", kind) for kind in (FINAL, f"{FINAL} uncommitted")]
        for member in last:
            member.told_to_stop = True
            code = await asyncio.to_thread(member.process.wait)
            if code:
                findings.delays.append(f"L1 the final read by {member.name} did not reach the end (exit code {code})")

    def _admin(self) -> AdminClient:
        return admin_client(bootstrap(self.system.ports), "supervisor")

    def _create_topics(self) -> None:
        """Asked again until it is done: on a busy machine an answer may be lost.

        Raises:
            BrokerFailed: a broker has ended, or patience has.
        """
        replicas = 3 if self.options.brokers >= 3 else 1
        admin = self._admin()
        deadline = time.monotonic() + AT_REST_SECONDS
        wanted = TOPICS.all
        while wanted:
            new = [NewTopic(name, count, replicas) for name, count in wanted.items()]
            for name, future in admin.create_topics(new, request_timeout=CALL_SECONDS).items():
                failure = future.exception(2 * CALL_SECONDS)
                if failure is None or failure.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    del wanted[name]
                elif (dead := self.system.dead()) or time.monotonic() > deadline:
                    raise BrokerFailed(f"{name} cannot be created: {failure}; ended brokers and their codes: {dead}")

    def _wait_for_groups(self) -> list[str]:
        """Until every group has taken all inputs. Returns what is not so when patience ends."""
        restless = self._wait_for_rest(list(TOPICS.inputs))
        if restless:
            return restless
        admin = self._admin()
        ends = last_visible(bootstrap(self.system.ports), _places(TOPICS.inputs))
        deadline = time.monotonic() + AT_REST_SECONDS
        while (left := behind(admin, self._groups(), ends)) and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)
        return left

    def _groups(self) -> list[str]:
        return list(dict.fromkeys(group for _, _, group, _ in self.options.groups))

    def _fetch_offsets(self) -> list[str]:
        """What the cluster says of the groups' offsets at the very end."""
        admin = self._admin()
        untold = []
        for group in self._groups():
            try:
                self.fetched[group] = fetch_offsets(admin, group)
            except KafkaException as failed:
                untold.append(f"the offsets of {group} are not told: {failed}")
        return untold

    def _wait_for_rest(self, topics: list[str]) -> list[str]:
        """Until every replica is in sync and no transaction is open. Returns what is not so when patience ends."""
        admin = self._admin()
        deadline = time.monotonic() + AT_REST_SECONDS
        restless = ["the cluster has not answered"]
        while restless and time.monotonic() < deadline:
            try:
                restless = self._restless(admin, topics)
            except KafkaException as failed:
                restless = [f"the cluster does not answer: {failed}"]
            time.sleep(TICK_SECONDS if restless else 0.0)
        return restless

    def _restless(self, admin: AdminClient, topics: list[str]) -> list[str]:
        found = []
        metadata = admin.list_topics(timeout=CALL_SECONDS)
        for topic in topics:
            for index, partition in metadata.topics[topic].partitions.items():
                if partition.leader < 0 or len(partition.isrs) < len(partition.replicas):
                    found.append(f"{topic}-{index} has leader {partition.leader}, in sync {partition.isrs}")
        places = _places({topic: count for topic, count in TOPICS.all.items() if topic in topics})
        stable = ask_ends(admin, places, committed=True)
        for place, future in ask_ends(admin, places, committed=False).items():
            marks = (future.result(CALL_SECONDS).offset, stable[place].result(CALL_SECONDS).offset)
            if marks[0] != marks[1]:
                found.append(f"{place[0]}-{place[1]}: high watermark {marks[0]}, stable {marks[1]}")
        return found

    def _judge(self, fleet: Fleet) -> Outcome:
        told = read(self.history)
        figures = measure(told)
        logs = [self.system.log(node).read_text(errors="replace") for node in self.system.ports]
        add_detections(figures, told, logs)
        self.originals.look()
        disturbance_ms = round(1000 * (figures.longest_fault_s + figures.longest_unavailability_s))
        found = check(told, self.files, TOPICS, disturbance_ms, self.fetched, at_rest=self.at_rest)
        found.violations = self.findings.violations + found.violations
        found.delays = self.findings.delays + found.delays
        found.delays += [f"L1 {each}" for each in figures.not_recovered]
        return Outcome(found, figures, self.load.overloaded)


def _places(topics: dict[str, int]) -> list[tuple[str, int]]:
    return [(topic, index) for topic, count in topics.items() for index in range(count)]


def _sorted(living: list[Member]) -> tuple[list[Member], list[Member]]:
    """Producers, and who only reads or asks."""
    producers = [member for member in living if member.is_producer]
    return producers, [member for member in living if not member.is_producer and not member.is_member]


async def _revive(fleet: Fleet) -> None:
    while True:
        fleet.revive()
        await asyncio.sleep(TICK_SECONDS)
