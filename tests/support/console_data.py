"""Records and transactions that the pages of the console show: committed, aborted, open, and names with markup."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.command_line import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

PAYMENTS: Final = "payments"
HOSTILE: Final = "from-a-stranger"
HANGING: Final = "orders"
PARTITIONS: Final = 3
COMMITTED, ABORTED, OPEN = range(PARTITIONS)
"""Partition of `payments` whose newest transaction has this state."""
MARKUP: Final = (
    '<img src=x id=injected onerror="window.injected=1">{{9973*9967}}'
    "</script><script>window.injected=1</script>'\"&amp;"
)
EVALUATED: Final = "99400891"
"""Value of the expression in MARKUP, for a template that evaluates it."""
OPEN_ID: Final = "payments-open"
GROUP: Final = "settlement"
TIME_OUT_MS: Final = 900_000
"""Time-out of the open transaction, the maximum."""


def _producer(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TIME_OUT_MS,
            "client.id": f"{transactional_id}-client",
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def _payment(number: int) -> bytes:
    return json.dumps({"id": number, "amount": 10 * number + 5, "currency": "EUR"}).encode()


def _produce(producer: Producer, partition: int, numbers: range) -> None:
    producer.begin_transaction()
    for number in numbers:
        headers: list[tuple[str, str | bytes | None]] = [("source", b"shop"), ("attempt", b"1")]
        producer.produce(PAYMENTS, _payment(number), f"account-{number % 4}", partition, headers=headers)
    assert producer.flush(TIMEOUT_S) == 0


@contextmanager
def transactions(bootstrap: str) -> Iterator[None]:
    """Create topics with transactions, and a group with a member, which run until the end."""
    topics = [NewTopic(PAYMENTS, PARTITIONS, -1), NewTopic(HOSTILE, 1, -1), NewTopic(HANGING, 1, -1)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(topics).values():
        future.result(TIMEOUT_S)
    producer = _producer(bootstrap, "payments-1")
    for partition in range(PARTITIONS):
        _produce(producer, partition, range(6))
        producer.commit_transaction(TIMEOUT_S)
    _produce(producer, ABORTED, range(6, 9))
    producer.abort_transaction(TIMEOUT_S)
    hostile = _producer(bootstrap, MARKUP)
    hostile.begin_transaction()
    hostile.produce(HOSTILE, MARKUP, MARKUP, headers=[(MARKUP, MARKUP.encode())])
    hostile.commit_transaction(TIMEOUT_S)
    open_transaction = _producer(bootstrap, OPEN_ID)
    _produce(open_transaction, OPEN, range(9, 12))
    members = [_member(bootstrap, GROUP, PAYMENTS, PARTITIONS), _member(bootstrap, MARKUP, HOSTILE, 1)]
    try:
        yield
    finally:
        for member in members:
            member.close()
        # The open transaction stays: after a long run of tests it has timed out, and an abort would be refused.
        del open_transaction


def _member(bootstrap: str, group: str, topic: str, partitions: int) -> Consumer:
    """Return a member of a group that has committed offset 1 of each partition."""
    member = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    member.subscribe([topic])
    assert member.consume(1, TIMEOUT_S)
    member.commit(offsets=[TopicPartition(topic, index, 1) for index in range(partitions)], asynchronous=False)
    return member
