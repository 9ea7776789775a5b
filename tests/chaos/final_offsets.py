"""The lag of the groups at the end of a run: when the input producers have stopped, each group consumes all inputs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from tests.chaos.admin_requests import quiet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka.admin import AdminClient

    from odradek.pipeline.cluster.access import Access
    from tests.sim.history import Partition

POLL_SECONDS: Final = 0.5
READ_SECONDS: Final = 60.0
REQUEST_SECONDS: Final = 10.0


def visible_ends(access: Access, partitions: list[Partition]) -> dict[Partition, int]:
    """Return the offset after the last record that a read_committed consumer receives, by partition (0 if empty).

    Raises:
        KafkaException: the consumer did not reach the end of all partitions within READ_SECONDS.
    """
    config: dict[str, Any] = {
        **access.confluent(),
        "client.id": "supervisor",
        "group.id": "supervisor",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "log_level": 0,
        "error_cb": quiet,
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, index, 0) for topic, index in partitions])
    ends = dict.fromkeys(partitions, 0)
    at_end: set[Partition] = set()
    deadline = time.monotonic() + READ_SECONDS
    while len(at_end) < len(partitions):
        if time.monotonic() > deadline:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        for message in consumer.consume(500, POLL_SECONDS):
            partition = (str(message.topic()), int(message.partition() or 0))
            error = message.error()
            if error is None:
                ends[partition] = int(message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(partition)
    consumer.close()
    return ends


def fetch_offsets(admin: AdminClient, group: str) -> dict[Partition, int]:
    """Return the committed offsets of a group.

    Raises:
        KafkaException: the request failed, or an offset is unstable (pending in an open transaction).
    """
    request = [ConsumerGroupTopicPartitions(group)]
    futures = admin.list_consumer_group_offsets(request, require_stable=True, request_timeout=REQUEST_SECONDS)
    offsets = {}
    for result in futures[group].result(2 * REQUEST_SECONDS).topic_partitions or ():
        if result.error is not None:
            raise KafkaException(result.error)
        offsets[result.topic, result.partition] = result.offset
    return offsets


def lagging(admin: AdminClient, groups: Iterable[str], ends: dict[Partition, int]) -> list[str]:
    """Return one line per group and partition whose committed offset is below its end, and per failed OffsetFetch."""
    lines = []
    for group in groups:
        try:
            offsets = fetch_offsets(admin, group)
        except KafkaException as failure:
            lines.append(f"OffsetFetch of group {group} failed: {failure}")
            continue
        lines += [
            f"{group} has committed offset {offsets.get(partition, 0)} of {end} in {partition[0]}-{partition[1]}"
            for partition, end in ends.items()
            if offsets.get(partition, 0) < end
        ]
    return lines
