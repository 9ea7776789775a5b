"""A whole node over a real directory and real sockets, spoken to in raw requests."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.node import CannotStartError, Node
from odradek.broker.partition.registry import ROLE_CHANGES_PER_SLICE
from odradek.broker.process.clock import SystemClock
from odradek.broker.process.env import Env
from odradek.cluster.metadata.errors import UnsupportedMetadata
from odradek.protocol.batch import build_batch, iter_batches, iter_records
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.storage.disk.os_disk import OsDisk
from tests.support.broker_context import config
from tests.support.raw_client import RawClient

READ_COMMITTED = 1
NOW_MS = SystemClock().wall_ms()


class Running:
    """A node, and one connection to it."""

    def __init__(self, node: Node, client: RawClient, unexpected: list[tuple[str, BaseException]]) -> None:
        self.node = node
        self.client = client
        self.unexpected = unexpected

    async def call(self, request: Any, version: int) -> Any:
        return await self.client.call(request, version, timeout=10)

    async def metadata(self, name: str) -> Any:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        return (await self.call(request, 12)).topics[0]

    async def produce(
        self, name: str, *values: bytes, version: int = 11, transactional_id: str | None = None, **batch: Any
    ) -> Any:
        topic = await self.metadata(name)
        records = build_batch(
            [(None, value, NOW_MS, ()) for value in values], transactional=bool(transactional_id), **batch
        )
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name=name, topic_id=topic.topic_id, partition_data=[PartitionProduceData(index=0, records=records)]
                )
            ],
        )
        return (await self.call(request, version)).responses[0].partition_responses[0]

    async def fetch(self, name: str, isolation: int = 0) -> Any:
        topic = await self.metadata(name)
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1_000_000,
            isolation_level=isolation,
            session_epoch=-1,
            topics=[FetchTopic(topic=name, topic_id=topic.topic_id, partitions=[partition])],
        )
        response = await self.call(request, 17)
        assert response.error_code == ErrorCode.NONE
        return response.responses[0].partitions[0]

    async def values(self, name: str, isolation: int = 0) -> list[bytes | None]:
        """What a consumer gets to see; control batches and aborted transactions are left out by its own rules."""
        part = await self.fetch(name, isolation)
        assert part.error_code == ErrorCode.NONE
        pending = sorted((each.first_offset, each.producer_id) for each in part.aborted_transactions or [])
        aborted: dict[int, None] = {}
        found: list[bytes | None] = []
        for header, batch in iter_batches(part.records):
            while pending and pending[0][0] <= header.last_offset:
                aborted[pending.pop(0)[1]] = None
            if header.is_control:
                aborted.pop(header.producer_id, None)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [record.value for record in iter_records(batch, max_decompressed_bytes=1_000_000)]
        return found

    async def init(self, transactional_id: str, version: int = 4) -> Any:
        found = await self.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 4)
        assert found.coordinators[0].error_code == ErrorCode.NONE
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        return await self.until_not_busy(request, version)

    async def until_not_busy(self, request: Any, version: int) -> Any:
        """As every client does: come again while the coordinator is loading or busy."""
        busy = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR}
        async with asyncio.timeout(10):
            while True:
                response = await self.call(request, version)
                if response.error_code not in busy:
                    return response
                await asyncio.sleep(0.01)


LIVES = itertools.count(7)
"""Seeds: two lives of a node never draw the same incarnation."""


def make(path: Path, *assignments: str) -> tuple[Node, list[tuple[str, BaseException]]]:
    unexpected: list[tuple[str, BaseException]] = []
    chosen = config(f"log.dirs={path}", "listeners=PLAINTEXT://127.0.0.1:0", *assignments)
    env = Env(OsDisk(), SystemClock(), random.Random(next(LIVES)), "boot")
    return Node(chosen, env, on_unexpected=lambda where, exception: unexpected.append((where, exception))), unexpected


@asynccontextmanager
async def running(path: Path, *assignments: str) -> AsyncIterator[Running]:
    node, unexpected = make(path, *assignments)
    try:
        await node.start()
        client = await RawClient.connect("127.0.0.1", node.listeners[0].port)
        yield Running(node, client, unexpected)
        client.close()
    finally:
        await node.stop()
    assert unexpected == []


async def test_produce_and_fetch_over_a_topic_that_metadata_made(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        versions = await node.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
        assert (versions.error_code, versions.api_keys[0].api_key) == (ErrorCode.NONE, 0)
        assert {f.name: f.max_version_level for f in versions.finalized_features}["transaction.version"] == 2
        answer = await node.produce("t", b"a", b"b")
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        answer = await node.produce("t", b"c", version=13)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 2)
        assert await node.values("t") == [b"a", b"b", b"c"]


async def test_a_classic_transaction(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.metadata("t")
        who = await node.init("tx")
        assert (who.error_code, who.producer_epoch) == (ErrorCode.NONE, 0)
        identity = {"producer_id": who.producer_id, "producer_epoch": who.producer_epoch}
        for sequence, (value, commit) in enumerate([(b"aborted", False), (b"committed", True)]):
            add = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="tx",
                v3_and_below_producer_id=who.producer_id,
                v3_and_below_producer_epoch=who.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
            async with asyncio.timeout(10):
                while True:
                    added = await node.call(add, 3)
                    error = added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
                    if error != ErrorCode.CONCURRENT_TRANSACTIONS:
                        break
            assert error == ErrorCode.NONE
            answer = await node.produce("t", value, transactional_id="tx", base_sequence=sequence, **identity)
            assert answer.error_code == ErrorCode.NONE
            assert value not in await node.values("t", READ_COMMITTED)
            assert value in await node.values("t")
            end = EndTxnRequest(transactional_id="tx", committed=commit, **identity)
            assert (await node.until_not_busy(end, 4)).error_code == ErrorCode.NONE
            await settled(node)
        assert await node.values("t", READ_COMMITTED) == [b"committed"]
        assert await node.values("t") == [b"aborted", b"committed"]


async def test_a_transaction_of_version_2_needs_no_add_and_bumps_the_epoch(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.metadata("t")
        who = await node.init("tx", 5)
        epoch = who.producer_epoch
        for value in (b"one", b"two"):
            identity = {"producer_id": who.producer_id, "producer_epoch": epoch}
            answer = await node.produce("t", value, version=13, transactional_id="tx", base_sequence=0, **identity)
            assert answer.error_code == ErrorCode.NONE
            end = await node.call(EndTxnRequest(transactional_id="tx", committed=True, **identity), 5)
            assert (end.error_code, end.producer_epoch) == (ErrorCode.NONE, epoch + 1)
            epoch = end.producer_epoch
        await settled(node)
        assert await node.values("t", READ_COMMITTED) == [b"one", b"two"]


async def settled(node: Running) -> None:
    """Until the markers of what has been ended are there."""
    async with asyncio.timeout(10):
        while (part := await node.fetch("t", READ_COMMITTED)).last_stable_offset != part.high_watermark:
            await asyncio.sleep(0.005)


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.metadata("t")
        before = await node.init("tx")
        await node.produce("t", b"a")
        first = (await node.metadata("t")).partitions[0].leader_epoch
    async with running(tmp_path) as node:
        assert await node.values("t") == [b"a"]
        assert (await node.metadata("t")).partitions[0].leader_epoch > first
        after = await node.init("tx")
        assert (after.producer_id, after.producer_epoch) == (before.producer_id, before.producer_epoch + 1)
        other = await node.init("other")
        assert other.producer_id > before.producer_id
        await node.produce("t", b"b")
        assert await node.values("t") == [b"a", b"b"]


async def test_a_deleted_topic_is_gone_with_its_files(tmp_path: Path) -> None:
    async with running(tmp_path, "log.segment.delete.delay.ms=0") as node:
        create = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=1)])
        created = await node.call(create, 7)
        assert created.topics[0].error_code == ErrorCode.NONE
        assert sorted(path.name for path in tmp_path.glob("t-*")) == ["t-0", "t-1"]
        deleted = await node.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
        assert deleted.responses[0].error_code == ErrorCode.NONE
        async with asyncio.timeout(10):
            while list(tmp_path.glob("t-*")):
                await asyncio.sleep(0.01)


async def reason(node: Node) -> str:
    with pytest.raises(CannotStartError) as caught:
        await node.start()
    await node.stop()
    return str(caught.value)


async def test_a_directory_in_use_says_so(tmp_path: Path) -> None:
    async with running(tmp_path):
        other, _ = make(tmp_path)
        assert await reason(other) == f"{tmp_path}: the directory is in use by another process"


async def test_a_port_in_use_says_so(tmp_path: Path) -> None:
    async with running(tmp_path / "a") as node:
        port = node.node.listeners[0].port
        other, _ = make(tmp_path / "b", f"listeners=PLAINTEXT://127.0.0.1:{port}")
        assert (await reason(other)).startswith(f"cannot listen on 127.0.0.1:{port} (PLAINTEXT): ")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (("meta.properties", b"node.id=two\n"), "meta.properties"),
        (("meta.properties", b"\xff\xfe\x00"), "meta.properties"),
        (("__cluster_metadata-0/quorum-state", b"{"), "quorum-state"),
    ],
)
async def test_a_corrupt_file_is_refused_by_its_name(tmp_path: Path, damage: tuple[str, bytes], complaint: str) -> None:
    async with running(tmp_path):
        pass
    name, content = damage
    (tmp_path / name).write_bytes(content)
    node, _ = make(tmp_path)
    said = await reason(node)
    assert complaint in said
    assert "\n" not in said


async def test_the_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    node, _ = make(tmp_path, "node.id=2")
    assert (await reason(node)).endswith("meta.properties: belongs to node 1, this is node 2")


async def test_explicit_replication_of_the_transaction_log_is_obeyed(tmp_path: Path) -> None:
    async with running(tmp_path, "transaction.state.log.replication.factor=3") as node:
        found = await node.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)
        assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_many_connections_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.metadata("t")
        port = node.node.listeners[0].port
        clients: Sequence[RawClient] = [await RawClient.connect("127.0.0.1", port) for _ in range(20)]
        others = [Running(node.node, client, node.unexpected) for client in clients]
        answers = await asyncio.gather(*(other.produce("t", b"x") for other in others))
        assert sorted(answer.base_offset for answer in answers) == list(range(20))
        for client in clients:
            client.close()


async def test_a_metadata_log_that_fails_stops_the_node_and_leaves_no_mark_of_a_clean_stop(tmp_path: Path) -> None:
    node, unexpected = make(tmp_path)
    fatal: list[str] = []
    node._on_fatal = fatal.append
    await node.start()
    client = await RawClient.connect("127.0.0.1", node.listeners[0].port)

    async def refuse() -> None:
        raise OSError(5, "Input/output error")

    node.quorum.raft._storage.sync = refuse  # type: ignore[method-assign]  # the disk has failed
    create = CreateTopicsRequest(
        topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=500
    )
    created = await client.call(create, 7)
    assert created.topics[0].error_code not in {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR}
    assert fatal == ["raft-1: [Errno 5] Input/output error"]
    client.close()
    await node.stop()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert unexpected == []
    async with running(tmp_path) as again:
        assert (await again.produce("t", b"a")).error_code == ErrorCode.NONE


async def test_metadata_of_a_later_version_stops_the_start_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def later(_: object) -> None:
        raise UnsupportedMetadata("metadata log: record type 99 at offset 7 is not supported by this version")

    node, _ = make(tmp_path)
    monkeypatch.setattr(node.metadata, "on_committed", later)
    assert (await reason(node)) == "raft-1: metadata log: record type 99 at offset 7 is not supported by this version"


async def test_a_log_that_the_metadata_does_not_know_is_left_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.produce("t", b"a")
        many = CreatableTopic(name="many", num_partitions=ROLE_CHANGES_PER_SLICE, replication_factor=1)
        made = await node.call(CreateTopicsRequest(topics=[many], timeout_ms=10_000), 7)
        assert made.topics[0].error_code == ErrorCode.NONE
        # It was answered when the metadata had it; the logs of so many partitions are made in slices behind that.
        async with asyncio.timeout(10):
            while len(node.node.broker.partitions.hosted("many")) < ROLE_CHANGES_PER_SLICE:
                await asyncio.sleep(0)
    (tmp_path / "stranger-0").mkdir()
    with capture_logs() as lines:
        async with running(tmp_path) as node:
            assert await node.values("t") == [b"a"]
    stray = [line["directory"] for line in lines if line["event"] == "a log belongs to no partition of this broker"]
    assert stray == [f"{tmp_path}/stranger-0"]
    assert (tmp_path / "stranger-0").exists()
