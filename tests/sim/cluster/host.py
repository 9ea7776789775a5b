"""One host of a run: `Host` with the options, watchers and disk faults of the campaigns."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.partition.leader_term import LeaderTerm
from odradek.broker.partition.partition import Role
from odradek.simulation.cluster.host import ROOT, Host
from odradek.simulation.environment.disk import EIO, READ, DiskFault, DiskLatency, SimDisk
from odradek.simulation.environment.medium import flip_rebuildable
from odradek.storage.disk.port import RESOURCE_ERRORS
from tests.sim.cluster.node_config import cluster_secret, make_config, shares_listener
from tests.sim.cluster.users import first_credentials
from tests.sim.faults.damage import damage_log
from tests.sim.options.disk_options import (
    DELAYED_BY_METADATA_THREAD,
    DELAYED_BY_SHARED_THREADS,
    FILE_KINDS,
    REFUSED_BY_FULL_DISK,
    error_event,
    file_event,
)
from tests.support.delayed_commits import delayed_by

if TYPE_CHECKING:
    from odradek.broker.config.properties import Config
    from odradek.broker.node import Node
    from odradek.simulation.environment.disk import DiskWatcher
    from tests.sim.cluster.cluster import Cluster

FLIP_PROBABILITY: Final = 0.3


class Machine(Host):
    """One host of a run. The cluster receives its events and permits its data losses."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        super().__init__(cluster.loop, cluster.rng, number, cluster.failed_at, cluster.violations)
        self.cluster = cluster
        self.watermarks_at_loss: object = None
        """Directory entry of the high watermark checkpoint when the disk last lost data."""
        self._damaging = False
        self._full_disks = 0
        """Faults that keep the disk full now."""
        self._lasting_faults: list[tuple[DiskFault, float]] = []
        """Disk faults that stay for later incarnations, each with the seconds until the restart."""
        self._restart_after = 0.0
        """Seconds from a failed disk operation to the restart of the node by the operator."""
        self._config = make_config(cluster.options, number)

    @property
    def cache_is_stale(self) -> bool:
        """True if a flush failed: the page cache contains data that is not on the disk."""
        return self._cache_is_stale

    @property
    def disk_failed(self) -> bool:
        """True if a disk operation failed since the last start of the node."""
        return self._disk_failed

    def crash(
        self,
        *,
        power: bool,
        downtime: float,
        fail_again_at: int = 0,
        wipe: bool = False,
        silently: bool = False,
        damage: bool = False,
    ) -> None:
        """End the process or the machine, as `Host.crash`. With `damage`, a log is damaged if the fault model permits
        it.
        """
        self._damaging = damage
        super().crash(power=power, downtime=downtime, fail_again_at=fail_again_at, wipe=wipe, silently=silently)

    # ---- hooks of the host ------------------------------------------------------------------------------------------

    def configuration(self) -> "Config":
        groups = self.cluster.options.groups
        if groups is not None and groups.size_max:
            self._config = make_config(self.cluster.options, self.number, self.incarnations)  # the restart changes it
        return self._config

    def node_options(self, name: str) -> dict[str, Any]:
        options = self.cluster.options
        return {
            "leader_term": delayed_by(self.cluster.commit_delays) if options.brokers == 1 else LeaderTerm,
            "secret": None if shares_listener(options) else cluster_secret(options.seed, name),
            "bootstrap_scram": {} if options.security is None else first_credentials(),
        }

    def disk_latency(self) -> DiskLatency:
        options = self.cluster.options
        return DiskLatency(sync_seconds_max=options.sync_seconds_max, cold_probability=options.cold_probability)

    def watchers(self) -> "list[DiskWatcher]":
        return self.cluster.watchers_of(self)

    def may_recover(self) -> bool:
        return self.cluster.options.brokers > 1 or self._disk_failed or self._lacked_resources

    def may_lose_data(self) -> bool:
        return self.cluster.may_lose_data(self)

    def count(self, name: str) -> None:
        self.cluster.count(name)

    def disk_created(self, disk: SimDisk) -> None:
        disk.full = self._full_disks > 0
        disk.on_error = self._count_error
        disk.on_refused = self._count_refusal
        disk.threads.on_delayed = partial(self.cluster.count, DELAYED_BY_SHARED_THREADS)
        for fault, restart_after in self._lasting_faults:
            if not fault.injected:
                self._add_fault(disk, fault, restart_after)

    def node_created(self, name: str, node: "Node") -> None:
        if self.cluster.acls is not None:
            self.cluster.acls.follow(name, node)

    def came_up(self) -> None:
        self.cluster.came_up(self)

    def before_crash(self) -> None:
        self.cluster.before_crash(self)

    def files_left(self, *, lose_data: bool) -> None:
        if self.rng.random() < FLIP_PROBABILITY:
            flipped = flip_rebuildable(self.medium, ROOT, self.rng)
            self.loop.trace.add(self.loop.steps, self.loop.time(), "bit-flip", flipped)
        if self._damaging and not lose_data:
            self._damage_log()

    def before_return(self) -> None:
        self.cluster.comes_back(self)

    def lost_data(self) -> None:
        self.cluster.lost_data(self)

    def _damage_log(self) -> None:
        if not self.cluster.may_be_damaged(self):
            return
        damaged = damage_log(self.medium, ROOT, self.cluster.replicated_on(self), self.rng)
        if damaged is not None:
            self.loop.trace.add(self.loop.steps, self.loop.time(), "damaged", damaged)
            self.cluster.log_damaged(self)

    def _count_refusal(self) -> None:
        self._lacked_resources = True
        self.cluster.count(REFUSED_BY_FULL_DISK)

    def _count_error(self, operation: str, path: str, errno: int) -> None:
        if errno in RESOURCE_ERRORS:
            self._lacked_resources = True
            self.loop.call_later(
                self._restart_after, self._crash_if_offline, self.name, context=self.loop.context_of("operator")
            )
        self.cluster.count(error_event(operation, errno))
        for match in FILE_KINDS:
            if match in path:
                self.cluster.count(file_event(match))

    # ---- faults -----------------------------------------------------------------------------------------------------

    def crash_in_swap(self, operations: int, *, power: bool, downtime: float) -> None:
        """End the process `operations` disk operations after compaction begins to swap in the next segment."""
        if self.disk is not None and self.alive:
            self.disk.crash_in_swap = operations
            self.disk.on_crash = self._crash_callback(power=power, downtime=downtime)

    def disk_fault(self, fault: DiskFault, *, restart_after: float, lasts: bool = False) -> None:
        """Let the next disk operation of the fault's kind fail, if `disk_may_fail` permits. The operator restarts the
        node later.

        After a failed flush the whole machine restarts. The page cache contains data that was never written, and a
        restart of the process alone would not detect that.

        With `lasts`, an operation of a later incarnation can fail, too. Some files are written only during a start.
        """
        if lasts:
            self._lasting_faults.append((fault, restart_after))
        if self.disk is not None and not self.disk.detached:
            self._add_fault(self.disk, fault, restart_after)

    def _add_fault(self, disk: SimDisk, fault: DiskFault, restart_after: float) -> None:
        disk.faults.append(fault)
        self._restart_after = restart_after
        name = self.name

        def on_fault(injected: DiskFault) -> None:
            self._disk_failed = True
            self.cluster.disk_failed_operation(self)
            self._cache_is_stale = self._cache_is_stale or injected.loses_cache
            self.loop.call_later(restart_after, self._crash_if, name, context=self.loop.context_of("operator"))

        disk.on_fault = on_fault
        disk.may_fail = partial(self.cluster.disk_may_fail, self)

    def _crash_if_offline(self, name: str) -> None:
        """Restart the node if a partition is offline: the lack of resources has ended a change that has no undo."""
        broker = getattr(self.node, "broker", None)  # None before the node hosts partitions
        if broker is not None and any(partition.role is Role.OFFLINE for partition in broker.partitions):
            self._crash_if(name)

    def read_error(self, match: str, *, downtime: float, clean: bool) -> None:
        """Restart the node, stopped with `clean` and killed otherwise: the next read of such a file fails."""
        self.disk_fault(DiskFault(READ, match, EIO), restart_after=downtime, lasts=True)
        if clean:
            self.restart(downtime=downtime)
        else:
            self.crash(power=False, downtime=downtime)

    def fill_disk(self, seconds: float) -> None:
        """Let the disk be full, for this process and the next ones, until the operator makes space."""
        self._full_disks += 1
        self.loop.call_later(seconds, self._make_space, context=self.loop.context_of("operator"))
        self._set_full()

    def _make_space(self) -> None:
        self._full_disks -= 1
        self._set_full()

    def _set_full(self) -> None:
        if self.disk is not None:
            self.disk.full = self._full_disks > 0

    def occupy_metadata_thread(self, seconds: float) -> None:
        """Let a slow operation occupy the thread of the metadata log."""
        if self.disk is not None:
            for threads in self.disk.own_threads:
                threads.on_delayed = partial(self.cluster.count, DELAYED_BY_METADATA_THREAD)
                threads.occupy_all(seconds)

    def disarm(self) -> None:
        self._lasting_faults.clear()
        if self.disk is not None:
            self.disk.faults.clear()
            self.disk.crash_at_operation = self.disk.crash_in_swap = None
        self._fail_again_at = 0
