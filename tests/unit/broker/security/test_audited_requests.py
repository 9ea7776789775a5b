"""Audit log: requests in the name of a node, and changes that need another operation than those of CHANGES."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.apis import (
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    envelope,
    fetch,
    metadata,
    write_txn_markers,
)
from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.context import Access, RequestContext
from odradek.broker.requests.listener import BROKER, CLIENT, SERVES_NO_BROKERS
from odradek.broker.requests.node_principals import SessionNode
from odradek.broker.security.authorizer import AllowAll
from odradek.cluster.authorizer import AclOperation, Principal, ResourceType
from odradek.coordinator.txn.ports import TopicPartition
from odradek.protocol.codec import encode, request_header_version
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.extensions import EXPIRE_TAG, EXPIRED_ID, EXPIRED_PRODUCER
from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek.protocol.messages.create_topics import CreateTopicsRequest
from odradek.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.envelope import EnvelopeRequest
from odradek.protocol.messages.fetch import FetchRequest, FetchTopic
from odradek.protocol.messages.headers import RequestHeader
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.broker_context import LISTENER, Deny, context, image, response_of, services_of

ALICE = Principal("User", "alice")
CLUSTER = "kafka-cluster"
NO_CLUSTER_ACTION = Deny((AclOperation.CLUSTER_ACTION, CLUSTER))


class Recorder:
    """Audit log that records its events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, AclOperation, list[str], str]] = []

    def denied(self, context: RequestContext, access: Access) -> None:
        self._record("denied", access)

    def changed(self, context: RequestContext, access: Access) -> None:
        self._record("changed", access)

    def _record(self, event: str, access: Access) -> None:
        assert (access.resource, list(access.names)) == (ResourceType.CLUSTER, [CLUSTER])
        self.events.append((event, access.operation, list(access.about), access.rule))


def audited(
    version: int, roles: tuple[str, ...] = (CLIENT,), authorizer: AllowAll | None = None
) -> tuple[BrokerRequestContext, Recorder]:
    """Return the context of a request on a listener with these roles, and the events of its audit."""
    made, recorder = context(version, image(), authorizer=authorizer), Recorder()
    made.session.listener, made.session.principal = replace(LISTENER, roles=roles), ALICE
    made.audit = recorder
    return made, recorder


def denied_node(about: str, rule: str) -> tuple[str, AclOperation, list[str], str]:
    return "denied", AclOperation.CLUSTER_ACTION, [about], rule


def changed(operation: AclOperation, *about: str) -> tuple[str, AclOperation, list[str], str]:
    return "changed", operation, list(about), ""


def envelope_of_a_node() -> EnvelopeRequest:
    header, version = RequestHeader(CreateTopicsRequest.API_KEY, 7, 0, "c"), request_header_version(19, 7)
    return EnvelopeRequest(encode(header, version) + encode(CreateTopicsRequest(), 7), b"Node:cluster", b"")


@pytest.mark.parametrize(
    ("handle", "version", "request_", "about", "rule"),
    [
        (fetch.handle, 12, FetchRequest(replica_id=2, topics=[FetchTopic("t")]), "node 2", SERVES_NO_BROKERS),
        (
            add_partitions_to_txn.handle,
            4,
            AddPartitionsToTxnRequest(),
            "transactions of brokers",
            SERVES_NO_BROKERS,
        ),
        (
            envelope.handle,
            0,
            envelope_of_a_node(),
            "Node:cluster",
            "the sender of the envelope has another principal",
        ),
    ],
)
def test_request_in_the_name_of_a_node_is_denied_with_an_event(
    handle: Callable[[Any, Any], Any], version: int, request_: Any, about: str, rule: str
) -> None:
    made, recorder = audited(version)
    services_of(made).controller = SimpleNamespace(is_active=True)
    with pytest.raises(Refusal) as refused:
        handle(made, request_)
    assert refused.value.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert recorder.events == [denied_node(about, rule)]


def test_node_that_names_another_node_is_denied_with_an_event() -> None:
    made, recorder = audited(0, (BROKER,))
    made.session.node = SessionNode.of(frozenset((1,)))
    made.require_node(1)
    with pytest.raises(Refusal):
        made.require_node(2)
    assert recorder.events == [denied_node("node 2", "the connection belongs to node 1")]


def markers(*, commit: bool) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest([WritableTxnMarker(7, 0, commit, [WritableTxnMarkerTopic("t", [0])])])


async def write(made: BrokerRequestContext, request: WriteTxnMarkersRequest) -> None:
    async def outcome(markers: Any) -> Any:
        return [dict.fromkeys(marker.partitions, ErrorCode.NONE) for marker in markers]

    services_of(made).hanging = SimpleNamespace(abort=outcome)
    services_of(made).markers = SimpleNamespace(write=lambda _: done([{TopicPartition("t", 0): ErrorCode.NONE}]))
    await response_of(write_txn_markers.handle(made, request))


def done(result: Any) -> Any:
    return SimpleNamespace(done=lambda: True, result=lambda: result)


@pytest.mark.parametrize(
    ("authorizer", "operation"),
    [(None, AclOperation.CLUSTER_ACTION), (NO_CLUSTER_ACTION, AclOperation.ALTER)],
)
async def test_marker_of_an_operator_has_an_event_with_the_operation_that_permits_it(
    authorizer: AllowAll | None, operation: AclOperation
) -> None:
    made, recorder = audited(1, authorizer=authorizer)
    await write(made, markers(commit=False))
    await write(made, markers(commit=True))
    assert recorder.events == [
        changed(operation, "ABORT of producer 7"),
        changed(operation, "COMMIT of producer 7"),
        denied_node("COMMIT of a transaction", SERVES_NO_BROKERS),
    ]


async def test_marker_of_a_coordinator_has_no_event() -> None:
    made, recorder = audited(1, (CLIENT, BROKER))
    await write(made, markers(commit=True))
    assert recorder.events == []


def expired_producers() -> DescribeProducersRequest:
    return DescribeProducersRequest([TopicRequest("t", [0], ((EXPIRE_TAG, EXPIRED_PRODUCER.pack(5, 0, 0)),))])


def expired_ids() -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(["a"], ((EXPIRE_TAG, EXPIRED_ID.pack(5, 0)),))


@pytest.mark.parametrize(
    ("handle", "request_", "about"),
    [
        (describe_producers.handle, expired_producers(), "producers of topic t"),
        (describe_transactions.handle, expired_ids(), "transactional id a"),
    ],
)
def test_removal_of_producers_and_of_transactional_ids_has_an_event(
    handle: Callable[[Any, Any], Any], request_: Any, about: str
) -> None:
    made, recorder = audited(0)
    services_of(made).transactions = SimpleNamespace(described_bytes_max=lambda _: 0)
    close(handle(made, request_).awaitable)
    assert recorder.events == [changed(AclOperation.CLUSTER_ACTION, about)]
    made, recorder = audited(0, authorizer=NO_CLUSTER_ACTION)
    services_of(made).transactions = None
    with pytest.raises(Refusal):
        handle(made, request_)
    assert recorder.events == [denied_node(about, "")]


def close(result: Awaitable[Any]) -> None:
    """Close a coroutine that is not awaited."""
    result.close()  # type: ignore[attr-defined]


async def test_automatic_creation_by_create_on_the_cluster_has_an_event() -> None:
    made, recorder = audited(12)
    request = MetadataRequest([MetadataRequestTopic(name="new")])
    await response_of(metadata.handle(made, request))
    await response_of(metadata.handle(made, request))
    assert recorder.events == [changed(AclOperation.CREATE, "new")]
