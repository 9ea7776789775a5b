"""Clusters with an authorizer: nodes have their permissions always, and clients only their own."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from odradek.protocol.codec import encode, request_header_version
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_partition import AlterPartitionRequest
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.envelope import EnvelopeRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.headers import RequestHeader
from odradek.protocol.messages.vote import VoteResponse
from tests.support.node_cluster import CLUSTER_ID, NodeCluster
from tests.support.raw_client import ConnectionLost
from tests.support.vote import vote_request
from tests.unit.broker.quorum.test_authentication import secret, separate, start

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
RULES = [
    (ResourceType.CLUSTER, "kafka-cluster", AclOperation.ALL, Permission.DENY),
    (ResourceType.TOPIC, "*", AclOperation.CREATE, Permission.DENY),
    (ResourceType.TOPIC, "*", AclOperation.WRITE, Permission.ALLOW),
]


async def deny_changes(nodes: NodeCluster) -> None:
    """Deny each principal to create topics, and all operations on the cluster. Wait until each node knows it."""
    acls = [
        Acl(resource, name, PatternType.LITERAL, "User:*", "*", operation, permission)
        for resource, name, operation, permission in RULES
    ]
    creations = [
        AclCreation(acl.resource, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission)
        for acl in acls
    ]
    response = await nodes.call(1, CreateAclsRequest(creations), 3)
    assert [result.error_code for result in response.results] == [ErrorCode.NONE] * len(acls)
    for node_id in nodes.ids:
        await nodes.until(node_id, lambda image: len(image.acls) == len(acls))


def create_topics(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=10_000)


async def coordinator_found(nodes: NodeCluster, node_id: int) -> Any:
    async with asyncio.timeout(30):
        while True:
            response = await nodes.call(node_id, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
            if response.coordinators[0].error_code == ErrorCode.NONE:
                return response
            assert response.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await asyncio.sleep(0.05)


async def test_nodes_with_a_secret_work_although_acls_deny_all_that_they_need(tmp_path: Path) -> None:
    nodes, inter_broker = separate(tmp_path, 3)
    nodes.settings |= {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    try:
        await start(nodes, inter_broker, {node_id: secret() for node_id in nodes.ids})
        await nodes.create("t", [1, 2, 3])
        await deny_changes(nodes)
        for node_id in nodes.ids:  # two of them forward the request with the principal of the client
            response = await nodes.call(node_id, create_topics(f"u-{node_id}"), 7)
            assert response.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        follower = next(node_id for node_id in nodes.ids if node_id != nodes.controller)
        await coordinator_found(nodes, follower)  # the broker itself creates __consumer_offsets
        assert await nodes.produce("t", b"v") is ErrorCode.NONE
    finally:
        await nodes.stop()


async def test_nodes_without_a_secret_work_if_anonymous_is_a_super_user(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 3)
    nodes.settings |= {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    try:
        await nodes.start()
        await nodes.create("t", [1, 2, 3])
        await deny_changes(nodes)
        assert await nodes.produce("t", b"v") is ErrorCode.NONE
        for node_id in nodes.ids:
            assert not (await nodes.call(node_id, create_topics(f"u-{node_id}"), 7)).topics[0].error_code
    finally:
        await nodes.stop()


async def test_acls_are_removed_by_each_node_of_a_cluster(tmp_path: Path) -> None:
    nodes, inter_broker = separate(tmp_path, 2)
    nodes.settings |= {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    try:
        await start(nodes, inter_broker, dict.fromkeys(nodes.ids))
        for node_id in nodes.ids:  # one of them forwards the request
            await deny_changes(nodes)
            response = await nodes.call(node_id, DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)]), 3)
            (result,) = response.filter_results
            assert (result.error_code, len(result.matching_acls)) == (ErrorCode.NONE, len(RULES))
            await nodes.until(node_id, lambda image: not image.acls)
    finally:
        await nodes.stop()


async def test_client_without_cluster_action_gets_no_permission_of_a_node(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 1)
    nodes.settings |= {
        "authorizer.class.name": AUTHORIZER,
        "allow.everyone.if.no.acl.found": "true",
        "odradek.inter.broker.authentication": "login",  # each listener serves nodes that have not logged in, too
    }
    try:
        await nodes.start_made({1: nodes.make(1, secret=secret())}, ())
        await deny_changes(nodes)
        data = encode(RequestHeader(19, 7, 0, "c"), request_header_version(19, 7)) + encode(create_topics("u"), 7)
        for principal in (b"", b"Node:cluster", b"User:admin"):
            response = await nodes.call(1, EnvelopeRequest(data, principal, b"\x7f\x00\x00\x01"), 0)
            assert (response.error_code, response.response_data) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        response = await nodes.call(1, AlterPartitionRequest(broker_id=1), 3)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        response = await nodes.call(1, FetchRequest(replica_id=1), 12)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        vote = await nodes.call(1, vote_request(CLUSTER_ID), 2)
        assert isinstance(vote, VoteResponse)
        assert vote.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert nodes.nodes[1].metadata.image.topic("u") is None
    finally:
        await nodes.stop()


async def test_lone_node_without_a_secret_works_and_serves_clients_as_clients_alone(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 1)
    nodes.settings |= {"authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}
    try:
        await nodes.start()
        response = await nodes.call(1, create_topics("t"), 7)
        assert response.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(ConnectionLost):
            await nodes.call(1, vote_request(CLUSTER_ID), 2)
    finally:
        await nodes.stop()
