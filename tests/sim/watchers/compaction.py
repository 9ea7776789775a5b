"""Watches the cleaners of all hosts: that they take nothing without a right, and what of them a run has reached."""

from typing import TYPE_CHECKING

from tests.sim.checkers.batches import Batch
from tests.sim.checkers.compaction import Cleaned, Content, Judge, check_held
from tests.sim.checkers.replica_log import Placed
from tests.sim.history import Partition
from tests.sim.world import COMPACTED, TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.watchers.commit_delays import GateKeeper
    from tests.sim.watchers.host_logs import HostLogs
    from tests.sim.watchers.monitor import Monitor


class CompactionWatch:
    """`clocks`: the wall clock of each host, where clocks do not jump. `required`: so many hosts hold what is committed."""

    def __init__(self, monitor: "Monitor", gates: "GateKeeper", *, required: int) -> None:
        self.cleaned: dict[Partition, Cleaned] = {}
        self.clocks: dict[int, Callable[[], int]] = {}
        self.retention_ms = 0
        self._monitor = monitor
        self._gates = gates
        self._required = required

    def watch(self, host: "HostLogs") -> None:
        host.cleaned = self.cleaned
        host.taken = self._on_taken
        host.swapped = self._on_swapped
        host.reloaded = self._on_reloaded
        host.gap_fetched = self._on_gap_fetched

    def _on_gap_fetched(self) -> None:
        self._monitor.count("follower fetched over a compaction gap")

    def _on_taken(self, host: "HostLogs", partition: Partition, each: Placed, now: Batch | None) -> None:
        log, cleaned = host.log(partition), self.cleaned.setdefault(partition, Cleaned())

        def committed(offset: int) -> bool:
            if self._required > 1:
                return self._monitor.holders_of_batch(log.find(offset)) >= self._required
            return self._gates.committed(partition) > offset

        clock = self.clocks.get(host.number)
        judge = Judge(log.content(), cleaned, committed, None if clock is None else clock(), self.retention_ms)
        self._say(host, partition, *judge.taken(each.batch, each.held, now))
        if finding := cleaned.note(each.batch, now):
            self._say(host, partition, finding)

    def _on_swapped(self, host: "HostLogs", partition: Partition) -> None:
        self._monitor.count("cleaned segments")
        self._check(host, partition)

    def _on_reloaded(self, host: "HostLogs", partition: Partition, *, swapping: bool) -> None:
        if swapping:
            self._monitor.count("restart in the middle of a swap")
        self._check(host, partition)

    def _check(self, host: "HostLogs", partition: Partition) -> None:
        log = host.log(partition)
        cleaned = self.cleaned.setdefault(partition, Cleaned())
        self._say(host, partition, *check_held(log.placed, log.content(), cleaned))

    def _say(self, host: "HostLogs", partition: Partition, *findings: str) -> None:
        self._monitor.violations += [
            f"I10 {partition[0]}-{partition[1]} on broker {host.number}: {finding}" for finding in findings
        ]

    def loads(self, partition: Partition, number: int) -> None:
        """The broker becomes the leader of a coordinator's partition, or comes back as such: it reads the log from the start."""
        host = self._monitor.hosts.get(number)
        log = host.logs.get(partition) if host is not None else None
        if log is not None and any(each.held is None for each in log.placed):
            self._monitor.count("coordinator loaded a compacted log")

    def at_the_end(self) -> list[str]:
        """What the files hold, read once more. What of the table is gone is counted."""
        found = []
        for number, host in self._monitor.hosts.items():
            for partition in [place for place in host.logs if place[0] in COMPACTED]:
                placed, _ = host.survivors(partition)
                content = Content()
                for each in placed:
                    content.add(each.batch)
                cleaned = self.cleaned.setdefault(partition, Cleaned())
                found += [
                    f"I10 {partition[0]}-{partition[1]} on broker {number}: {finding}"
                    for finding in check_held(placed, content, cleaned)
                ]
                if partition[0] == TABLE:
                    self._count_gone(placed, content)
        tombstones = sum(len(cleaned.expired) for place, cleaned in self.cleaned.items() if place[0] == TABLE)
        self._monitor.count("tombstone of a compacted topic cleaned away", tombstones)
        return found

    def _count_gone(self, placed: list[Placed], content: Content) -> None:
        for each in placed:
            held = {} if each.held is None else dict.fromkeys(each.held.offsets)
            if each.held is not None and not held:
                self._monitor.count("batch of a compacted topic kept without its records")
            for offset in each.batch.offsets:
                if offset in held:
                    continue
                if each.batch.is_control:
                    kind = "marker"
                elif offset in content.aborted:
                    kind = "aborted record"
                else:
                    kind = "record"
                self._monitor.count(f"{kind} of a compacted topic cleaned away")
