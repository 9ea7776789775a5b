"""`KafkaCluster`: a local cluster with the operations that tests need."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from odradek import client
from odradek.local.local_cluster import LocalCluster
from odradek.testing.background import Background
from odradek.testing.hook_server import HookServer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from pathlib import Path

    from odradek.local.security import Security
    from odradek.testing.faults import Faults

T = TypeVar("T")

DEFAULT_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
"""Properties of clusters for tests: groups form without a delay, and the few logs of coordinators load quickly."""
CLIENT_KINDS = {"confluent-kafka": "confluent"}
"""Names of packages that differ from the names of `LocalCluster.client_config`."""
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
        self._hooks = HookServer(self._background)

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

    def _test_hooks(self, node_id: int) -> int:
        return self._hooks.descriptor(node_id)

    def _start(self, node_ids: list[int]) -> None:
        self._hooks.paused.difference_update(node_ids)
        try:
            super()._start(node_ids)
        finally:
            self._hooks.started()

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
        """End all faults, start the brokers that do not run, and delete all topics, and all groups without members."""
        for node_id in list(self._hooks.paused):
            if self.is_running(node_id):
                self.resume(node_id)
        self.faults.clear()
        if not all(map(self.is_running, self.node_ids)):
            self.start()
        self.run(_delete_everything)

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
            await client.delete_topic(cluster, topic.name)
