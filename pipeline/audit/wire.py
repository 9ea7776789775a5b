"""Read the logs of a running cluster over the wire: Odradek or Apache Kafka."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from odradek.client import (
    EARLIEST,
    LATEST,
    Cluster,
    IsolationLevel,
    Refused,
    Settings,
    TopicPartition,
    describe_configs,
    fetch_range,
    offsets_of_partitions,
)
from odradek.client.admin.configs import ConfigKind
from odradek.pipeline.audit.evidence import PartitionScan
from odradek.protocol.batch import iter_batches
from odradek.protocol.errors import ErrorCode, Malformed
from odradek.protocol.internal_topics import TRANSACTION_STATE
from odradek.spark.blocking import run

if TYPE_CHECKING:
    from odradek.pipeline.audit.evidence import LogRange
    from odradek.pipeline.audit.sources import Listed

EMPTY_RESPONSES_MAX: Final = 6
"""Maximum Fetch responses without a batch below the end of a log. A leader waits up to 5 s before each of them."""


class RunningCluster:
    """The logs of a running cluster, up to their ends at the start of the audit.

    The offsets are read in an order that lets transactions go on during the audit:

    1. The ends of the data partitions. Each marker below has its Prepare record in the log already.
    2. The ends of `__transaction_state`. Each Complete record below has its markers in the logs already.
    3. The ends of the data partitions, up to which they are read.

    Markers and data between the first and the third step may be newer than the transitions, and are not judged.
    """

    def __init__(self, bootstrap: str, settings: Settings | None = None) -> None:
        self._bootstrap = bootstrap
        self._settings = settings or Settings()

    def partitions(self) -> list[Listed]:
        """Return the partitions with the offsets to read. Raise ClientError if the cluster does not respond."""
        return run(_partitions(self._bootstrap, self._settings))

    def scan(self, listed: Listed) -> tuple[PartitionScan, LogRange]:
        """Read one partition. Raise ClientError if its leader does not respond.

        Spark runs it in its workers. The settings are in the serialized function, so that no query plan shows them.
        """
        return asyncio.run(_scan(listed, self._settings))


async def _partitions(bootstrap: str, settings: Settings) -> list[Listed]:
    async with Cluster(bootstrap, settings) as cluster:
        metadata = await cluster.fetch_metadata(None)
        keys = [TopicPartition(topic.name, index) for topic in metadata.topics.values() for index in topic.partitions]
        data = [key for key in keys if key.topic != TRANSACTION_STATE]
        states = [key for key in keys if key.topic == TRANSACTION_STATE]
        judged_below = await offsets_of_partitions(cluster, dict.fromkeys(data, LATEST))
        ends = await offsets_of_partitions(cluster, dict.fromkeys(states, LATEST))
        judged_below |= ends
        ends |= await offsets_of_partitions(cluster, dict.fromkeys(data, LATEST))
        starts = await offsets_of_partitions(cluster, dict.fromkeys(keys, EARLIEST))
        # Kafka compacts __transaction_state by default, so it may have run before an operator changed the policy.
        compacted = {name: name == TRANSACTION_STATE or await _is_compacted(cluster, name) for name in metadata.topics}
        return [
            {
                **key._asdict(),
                "bootstrap": bootstrap,
                "start": min(starts[key], ends[key]),
                "end": ends[key],
                "judged_below": judged_below[key],
                "compacted_below": ends[key] if compacted[key.topic] else 0,
            }
            for key in keys
        ]


async def _is_compacted(cluster: Cluster, topic: str) -> bool:
    entries = await describe_configs(cluster, ConfigKind.TOPIC, topic, defaults=True)
    return any(entry.name == "cleanup.policy" and "compact" in (entry.value or "") for entry in entries)


async def _scan(listed: Listed, settings: Settings) -> tuple[PartitionScan, LogRange]:
    key = TopicPartition(listed["topic"], listed["partition"])
    async with Cluster(listed["bootstrap"], settings) as cluster:
        start = listed["start"]
        while True:
            scan = PartitionScan(*key, start, listed["compacted_below"])
            try:
                await _read(cluster, key, start, listed["end"], scan)
            except Malformed as error:
                scan.damaged(str(error))
            except Refused as error:
                earliest = (await offsets_of_partitions(cluster, {key: EARLIEST}))[key]
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE or earliest <= start:
                    raise
                start = min(earliest, listed["end"])  # retention has removed segments since they were listed
                continue
            return scan, scan.finish(listed["judged_below"])


async def _read(cluster: Cluster, key: TopicPartition, start: int, end: int, scan: PartitionScan) -> None:
    """Add the batches below `end`. Raise Malformed if one is damaged, TimeoutError if the log ends before `end`."""
    if start >= end:
        return
    empty_responses = 0
    async with aclosing(fetch_range(cluster, key, start, end, IsolationLevel.READ_UNCOMMITTED)) as responses:
        async for response in responses:
            empty_responses = empty_responses + 1 if response.following == response.first else 0
            if empty_responses > EMPTY_RESPONSES_MAX:
                raise TimeoutError(f"{key} ends at offset {response.first}, before offset {end}: repeat the audit")
            for header, batch in iter_batches(response.data):
                if header.base_offset < start:
                    scan.skip(header)
                elif header.base_offset < end:
                    scan.add(header, batch)
