"""Removal of producers and transactional ids from a running node, by the client that the command line uses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from odradek import client
from odradek.client import Cluster, Settings
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.running_node import running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.running_node import RunningNode

SETTINGS = ("num.partitions=1", "transaction.state.log.num.partitions=2")


def cluster_of(node: RunningNode) -> Cluster:
    return Cluster(f"127.0.0.1:{node.node.listeners[0].port}", Settings(client_id="admin"))


async def test_operator_lists_and_removes_producers_without_an_open_transaction(tmp_path: Path) -> None:
    async with running(tmp_path, *SETTINGS) as node, cluster_of(node) as cluster:
        for producer_id in (5, 6, 7):
            written = await node.produce("t", b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0)
            assert written.error_code == ErrorCode.NONE
        producer = client.Producer(cluster, transactional_id="open")
        await producer.begin()
        await producer.send("t", [client.ProducerRecord(None, b"x")])
        listed = (await client.list_producers(cluster, "t")).rows
        assert [row.producer_id for row in listed if not row.open_transaction] == [5, 6, 7]
        first = next(row for row in listed if row.producer_id == 5)
        assert (first.address, first.partition, first.last_sequence) == ("127.0.0.1", 0, 0)
        assert first.idle_ms is not None
        # Producer 6 is used between the list and the removal.
        await node.produce("t", b"w", producer_id=6, producer_epoch=0, base_sequence=1)
        assert await client.expire_producers(cluster, listed) == 2
        left = (await client.list_producers(cluster, "t", 0)).rows
        assert [row.producer_id for row in left if not row.open_transaction] == [6]
        assert (await client.list_producers(cluster, "t", 1)).rows == []
        assert len(left) == 2
        await producer.commit()
        assert await node.values("t", 1) == [b"v", b"v", b"v", b"x", b"w"]


async def test_operator_removes_transactional_ids_whose_identity_has_not_changed(tmp_path: Path) -> None:
    async with running(tmp_path, *SETTINGS) as node, cluster_of(node) as cluster:
        for name in ("a", "b", "c"):
            assert (await node.init(name)).error_code == ErrorCode.NONE
        producer = client.Producer(cluster, transactional_id="open")
        await node.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
        await producer.begin()
        await producer.send("t", [client.ProducerRecord(None, b"x")])
        listed = (await client.list_transactions(cluster)).rows
        assert [(row.transactional_id, row.address) for row in listed] == [
            (name, "127.0.0.1") for name in ("a", "b", "c", "open")
        ]
        await node.init("b")  # the epoch of b rises between the list and the removal
        undescribed = replace(listed[2], producer_epoch=None)
        kept = await client.expire_transactional_ids(cluster, [*listed[:2], undescribed, listed[3]])
        assert kept == {
            "b": "PRODUCER_FENCED",
            "c": "its coordinator did not describe it",
            "open": "its state is Ongoing",
        }
        # The state in the listing is old: the coordinator refuses an open transaction itself.
        stale = replace(listed[3], state="Empty")
        assert await client.expire_transactional_ids(cluster, [stale]) == {"open": "INVALID_TXN_STATE"}
        await producer.commit()
        assert await node.values("t", 1) == [b"x"]
        rows = (await client.list_transactions(cluster)).rows
        assert [row.transactional_id for row in rows] == ["b", "c", "open"]
        again = await node.init("a")
        assert (again.error_code, again.producer_epoch) == (ErrorCode.NONE, 0)
        assert again.producer_id > max(row.producer_id for row in rows), "the former producer of the id is fenced"
