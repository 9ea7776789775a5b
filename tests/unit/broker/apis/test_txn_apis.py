"""The five transaction APIs over a real coordinator: permissions, errors per version and the form of responses."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.apis import (
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.dispatch.dispatcher import Call, Dispatcher
from odradek.broker.requests.api import Ordered
from odradek.broker.requests.listener import ALL_ROLES
from odradek.broker.requests.node_principals import SessionNode
from odradek.cluster.authorizer import CLUSTER_RESOURCE, AclOperation
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.extensions import (
    DESCRIBED_ADDRESS_TAG,
    DESCRIBED_CLIENT_ID_TAG,
    DESCRIBED_IDLE_TAG,
    EXPIRE_TAG,
    EXPIRED_ID,
    IDLE,
    LISTED_PARTITIONS_TAG,
    PARTITION,
)
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.protocol.patterns import CHARACTERS_PER_SLICE
from odradek.protocol.schema import replace_fields
from tests.support.broker_context import Deny, context, image, response_of, services_of, topic
from tests.support.coordinator_rig import SHARD, CoordinatorRig
from tests.support.txn_rig import ID, NOW_MS, T0, T1

if TYPE_CHECKING:
    from odradek.broker.requests.api import AnyApi
    from odradek.broker.security.authorizer import AllowAll

TOPICS = image([topic("t", 1, [1, 1]), topic("u", 2, [1]), topic("__transaction_state", 3, [1])])
APIS: tuple[AnyApi, ...] = (
    init_producer_id.API,
    add_partitions_to_txn.API,
    end_txn.API,
    describe_transactions.API,
    list_transactions.API,
)


async def call(
    rig: CoordinatorRig,
    version: int,
    request: Any,
    authorizer: AllowAll | None = None,
    now_ms: int = NOW_MS,
    roles: tuple[str, ...] = ALL_ROLES,
    node: SessionNode | None = None,
) -> Any:
    """Return the response that a client reads: after dispatch, encoded and decoded in `version`."""
    api = next(api for api in APIS if api.request is type(request))
    request_context = context(version, TOPICS, authorizer=authorizer)
    services = services_of(request_context)
    services.transactions, services.clock, services.controller = rig.coordinator, None, None
    request_context.session.listener = replace(request_context.session.listener, roles=roles)
    request_context.session.node = node
    request_context.api_key, request_context.client_id, request_context.now_ms = api.key, "client-7", now_ms
    request = decode(api.request, version, encode(request, version))
    dispatcher = Dispatcher(
        APIS,
        BrokerRequestContext,
        (services, services, services),
        forwarding=services,
        metrics={},
        large_requests=services,
        on_unexpected=lambda _context, bug: pytest.fail(repr(bug)),
    )
    dispatched = Call(api, request_context, request, None, 0)  # type: ignore[arg-type]
    response = dispatcher.handle(dispatched)
    if asyncio.iscoroutine(response) or asyncio.isfuture(response) or isinstance(response, Ordered):
        try:
            response = await response_of(response)
        except Exception as exception:
            response = dispatcher.refused(dispatched, exception)
    return decode(api.response, version, encode(response, version))


def add_v3(*names: tuple[str, list[int]], producer_id: int = 0, epoch: int = 0) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=parts) for name, parts in names],
    )


def add_v4(*names: tuple[str, list[int]], verify_only: bool = False, epoch: int = 0) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=ID,
        producer_id=0,
        producer_epoch=epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=parts) for name, parts in names],
    )


def partition_errors(topics: Any) -> dict[str, str]:
    return {
        f"{entry.name}-{result.partition_index}": ErrorCode(result.partition_error_code).name
        for entry in topics
        for result in entry.results_by_partition
    }


# ---- InitProducerId -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
async def test_init_producer_id_returns_an_id_in_every_version(version: int) -> None:
    rig = await CoordinatorRig().ready()
    for transactional_id in (None, ID):
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        response = await call(rig, version, request)
        assert (response.error_code, response.producer_epoch) == (0, 0)
    assert response.producer_id == 1


@pytest.mark.parametrize(("version", "error"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)])
async def test_init_producer_id_of_a_fenced_producer_has_the_error_of_its_version(
    version: int, error: ErrorCode
) -> None:
    rig = await CoordinatorRig().ready()
    await call(rig, version, InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000))
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1, producer_id=0, producer_epoch=9)
    response = await call(rig, version, request)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (error, -1, -1)


async def test_init_producer_id_without_permission_is_refused() -> None:
    rig = await CoordinatorRig().ready()
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000)
    response = await call(rig, 4, request, Deny((AclOperation.WRITE, ID)))
    assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    idempotent = InitProducerIdRequest(transactional_id=None)
    no_cluster = (AclOperation.IDEMPOTENT_WRITE, "kafka-cluster")
    assert (await call(rig, 4, idempotent, Deny(no_cluster))).error_code == 0
    no_permission = Deny(no_cluster, *((AclOperation.WRITE, name) for name in TOPICS.topics))
    assert (await call(rig, 4, idempotent, no_permission)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_producer_id_without_epoch_is_an_invalid_request() -> None:
    rig = await CoordinatorRig().ready()
    request = InitProducerIdRequest(transactional_id=None, producer_id=4)
    assert (await call(rig, 4, request)).error_code == ErrorCode.INVALID_REQUEST


async def test_init_producer_id_during_a_transaction_completes_after_its_abort() -> None:
    rig = CoordinatorRig()
    producer_id, epoch = await rig.running()
    response = await call(rig, 4, InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000))
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, producer_id, epoch + 2)


def init_v6(transactional_id: str | None = ID, *, enable: bool = False, keep: bool = False) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id, 60_000, enable2_pc=enable, keep_prepared_txn=keep)


async def test_kept_transaction_is_returned_with_the_identity_of_its_owner() -> None:
    rig = CoordinatorRig(two_phase_commit=True)
    producer_id, epoch = await rig.running()
    for raised in (1, 2):
        response = await call(rig, 6, init_v6(enable=True, keep=True))
        assert (response.error_code, response.producer_id, response.producer_epoch) == (0, producer_id, epoch + raised)
        assert (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch) == (producer_id, epoch)
    described = (await rig.coordinator.describe(ID)).transaction
    assert (described.state.kafka_name, described.timeout_ms) == ("Ongoing", 2**31 - 1)
    response = await call(rig, 5, EndTxnRequest(ID, producer_id, epoch + 2, committed=True))
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, producer_id, epoch + 3)


async def test_keep_without_an_ongoing_transaction_returns_none() -> None:
    rig = await CoordinatorRig(two_phase_commit=True).ready()
    for transactional_id in (ID, None):
        response = await call(rig, 6, init_v6(transactional_id, enable=True, keep=True))
        assert (response.error_code, response.producer_epoch) == (0, 0)
        assert (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch) == (-1, -1)


async def test_two_phase_commit_that_the_broker_disables_is_not_authorized() -> None:
    rig = await CoordinatorRig().ready()
    for keep in (True, False):
        response = await call(rig, 6, init_v6(enable=True, keep=keep))
        assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (await call(rig, 6, init_v6(keep=True))).error_code == 0


async def test_two_phase_commit_needs_its_own_permission() -> None:
    rig = await CoordinatorRig(two_phase_commit=True).ready()
    for denied in (AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT):
        response = await call(rig, 6, init_v6(enable=True, keep=True), Deny((denied, ID)))
        assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for request in (init_v6(keep=True), init_v6()):
        assert (await call(rig, 6, request, Deny((AclOperation.TWO_PHASE_COMMIT, ID)))).error_code == 0


@pytest.mark.parametrize("level", [0, 1])
async def test_two_phase_commit_needs_transaction_version_2(level: int) -> None:
    rig = await CoordinatorRig(level=level, two_phase_commit=True).ready()
    for request in (init_v6(enable=True), init_v6(keep=True), init_v6(enable=True, keep=True)):
        assert (await call(rig, 6, request)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await call(rig, 6, init_v6())).error_code == 0


async def test_time_out_is_checked_without_two_phase_commit_only() -> None:
    rig = await CoordinatorRig(two_phase_commit=True).ready()
    for timeout_ms in (0, 900_001):
        request = InitProducerIdRequest(ID, timeout_ms, keep_prepared_txn=True)
        assert (await call(rig, 6, request)).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        request.enable2_pc = True
        assert (await call(rig, 6, request)).error_code == 0


# ---- AddPartitionsToTxn ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
async def test_add_partitions_to_txn_of_clients(version: int) -> None:
    rig = await CoordinatorRig().ready()
    await call(rig, version, InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000))
    response = await call(rig, version, add_v3(("t", [0, 1]), ("u", [0])))
    assert partition_errors(response.results_by_topic_v3_and_below) == {"t-0": "NONE", "t-1": "NONE", "u-0": "NONE"}
    txn = (await rig.coordinator.describe(ID)).transaction
    assert (txn.client_version, txn.client_id) == (0, "client-7")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([("t", [0]), ("t", [9])], {"t-0": "OPERATION_NOT_ATTEMPTED", "t-9": "UNKNOWN_TOPIC_OR_PARTITION"}),
        ([("t", [0]), ("x", [0])], {"t-0": "OPERATION_NOT_ATTEMPTED", "x-0": "UNKNOWN_TOPIC_OR_PARTITION"}),
        (
            [("t", [0]), ("__transaction_state", [0])],
            {"t-0": "OPERATION_NOT_ATTEMPTED", "__transaction_state-0": "TOPIC_AUTHORIZATION_FAILED"},
        ),
        ([("t", [0]), ("u", [0])], {"t-0": "OPERATION_NOT_ATTEMPTED", "u-0": "TOPIC_AUTHORIZATION_FAILED"}),
    ],
)
async def test_one_invalid_partition_adds_no_partition(names: Any, expected: dict[str, str]) -> None:
    rig = await CoordinatorRig().ready()
    await call(rig, 3, InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000))
    response = await call(rig, 3, add_v3(*names), Deny((AclOperation.WRITE, "u")))
    assert partition_errors(response.results_by_topic_v3_and_below) == expected
    assert (await rig.coordinator.describe(ID)).partitions == {}


@pytest.mark.parametrize(("version", "error"), [(1, "INVALID_PRODUCER_EPOCH"), (2, "PRODUCER_FENCED")])
async def test_transaction_error_is_on_every_partition(version: int, error: str) -> None:
    rig = await CoordinatorRig().ready()
    await call(rig, version, InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000))
    response = await call(rig, version, add_v3(("t", [0, 1]), epoch=5))
    assert partition_errors(response.results_by_topic_v3_and_below) == {"t-0": error, "t-1": error}
    response = await call(rig, version, add_v3(("t", [0])), Deny((AclOperation.WRITE, ID)))
    assert partition_errors(response.results_by_topic_v3_and_below) == {"t-0": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"}


@pytest.mark.parametrize("version", [4, 5])
async def test_add_partitions_to_txn_of_brokers_adds_and_verifies_in_batches(version: int) -> None:
    rig = CoordinatorRig()
    await rig.running()
    transactions = [
        add_v4(("t", [0, 1]), verify_only=True),
        replace_fields(add_v4(("u", [0])), transactional_id="a"),
        add_v4(("u", [0])),
        add_v4(("x", [0]), verify_only=True),
    ]
    response = await call(rig, version, AddPartitionsToTxnRequest(transactions=transactions))
    assert response.error_code == 0
    assert [
        (entry.transactional_id, partition_errors(entry.topic_results)) for entry in response.results_by_transaction
    ] == [
        (ID, {"t-0": "NONE", "t-1": "TRANSACTION_ABORTABLE"}),
        ("a", {"u-0": "NOT_COORDINATOR"}),
        (ID, {"u-0": "NONE"}),
        (ID, {"x-0": "UNKNOWN_TOPIC_OR_PARTITION"}),
    ]
    txn = (await rig.coordinator.describe(ID)).transaction
    assert (txn.client_version, txn.client_id) == (2, "c")


async def test_batched_version_without_cluster_action_permission_is_refused() -> None:
    rig = CoordinatorRig()
    await rig.running()
    denied = Deny((AclOperation.CLUSTER_ACTION, "kafka-cluster"))
    response = await call(rig, 4, AddPartitionsToTxnRequest(transactions=[add_v4(("t", [0]))]), denied)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert response.results_by_transaction == []


async def test_batched_versions_are_served_only_on_the_inter_broker_listener() -> None:
    rig = CoordinatorRig()
    producer_id, epoch = await rig.running()
    batched = AddPartitionsToTxnRequest(transactions=[add_v4(("u", [0]))])
    response = await call(rig, 5, batched, roles=("client",))
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (await call(rig, 5, batched, roles=("client", "broker"))).error_code == ErrorCode.NONE
    response = await call(rig, 3, add_v3(("t", [1]), producer_id=producer_id, epoch=epoch), roles=("client",))
    assert partition_errors(response.results_by_topic_v3_and_below) == {"t-1": "NONE"}


async def test_batched_response_waits_for_all_transactions() -> None:
    rig = CoordinatorRig()
    producer_id, epoch = await rig.running()
    rig.coordinator.end_txn(ID, producer_id, epoch, commit=True, client_version=2).result()
    request = AddPartitionsToTxnRequest(transactions=[add_v4(("u", [0]), epoch=1), add_v4(("u", [0]), epoch=0)])
    response = await call(rig, 5, request)
    assert [partition_errors(entry.topic_results) for entry in response.results_by_transaction] == [
        {"u-0": "NONE"},
        {"u-0": "PRODUCER_FENCED"},
    ]


# ---- EndTxn ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "identity"), [*((v, (-1, -1)) for v in range(5)), (5, (0, 1))])
async def test_end_txn_v5_returns_the_next_producer_epoch_and_older_versions_none(
    version: int, identity: tuple[int, int]
) -> None:
    rig = CoordinatorRig()
    producer_id, epoch = await rig.running(version=0)
    request = EndTxnRequest(transactional_id=ID, producer_id=producer_id, producer_epoch=epoch, committed=True)
    response = await call(rig, version, request)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, *identity)


@pytest.mark.parametrize(("version", "error"), [(1, "INVALID_PRODUCER_EPOCH"), (2, "PRODUCER_FENCED")])
async def test_end_txn_errors_have_the_code_of_their_version(version: int, error: str) -> None:
    rig = CoordinatorRig()
    producer_id, _epoch = await rig.running()
    request = EndTxnRequest(transactional_id=ID, producer_id=producer_id, producer_epoch=9, committed=True)
    response = await call(rig, version, request)
    assert ErrorCode(response.error_code).name == error
    response = await call(rig, version, request, Deny((AclOperation.WRITE, ID)))
    assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    response = await call(rig, version, replace_fields(request, transactional_id=""))
    assert response.error_code == ErrorCode.INVALID_REQUEST


async def test_retried_end_txn_waits_for_the_first_attempt() -> None:
    rig = CoordinatorRig()
    producer_id, epoch = await rig.running()
    request = EndTxnRequest(transactional_id=ID, producer_id=producer_id, producer_epoch=epoch, committed=True)
    for _ in range(2):
        response = await call(rig, 5, request)
        assert (response.error_code, response.producer_epoch) == (0, epoch + 1)


# ---- Describe and list ----------------------------------------------------------------------------------------------


async def test_describe_transactions_returns_states_and_errors() -> None:
    rig = CoordinatorRig()
    producer_id, epoch = await rig.running(partitions=(T0, T1))
    request = DescribeTransactionsRequest(transactional_ids=[ID, "a", "", "denied"])
    response = await call(rig, 0, request, Deny((AclOperation.DESCRIBE, "denied")))
    assert isinstance(response, DescribeTransactionsResponse)
    state, *failed = response.transaction_states
    assert (state.transaction_state, state.producer_id, state.producer_epoch) == ("Ongoing", producer_id, epoch)
    assert (state.transaction_timeout_ms, state.transaction_start_time_ms) == (60_000, NOW_MS)
    assert [(entry.topic, entry.partitions) for entry in state.topics] == [("t", [0, 1])]
    assert dict(state.unknown_tagged_fields) == {DESCRIBED_CLIENT_ID_TAG: b"c", DESCRIBED_IDLE_TAG: IDLE.pack(0)}
    assert [ErrorCode(entry.error_code).name for entry in failed] == [
        "NOT_COORDINATOR",
        "INVALID_REQUEST",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    ]
    response = await call(rig, 0, request, Deny((AclOperation.DESCRIBE, "t")))
    assert response.transaction_states[0].topics == []


async def test_describe_transactions_removes_ids_that_have_the_identity_of_the_request() -> None:
    rig = await CoordinatorRig().ready()
    response = await call(rig, 5, InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1_000))
    identity = (response.producer_id, response.producer_epoch)

    async def remove(*stated: tuple[int, int], authorizer: AllowAll | None = None) -> Any:
        data = b"".join(EXPIRED_ID.pack(*each) for each in stated)
        request = DescribeTransactionsRequest(transactional_ids=[ID], unknown_tagged_fields=((EXPIRE_TAG, data),))
        return await call(rig, 0, request, authorizer, now_ms=NOW_MS + 5)

    described = await call(rig, 0, DescribeTransactionsRequest(transactional_ids=[ID]), now_ms=NOW_MS + 5)
    assert described.unknown_tagged_fields == ()
    assert dict(described.transaction_states[0].unknown_tagged_fields) == {
        DESCRIBED_CLIENT_ID_TAG: b"client-7",
        DESCRIBED_ADDRESS_TAG: b"127.0.0.1",
        DESCRIBED_IDLE_TAG: IDLE.pack(5),
    }
    stale = await remove((identity[0], identity[1] + 1))
    assert stale.transaction_states[0].error_code == ErrorCode.PRODUCER_FENCED
    denied = await remove(identity, authorizer=Deny((AclOperation.CLUSTER_ACTION, "kafka-cluster")))
    assert denied.transaction_states[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (await remove()).transaction_states[0].error_code == ErrorCode.INVALID_REQUEST
    removed = await remove(identity)
    assert (removed.transaction_states[0].error_code, removed.unknown_tagged_fields) == (0, ((EXPIRE_TAG, b""),))
    assert (await remove(identity)).transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_describe_transactions_of_an_unknown_id_is_not_found() -> None:
    rig = await CoordinatorRig().ready()
    response = await call(rig, 0, DescribeTransactionsRequest(transactional_ids=[ID]))
    assert response.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("version", "filters", "is_listed"),
    [
        (0, {}, True),
        (0, {"state_filters": ["Ongoing"]}, True),
        (0, {"state_filters": ["Empty"]}, False),
        (0, {"state_filters": ["Nonsense"]}, False),
        (0, {"producer_id_filters": [0]}, True),
        (0, {"producer_id_filters": [7]}, False),
        (1, {"duration_filter": 999}, True),
        (1, {"duration_filter": 1_000}, False),
        (1, {"duration_filter": -1}, True),
        (2, {"transactional_id_pattern": "my-.*"}, True),
        (2, {"transactional_id_pattern": "my"}, False),
        (2, {"transactional_id_pattern": ""}, True),
        (2, {"transactional_id_pattern": r"\pL+-(?P<x>txn)"}, True),
        (2, {"transactional_id_pattern": "my-.*", "state_filters": ["Empty"]}, False),
    ],
)
async def test_list_transactions_applies_its_filters(version: int, filters: dict[str, Any], is_listed: bool) -> None:
    rig = CoordinatorRig()
    producer_id, _ = await rig.running()
    response = await call(rig, version, ListTransactionsRequest(**filters), now_ms=NOW_MS + 1_000)
    listed = [
        (entry.transactional_id, entry.producer_id, entry.transaction_state) for entry in response.transaction_states
    ]
    assert listed == ([(ID, producer_id, "Ongoing")] if is_listed else [])
    assert response.unknown_state_filters == [name for name in filters.get("state_filters", []) if name == "Nonsense"]


async def test_list_transactions_names_the_listed_partitions_on_request() -> None:
    rig = await CoordinatorRig().ready()
    for fields in ((), ((LISTED_PARTITIONS_TAG, b""),)):
        response = await call(rig, 0, ListTransactionsRequest(unknown_tagged_fields=fields))
        listed = dict(response.unknown_tagged_fields)
        assert listed == ({LISTED_PARTITIONS_TAG: PARTITION.pack(SHARD)} if fields else {})


async def test_node_lists_and_describes_transactions_without_permission_to_describe_them() -> None:
    rig = CoordinatorRig()
    await rig.running(partitions=(T0,))
    denied, node = Deny((AclOperation.DESCRIBE, ID), (AclOperation.DESCRIBE, "t")), SessionNode.of(frozenset((2,)))
    listing = ListTransactionsRequest(unknown_tagged_fields=((LISTED_PARTITIONS_TAG, b""),))
    listed = await call(rig, 0, listing, denied, node=node)
    assert [entry.transactional_id for entry in listed.transaction_states] == [ID]
    assert dict(listed.unknown_tagged_fields) == {LISTED_PARTITIONS_TAG: PARTITION.pack(SHARD)}
    described = await call(rig, 0, DescribeTransactionsRequest(transactional_ids=[ID]), denied, node=node)
    assert [(entry.topic, entry.partitions) for entry in described.transaction_states[0].topics] == [("t", [0])]


async def test_list_that_omits_a_transaction_names_no_listed_partition() -> None:
    rig = CoordinatorRig()
    await rig.running()
    listing = ListTransactionsRequest(unknown_tagged_fields=((LISTED_PARTITIONS_TAG, b""),))
    listed = await call(rig, 0, listing, Deny((AclOperation.DESCRIBE, ID)))
    assert (listed.transaction_states, dict(listed.unknown_tagged_fields)) == ([], {LISTED_PARTITIONS_TAG: b""})


@pytest.mark.parametrize(
    "filters",
    [
        {"transactional_id_pattern": f"{ID}.*"},
        {"transactional_id_pattern": "another.*"},
        {"state_filters": ["Ongoing"]},
        {"state_filters": ["Empty"]},
        {"producer_id_filters": [987_654]},
        {"duration_filter": 0},
        {"duration_filter": 1_000_000_000},
    ],
)
async def test_filters_show_a_client_without_permissions_nothing_of_hidden_transactions(
    filters: dict[str, Any],
) -> None:
    rig = CoordinatorRig()
    await rig.running()
    listing = ListTransactionsRequest(unknown_tagged_fields=((LISTED_PARTITIONS_TAG, b""),), **filters)
    denied = Deny((AclOperation.DESCRIBE, ID), (AclOperation.CLUSTER_ACTION, CLUSTER_RESOURCE))
    listed = await call(rig, 2, listing, denied, now_ms=NOW_MS + 1_000)
    empty = ListTransactionsResponse(unknown_tagged_fields=((LISTED_PARTITIONS_TAG, b""),))
    assert encode(listed, 2) == encode(empty, 2)


@pytest.mark.parametrize("pattern", ["(", "(?=x)", r"(a)\1", "x{1,1001}", "((a{100}){100}){100}"])
async def test_pattern_that_re2_rejects_is_an_invalid_regular_expression(pattern: str) -> None:
    rig = await CoordinatorRig().ready()
    response = await call(rig, 2, ListTransactionsRequest(transactional_id_pattern=pattern))
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_pattern_with_exponential_backtracking_completes_quickly() -> None:
    rig = await CoordinatorRig().ready()
    names = ("a" * 60 + str(number) for number in range(1_000))
    name = next(name for name in names if rig.coordinator.partition_of(name) == 45)
    rig.coordinator.init_producer_id(name, 1_000).result()
    async with asyncio.timeout(5):
        response = await call(rig, 2, ListTransactionsRequest(transactional_id_pattern="(a+)+(a+)+b"))
    assert response.transaction_states == []


@pytest.mark.parametrize(("count", "characters", "turns"), [(100, 20, 1), (20, 800, 3), (3, 9_000, 3), (900, 3, 2)])
async def test_pattern_is_matched_in_slices_between_which_other_work_runs(
    monkeypatch: pytest.MonkeyPatch, count: int, characters: int, turns: int
) -> None:
    rig = await CoordinatorRig().ready()
    names = (str(number).rjust(characters, "x") for number in range(100_000))
    for name in islice((name for name in names if rig.coordinator.partition_of(name) == SHARD), count):
        rig.coordinator.init_producer_id(name, 1_000).result()
    matched = [0]
    """Characters that are matched per turn of the event loop."""

    def matches(text: str) -> bool:
        matched[-1] += len(text)
        return True

    monkeypatch.setattr(list_transactions, "compiled", lambda _pattern: matches)
    listing = asyncio.ensure_future(call(rig, 2, ListTransactionsRequest(transactional_id_pattern=".*")))
    while not listing.done():
        await asyncio.sleep(0)
        matched.append(0)
    response = listing.result()
    assert len(response.transaction_states) == count
    in_turns = [total for total in matched if total]
    assert len(in_turns) == turns
    assert max(in_turns) <= max(CHARACTERS_PER_SLICE, characters)


async def test_list_transactions_leaves_out_ids_without_describe_permission() -> None:
    rig = CoordinatorRig()
    await rig.running()
    response = await call(rig, 2, ListTransactionsRequest(), Deny((AclOperation.DESCRIBE, ID)))
    assert response.transaction_states == []


def test_transaction_apis_have_the_version_ranges_of_kafka() -> None:
    assert [(api.key, api.min_version, api.max_version) for api in APIS] == [
        (22, 0, 5),
        (24, 0, 5),
        (26, 0, 5),
        (65, 0, 0),
        (66, 0, 2),
    ]
