"""Transactions of all kinds, for tests of the audit."""

from __future__ import annotations

import time
from typing import Final

from odradek.client import (
    Cluster,
    CommittedOffset,
    Producer,
    ProducerRecord,
    SharedTransaction,
    TopicPartition,
    abort_hanging_transaction,
    create_topic,
)
from tests.support.hanging import leave_hanging
from tests.support.raw_client import RawClient

TOPIC: Final = "payments"
PARTITIONS: Final = 3
CLASSIC_IDS: Final = ("classic-1", "classic-2")
TRANSACTIONS: Final = 8
"""Transactions of each transactional id. The fourth and the eighth are aborted."""
OFFSETS_ID: Final = "offsets-1"
OWNER_ID: Final = "owner-1"
"""Transactional id of a two-phase commit, whose transactions end with TV2."""
HANGING_PRODUCER_ID: Final = 7_000_000
"""Producer id that no coordinator assigned."""
KEPT_ID: Final = "kept-1"
"""Transactional id of a transaction that two incarnations of its owner keep."""
DECISIONS: Final = (len(CLASSIC_IDS) + 1) * TRANSACTIONS + 2
"""Decisions of `write_transactions` with `two_phase_commit`."""
CLASSIC_DECISIONS: Final = len(CLASSIC_IDS) * TRANSACTIONS + 1
"""Decisions of `write_transactions` without `two_phase_commit`."""


async def write_transactions(bootstrap: str, *, two_phase_commit: bool) -> None:
    """Write transactions with TV1, one with committed offsets, and with `two_phase_commit` also some with TV2.

    The transactions of all ids alternate, so that their batches do, too.
    """
    async with Cluster(bootstrap) as cluster:
        await create_topic(cluster, TOPIC, partitions=PARTITIONS, replication_factor=1)
        producers = [Producer(cluster, each) for each in CLASSIC_IDS]
        if two_phase_commit:
            producers.append(Producer(cluster, OWNER_ID, two_phase_commit=True))
        for number in range(1, TRANSACTIONS + 1):
            for producer in producers:
                await producer.begin()
                await producer.send(TOPIC, [ProducerRecord(b"%d" % key, b"%d" % number) for key in range(9)])
            for producer in producers:
                await (producer.commit() if number % 4 else producer.abort())
        if two_phase_commit:
            await _commit_kept(cluster)
        shared = SharedTransaction(cluster, OFFSETS_ID)
        identity = await shared.begin()
        await Producer(cluster, identity=identity).send(TOPIC, [ProducerRecord(b"1", b"with offsets")])
        await shared.send_offsets("group-1", {TopicPartition(TOPIC, 0): CommittedOffset(1, "")})
        await shared.commit()


async def _commit_kept(cluster: Cluster) -> None:
    """Commit a transaction with its third owner, so that the identities of markers and client differ."""
    first, second, third = (Producer(cluster, KEPT_ID, two_phase_commit=True) for _ in range(3))
    await first.begin()
    await first.send(TOPIC, [ProducerRecord(b"%d" % key, b"kept") for key in range(9)])
    prepared = await first.prepare()
    assert await second.recover() == await third.recover() == prepared
    assert await third.complete(prepared)


async def abort_as_operator(bootstrap: str) -> None:
    """Write data without a transaction, and its ABORT marker. It requires a broker without verification."""
    host, _, port = bootstrap.rpartition(":")
    raw = await RawClient.connect(host, int(port))
    await leave_hanging(raw, TOPIC, HANGING_PRODUCER_ID, written_ms=time.time_ns() // 1_000_000)
    raw.close()
    async with Cluster(bootstrap) as cluster:
        await abort_hanging_transaction(cluster, TOPIC, 0, HANGING_PRODUCER_ID)


async def leave_open(bootstrap: str, transactional_id: str) -> None:
    """Begin a transaction with a record in one partition, and do not end it."""
    async with Cluster(bootstrap) as cluster:
        producer = Producer(cluster, transactional_id, two_phase_commit=transactional_id == OWNER_ID)
        await producer.begin()
        await producer.send(TOPIC, [ProducerRecord(b"1", b"open")])
