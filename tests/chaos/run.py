"""One run: the supervisor of brokers, proxy and clients, from their start to the evaluation of the history."""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from odradek.local.processes import BrokerFailed
from tests.chaos.admin_requests import admin_client, list_end_offsets
from tests.chaos.evaluation import CONSUMER_OFFSETS, TRANSACTION_STATE, Findings, NodeFiles, check
from tests.chaos.fault_injector import FaultInjector, ProxyProcess
from tests.chaos.figures import Figures, add_detections, measure
from tests.chaos.final_offsets import fetch_offsets, lagging, visible_ends
from tests.chaos.fleet import (
    FINAL,
    FULL_CLIENTS,
    FULL_GROUPS,
    SHORT_CLIENTS,
    SHORT_GROUPS,
    Fleet,
    MemberRole,
    Role,
    Topics,
    compile_java,
)
from tests.chaos.hostile import HostileClient, unexpected_lines
from tests.chaos.journal import read
from tests.chaos.open_transactions import open_transactions
from tests.chaos.overload import TICK_SECONDS, Load
from tests.chaos.plan import BURST_SECONDS, Burst, generate
from tests.chaos.process_guard import ProcessGuard
from tests.chaos.security import ADMIN, HOSTILE, MECHANISM_OF, TENANT_TOPIC, ChaosSecurity
from tests.chaos.security_faults import SecurityFaults, denied_users, topic_ids, unexpected_denials
from tests.chaos.segment_archive import SegmentArchive
from tests.chaos.snooping import Names
from tests.chaos.system import SYSTEMS, System
from tests.support import hostile_attack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tests.chaos.fleet import ClientProcess

TOPICS: Final = Topics({"chaos-a": 3, "chaos-b": 3}, {"chaos-in": 4}, {"chaos-out": 3})
RECOVERY_SECONDS: Final = 12.0
"""Time for which the clients run without faults after the last burst, in seconds."""
SHORT_RUN_SECONDS: Final = 60.0
SHORT_RECOVERY_SECONDS: Final = 10.0
"""As RECOVERY_SECONDS, for runs of at most SHORT_RUN_SECONDS. Transactions left open by a fault time out after 7 s."""
SHORT_BURST_SECONDS: Final = (5.0, 7.0)
SETTLE_SECONDS: Final = 60.0
"""Maximum time for topic creation, for full ISRs, and for groups to consume all inputs, in seconds each."""
CALL_SECONDS: Final = 20.0


@dataclass(frozen=True)
class Options:
    """Options of one run. `seconds` is the duration of the fault injection."""

    seconds: float
    seed: int
    brokers: int = 3
    system: str = "odradek"
    directory: Path | None = None
    secure: bool = False
    """True for TLS, passwords and ACLs, which change during the run. For Odradek only."""
    planted: bool = False
    """True to plant a fault: no ACL is checked for the hostile user."""
    hostile: bool = True
    """True for a hostile client. It attacks Odradek only: Kafka has no listener that refuses requests of brokers."""

    @property
    def attacks(self) -> bool:
        return self.hostile and self.system == "odradek"

    @property
    def short(self) -> bool:
        return self.seconds <= SHORT_RUN_SECONDS

    @property
    def roles(self) -> tuple[Role, ...]:
        return SHORT_CLIENTS if self.short else FULL_CLIENTS

    @property
    def groups(self) -> tuple[MemberRole, ...]:
        return SHORT_GROUPS if self.short else FULL_GROUPS

    @property
    def recovery_seconds(self) -> float:
        return SHORT_RECOVERY_SECONDS if self.short else RECOVERY_SECONDS

    def plan(self) -> list[Burst]:
        widths = SHORT_BURST_SECONDS if self.short else BURST_SECONDS
        return generate(self.seed, self.seconds, self.brokers, burst_seconds=widths)


@dataclass
class Outcome:
    """Result of one run."""

    findings: Findings
    figures: Figures
    overloaded: bool

    @property
    def failed(self) -> bool:
        """Return True if the run has violations, or delays although the machine was not overloaded."""
        return bool(self.findings.violations) or (bool(self.findings.delays) and not self.overloaded)


class Run:
    """Supervisor of one run and owner of its processes. It calls `report_progress` with one line per step."""

    def __init__(self, options: Options, directory: Path, report_progress: Callable[[str], None]) -> None:
        self.options = options
        self.directory = directory
        self.history = directory / "history"
        self.report_progress = report_progress
        self.findings = Findings()
        self.load = Load()
        self.is_settled = False
        self.fetched: dict[str, dict[tuple[str, int], int]] = {}
        self.hostile: HostileClient | None = None
        security = None
        if options.secure:
            super_users = (ADMIN, HOSTILE) if options.planted else (ADMIN,)
            security = ChaosSecurity(directory / "security", super_users)
        self.security = security
        self.security_faults: SecurityFaults | None = None
        self.system: System = SYSTEMS[options.system](directory / "cluster", options.brokers, security)
        replicas = {node: self.system.data(node) for node in self.system.ports}
        archive_directory = directory / "cluster" / "archive"
        self.archive = SegmentArchive(archive_directory, replicas, (TRANSACTION_STATE, CONSUMER_OFFSETS))
        self.files = NodeFiles(replicas, self.archive)

    async def run(self) -> Outcome:
        for old in (self.history, self.directory / "cluster", self.directory / "security"):
            shutil.rmtree(old, ignore_errors=True)
        self.history.mkdir(parents=True)
        compile_java()
        self.system.prepare()
        with ProcessGuard() as guard:
            proxy = ProxyProcess(self.system, self.history / "proxy.jsonl", self.directory / "proxy.log")
            guard.watch(proxy.process.pid)
            fleet = Fleet(self.history, self.system, TOPICS, self.options.seed, guard)
            try:
                await self._run_processes(proxy, fleet, guard)
            finally:
                if self.hostile is not None:
                    self.hostile.stop()
                fleet.kill_all()
                self.system.close()
                proxy.close()
        self.report_progress("evaluating the history and the files")
        return await asyncio.to_thread(self._evaluate)

    async def _run_processes(self, proxy: ProxyProcess, fleet: Fleet, guard: ProcessGuard) -> None:
        self.report_progress(f"starting {self.options.brokers} brokers of {self.system.name}")
        await asyncio.to_thread(self.system.start)
        for node in self.system.ports:
            guard.watch(self.system.process_id(node))
        await asyncio.to_thread(self._create_topics)
        injector = FaultInjector(self.system, proxy, fleet, guard, self.history)
        if self.security is not None:
            self.security_faults = SecurityFaults(self.system, self.security, injector)
            await self.security_faults.create_acls()
        injector.begin()
        background = [
            asyncio.create_task(self.load.watch()),
            asyncio.create_task(self.archive.run()),
        ]
        if self.security_faults is not None:
            background.append(asyncio.create_task(self.security_faults.keys.renew()))
        fleet.start(self.options.roles, self.options.groups)
        background.append(asyncio.create_task(_replace_hung_clients(fleet)))
        if self.options.attacks:
            self.hostile = await self._start_hostile(fleet, guard)
            background.append(asyncio.create_task(self.hostile.watch()))
        self.report_progress(f"{len(fleet.members)} clients; faults for {self.options.seconds:.0f} s")
        changes = None if self.security_faults is None else asyncio.create_task(self.security_faults.run())
        await injector.run(self.options.plan())
        await injector.until(self.options.seconds)
        await injector.heal()
        if changes is not None and self.security_faults is not None:
            self.security_faults.stop()
            await changes
        injector.journal.write("all healed", "info")
        recovery_seconds = self.options.recovery_seconds
        self.report_progress(f"all faults undone; the clients run for {recovery_seconds:.0f} s without faults")
        await asyncio.sleep(recovery_seconds)
        if self.security_faults is not None:
            await self.security_faults.check_certificates()
        await self._settle(fleet)
        for task in background:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _start_hostile(self, fleet: Fleet, guard: ProcessGuard) -> HostileClient:
        names = topics = None
        if self.security is not None:
            names = self._names(fleet)
            topics = await topic_ids(self.system.access, (hostile_attack.TOPIC, hostile_attack.COMPACTED_TOPIC))
        hostile = HostileClient(self.history, self.system, self.options.seed, guard, names, topics)
        hostile.start()
        return hostile

    async def _settle(self, fleet: Fleet) -> None:
        """Stop the clients in order, wait until the cluster has settled, and read all partitions from their start."""
        findings = self.findings
        findings.violations += fleet.unexpected_exits()
        exit_codes = self.system.unexpected_exits()
        findings.violations += [f"broker {node} exited with code {code}" for node, code in exit_codes.items()]
        try:
            await asyncio.to_thread(self.system.wait_ready)
        except (BrokerFailed, RuntimeError) as failure:
            findings.delays.append(f"L1 {failure}")
        self.report_progress("stopping the producers")
        producers, readers = _producers_and_readers(fleet.running())
        await self._add_delays(fleet.stop, producers)
        self.report_progress("waiting until the groups have consumed all inputs")
        await self._add_delays(self._wait_for_groups)
        await self._add_delays(fleet.stop, fleet.group_members())
        if self.hostile is not None:
            await asyncio.to_thread(self.hostile.stop)  # its records for the coordinators would end at any time
        internal_topics = [TRANSACTION_STATE, CONSUMER_OFFSETS]
        self.is_settled = not await self._add_delays(self._wait_until_ended, [*TOPICS.all, *internal_topics])
        await self._add_delays(self._fetch_offsets)
        await self._add_delays(fleet.stop, readers)
        self.report_progress("final reads")
        final_readers = [fleet.launch("confluent", kind) for kind in (FINAL, f"{FINAL} uncommitted")]
        for member in final_readers:
            member.stop_requested = True
            code = await asyncio.to_thread(member.process.wait)
            if code:
                findings.delays.append(f"L1 the final read by {member.name} did not reach the end (exit code {code})")

    async def _add_delays(self, step: Callable[..., list[str]], *arguments: object) -> list[str]:
        """Run `step` in a thread. Add the lines that it returns to the delays, and return them."""
        delays = await asyncio.to_thread(step, *arguments)
        self.findings.delays += [f"L1 {delay}" for delay in delays]
        return delays

    def _admin(self) -> AdminClient:
        return admin_client(self.system.access, "supervisor")

    def _create_topics(self) -> None:
        """Create all topics. Retry failed requests: on an overloaded machine, a response can arrive too late.

        Raises:
            BrokerFailed: a broker process exited, or the topics were not created within SETTLE_SECONDS.
        """
        replicas = 3 if self.options.brokers >= 3 else 1
        admin = self._admin()
        deadline = time.monotonic() + SETTLE_SECONDS
        attacked = {hostile_attack.TOPIC: 1, hostile_attack.COMPACTED_TOPIC: 1}
        missing = TOPICS.all | (attacked if self.options.attacks else {})
        missing |= {TENANT_TOPIC: 1} if self.options.secure else {}
        compacted = {hostile_attack.COMPACTED_TOPIC: {"cleanup.policy": "compact"}}
        while missing:
            new = [NewTopic(name, count, replicas, config=compacted.get(name, {})) for name, count in missing.items()]
            for name, future in admin.create_topics(new, request_timeout=CALL_SECONDS).items():
                failure = future.exception(2 * CALL_SECONDS)
                if failure is None or failure.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    del missing[name]
                elif (exit_codes := self.system.unexpected_exits()) or time.monotonic() > deadline:
                    raise BrokerFailed(f"creation of topic {name} failed: {failure}; broker exit codes: {exit_codes}")

    def _wait_for_groups(self) -> list[str]:
        """Wait until each group has consumed all inputs. Return the lag that remains after SETTLE_SECONDS."""
        unsettled = self._wait_until_settled(list(TOPICS.inputs))
        if unsettled:
            return unsettled
        admin = self._admin()
        ends = visible_ends(self.system.access, _partitions(TOPICS.inputs))
        deadline = time.monotonic() + SETTLE_SECONDS
        while (lag := lagging(admin, self._groups(), ends)) and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)
        return lag

    def _names(self, fleet: Fleet) -> Names:
        """Return the names that the hostile client must not learn."""
        identifiers = [member.spec.transactional_id for member in fleet.members if member.spec.transactional_id]
        users = [user for user in MECHANISM_OF if user != HOSTILE]
        return Names((*TOPICS.all, TENANT_TOPIC), tuple(self._groups()), tuple(identifiers), tuple(users))

    def _groups(self) -> list[str]:
        return list(dict.fromkeys(group for _, _, group, _ in self.options.groups))

    def _fetch_offsets(self) -> list[str]:
        """Fetch the committed offsets of all groups at the end of the run, and return the failures."""
        admin = self._admin()
        failures = []
        for group in self._groups():
            try:
                self.fetched[group] = fetch_offsets(admin, group)
            except KafkaException as failure:
                failures.append(f"OffsetFetch of group {group} failed: {failure}")
        return failures

    def _wait_until_ended(self, topics: list[str]) -> list[str]:
        """Wait until no coordinator has an open transaction, and then as `_wait_until_settled`.

        All clients have stopped, so each open transaction is ended by its coordinator, at its time-out. Return the rest
        after SETTLE_SECONDS.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        while (transactions := open_transactions(self.system.access)) and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)
        return [*transactions, *self._wait_until_settled(topics)]

    def _wait_until_settled(self, topics: list[str]) -> list[str]:
        """Wait until all replicas are in sync and no partition has an open transaction.

        Return the rest after SETTLE_SECONDS.
        """
        admin = self._admin()
        deadline = time.monotonic() + SETTLE_SECONDS
        unsettled = ["the cluster has not responded"]
        while unsettled and time.monotonic() < deadline:
            try:
                unsettled = self._unsettled(admin, topics)
            except KafkaException as failure:
                unsettled = [f"a request to the cluster failed: {failure}"]
            time.sleep(TICK_SECONDS if unsettled else 0.0)
        return unsettled

    def _unsettled(self, admin: AdminClient, topics: list[str]) -> list[str]:
        """Return one line per partition without a leader, with an incomplete ISR, or with an open transaction."""
        lines = []
        metadata = admin.list_topics(timeout=CALL_SECONDS)
        for topic in topics:
            for index, partition in metadata.topics[topic].partitions.items():
                if partition.leader < 0 or len(partition.isrs) < len(partition.replicas):
                    lines.append(f"{topic}-{index} has leader {partition.leader} and ISR {partition.isrs}")
        partitions = _partitions({topic: count for topic, count in TOPICS.all.items() if topic in topics})
        stable_offsets = list_end_offsets(admin, partitions, committed=True)
        for (topic, index), future in list_end_offsets(admin, partitions, committed=False).items():
            high_watermark = future.result(CALL_SECONDS).offset
            stable_offset = stable_offsets[topic, index].result(CALL_SECONDS).offset
            if high_watermark != stable_offset:
                lines.append(f"{topic}-{index} has high watermark {high_watermark}, last stable offset {stable_offset}")
        return lines

    def _evaluate(self) -> Outcome:
        """Evaluate the journals and the files after all processes have exited."""
        journals = read(self.history)
        figures = measure(journals)
        logs = [self.system.log(node).read_text(errors="replace") for node in self.system.ports]
        add_detections(figures, journals, logs)
        self.archive.link_new_segments()
        disturbance_ms = round(1000 * (figures.longest_fault_s + figures.longest_unavailability_s))
        findings = check(journals, self.files, TOPICS, disturbance_ms, self.fetched, is_settled=self.is_settled)
        findings.violations = self.findings.violations + findings.violations
        findings.delays = self.findings.delays + findings.delays
        findings.delays += [f"L1 {line}" for line in figures.not_recovered]
        for node, text in zip(self.system.ports, logs, strict=True):
            findings.violations += unexpected_lines(node, text)
        if self.security_faults is not None:
            findings.violations += [*self.security_faults.violations, *unexpected_denials(logs)]
            findings.delays += self.security_faults.delays
            findings.counters |= self.security_faults.counters
            findings.counters["security: operations denied to a user without ACLs"] = denied_users(logs)[HOSTILE]
        if self.hostile is not None:
            findings.violations += self.hostile.violations(journals)
            findings.counters |= self.hostile.counters(journals)
        return Outcome(findings, figures, self.load.overloaded)


def _partitions(topics: dict[str, int]) -> list[tuple[str, int]]:
    return [(topic, index) for topic, count in topics.items() for index in range(count)]


def _producers_and_readers(running: list[ClientProcess]) -> tuple[list[ClientProcess], list[ClientProcess]]:
    """Return the producers, and the readers with the ListOffsets poller. Omit group members."""
    producers = [member for member in running if member.is_producer]
    return producers, [member for member in running if not member.is_producer and not member.is_member]


async def _replace_hung_clients(fleet: Fleet) -> None:
    while True:
        fleet.replace_hung()
        await asyncio.sleep(TICK_SECONDS)
