"""The end of the groups: nothing is fed any more, and they go on until they have taken everything. Then their offsets are asked for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from tests.chaos.admin_requests import quiet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka.admin import AdminClient

    from tests.sim.history import Partition

POLL_SECONDS: Final = 0.5
READ_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 10.0


def last_visible(bootstrap: str, places: list[Partition]) -> dict[Partition, int]:
    """The offset behind the last record of each partition that a read_committed reader sees, 0 where there is none.

    Raises:
        KafkaException: the end was not reached in time.
    """
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": "supervisor",
        "group.id": "supervisor",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "log_level": 0,
        "error_cb": quiet,
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, index, 0) for topic, index in places])
    ends = dict.fromkeys(places, 0)
    ended: set[Partition] = set()
    deadline = time.monotonic() + READ_SECONDS
    while len(ended) < len(places):
        if time.monotonic() > deadline:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        for message in consumer.consume(500, POLL_SECONDS):
            place = (str(message.topic()), int(message.partition() or 0))
            error = message.error()
            if error is None:
                ends[place] = int(message.offset() or 0) + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(place)
    consumer.close()
    return ends


def fetch_offsets(admin: AdminClient, group: str) -> dict[Partition, int]:
    """The stable offsets of a group. Raises KafkaException: some are not, or nobody answers."""
    asked = [ConsumerGroupTopicPartitions(group)]
    futures = admin.list_consumer_group_offsets(asked, require_stable=True, request_timeout=ANSWER_SECONDS)
    found = {}
    for each in futures[group].result(2 * ANSWER_SECONDS).topic_partitions or ():
        if each.error is not None:
            raise KafkaException(each.error)
        found[each.topic, each.partition] = each.offset
    return found


def behind(admin: AdminClient, groups: Iterable[str], ends: dict[Partition, int]) -> list[str]:
    """Groups that have not come to the end, and where they are."""
    found = []
    for group in groups:
        try:
            offsets = fetch_offsets(admin, group)
        except KafkaException as failed:
            found.append(f"the offsets of {group} are not told: {failed}")
            continue
        found += [
            f"{group} has come to {offsets.get(place, 0)} of {end} in {place[0]}-{place[1]}"
            for place, end in ends.items()
            if offsets.get(place, 0) < end
        ]
    return found
