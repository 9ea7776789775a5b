"""Topics of a run: their creation with inputs, and the final state that checkers receive."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from odradek import client
from odradek.client import IsolationLevel
from odradek.client.errors import ClientError

if TYPE_CHECKING:
    from odradek.simulation.application import Report

SETTLE_SECONDS_MAX: Final = 300.0
"""Longest wait for the end of open transactions after the application, in seconds of virtual time."""
SETTLE_CHECK_SECONDS: Final = 1.0

Pair = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that exists before the application starts.

    `records` are (key, value) pairs, written to the partitions in turn. `configs` are Kafka's topic properties.
    """

    partitions: int = 2
    records: Sequence[Pair] = ()
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the final state."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class State:
    """State of a run at its end, when no transaction is open."""

    committed: Mapping[str, Sequence[Record]]
    """Records of each topic that a consumer with read_committed receives, by partition and offset."""
    uncommitted: Mapping[str, Sequence[Record]]
    """Records that a consumer with read_uncommitted receives: also those of aborted transactions."""
    offsets: Mapping[str, Mapping[tuple[str, int], int]]
    """Committed offsets of each group, by topic and partition."""
    reports: Sequence["Report"]
    """Values that the application reported with `Sim.record`."""
    durable: Sequence[Mapping[Any, Any]]
    """`Sim.durable` of each instance."""
    finished: bool
    """True if every instance has returned."""

    def reported(self, kind: str) -> list[Any]:
        """Return the reported values of a kind, in the order of time."""
        return [report.value for report in self.reports if report.kind == kind]


async def create_topics(bootstrap: str, brokers: int, topics: Mapping[str, Topic]) -> None:
    """Create the topics and write their records."""
    await client.wait_until_serving(bootstrap, brokers)
    async with client.Cluster(bootstrap) as cluster:
        for name, topic in topics.items():
            await client.create_topic(cluster, name, partitions=topic.partitions, configs=topic.configs)
            if topic.records:
                producer = client.Producer(cluster)
                rows = [
                    client.ProducerRecord(key, value, partition=index % topic.partitions)
                    for index, (key, value) in enumerate(topic.records)
                ]
                await producer.send(name, rows)
    await client.wait_until_in_sync(bootstrap, brokers)


async def read_state(
    bootstrap: str, brokers: int, *, reports: Sequence["Report"], durable: Sequence[Mapping[Any, Any]], finished: bool
) -> State:
    """Return the state when all replicas are in sync and no transaction is open. Raise ClientError if there is one."""
    await client.wait_until_in_sync(bootstrap, brokers)
    async with client.Cluster(bootstrap) as cluster:
        names = [topic.name for topic in await client.list_topics(cluster) if not topic.internal]
        await _wait_for_transactions(cluster, names)
        committed = {name: await _records(cluster, name, IsolationLevel.READ_COMMITTED) for name in names}
        uncommitted = {name: await _records(cluster, name, IsolationLevel.READ_UNCOMMITTED) for name in names}
        offsets = {}
        for group in await client.list_groups(cluster):
            found = await client.committed_offsets(cluster, group.group, require_stable=True)
            offsets[group.group] = {(key.topic, key.partition): row.offset for key, row in found.items()}
    return State(committed, uncommitted, offsets, reports, durable, finished)


async def _wait_for_transactions(cluster: "client.Cluster", names: Sequence[str]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_SECONDS_MAX
    while rows := [
        row
        for row in await client.describe_partitions(cluster, names)
        if row.last_stable_offset is None or row.last_stable_offset != row.log_end
    ]:
        if loop.time() > deadline:
            places = ", ".join(f"{row.topic}-{row.partition}" for row in rows)
            raise ClientError(f"a transaction stays open on {places}", "lower transaction_timeout_ms of the producer")
        await asyncio.sleep(SETTLE_CHECK_SECONDS)


async def _records(cluster: "client.Cluster", name: str, isolation: IsolationLevel) -> list[Record]:
    rows: list[Record] = []
    async for batch in client.Consumer(cluster, name, isolation=isolation).batches():
        rows += [Record(name, row.partition, row.offset, row.key, row.value) for row in batch]
    return sorted(rows, key=lambda row: (row.partition, row.offset))
