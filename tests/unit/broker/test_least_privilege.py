"""Each API, requested by a client without any permission: refused, and without a difference that shows what exists."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import structlog

from odradek.broker.dispatch.table import API_TABLE
from odradek.broker.requests.api import AnyApi
from odradek.broker.requests.listener import CLIENT
from odradek.cluster.authorizer import ANONYMOUS, CLUSTER_RESOURCE
from odradek.cluster.controller.messages.settings import NewAcl
from odradek.cluster.controller.messages.topics import NewTopic
from odradek.protocol.acls import AclOperation, PatternType, Permission
from odradek.protocol.acls import ResourceType as R
from odradek.protocol.batch import build_batch
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.schema import FieldRow, Struct, field_rows
from tests.support.running_node import RunningNode, running

EXISTING, MISSING = "existing-topic", "missing-topics"
"""Names of the same length: of a topic that exists, and of one that does not."""
UNKNOWN_ID = UUID(int=0x5DA1E4B6A0354F20A8D6E2C3F7B19C04)
IDS_SHOWN = {"Fetch", "Metadata", "DeleteTopics"}
"""APIs whose responses show that a topic id exists, as those of Kafka. Produce does so, too, without a transaction."""
DENIED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
TOKENS = {"CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"}
"""APIs that refuse each client on a listener without authentication."""
PUBLIC = {"ApiVersions", "DescribeCluster"}
"""APIs that serve each client. They name brokers, versions and features."""
EMPTY = {"ListGroups", "ListTransactions"}
"""APIs that list what the client may see: nothing."""
LATEST_BY_NAME = {"Fetch": 12, "Produce": 12, "OffsetCommit": 9, "OffsetFetch": 9, "TxnOffsetCommit": 5}
"""Last versions that name topics. Later ones have topic ids."""
LOGIN = {"SaslHandshake", "SaslAuthenticate"}
VALUES: dict[str, Any] = {
    "resource_type": 2,
    "resource_type_filter": 2,
    "pattern_type_filter": 3,
    "resource_pattern_type": 3,
    "operation": 3,
    "permission_type": 3,
    "replica_id": -1,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 2,
    "timeout_ms": 1_000,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "acks": -1,
    "member_epoch": 0,
    "coordinator_key_type": 1,
    "session_epoch": -1,
    "upgrade_type": 1,
    "transactional_id_pattern": None,
    "duration_filter": -1,
    "response_partition_limit": 10,
    "cursor": None,
    "subscribed_topic_regex": None,
    "target_replica_id": 0,
}
"""Values of fields for which a default is not valid, by field name."""
TEXTS = {"protocol_type": "consumer", "entity_type": "user", "reason": "", "assignor": "range"}


def served() -> list[AnyApi]:
    return [api for api in API_TABLE if CLIENT in api.listeners and api.name not in LOGIN]


def filled(cls: type[Struct], version: int, name: str, *, transactional: bool, topic_id: UUID | None = None) -> Any:
    """Return a message with `name` as each text, one element in each array, and VALUES.

    With `topic_id`, it names topics by their id where it can.
    """
    message = cls()
    rows = [row for row in field_rows(cls) if row.in_version(version) and not row.tagged_in(version)]
    for row in rows:
        setattr(message, row.name, _value(row, version, name, transactional, topic_id))
    if topic_id is not None and any(row.name == "topic_id" for row in rows):
        for row in rows:
            if row.name == "name" and row.nullable[0] <= version <= row.nullable[1]:
                setattr(message, row.name, None)
    return message


def _value(row: FieldRow, version: int, name: str, transactional: bool, topic_id: UUID | None) -> Any:
    if row.name in VALUES:
        value: Any = VALUES[row.name]
    elif row.name == "transactional_id" and not transactional and row.nullable[0] <= version <= row.nullable[1]:
        value = None
    elif row.struct is not None:
        value = filled(row.struct, version, name, transactional=transactional, topic_id=topic_id)
    elif row.kind == "string":
        value = TEXTS.get(row.name, name)
    elif row.kind == "records":
        value = build_batch([(b"k", b"v", 1, ())], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    else:
        value = {"bytes": b"", "uuid": topic_id or UUID(int=0), "bool": False}.get(row.kind, 0)
    return [value] if row.is_array else value


def kinds_of(cls: type[Struct], version: int) -> set[str]:
    """Return the kinds of all fields of a message, also those of its structs."""
    rows = [row for row in field_rows(cls) if row.in_version(version) and not row.tagged_in(version)]
    nested = [kinds_of(row.struct, version) for row in rows if row.struct is not None]
    return {row.kind for row in rows if row.struct is None}.union(*nested)


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a response that are not arrays or structs."""
    if isinstance(value, Struct):
        for row in field_rows(type(value)):
            yield from leaves(getattr(value, row.name), row.name)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, name)
    else:
        yield name, value


async def responses(node: RunningNode, api: AnyApi, name: str) -> list[list[tuple[str, Any]]]:
    """Return the fields of the responses to a request that names `name`, with and without a transactional id."""
    version = min(api.max_version, LATEST_BY_NAME.get(api.name, api.max_version))
    if api.name == "AddPartitionsToTxn":
        version = 3  # later versions are for brokers
    found = []
    for transactional in (True, False):
        request = filled(api.request, version, name, transactional=transactional)
        found.append(list(leaves(await node.call(request, version))))
    return found


async def response_by_id(node: RunningNode, api: AnyApi, topic_id: UUID) -> bytes:
    """Return the response to a request that names a topic by its id, and other things that do not exist."""
    request = filled(api.request, api.max_version, MISSING, transactional=False, topic_id=topic_id)
    response = await node.call(request, api.max_version)
    return encode(response, api.max_version).replace(topic_id.bytes, UNKNOWN_ID.bytes)


async def make_resources(node: RunningNode) -> UUID:
    """Create a topic, a group, a transactional id, a quota and a user with one name. Return the id of the topic."""
    controller, metadata = node.node.quorum.controller, node.node.metadata
    kinds = {R.TOPIC: "*", R.GROUP: "*", R.TRANSACTIONAL_ID: "*", R.CLUSTER: CLUSTER_RESOURCE}
    all_rights = [
        NewAcl(kind, name, PatternType.LITERAL, str(ANONYMOUS), "*", AclOperation.ALL, Permission.ALLOW)
        for kind, name in kinds.items()
    ]
    await controller.create_acls(all_rights)
    await metadata.wait_until(lambda image: len(image.acls) == len(all_rights))
    (created,) = await controller.create_topics([NewTopic(EXISTING, 1, 1)])
    assert not created.error
    await node.init(EXISTING)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    commit = OffsetCommitRequest(
        group_id=EXISTING,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=EXISTING, partitions=[partition])],
    )
    async with asyncio.timeout(10):
        error: int = ErrorCode.COORDINATOR_NOT_AVAILABLE
        while error:
            await node.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[EXISTING]), 4)
            error = (await node.call(commit, 9)).topics[0].partitions[0].error_code
    upsertion = ScramCredentialUpsertion(EXISTING, 1, 4096, b"salt", bytes(32))
    await node.call(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
    quota = RequestEntryData([RequestEntityData("user", EXISTING)], [OpData("producer_byte_rate", 1e9, False)])
    await node.call(AlterClientQuotasRequest(entries=[quota]), 1)
    image = metadata.image
    assert image.scram
    assert image.client_quotas
    await controller.remove_acls(list(image.acls))
    await metadata.wait_until(lambda image: not image.acls)
    return created.topic_id


@pytest.fixture
def settings(tmp_path: Path) -> tuple[Path, str, str]:
    authorizer = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    return tmp_path, authorizer, "super.users=User:admin"


async def test_client_without_permissions_is_refused_by_each_api_and_learns_no_names(
    settings: tuple[Path, str, str],
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with running(*settings) as node:
            topic_id = await make_resources(node)
            for api in served():
                if api.name in PUBLIC:
                    continue
                of_existing = await responses(node, api, EXISTING)
                of_missing = await responses(node, api, MISSING)
                for existing, missing in zip(of_existing, of_missing, strict=True):
                    errors = {value for field, value in existing if field.endswith("error_code") and value}
                    if api.name in EMPTY:
                        assert not errors, api.name
                    elif api.name in TOKENS:
                        assert errors == {ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED}, (api.name, existing)
                    else:
                        assert errors & DENIED, (api.name, existing)
                        assert errors <= DENIED, (api.name, existing)
                    shown = [(field, MISSING if value == EXISTING else value) for field, value in existing]
                    assert shown == missing, api.name
                    assert topic_id not in [value for _, value in existing], api.name
                if "uuid" in kinds_of(api.request, api.max_version):
                    known, unknown = [await response_by_id(node, api, each) for each in (topic_id, UNKNOWN_ID)]
                    assert EXISTING.encode() not in known, api.name
                    assert (known == unknown) is (api.name not in IDS_SHOWN), (api.name, known, unknown)
            assert [entry["names"] for entry in logs if "" in entry.get("names", ())] == []
            all_topics = await node.call(MetadataRequest(topics=None), 12)
            assert all_topics.topics == []
