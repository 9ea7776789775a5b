"""`KafkaCluster`: a local cluster with the operations that tests need."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

from odradek import client
from odradek.local.local_cluster import LocalCluster
from odradek.local.security import read_passwords
from odradek.protocol.errors import ErrorCode
from odradek.testing.background import Background
from odradek.testing.hook_server import HookServer
from odradek.testing.network import BLOCKED, Delay, Network
from odradek.testing.numbers import milliseconds
from odradek.testing.placement import move_leader, partition_of
from odradek.testing.plan import carry_out
from odradek.testing.shared_state import read, restore

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping
    from pathlib import Path

    from odradek.local.security import Security
    from odradek.testing.faults import Faults
    from odradek.testing.injected_rules import Rule
    from odradek.testing.plan import FaultPlan
    from odradek.testing.shared_state import SharedState

T = TypeVar("T")

DEFAULT_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""Properties of clusters for tests: groups form without a delay, and the few logs of coordinators load quickly."""
CLIENT_KINDS = {"confluent-kafka": "confluent"}
"""Names of packages that differ from the names of `LocalCluster.client_config`."""
TRANSACTION_LOG, OFFSETS_LOG = "__transaction_state", "__consumer_offsets"
PLAN_DELAY_MS = 500
"""Delay of a request by a plan, in milliseconds."""
INTERNAL_PREFIX = "__"
"""Prefix of the topics that brokers create for themselves."""


class KafkaCluster(LocalCluster):
    """Cluster for tests. Client operations run on an event loop in the background, for sync and async tests.

    Example:
        ```python
        with KafkaCluster(brokers=3) as cluster:
            cluster.create_topic("orders", partitions=6)
        ```

    The arguments are those of `LocalCluster`.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        directory: Path | str | None = None,
        settings: Mapping[str, object] | None = None,
        security: Security | str | None = None,
    ) -> None:
        merged = {**DEFAULT_SETTINGS, **(settings or {})}
        super().__init__(brokers, directory=directory, settings=merged, security=security)
        self._background = Background("odradek-testing")
        self._hooks = HookServer(self._background, brokers)
        self._network = Network(self.node_ids)
        self._is_disk_full = False
        self._injected: list[Rule] = []
        """Rules of a plan that has not removed them yet."""
        self._state_before: SharedState | None = None

    @property
    def faults(self) -> Faults:
        """Faults in the handling of requests."""
        return self._hooks.faults

    def pause(self, node_id: int) -> None:
        """Stop the execution of a broker (SIGSTOP). Its connections stay open, and it does not respond."""
        super().pause(node_id)
        self._hooks.paused.add(node_id)

    def resume(self, node_id: int) -> None:
        """Continue the execution of a paused broker (SIGCONT)."""
        super().resume(node_id)
        self._hooks.paused.discard(node_id)

    # ---- network and disks ------------------------------------------------------------------------------------------

    def cut(self, broker: int, other: int | None = None, *, to: int | None = None) -> None:
        """Block the link between two brokers: `cut(1, 2)` in both directions, `cut(1, to=2)` from 1 to 2.

        Clients still reach both brokers.
        """
        if (other is None) == (to is None):
            raise ValueError("name two brokers for both directions, or one with to= for one direction")
        self._set_delay(broker, other, to, BLOCKED)

    def slow(self, broker: int, other: int | None = None, ms: float = 200, *, to: int | None = None) -> None:
        """Delay what two brokers send to each other, as for `cut`."""
        if (other is None) == (to is None):
            raise ValueError("name two brokers for both directions, or one with to= for one direction")
        self._set_delay(broker, other, to, milliseconds(ms))

    def heal(self) -> None:
        """Open all links between brokers."""
        self._network.heal()
        self._publish_links()

    def _set_delay(self, broker: int, other: int | None, to: int | None, delay: Delay) -> None:
        if to is not None:
            self._network.set(broker, to, delay)
        elif other is not None:
            self._network.set(broker, other, delay)
            self._network.set(other, broker, delay)
        self._publish_links()

    def _publish_links(self) -> None:
        def address_of(node_id: int) -> tuple[str, int]:
            host, _, port = self.plan.voter_address(node_id).rpartition(":")
            return host, int(port)

        self._hooks.set("links", {node_id: self._network.rows(node_id, address_of) for node_id in self.node_ids})

    def full_disk(self, node_id: int) -> None:
        """Fill the disk of a broker: its logs cannot grow. It keeps the metadata log, as with a real full disk."""
        self.require_broker(node_id)
        self._is_disk_full = True
        self._hooks.set("full_disk", {node_id: True})

    def free_disk(self, node_id: int) -> None:
        """Free the disk of a broker."""
        self.require_broker(node_id)
        self._hooks.set("full_disk", {node_id: False})

    # ---- leaders ----------------------------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the node id of the leader of a partition; -1 if it has none."""

        async def read(cluster: client.Cluster) -> int:
            return (await cluster.topic(topic, refresh=True)).partition(partition).leader

        return self.run(read)

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Move the leader of a partition to a broker, or to any other in-sync replica. Return the new leader.

        If the broker has no replica, it gets one in place of another broker.
        """
        if to is not None:
            self.require_broker(to)
        return self.run(lambda cluster: move_leader(cluster, topic, partition, to))

    def move_coordinator(
        self, *, transactional_id: str | None = None, group: str | None = None, to: int | None = None
    ) -> int:
        """Move the coordinator of a transactional id or of a group to another broker. Return its node id."""
        topic, partition = self._coordinator_partition(transactional_id, group)
        return self.move_leader(topic, partition, to)

    def coordinator(self, *, transactional_id: str | None = None, group: str | None = None) -> int:
        """Return the node id of the coordinator of a transactional id or of a group."""
        return self.leader(*self._coordinator_partition(transactional_id, group))

    def _coordinator_partition(self, transactional_id: str | None, group: str | None) -> tuple[str, int]:
        if (transactional_id is None) == (group is None):
            raise ValueError("name one: transactional_id= or group=")
        name = transactional_id if group is None else group
        assert name is not None
        topic = TRANSACTION_LOG if group is None else OFFSETS_LOG
        kind = client.CoordinatorType.TRANSACTION if group is None else client.CoordinatorType.GROUP

        async def count(cluster: client.Cluster) -> int:
            await cluster.coordinator(kind, name)  # the first request for a coordinator creates the topic
            return len((await cluster.topic(topic, refresh=True)).partitions)

        return topic, partition_of(name, self.run(count))

    # ---- plans ------------------------------------------------------------------------------------------------------

    @contextmanager
    def run_faults(self, plan: FaultPlan) -> Iterator[Callable[[], bool]]:
        """Carry out a plan in the background, during the block. Then end all faults. Raise what a step raised.

        The value of the block is a function that returns True while the plan runs.
        """
        end = Event()
        try:
            with ThreadPoolExecutor(1, "odradek-plan") as executor:
                done = executor.submit(carry_out, plan, self, end)
                try:
                    yield lambda: not done.done()
                finally:
                    end.set()
            done.result()
        finally:
            self.end_faults()

    def inject(self, api: str, effect: str) -> None:
        """Add a rule of a plan: the effect by the name of its method, on one request."""
        match = self.faults.on(api, times=1)
        self._injected.append(match.delay(PLAN_DELAY_MS) if effect == "delay" else getattr(match, effect)())

    def remove_injected(self) -> None:
        """Remove the rules of a plan. The rules of the test stay."""
        while self._injected:
            self._injected.pop().remove()

    def end_faults(self) -> None:
        """Remove all rules, open all links, free disks, continue paused brokers, and start those that do not run.

        The log of injected faults stays.
        """
        for node_id in list(self._hooks.paused):
            if self.is_running(node_id):
                self.resume(node_id)
        self._injected.clear()
        self.faults.remove_rules()
        self._network.heal()
        self._publish_links()
        if self._is_disk_full:
            self._hooks.set("full_disk", dict.fromkeys(self.node_ids, False))
            self._is_disk_full = False
        if not all(map(self.is_running, self.node_ids)):
            self.start()

    # ---- start and end ----------------------------------------------------------------------------------------------

    def _test_hooks(self, node_id: int) -> int:
        return self._hooks.descriptor(node_id)

    def _start(self, node_ids: list[int]) -> None:
        self._hooks.paused.difference_update(node_ids)
        try:
            super()._start(node_ids)
        finally:
            self._hooks.started()
        if self._state_before is None and all(map(self.is_running, self.node_ids)):
            self._state_before = self.run(lambda cluster: read(cluster, self.node_ids))

    def client_config(self, kind: str, user: str | None = None) -> dict[str, Any]:
        """Return the settings of a client library, as `LocalCluster.client_config`, also for `confluent-kafka`."""
        return super().client_config(CLIENT_KINDS.get(kind, kind), user)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic. Return when a broker serves it. -1: the replication factor of the brokers."""

        async def create(cluster: client.Cluster) -> None:
            await client.create_topic(
                cluster, name, partitions=partitions, replication_factor=replication_factor, configs=configs
            )

        self.run(create)

    def records(self, topic: str, *, committed: bool = True) -> list[client.ConsumerRecord]:
        """Return the records of a topic, in the order of each partition.

        With `committed=False`, records of open and aborted transactions are included.
        """
        level = client.IsolationLevel.READ_COMMITTED if committed else client.IsolationLevel.READ_UNCOMMITTED

        async def read(cluster: client.Cluster) -> list[client.ConsumerRecord]:
            batches = client.Consumer(cluster, topic, isolation=level).batches()
            return [record async for batch in batches for record in batch]

        return self.run(read)

    def values(self, topic: str, *, committed: bool = True) -> list[bytes | None]:
        """Return the values of the records of a topic, as `records` does."""
        return [record.value for record in self.records(topic, committed=committed)]

    def committed_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offsets of a group by topic and partition."""

        async def read(cluster: client.Cluster) -> dict[tuple[str, int], int]:
            offsets = await client.committed_offsets(cluster, group)
            return {(topic, partition): each.offset for (topic, partition), each in offsets.items()}

        return self.run(read)

    def run(self, operation: Callable[[client.Cluster], Coroutine[Any, Any, T]]) -> T:
        """Run an operation of `odradek.client` with connections to this cluster, and return its result."""
        settings = self._client_settings()

        async def connected() -> T:
            async with client.Cluster(self.bootstrap, settings) as cluster:
                return await operation(cluster)

        return self._background.run(connected())

    def _client_settings(self) -> client.Settings:
        file = self.directory.own_client_config(self.plan)
        security = client.Security() if file is None else client.read_security(file, lambda _: None)
        return client.Settings(client_id="odradek-testing", security=security)

    def reset(self) -> None:
        """End all faults, clear their log, wait until all brokers serve, and restore the state of the first start.

        All topics, transactional ids, and groups without members are deleted. ACLs, users, quotas, dynamic
        configurations and own delegation tokens become those of the first start.
        """
        self.end_faults()
        self.faults.clear()
        before, passwords = self._state_before, read_passwords(self.directory.security_files)

        async def clean(cluster: client.Cluster) -> None:
            await client.wait_until_all_serve([*map(self.endpoint, self.node_ids)], self._client_settings())
            if before is not None:
                await restore(cluster, self.node_ids, before, passwords)
            await _delete_everything(cluster)

        self.run(clean)

    def close(self) -> None:
        """Kill all brokers: their data is not needed any more. Remove the directory if it is temporary."""
        for process in self._processes.values():
            process.signal(signal.SIGKILL)
        for process in self._processes.values():
            process.kill()
        super().close()
        self._hooks.close()
        self._background.close()


async def _delete_everything(cluster: client.Cluster) -> None:
    for group in await client.list_groups(cluster):
        with suppress(client.Refused, client.NotFound):  # a consumer of the test is not closed
            await client.delete_group(cluster, group.group)
    for topic in await client.list_topics(cluster):
        if not topic.internal and not topic.name.startswith(INTERNAL_PREFIX):
            try:
                await client.delete_topic(cluster, topic.name)
            except client.Refused as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # the application deletes it, too
                    raise
