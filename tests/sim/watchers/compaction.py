"""Watch compaction on all hosts: each removal must follow the rules, and rare events are counted."""

from typing import TYPE_CHECKING

from tests.sim.checkers.batches import Batch
from tests.sim.checkers.compaction import Cleaned, Content, Judge, check_held
from tests.sim.checkers.replica_log import Placed
from tests.sim.history import Partition
from tests.sim.world import COMPACTED, TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.watchers.commit_delays import CommitDelays
    from tests.sim.watchers.host_logs import HostLogs
    from tests.sim.watchers.monitor import Monitor


class CompactionWatch:
    """Compaction checks of all hosts while they run.

    `clocks`: wall clock of each host, in runs without clock steps. `required`: number of hosts that hold a committed
    batch.
    """

    def __init__(self, monitor: "Monitor", commit_delays: "CommitDelays", *, required: int) -> None:
        self.cleaned: dict[Partition, Cleaned] = {}
        self.clocks: dict[int, Callable[[], int]] = {}
        self.retention_ms = 0
        self._monitor = monitor
        self._commit_delays = commit_delays
        self._required = required

    def watch(self, host: "HostLogs") -> None:
        host.cleaned = self.cleaned
        host.taken = self._on_taken
        host.swapped = self._on_swapped
        host.reloaded = self._on_reloaded
        host.gap_fetched = self._on_gap_fetched

    def _on_gap_fetched(self) -> None:
        self._monitor.count("follower fetched over a compaction gap")

    def _on_taken(self, host: "HostLogs", partition: Partition, placed: Placed, now: Batch | None) -> None:
        log, cleaned = host.log(partition), self.cleaned.setdefault(partition, Cleaned())

        def committed(offset: int) -> bool:
            if self._required > 1:
                return self._monitor.holders_of_batch(log.find(offset)) >= self._required
            return self._commit_delays.committed(partition) > offset

        clock = self.clocks.get(host.number)
        wall_ms = None if clock is None else clock()
        judge = Judge(
            log.content(),
            cleaned,
            committed,
            wall_ms,
            self.retention_ms,
            producers_expire=self._monitor.producers_expire,
            future_timestamps=self._monitor.future_timestamps,
        )
        self._report(host, partition, *judge.taken(placed.batch, placed.held, now))
        if finding := cleaned.note(placed.batch, now):
            self._report(host, partition, finding)

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
        self._report(host, partition, *check_held(log.placed, log.content(), cleaned))

    def _report(self, host: "HostLogs", partition: Partition, *findings: str) -> None:
        self._monitor.violations += [
            f"I10 {partition[0]}-{partition[1]} on broker {host.number}: {finding}" for finding in findings
        ]

    def loads(self, partition: Partition, number: int) -> None:
        """Count that a broker, as a new or restarted leader, reads a compacted coordinator partition from its start."""
        host = self._monitor.hosts.get(number)
        log = host.logs.get(partition) if host is not None else None
        if log is not None and any(placed.held is None for placed in log.placed):
            self._monitor.count("coordinator loaded a compacted log")

    def check_files(self) -> list[str]:
        """Check the files once more, count the removed records of the compacted topic, and return the findings."""
        findings = []
        for number, host in self._monitor.hosts.items():
            for partition in [place for place in host.logs if place[0] in COMPACTED]:
                batches, _ = host.survivors(partition)
                content = Content()
                for placed in batches:
                    content.add(placed.batch)
                cleaned = self.cleaned.setdefault(partition, Cleaned())
                findings += [
                    f"I10 {partition[0]}-{partition[1]} on broker {number}: {finding}"
                    for finding in check_held(batches, content, cleaned)
                ]
                if partition[0] == TABLE:
                    self._count_removed(batches, content)
        tombstones = sum(len(cleaned.expired) for place, cleaned in self.cleaned.items() if place[0] == TABLE)
        self._monitor.count("tombstone of a compacted topic cleaned away", tombstones)
        return findings

    def _count_removed(self, batches: list[Placed], content: Content) -> None:
        for placed in batches:
            held = {} if placed.held is None else dict.fromkeys(placed.held.offsets)
            if placed.held is not None and not held:
                self._monitor.count("batch of a compacted topic kept without its records")
            for offset in placed.batch.offsets:
                if offset in held:
                    continue
                if placed.batch.is_control:
                    kind = "marker"
                elif offset in content.aborted:
                    kind = "aborted record"
                else:
                    kind = "record"
                self._monitor.count(f"{kind} of a compacted topic cleaned away")
