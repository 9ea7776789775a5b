"""Injection of the faults of a run, each at its time."""

from collections.abc import Callable, Sequence

from odradek.simulation.application import Instance
from odradek.simulation.cluster.cluster import SimulatedCluster
from odradek.simulation.environment.network import FrameFault
from odradek.simulation.faults import (
    APIS,
    CRASH,
    CRASH_AT_POINT,
    KILL,
    LOSE_RESPONSE,
    OF_APPLICATION,
    PARTITION,
    PAUSE,
    PAUSE_APPLICATION,
    POWER,
    RESTART,
    SLOW_DISK,
    SLOW_LINK,
    Fault,
)
from odradek.simulation.loop import ApplicationLoop

SLOW_LINK_SECONDS = 0.3
"""Additional delay of each message on a slow link, in seconds."""


class Injector:
    """Inject faults into a cluster and the instances of an application, until `stop`."""

    def __init__(
        self,
        loop: ApplicationLoop,
        cluster: SimulatedCluster,
        instances: Sequence[Instance],
        note: Callable[[str, str], None],
    ) -> None:
        self._loop = loop
        self._cluster = cluster
        self._instances = instances
        self._note = note
        self._stopped = False

    def schedule(self, faults: Sequence[Fault]) -> None:
        """Let each fault begin at its time, counted from now."""
        for fault in faults:
            self._loop.call_later(fault.at, self._inject, fault, context=self._loop.context_of("faults"))

    def stop(self) -> None:
        """Begin no further faults, and end those of the network."""
        self._stopped = True
        self._loop.network.faults.clear()
        self._loop.network.links.heal()
        for instance in self._instances:
            instance.crash_at_point(0, 0.0)

    def _inject(self, fault: Fault) -> None:
        if self._stopped:
            return
        self._loop.trace.add(self._loop.steps, self._loop.time(), "fault", fault)
        self._note("fault", str(fault))
        if fault.kind in OF_APPLICATION:
            self._inject_into_application(fault, self._instances[fault.target - 1])
        elif fault.kind == LOSE_RESPONSE:
            host, api_key = self._instances[fault.target - 1].host, APIS[fault.api]
            self._loop.network.faults.append(FrameFault("lose_response", (api_key,), source=host))
        else:
            self._inject_into_cluster(fault)

    def _inject_into_application(self, fault: Fault, instance: Instance) -> None:
        if fault.kind == CRASH:
            instance.crash(fault.seconds)
        elif fault.kind == CRASH_AT_POINT:
            instance.crash_at_point(fault.other, fault.seconds)
        elif fault.kind == PAUSE_APPLICATION:
            instance.pause(fault.seconds)
        else:
            for host in self._cluster.hosts:
                self._loop.network.reset_between(instance.host, host.host)

    def _inject_into_cluster(self, fault: Fault) -> None:
        host, links = self._cluster.host(fault.target), self._loop.network.links
        if fault.kind in {KILL, POWER}:
            host.crash(power=fault.kind == POWER and host.may_lose_data(), downtime=fault.seconds)
        elif fault.kind == RESTART:
            host.restart(downtime=fault.seconds)
        elif fault.kind == PAUSE:
            host.pause(fault.seconds)
        elif fault.kind == SLOW_DISK:
            host.occupy_disk_threads(fault.seconds)
        else:
            other = (
                self._cluster.host(fault.other).host
                if fault.kind == PARTITION
                else self._instances[max(fault.other, 1) - 1].host
            )
            for link in ((host.host, other), (other, host.host)):
                if fault.kind == SLOW_LINK:
                    links.slow(*link, fault.seconds, SLOW_LINK_SECONDS)
                else:
                    links.partition(*link, fault.seconds)
