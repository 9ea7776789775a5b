"""DescribeAcls, CreateAcls and DeleteAcls: on a broker without an authorizer, and on a node with one."""

from pathlib import Path
from typing import Any

import pytest

from odradek.broker.apis import create_acls, delete_acls, describe_acls
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.acls import PatternType, Permission, ResourceType
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.extensions import EXPLAINED_TAG
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.protocol.messages.describe_acls import DescribeAclsRequest
from tests.support import broker_context
from tests.support.broker_context import Deny, image
from tests.support.running_node import RunningNode, running

E = ErrorCode
Op, P, R = AclOperation, Permission, ResourceType
CASES = [
    (describe_acls, DescribeAclsRequest(), AclOperation.DESCRIBE),
    (create_acls, CreateAclsRequest([AclCreation(), AclCreation()]), AclOperation.ALTER),
    (delete_acls, DeleteAclsRequest([DeleteAclsFilter(), DeleteAclsFilter()]), AclOperation.ALTER),
]
AUTHORIZER = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found=true",
)


@pytest.mark.parametrize(("api", "request_", "operation"), CASES)
async def test_acl_requests_are_refused_as_disabled_or_unauthorized(
    api: Any, request_: Any, operation: AclOperation
) -> None:
    authorizer = Deny((operation, "kafka-cluster"))
    for context, error in (
        (broker_context.context(3, image()), E.SECURITY_DISABLED),
        (broker_context.context(3, image(), authorizer=authorizer), E.CLUSTER_AUTHORIZATION_FAILED),
    ):
        with pytest.raises(Refusal) as refused:
            await broker_context.response_of(api.handle(context, request_))
        assert refused.value.error is error


def test_each_creation_and_filter_has_its_own_result() -> None:
    context = broker_context.context(3, image())
    described, created, deleted = (
        api.refuse(context, request, E.SECURITY_DISABLED, "none") for api, request, _ in CASES
    )
    assert (described.error_code, described.error_message, described.resources) == (E.SECURITY_DISABLED, "none", [])
    for results in (created.results, deleted.filter_results):
        assert [(result.error_code, result.error_message) for result in results] == [(E.SECURITY_DISABLED, "none")] * 2


def creation(name: str, operation: AclOperation, permission: Permission, **fields: Any) -> AclCreation:
    given = {"principal": "User:*", "host": "*", "resource_pattern_type": PatternType.LITERAL, **fields}
    return AclCreation(R.TOPIC, name, operation=operation, permission_type=permission, **given)


def any_filter(**fields: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": R.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": Op.ANY,
        "permission_type": P.ANY,
        **fields,
    }


async def create(running_node: RunningNode, *creations: AclCreation) -> list[int]:
    response = await running_node.call(CreateAclsRequest(list(creations)), 3)
    return [result.error_code for result in response.results]


async def described(running_node: RunningNode, **fields: Any) -> dict[tuple[str, int], list[tuple[int, int]]]:
    response = await running_node.call(DescribeAclsRequest(**any_filter(**fields)), 3)
    assert response.error_code == E.NONE
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for resource in response.resources:
        acls = [(acl.operation, acl.permission_type) for acl in resource.acls]
        found.setdefault((resource.resource_name, resource.pattern_type), []).extend(acls)
    return found


async def test_acl_denies_a_produce_until_it_is_deleted(tmp_path: Path) -> None:
    async with running(tmp_path, *AUTHORIZER) as running_node:
        topics = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
        await running_node.call(topics, 7)
        assert (await running_node.produce("t", b"v")).error_code == E.NONE
        assert await create(running_node, creation("t", Op.WRITE, P.DENY)) == [E.NONE]
        assert (await running_node.produce("t", b"v")).error_code == E.TOPIC_AUTHORIZATION_FAILED
        response = await running_node.call(DeleteAclsRequest([DeleteAclsFilter(**any_filter(operation=Op.WRITE))]), 3)
        assert [len(result.matching_acls) for result in response.filter_results] == [1]
        assert (await running_node.produce("t", b"v")).error_code == E.NONE


async def test_acls_are_described_and_deleted_by_filters(tmp_path: Path) -> None:
    async with running(tmp_path, *AUTHORIZER) as running_node:
        creations = [
            creation("a", Op.READ, P.ALLOW),
            creation("a", Op.WRITE, P.DENY),
            creation("a", Op.READ, P.ALLOW, resource_pattern_type=PatternType.PREFIXED),
            creation("abc", Op.READ, P.ALLOW),
            creation("*", Op.READ, P.ALLOW),
            creation("a", 99, P.ALLOW),  # type: ignore[arg-type]
        ]
        assert await create(running_node, *creations) == [E.NONE] * 5 + [E.INVALID_REQUEST]
        read, write = (Op.READ, P.ALLOW), (Op.WRITE, P.DENY)
        assert await described(running_node, resource_name_filter="a") == {("a", 3): [read, write], ("a", 4): [read]}
        match = {"resource_name_filter": "abc", "pattern_type_filter": PatternType.MATCH}
        assert await described(running_node, **match) == {("a", 4): [read], ("abc", 3): [read], ("*", 3): [read]}
        exact = any_filter(
            resource_type_filter=R.TOPIC,
            resource_name_filter="a",
            pattern_type_filter=PatternType.LITERAL,
            principal_filter="User:*",
            host_filter="*",
            operation=Op.WRITE,
            permission_type=P.DENY,
        )
        filters = [exact, any_filter(**match), any_filter(operation=Op.WRITE), any_filter(permission_type=77)]
        response = await running_node.call(DeleteAclsRequest([DeleteAclsFilter(**each) for each in filters]), 3)
        assert [
            (result.error_code, result.error_message, len(result.matching_acls)) for result in response.filter_results
        ] == [
            (E.NONE, None, 1),
            (E.NONE, None, 3),
            (E.NONE, None, 1),
            (E.INVALID_REQUEST, "Unknown entryFilter.", 0),
        ]
        assert await described(running_node) == {("a", 3): [read]}


async def test_decision_is_explained_by_its_rule(tmp_path: Path) -> None:
    async with running(tmp_path, *AUTHORIZER, "super.users=User:admin") as running_node:
        await create(running_node, creation("a", Op.WRITE, P.DENY, resource_pattern_type=PatternType.PREFIXED))
        explained = {}
        for principal, name, operation in (
            ("User:alice", "ab", Op.WRITE),
            ("User:alice", "ab", Op.READ),
            ("User:alice", "b", Op.READ),
            ("User:admin", "ab", Op.WRITE),
        ):
            request = DescribeAclsRequest(R.TOPIC, name, PatternType.LITERAL, principal, "", operation, P.ANY)
            request.unknown_tagged_fields = ((EXPLAINED_TAG, b""),)
            response = await running_node.call(request, 3)
            content = dict(response.unknown_tagged_fields)[EXPLAINED_TAG]
            explained[principal, name, operation] = (content[0], content[1:].decode(), len(response.resources))
        assert list(explained.values()) == [
            (0, "ACL DENY WRITE on TOPIC PREFIXED a to User:* from *", 1),
            (0, "no ACL allows it", 0),
            (1, "allow.everyone.if.no.acl.found", 0),
            (1, "super user", 0),
        ]
        request = DescribeAclsRequest(**any_filter(), unknown_tagged_fields=((EXPLAINED_TAG, b""),))
        assert (await running_node.call(request, 3)).error_code == E.INVALID_REQUEST


async def test_thousands_of_acls_are_created_described_and_deleted_in_slices(tmp_path: Path) -> None:
    async with running(tmp_path, *AUTHORIZER) as running_node:
        creations = [
            creation(f"t-{number % 3}", Op.READ, P.ALLOW, host=f"10.0.{number // 256}.{number % 256}")
            for number in range(2_500)
        ]
        assert set(await create(running_node, *creations)) == {E.NONE}
        found = await described(running_node)
        assert {name: len(acls) for (name, _), acls in found.items()} == {"t-0": 834, "t-1": 833, "t-2": 833}
        response = await running_node.call(DeleteAclsRequest([DeleteAclsFilter(**any_filter())]), 3)
        assert len(response.filter_results[0].matching_acls) == 2_500
        assert await described(running_node) == {}
