"""A simulated cluster of unmodified brokers for applications: every node is a broker and a voter of the quorum."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from odradek.broker.config.sources import load
from odradek.simulation.cluster.host import ROOT, Host, host_name
from odradek.simulation.environment.disk import Detached

if TYPE_CHECKING:
    from odradek.broker.config.properties import Config
    from odradek.simulation.environment.loop import SimLoop

PORT: Final = 9092
CLUSTER_ID: Final = "c2ltdWxhdGVkY2x1c3Rlcg"
REPLICAS_MAX: Final = 3
DEFAULTS: Final[Mapping[str, object]] = {
    "auto.create.topics.enable": "false",
    "num.partitions": 2,
    "log.flush.interval.messages": 1,  # so that a power loss takes no acknowledged record
    "log.cleaner.enable": "false",
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "group.initial.rebalance.delay.ms": 0,
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.election.backoff.max.ms": 500,
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 2000,
    "replica.lag.time.max.ms": 2000,
    "replica.fetch.wait.max.ms": 500,
}
"""Properties of simulated brokers. Time-outs are shorter than Kafka's, so that failovers take seconds."""


class BrokerHost(Host):
    """Host of one broker. Its starts and ends are events of the run."""

    def __init__(self, cluster: "SimulatedCluster", number: int) -> None:
        super().__init__(cluster.loop, cluster.rng, number, cluster.failed_at, cluster.violations)
        self._cluster = cluster

    def configuration(self) -> "Config":
        return self._cluster.configuration(self.number)

    def may_lose_data(self) -> bool:
        return self._cluster.may_lose_power(self.number)

    def came_up(self) -> None:
        self._cluster.note(self.host, "serves")

    def before_crash(self) -> None:
        self._cluster.note(self.host, "ends")


class SimulatedCluster:
    """Brokers 1 to `brokers` with the given properties over DEFAULTS."""

    def __init__(
        self,
        loop: "SimLoop",
        rng: Random,
        brokers: int,
        settings: Mapping[str, object],
        note: Callable[[str, str], None],
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.note = note
        self.violations: list[str] = []
        self.failed_at: dict[str, int] = {}
        self._settings = settings
        self._brokers = brokers
        self.hosts = [BrokerHost(self, number) for number in range(1, brokers + 1)]

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers, as `bootstrap_servers` of a client."""
        return ",".join(f"{host.host}:{PORT}" for host in self.hosts)

    def host(self, number: int) -> BrokerHost:
        return self.hosts[number - 1]

    def configuration(self, number: int) -> "Config":
        """Return the configuration of broker `number`."""
        replicas = min(REPLICAS_MAX, self._brokers)
        in_sync = max(1, replicas - 1)
        settings: dict[str, object] = {
            **DEFAULTS,
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            **self._settings,
            "log.dirs": ROOT,
            "node.id": number,
            "listeners": f"PLAINTEXT://0.0.0.0:{PORT}",
            "advertised.listeners": f"PLAINTEXT://{host_name(number)}:{PORT}",
            "inter.broker.listener.name": "PLAINTEXT",
            "odradek.log.level": "error",
        }
        if self._brokers > 1:
            voters = ",".join(f"{each}@{host_name(each)}:{PORT}" for each in range(1, self._brokers + 1))
            settings |= {"controller.quorum.voters": voters, "odradek.cluster.id": CLUSTER_ID}
        return load(environment={}, assignments=[f"{name}={value}" for name, value in settings.items()])

    async def start(self) -> bool:
        """Start all brokers in parallel. Return True if all serve."""
        return all(await asyncio.gather(*(host.start() for host in self.hosts)))

    async def wait_up(self, seconds: float) -> bool:
        """Wait until all brokers serve. Return False if that takes longer than `seconds` of virtual time."""
        try:
            async with asyncio.timeout(seconds):
                for host in self.hosts:
                    await host.up.wait()
        except TimeoutError:
            return False
        return True

    def may_lose_power(self, number: int) -> bool:
        """Return True if all partitions stay available after a power loss of a broker.

        A broker leaves the ISR when it registers after a power loss. So the other replicas have to be in sync.
        """
        if not all(host.up.is_set() for host in self.hosts):
            return False
        for host in self.hosts:
            assert host.node is not None
            for topic in host.node.metadata.image.topics.values():
                for partition in topic.partitions.values():
                    if set(partition.replicas) - set(partition.isr):
                        return False
        return True

    def unexpected_failures(self) -> list[str]:
        """Return unhandled exceptions of brokers, except those of an incarnation after its end."""
        findings = []
        self.loop.collect_unread()
        for failure, text in zip(self.loop.failures, self.loop.describe_failures(), strict=True):
            node = failure["node"]
            if not node.startswith("broker-"):
                continue
            failed_at = self.failed_at.get(node)
            late = failed_at is not None and failure["step"] >= failed_at
            if not (late or isinstance(failure.get("exception"), Detached)):
                findings.append(text)
        return findings
