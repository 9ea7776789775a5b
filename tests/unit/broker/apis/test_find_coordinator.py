"""FindCoordinator of groups and transactional ids: leaders, creation of the coordinator topics, refusals."""

from __future__ import annotations

import pytest

from odradek.broker.apis import find_coordinator
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode
from odradek.protocol.hashing import partition_for
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.broker_context import Deny, OneSuspect, broker, context, image, response_of, services_of, topic

E = ErrorCode
KINDS = pytest.mark.parametrize(("kind", "log"), [(0, "__consumer_offsets"), (1, "__transaction_state")])


@KINDS
async def test_find_coordinator_returns_the_leader_of_the_keys_partition(kind: int, log: str) -> None:
    count = 4
    leaders = [1, 2, 1, 2]
    cluster_image = image([topic(log, 9, leaders, replicas=(1, 2))], [broker(1), broker(2)])
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["a", "b", "c"])
    response = await response_of(find_coordinator.handle(context(4, cluster_image), request))
    assert [coordinator.node_id for coordinator in response.coordinators] == [
        leaders[partition_for(k, count)] for k in ("a", "b", "c")
    ]
    single = await response_of(
        find_coordinator.handle(context(1, cluster_image), FindCoordinatorRequest(key="a", key_type=kind))
    )
    assert (single.node_id, single.port) == (response.coordinators[0].node_id, response.coordinators[0].port)


@KINDS
async def test_find_coordinator_creates_the_missing_internal_topic(kind: int, log: str) -> None:
    request_context = context(1, image())
    response = await response_of(
        find_coordinator.handle(request_context, FindCoordinatorRequest(key="a", key_type=kind))
    )
    assert (response.error_code, response.node_id) == (E.NONE, 1)
    assert services_of(request_context).auto_topic_creation.created == [log]
    refused = context(1, image(), refusals={log: E.INVALID_REPLICATION_FACTOR})
    response = await response_of(find_coordinator.handle(refused, FindCoordinatorRequest(key="a", key_type=kind)))
    coordinator = (response.error_code, response.node_id, response.host, response.port)
    assert coordinator == (E.COORDINATOR_NOT_AVAILABLE, -1, "", -1)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (0, E.GROUP_AUTHORIZATION_FAILED),
        (1, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (2, E.GROUP_AUTHORIZATION_FAILED),
    ],
)
async def test_find_coordinator_without_describe_permission_is_refused(kind: int, error: ErrorCode) -> None:
    request_context = context(6, image(), authorizer=Deny((AclOperation.DESCRIBE, "a")))
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["a"])
    response = await response_of(find_coordinator.handle(request_context, request))
    assert response.coordinators[0].error_code == error
    assert services_of(request_context).auto_topic_creation.created == []


@pytest.mark.parametrize(
    ("version", "kind", "error"),
    [(6, 2, E.COORDINATOR_NOT_AVAILABLE), (3, 2, E.INVALID_REQUEST), (3, 9, E.INVALID_REQUEST)],
)
async def test_find_coordinator_of_an_unsupported_key_type_is_an_error(
    version: int, kind: int, error: ErrorCode
) -> None:
    request = FindCoordinatorRequest(key="g", key_type=kind, coordinator_keys=["g"])
    response = await response_of(find_coordinator.handle(context(version, image()), request))
    result = response.coordinators[0] if version >= 4 else response
    assert result.error_code == error


@KINDS
@pytest.mark.parametrize(("leaders", "waits"), [([1, 1], False), ([1, 2], True)])
async def test_find_coordinator_waits_while_a_suspected_broker_leads_coordinators(
    kind: int, log: str, leaders: list[int], waits: bool
) -> None:
    cluster_image = image([topic(log, 9, leaders, replicas=(1, 2)), topic("t", 1, [2])], [broker(1), broker(2)])
    request_context = context(4, cluster_image)
    services = services_of(request_context)
    services.suspected_leaders = suspect = OneSuspect(services.metadata)
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["a", "b", "c"])
    response = await response_of(find_coordinator.handle(request_context, request))
    assert suspect.waited == ([[log]] if waits else [])
    assert {coordinator.node_id for coordinator in response.coordinators} == {1}
