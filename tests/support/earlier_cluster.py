"""The stored directory of a cluster of commit f4ce67d, the last one with one listener for clients and brokers.

Three brokers of that commit wrote it, in a virtual environment of their own. Broker 3 was killed, and the others
stopped. To make it again, with `old/odradek` from that environment:

    old/odradek up --detach --dir DIR --set offsets.topic.num.partitions=2 \\
        --set transaction.state.log.num.partitions=2 --set offsets.retention.minutes=50000000
    python -m tests.support.earlier_cluster HOST:PORT
    kill -9 PID                                             (of broker 3, in DIR/cluster.json)
    old/odradek down --dir DIR
    tar -C DIR --exclude './broker-?.log' -cf - . | gzip -9n > tests/interop/data/cluster-with-single-listener.tar.gz
"""

from __future__ import annotations

import asyncio
import sys
import tarfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from odradek.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.command_line import TIMEOUT_S
from tests.support.local_clusters import read
from tests.support.raw_client import RawClient

DIRECTORY: Final = Path(__file__).parents[1] / "interop" / "data" / "cluster-with-single-listener.tar.gz"
API_VERSIONS_VERSION: Final = 4
TOPIC: Final = "kept"
"""Topic with one partition: transactions that committed, that aborted, and that is open."""
COMPACTED: Final = "compacted"
RECORDS: Final = (b"a", b"b")
"""The committed records of TOPIC."""
COMPACTED_RECORDS: Final = (b"one", b"two", b"three")
COMMITTED_OFFSET: Final = 2
"""Offset that both groups have committed in TOPIC."""
GROUPS: Final = {"classic-group": "classic", "consumer-group": "consumer"}
OPEN_TIMEOUT_MS: Final = 60_000
"""Transaction time-out of the open transaction: it has expired when a test starts the cluster."""
TOPIC_CONFIG: Final = {"retention.ms": "-1", "max.message.bytes": "2000000"}
METADATA_VERSION: Final = 30
"""Level of metadata.version (4.3-IV0). The cluster keeps it until an operator raises it."""


def unpack(directory: Path) -> None:
    """Write the stored directory to `directory`."""
    with tarfile.open(DIRECTORY) as stored:
        stored.extractall(directory, filter="data")


def write(bootstrap: str) -> None:
    """Write the data of the stored directory to a running cluster."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(TOPIC, 1, 3, config=TOPIC_CONFIG),
        NewTopic(COMPACTED, 1, 3, config={"cleanup.policy": "compact"}),
    ]
    for created in admin.create_topics(topics).values():
        created.result(TIMEOUT_S)
    _produce(bootstrap, RECORDS, commit=True)
    _produce(bootstrap, (b"aborted",), commit=False)
    _produce_plain(bootstrap)
    for group, protocol in GROUPS.items():
        _commit_offset(bootstrap, group, protocol)
    unfinished = _transactional(bootstrap, "open-id")
    unfinished.begin_transaction()
    unfinished.produce(TOPIC, b"open", partition=0)
    assert unfinished.flush(TIMEOUT_S) == 0


def _transactional(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": OPEN_TIMEOUT_MS,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def _produce(bootstrap: str, values: tuple[bytes, ...], *, commit: bool) -> None:
    producer = _transactional(bootstrap, "kept-id")
    producer.begin_transaction()
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    if commit:
        producer.commit_transaction(TIMEOUT_S)
    else:
        assert producer.flush(TIMEOUT_S) == 0
        producer.abort_transaction(TIMEOUT_S)


def _produce_plain(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd", "enable.idempotence": True})
    for value in COMPACTED_RECORDS:
        producer.produce(COMPACTED, value, key=value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def _commit_offset(bootstrap: str, group: str, protocol: str) -> None:
    """Join the group, and commit an offset as its member."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol})
    try:
        consumer.subscribe([TOPIC])
        deadline = time.monotonic() + TIMEOUT_S
        while not consumer.assignment():
            assert time.monotonic() < deadline, f"{group} has no assignment"
            consumer.poll(0.1)
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, COMMITTED_OFFSET)], asynchronous=False)
    finally:
        consumer.close()


def verify(bootstrap: str, *later: bytes) -> None:
    """Verify that the cluster has all that `write` wrote, and the records `later` after it."""
    assert read(bootstrap, TOPIC, len(RECORDS) + len(later)) == [*RECORDS, *later]
    assert read(bootstrap, COMPACTED, len(COMPACTED_RECORDS)) == list(COMPACTED_RECORDS)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for group in GROUPS:
        [listed] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        assert [row.offset for row in listed.result(TIMEOUT_S).topic_partitions] == [COMMITTED_OFFSET], group
    [described] = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, TOPIC)]).values()
    config = described.result(TIMEOUT_S)
    assert {name: config[name].value for name in TOPIC_CONFIG} == TOPIC_CONFIG
    assert asyncio.run(_metadata_version(bootstrap)) == METADATA_VERSION


async def _metadata_version(bootstrap: str) -> int:
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    client = await RawClient.connect(host, int(port))
    try:
        response = await client.call(ApiVersionsRequest("test", "1"), API_VERSIONS_VERSION, timeout=TIMEOUT_S)
    finally:
        client.close()
    levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
    return int(levels["metadata.version"])


if __name__ == "__main__":
    write(sys.argv[1])
