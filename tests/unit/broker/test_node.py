"""A node over a real directory and real sockets: requests, restarts and errors at start."""

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from odradek.broker.node import CannotStartError, Node
from odradek.broker.partition.registry import ROLE_CHANGES_PER_SLICE
from odradek.cluster.controller.settings.features import BOOTSTRAP_LEVELS, SUPPORTED_FEATURES
from odradek.cluster.lifecycle.driver import BrokerLifecycle
from odradek.cluster.metadata.errors import UnsupportedMetadata
from odradek.cluster.metadata.image import VersionRange
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.unregister_controller import UnregisterControllerRequest
from odradek.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.storage.files import checkpoint, names
from tests.support.raw_client import RawClient
from tests.support.running_node import READ_COMMITTED, RunningNode, make_node, running


async def test_produce_and_fetch_on_an_auto_created_topic(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        versions = await node.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
        assert (versions.error_code, versions.api_keys[0].api_key) == (ErrorCode.NONE, 0)
        assert {feature.name: feature.max_version_level for feature in versions.finalized_features}[
            "transaction.version"
        ] == 2
        partition = await node.produce("t", b"a", b"b")
        assert (partition.error_code, partition.base_offset) == (ErrorCode.NONE, 0)
        partition = await node.produce("t", b"c", version=13)
        assert (partition.error_code, partition.base_offset) == (ErrorCode.NONE, 2)
        assert await node.values("t") == [b"a", b"b", b"c"]


async def test_tv1_transaction_commits_and_aborts(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.metadata("t")
        producer = await node.init("tx")
        assert (producer.error_code, producer.producer_epoch) == (ErrorCode.NONE, 0)
        identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        for sequence, (value, commit) in enumerate([(b"aborted", False), (b"committed", True)]):
            add = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="tx",
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            )
            async with asyncio.timeout(10):
                while True:
                    added = await node.call(add, 3)
                    error = added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
                    if error != ErrorCode.CONCURRENT_TRANSACTIONS:
                        break
            assert error == ErrorCode.NONE
            partition = await node.produce("t", value, transactional_id="tx", base_sequence=sequence, **identity)
            assert partition.error_code == ErrorCode.NONE
            assert value not in await node.values("t", READ_COMMITTED)
            assert value in await node.values("t")
            end = EndTxnRequest(transactional_id="tx", committed=commit, **identity)
            assert (await node.until_not_busy(end, 4)).error_code == ErrorCode.NONE
            await until_markers_are_written(node)
        assert await node.values("t", READ_COMMITTED) == [b"committed"]
        assert await node.values("t") == [b"aborted", b"committed"]


async def test_tv2_transaction_needs_no_add_partitions_and_bumps_the_epoch(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.metadata("t")
        producer = await node.init("tx", 5)
        epoch = producer.producer_epoch
        for value in (b"one", b"two"):
            identity = {"producer_id": producer.producer_id, "producer_epoch": epoch}
            partition = await node.produce("t", value, version=13, transactional_id="tx", base_sequence=0, **identity)
            assert partition.error_code == ErrorCode.NONE
            end = await node.call(EndTxnRequest(transactional_id="tx", committed=True, **identity), 5)
            assert (end.error_code, end.producer_epoch) == (ErrorCode.NONE, epoch + 1)
            epoch = end.producer_epoch
        await until_markers_are_written(node)
        assert await node.values("t", READ_COMMITTED) == [b"one", b"two"]


async def until_markers_are_written(node: RunningNode) -> None:
    """Wait until the markers of all ended transactions are written: the LSO is the high watermark."""
    async with asyncio.timeout(10):
        while (partition := await node.fetch("t", READ_COMMITTED)).last_stable_offset != partition.high_watermark:
            await asyncio.sleep(0.005)


async def test_records_and_producer_ids_survive_a_restart(tmp_path: Path) -> None:
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
        other_producer = await node.init("other")
        assert other_producer.producer_id > before.producer_id
        await node.produce("t", b"b")
        assert await node.values("t") == [b"a", b"b"]


async def finalized_metadata_version(node: RunningNode) -> int:
    versions = await node.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 5)
    levels: dict[str, int] = {feature.name: feature.max_version_level for feature in versions.finalized_features}
    return levels["metadata.version"]


async def test_directory_of_metadata_version_30_is_served_and_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Level 30 (4.3-IV0) is the only level of earlier versions."""
    with monkeypatch.context() as former_version:
        former_version.setitem(SUPPORTED_FEATURES, "metadata.version", VersionRange(30, 30))
        former_version.setitem(BOOTSTRAP_LEVELS, "metadata.version", 30)
        async with running(tmp_path) as node:
            assert (await node.produce("t", b"a")).error_code == ErrorCode.NONE
    async with running(tmp_path) as node:
        assert await finalized_metadata_version(node) == 30
        assert await node.values("t") == [b"a"]
        refused = await node.call(UnregisterControllerRequest(controller_id=9), 0)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        upgrade = FeatureUpdateKey(feature="metadata.version", max_version_level=33)
        upgraded = await node.call(UpdateFeaturesRequest(feature_updates=[upgrade]), 2)
        assert upgraded.error_code == ErrorCode.NONE
        refused = await node.call(UnregisterControllerRequest(controller_id=9), 0)
        assert refused.error_code == ErrorCode.CONTROLLER_ID_NOT_REGISTERED
    async with running(tmp_path) as node:
        assert await finalized_metadata_version(node) == 33
        assert await node.values("t") == [b"a"]


async def test_deleted_topic_is_removed_with_its_files(tmp_path: Path) -> None:
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


async def start_error(node: Node) -> str:
    with pytest.raises(CannotStartError) as caught:
        await node.start()
    await node.stop()
    return str(caught.value)


async def test_data_directory_in_use_stops_the_start(tmp_path: Path) -> None:
    async with running(tmp_path):
        second_node, _ = make_node(tmp_path)
        assert await start_error(second_node) == f"{tmp_path}: the directory is in use by another process"


async def test_port_in_use_stops_the_start(tmp_path: Path) -> None:
    async with running(tmp_path / "a") as node:
        port = node.node.listeners[0].port
        second_node, _ = make_node(tmp_path / "b", f"listeners=PLAINTEXT://127.0.0.1:{port}")
        assert (await start_error(second_node)).startswith(f"cannot listen on 127.0.0.1:{port} (PLAINTEXT): ")


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (("meta.properties", b"node.id=two\n"), "meta.properties"),
        (("meta.properties", b"\xff\xfe\x00"), "meta.properties"),
        (("__cluster_metadata-0/quorum-state", b"{"), "quorum-state"),
    ],
)
async def test_corrupt_file_stops_the_start_and_is_named(
    tmp_path: Path, damage: tuple[str, bytes], complaint: str
) -> None:
    async with running(tmp_path):
        pass
    name, content = damage
    (tmp_path / name).write_bytes(content)
    node, _ = make_node(tmp_path)
    message = await start_error(node)
    assert complaint in message
    assert "\n" not in message


async def test_data_directory_of_another_node_stops_the_start(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    node, _ = make_node(tmp_path, "node.id=2")
    assert (await start_error(node)).endswith("meta.properties: belongs to node 1, this is node 2")


async def test_configured_replication_factor_of_the_transaction_log_is_required(tmp_path: Path) -> None:
    async with running(tmp_path, "transaction.state.log.replication.factor=3") as node:
        response = await node.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)
        assert response.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_concurrent_connections_get_distinct_offsets(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.metadata("t")
        port = node.node.listeners[0].port
        clients = [await RawClient.connect("127.0.0.1", port) for _ in range(20)]
        connections = [RunningNode(node.node, client, node.unexpected) for client in clients]
        partitions = await asyncio.gather(*(connection.produce("t", b"x") for connection in connections))
        assert sorted(partition.base_offset for partition in partitions) == list(range(20))
        for client in clients:
            client.close()


async def test_failed_metadata_log_stops_the_node_without_a_clean_shutdown_file(tmp_path: Path) -> None:
    node, unexpected = make_node(tmp_path)
    fatal: list[str] = []
    node._on_fatal = fatal.append
    await node.start()
    client = await RawClient.connect("127.0.0.1", node.listeners[0].port)

    async def fail() -> None:
        raise OSError(5, "Input/output error")

    node.quorum.raft._storage.sync = fail  # type: ignore[method-assign]  # inject a failed disk
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
    async with running(tmp_path) as restarted:
        assert (await restarted.produce("t", b"a")).error_code == ErrorCode.NONE


async def test_stop_before_the_log_starts_are_checked_does_not_vouch_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure, the broker is registered and stopped. Its next start must still check its logs."""
    async with running(tmp_path) as first:
        assert (await first.produce("t", b"a")).error_code == ErrorCode.NONE
    for name in (checkpoint.CLEAN_SHUTDOWN, names.BOOT_MARKER):
        (tmp_path / name).unlink()
    registered = asyncio.Event()
    wait_unfenced = BrokerLifecycle.wait_unfenced

    async def wait_longer(lifecycle: BrokerLifecycle) -> None:
        await wait_unfenced(lifecycle)
        registered.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(BrokerLifecycle, "wait_unfenced", wait_longer)
    node, unexpected = make_node(tmp_path)
    starting = asyncio.create_task(node.start())
    async with asyncio.timeout(30):
        await registered.wait()
    starting.cancel()
    with suppress(asyncio.CancelledError):
        await starting
    await node.stop()
    assert unexpected == []
    assert checkpoint.decode_clean_shutdown((tmp_path / checkpoint.CLEAN_SHUTDOWN).read_bytes()) == -1


async def test_unsupported_metadata_record_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_record(_: object) -> None:
        raise UnsupportedMetadata("metadata log: record type 99 at offset 7 is not supported by this version")

    node, _ = make_node(tmp_path)
    monkeypatch.setattr(node.metadata, "on_committed", refuse_record)
    assert (
        await start_error(node)
    ) == "raft-1: metadata log: record type 99 at offset 7 is not supported by this version"


async def test_log_without_a_partition_in_the_metadata_is_kept_and_logged(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.produce("t", b"a")
        many_partitions = CreatableTopic(name="many", num_partitions=ROLE_CHANGES_PER_SLICE, replication_factor=1)
        created = await node.call(CreateTopicsRequest(topics=[many_partitions], timeout_ms=10_000), 7)
        assert created.topics[0].error_code == ErrorCode.NONE
        # The response follows the metadata record. The broker creates the logs in slices afterwards.
        async with asyncio.timeout(10):
            while len(node.node.broker.partitions.hosted("many")) < ROLE_CHANGES_PER_SLICE:
                await asyncio.sleep(0)
    (tmp_path / "unknown-0").mkdir()
    with capture_logs() as log_entries:
        async with running(tmp_path) as node:
            assert await node.values("t") == [b"a"]
    directories = [line["directory"] for line in log_entries if line["event"] == "log of an unassigned partition kept"]
    assert directories == [f"{tmp_path}/unknown-0"]
    assert (tmp_path / "unknown-0").exists()


async def test_large_metadata_request_creates_no_more_topics_than_a_small_one(tmp_path: Path) -> None:
    async with running(tmp_path, "num.partitions=1") as node:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(5_000)])
        response = await node.call(request, 12)
        counts = Counter(ErrorCode(row.error_code) for row in response.topics)
        assert counts == {ErrorCode.NONE: 100, ErrorCode.LEADER_NOT_AVAILABLE: 4_900}


async def test_metadata_of_many_unknown_topics_creates_a_part_and_the_retry_creates_the_rest(tmp_path: Path) -> None:
    async with running(tmp_path, "num.partitions=1") as node:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(150)])
        counts = []
        for _ in range(2):
            response = await node.call(request, 12)
            counts.append(Counter(ErrorCode(row.error_code) for row in response.topics))
        assert counts == [{ErrorCode.NONE: 100, ErrorCode.LEADER_NOT_AVAILABLE: 50}, {ErrorCode.NONE: 150}]
