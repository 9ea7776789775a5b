"""A controller alone and a broker alone: what each of them serves, and how the broker finds the voters."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from odradek.broker.dispatch.table import API_NAMES
from odradek.broker.process.clock import SystemClock
from odradek.broker.quorum.discovery import find_quorum
from odradek.cluster.controller.messages.settings import ConfigOperation
from odradek.cluster.metadata.image import RESOURCE_BROKER
from odradek.protocol.acls import AclOperation, PatternType, Permission, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.describe_acls import DescribeAclsRequest
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest
from odradek.protocol.messages.unregister_controller import UnregisterControllerRequest
from odradek.protocol.messages.update_features import UpdateFeaturesRequest
from odradek.runtime.tasks import Tasks
from tests.support.node_cluster import CLUSTER_ID, NodeCluster
from tests.support.running_node import running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

BROKERS, CONTROLLERS = 1, 2
CLUSTER_OPERATIONS = 0b1111110100000
"""All operations on the cluster (KIP-430): bit 5, and bits 7 to 12."""
SERVED_BY_CONTROLLERS = {
    "ApiVersions", "DescribeCluster", "DescribeQuorum", "Fetch", "FetchSnapshot", "Vote", "BeginQuorumEpoch",
    "EndQuorumEpoch", "AlterPartition", "Envelope", "BrokerRegistration", "BrokerHeartbeat", "AllocateProducerIds",
    "ControllerRegistration", "CreateAcls", "DeleteAcls", "DescribeAcls", "DescribeConfigs", "IncrementalAlterConfigs",
    "UnregisterBroker", "UnregisterController", "UpdateFeatures",
}  # fmt: skip


@asynccontextmanager
async def controller_and_broker(directory: Path) -> AsyncIterator[NodeCluster]:
    cluster = NodeCluster(directory, 2, voters=1)
    try:
        cluster.settings["controller.listener.names"] = "CONTROLLER"
        listeners = f"CONTROLLER://127.0.0.1:{cluster.port(1)}"
        cluster.make(1, process_roles="controller", listeners=listeners, odradek_metrics_listener="127.0.0.1:0")
        cluster.make(2, process_roles="broker", inter_broker_listener_name="PLAINTEXT")
        await cluster.start_made(dict(cluster.nodes), [])
        yield cluster
    finally:
        await cluster.stop()


async def test_controller_serves_nodes_and_tools_of_controllers_and_is_not_offered_to_clients(tmp_path: Path) -> None:
    async with controller_and_broker(tmp_path) as cluster:
        versions = await cluster.call(1, ApiVersionsRequest("test", "1"), 3)
        apis = {API_NAMES[each.api_key] for each in versions.api_keys}
        assert apis == SERVED_BY_CONTROLLERS
        assert "metadata.version" in {each.name for each in versions.supported_features}
        with pytest.raises(ConnectionError):
            await cluster.call(1, MetadataRequest(topics=[]), 12)
        metadata = await cluster.call(2, MetadataRequest(topics=[]), 12)
        assert [(each.node_id, each.port) for each in metadata.brokers] == [(2, cluster.port(2))]
        brokers = await cluster.call(2, DescribeClusterRequest(endpoint_type=BROKERS), 1)
        assert [each.broker_id for each in brokers.brokers] == [2]
        described = DescribeClusterRequest(endpoint_type=CONTROLLERS, include_cluster_authorized_operations=True)
        controllers = await cluster.call(1, described, 1)
        assert [(each.broker_id, each.port) for each in controllers.brokers] == [(1, cluster.port(1))]
        assert (controllers.controller_id, controllers.cluster_id) == (1, CLUSTER_ID)
        assert controllers.cluster_authorized_operations == CLUSTER_OPERATIONS
        for node_id, kind in ((1, BROKERS), (2, CONTROLLERS)):
            refused = await cluster.call(node_id, DescribeClusterRequest(endpoint_type=kind), 1)
            assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        refused = await cluster.call(1, DescribeClusterRequest(), 0)
        assert refused.error_code == ErrorCode.INVALID_REQUEST  # v0 has no endpoint type
        await broker_finds_voters_and_cluster_id(cluster)
        metrics = await asyncio.to_thread(scrape, cluster.nodes[1].metrics_port)
        assert {
            "kafka_controller_kafkacontroller_activecontrollercount 1.0",
            "kafka_controller_kafkacontroller_activebrokercount 1.0",
        } <= {*metrics}


async def test_controller_serves_the_requests_of_tools(tmp_path: Path) -> None:
    async with controller_and_broker(tmp_path) as cluster:
        change = AlterableConfig("log.retention.ms", ConfigOperation.SET, "1000")
        alteration = IncrementalAlterConfigsRequest([AlterConfigsResource(RESOURCE_BROKER, "1", [change])])
        altered = await cluster.call(1, alteration, 1)
        assert [each.error_code for each in altered.responses] == [ErrorCode.NONE]
        request = DescribeConfigsRequest([DescribeConfigsResource(RESOURCE_BROKER, "1", None)])
        described = await cluster.call(1, request, 4)
        assert ("node.id", "1") in {(each.name, each.value) for each in described.results[0].configs}
        topic = (ResourceType.TOPIC, "t", PatternType.LITERAL)
        acl = AclCreation(*topic, "User:a", "*", AclOperation.READ, Permission.ALLOW)
        for sent, version in (
            (CreateAclsRequest([acl]), 3),
            (DescribeAclsRequest(), 3),
            (DeleteAclsRequest([DeleteAclsFilter()]), 3),
        ):
            response = await cluster.call(1, sent, version)
            [result] = getattr(response, "results", None) or getattr(response, "filter_results", None) or [response]
            assert result.error_code == ErrorCode.SECURITY_DISABLED
        assert (await cluster.call(1, UpdateFeaturesRequest(), 2)).error_code == ErrorCode.NONE
        unregistered = await cluster.call(1, UnregisterBrokerRequest(99), 0)
        assert unregistered.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        unregistered = await cluster.call(1, UnregisterControllerRequest(1), 0)
        assert unregistered.error_code == ErrorCode.INVALID_REQUEST


def scrape(port: int) -> list[str]:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        text: str = response.read().decode()
    return text.splitlines()


async def broker_finds_voters_and_cluster_id(cluster: NodeCluster) -> None:
    tasks = Tasks(lambda *_: None)
    servers = [("127.0.0.1", 1), ("127.0.0.1", cluster.port(1))]  # no process listens at the first one
    try:
        quorum = await find_quorum(2, servers, SystemClock(), tasks)
        assert (quorum.cluster_id, quorum.voters) == (CLUSTER_ID, (f"1@127.0.0.1:{cluster.port(1)}",))
    finally:
        await tasks.cancel_all()


async def test_node_with_the_id_0_allocates_producer_ids(tmp_path: Path) -> None:
    async with running(tmp_path, "node.id=0") as node:
        brokers = (await node.call(MetadataRequest(topics=[]), 12)).brokers
        assert [broker.node_id for broker in brokers] == [0]
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        assert (await node.until_not_busy(request, 4)).error_code == ErrorCode.NONE
