"""Client quotas: the applicable quota, its sharing, throttle times, and the quota APIs."""

from typing import Any

import pytest

from odradek.broker.apis import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_client_quotas,
    describe_user_scram_credentials,
)
from odradek.broker.apis.alter_client_quotas import handle as alter
from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.quota import client_quotas as quotas
from odradek.broker.quota.client_quotas import FETCH_BYTES_MAX, ClientQuotas
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.node_principals import SessionNode
from odradek.broker.requests.session import Session
from odradek.broker.security.authorizer import AllowAll
from odradek.cluster.authorizer import CLUSTER_NODE, AclOperation, Principal
from odradek.cluster.controller.messages.settings import QuotaChange, QuotaResult
from odradek.cluster.controller.messages.topics import TopicName, TopicResult
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import EMPTY_IMAGE, QuotaEntity, quota_entity
from odradek.cluster.metadata.records import ClientQuotaEntity, ClientQuotaRecord
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from odradek.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from odradek.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from odradek.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.support import broker_context
from tests.support.broker_context import Deny, FakeController, image, response_of, services_of, topic
from tests.support.data_rig import Clock

E = ErrorCode
PRODUCE, FETCH, METADATA = 0, 1, 3
USER, CLIENT, IP = "user", "client-id", "ip"
EntityPart = tuple[str, str | None]


def quotas_of(*rows: tuple[tuple[EntityPart, ...], str, float | None]) -> ClientQuotas:
    """Return client quotas after one metadata record per row. The value None removes a quota."""
    client_quotas = ClientQuotas(broker_context.config(), Clock())
    apply_quotas(client_quotas, *rows)
    return client_quotas


def apply_quotas(client_quotas: ClientQuotas, *rows: tuple[tuple[EntityPart, ...], str, float | None]) -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    for offset, (entity, key, value) in enumerate(rows):
        components = [ClientQuotaEntity(kind, name) for kind, name in entity]
        delta.replay(offset, 1, ClientQuotaRecord(components, key, value or 0.0, remove=value is None))
    client_quotas.on_metadata(delta, delta.build())


def request(
    user: str = "u", client_id: str | None = "c", api_key: int = PRODUCE, size: int = 0, busy_s: float = 0.0
) -> RequestContext:
    session = Session(1, broker_context.LISTENER, "127.0.0.1", 5, Principal("User", user))
    request_context = RequestContext(api_key, 12, 1, client_id, session, AllowAll(), 0, size)
    request_context.busy_us = int(busy_s * 1_000_000)
    return request_context


def fetched(*sizes: int) -> FetchResponse:
    rows = [PartitionData(index, records=b"x" * size if size else None) for index, size in enumerate(sizes)]
    return FetchResponse(responses=[FetchableTopicResponse("t", partitions=rows)])


RATES: list[tuple[tuple[EntityPart, ...], float]] = [
    (((CLIENT, None),), 1.0),
    (((CLIENT, "c"),), 2.0),
    (((USER, None),), 3.0),
    (((USER, None), (CLIENT, None)), 4.0),
    (((USER, None), (CLIENT, "c")), 5.0),
    (((USER, "u"),), 6.0),
    (((USER, "u"), (CLIENT, None)), 7.0),
    (((USER, "u"), (CLIENT, "c")), 8.0),
]
"""Quota entities and rates, from the least to the most specific entity."""


@pytest.mark.parametrize("count", range(1, len(RATES) + 1))
def test_most_specific_quota_applies(count: int) -> None:
    client_quotas = quotas_of(*((entity, "consumer_byte_rate", rate) for entity, rate in RATES[:count]))
    assert client_quotas.fetch_bytes_max(request()) == 10 * RATES[count - 1][1]


def test_quota_of_a_user_does_not_apply_to_nodes_with_its_name() -> None:
    client_quotas = quotas_of((((USER, "cluster"),), "consumer_byte_rate", 1.0))
    assert client_quotas.fetch_bytes_max(request("cluster")) == 10
    node = request()
    node.session.principal = CLUSTER_NODE
    assert client_quotas.fetch_bytes_max(node) == FETCH_BYTES_MAX


@pytest.mark.parametrize(
    ("entity", "shared"),
    [
        (((CLIENT, None),), [("u", "c"), ("v", "c")]),
        (((CLIENT, "c"),), [("u", "c"), ("v", "c")]),
        (((USER, None),), [("u", "c"), ("u", "d")]),
        (((USER, "u"),), [("u", "c"), ("u", "d")]),
        (((USER, None), (CLIENT, None)), [("u", "c"), ("u", "c")]),
    ],
)
def test_clients_of_one_quota_entity_share_its_rate(
    entity: tuple[EntityPart, ...], shared: list[tuple[str, str]]
) -> None:
    client_quotas = quotas_of((entity, "producer_byte_rate", 100.0))
    first, second = shared
    assert client_quotas.throttle_ms(request(*first, size=1_000), None) == 0
    assert client_quotas.throttle_ms(request(*second, size=100), None) == 1_000


def test_other_users_and_client_ids_have_their_own_rate() -> None:
    client_quotas = quotas_of((((USER, None), (CLIENT, None)), "producer_byte_rate", 100.0))
    assert client_quotas.throttle_ms(request("u", "c", size=2_000), None) == 10_000
    assert (
        client_quotas.throttle_ms(request("u", "d", size=900), None)
        == client_quotas.throttle_ms(request("v", "c", size=900), None)
        == 0
    )
    assert client_quotas.throttle_ms(request("u", None, size=900), None) == 0


def test_client_without_quota_is_not_throttled() -> None:
    client_quotas = quotas_of()
    assert not client_quotas.measure_time
    assert client_quotas.throttle_ms(request(size=10**9, busy_s=1e6), None) == 0
    assert client_quotas.fetch_bytes_max(request()) == FETCH_BYTES_MAX
    client_quotas = quotas_of((((USER, "v"),), "producer_byte_rate", 1.0))
    assert client_quotas.throttle_ms(request(size=10**9), None) == 0


def test_consumer_is_throttled_for_fetched_bytes() -> None:
    client_quotas = quotas_of((((USER, "u"),), "consumer_byte_rate", 10.0))
    assert client_quotas.throttle_ms(request(api_key=FETCH), fetched(60, 0, 40)) == 0
    assert client_quotas.throttle_ms(request(api_key=FETCH), fetched(50)) == 5_000
    assert client_quotas.throttle_ms(request(api_key=METADATA, size=10**6), None) == 0
    assert client_quotas.throttle_ms(request(api_key=PRODUCE, size=10**6), None) == 0


def test_request_percentage_counts_every_request_and_throttles_at_most_one_second() -> None:
    client_quotas = quotas_of((((CLIENT, "c"),), "request_percentage", 50.0))
    assert client_quotas.measure_time
    assert client_quotas.throttle_ms(request(api_key=METADATA, busy_s=5.0), None) == 0
    assert client_quotas.throttle_ms(request(api_key=METADATA, busy_s=0.1), None) == 200
    assert client_quotas.throttle_ms(request(api_key=METADATA, busy_s=9.0), None) == 1_000


def test_changed_quota_applies_immediately() -> None:
    client_quotas = quotas_of((((USER, "u"),), "producer_byte_rate", 10.0))
    assert client_quotas.throttle_ms(request(size=200), None) == 10_000
    apply_quotas(client_quotas, (((USER, "u"),), "producer_byte_rate", 1_000.0))
    assert client_quotas.throttle_ms(request(size=1), None) == 0
    apply_quotas(
        client_quotas, (((USER, "u"),), "producer_byte_rate", 1.0), (((USER, "u"),), "producer_byte_rate", None)
    )
    assert client_quotas.throttle_ms(request(size=10**6), None) == 0


@pytest.mark.parametrize(
    ("client_id", "is_exempt"),
    [("broker-2-replica-fetch", True), ("broker-12-probe", True), ("broker-2", False), ("broker-app-1", False)],
)
def test_requests_of_brokers_are_exempt_from_quotas(client_id: str, is_exempt: bool) -> None:
    client_quotas = quotas_of((((USER, None),), "producer_byte_rate", 1.0))
    assert (client_quotas.throttle_ms(request("ANONYMOUS", client_id, size=10**6), None) == 0) == is_exempt


def test_least_recently_used_client_is_evicted_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "TRACKED_MAX", 2)
    client_quotas = quotas_of((((CLIENT, None),), "producer_byte_rate", 10.0))
    for client_id in ("a", "b", "a", "c"):
        client_quotas.throttle_ms(request(client_id=client_id, size=100), None)
    assert client_quotas.throttle_ms(request(client_id="a", size=0), None) == 10_000
    assert client_quotas.throttle_ms(request(client_id="b", size=100), None) == 0, (
        "client b was used least recently and was evicted"
    )


def test_connection_creation_rate_applies_per_address() -> None:
    client_quotas = quotas_of((((IP, "10.0.0.1"),), "connection_creation_rate", 5.0))
    assert [client_quotas.connection_rate("10.0.0.1"), client_quotas.connection_rate("10.0.0.2")] == [5.0, None]
    apply_quotas(client_quotas, (((IP, None),), "connection_creation_rate", 7.0))
    assert client_quotas.connection_rate("10.0.0.2") == 7.0


@pytest.mark.parametrize("name", ["2001:DB8:0:0:0:0:0:1", "2001:db8:0::1"])
def test_connection_creation_rate_applies_to_each_notation_of_an_address(name: str) -> None:
    limits = [(((IP, each),), "connection_creation_rate", 5.0) for each in (name, "host.example")]
    assert quotas_of(*limits).connection_rate("2001:db8::1") == 5.0


# ---- controller mutations -------------------------------------------------------------------------------------------


def test_one_request_may_exceed_the_mutation_quota_and_the_next_is_throttled() -> None:
    client_quotas = quotas_of((((USER, "u"),), "controller_mutation_rate", 2.0))
    strict = client_quotas.controller_mutations(request(), strict=True)
    strict.record(30)
    assert strict.throttle_ms == 0
    with pytest.raises(Refusal) as caught:
        strict.record(1)
    assert (caught.value.error, strict.throttle_ms) == (E.THROTTLING_QUOTA_EXCEEDED, 4_000)
    lenient = client_quotas.controller_mutations(request(), strict=False)
    lenient.record(1)
    assert lenient.throttle_ms == 4_500
    client_quotas.controller_mutations(request(user="v"), strict=True).record(10**6)


def test_mutation_quota_of_users_does_not_apply_to_a_node_with_the_principal_of_a_user() -> None:
    client_quotas = quotas_of((((USER, None),), "controller_mutation_rate", 2.0))
    of_node = request(user="kafka-1")
    of_node.session.node = SessionNode.of(frozenset((1,)))
    quota = client_quotas.controller_mutations(of_node, strict=True)
    for _ in range(3):
        quota.record(100)
    assert quota.throttle_ms == 0


class Controller(FakeController):
    async def create_partitions(self, topics: Any, **options: Any) -> tuple[Any, ...]:
        return tuple(TopicResult(row.name) for row in topics)

    async def delete_topics(self, topics: Any, **options: Any) -> tuple[Any, ...]:
        self.calls.append((tuple(topics), options))
        return tuple(TopicResult(row.name, row.topic_id) for row in topics)

    async def alter_client_quotas(self, entities: Any, **options: Any) -> tuple[Any, ...]:
        self.calls.append((tuple(entities), options))
        return tuple(QuotaResult(entity.entity) for entity in entities)


def over_quota(version: int, controller: Controller) -> BrokerRequestContext:
    """Return the context of a client whose mutation quota allows a burst of eleven partitions."""
    request_context = broker_context.context(version, image([topic("old", 1, [1] * 5)]), controller=controller)
    services_of(request_context).quotas = quotas_of((((USER, None),), "controller_mutation_rate", 1.0))
    return request_context


async def test_create_topics_above_the_mutation_quota_is_refused_per_topic() -> None:
    controller = Controller()
    api_request = CreateTopicsRequest(
        topics=[
            CreatableTopic("old", 100, 1),
            CreatableTopic("a", 5, 1),
            CreatableTopic("b", -1, -1, [CreatableReplicaAssignment(index, [1]) for index in range(8)]),
            CreatableTopic("c", 1, 1),
        ]
    )
    response = await response_of(create_topics.handle(over_quota(6, controller), api_request))
    assert [E(row.error_code) for row in response.topics] == [E.NONE] * 3 + [E.THROTTLING_QUOTA_EXCEEDED]
    assert response.throttle_time_ms == 2_000
    assert [row.name for row in controller.calls[0][0]] == ["old", "a", "b"]
    response = await response_of(create_topics.handle(over_quota(5, Controller()), api_request))
    assert [E(row.error_code) for row in response.topics] == [E.NONE] * 4
    assert response.throttle_time_ms == 3_000


async def test_create_partitions_above_the_mutation_quota_is_refused() -> None:
    api_request = CreatePartitionsRequest([CreatePartitionsTopic("old", 20)])
    context = over_quota(3, Controller())
    for error, throttle_ms in ((E.NONE, 0), (E.THROTTLING_QUOTA_EXCEEDED, 4_000)):
        response = await response_of(create_partitions.handle(context, api_request))
        assert ([E(result.error_code) for result in response.results], response.throttle_time_ms) == (
            [error],
            throttle_ms,
        )


async def test_delete_topics_above_the_mutation_quota_is_refused() -> None:
    controller = Controller()
    context = over_quota(6, controller)
    api_request = DeleteTopicsRequest([DeleteTopicState("old"), DeleteTopicState("unknown")])
    for error in (E.NONE, E.NONE, E.NONE, E.THROTTLING_QUOTA_EXCEEDED):
        response = await response_of(delete_topics.handle(context, api_request))
        assert [E(result.error_code) for result in response.responses] == [error, E.NONE]
    assert response.throttle_time_ms == 4_000
    assert controller.calls[-1][0] == (TopicName("unknown"),)


# ---- quota APIs -----------------------------------------------------------------------------------------------------


async def test_alter_client_quotas_reaches_the_controller() -> None:
    controller = Controller()
    entry = RequestEntryData([RequestEntityData(USER, None)], [OpData("a", 2.0), OpData("b", 1.0, True)])
    context = broker_context.context(1, image(), controller=controller)
    response = await response_of(alter(context, AlterClientQuotasRequest([entry], True)))
    ((entry_result,),) = [response.entries]
    assert (
        entry_result.error_code,
        entry_result.error_message,
        entry_result.entity[0].entity_type,
        entry_result.entity[0].entity_name,
    ) == (
        0,
        None,
        USER,
        None,
    )
    assert controller.calls == [((QuotaChange(((USER, None),), (("a", 2.0), ("b", None))),), {"validate_only": True})]


def describe(*components: tuple[str, int, str | None], strict: bool = False, **options: Any) -> list[QuotaEntity]:
    cluster_image = image()
    object.__setattr__(cluster_image, "client_quotas", {quota_entity(entity): {"x": rate} for entity, rate in RATES})
    api_request = DescribeClientQuotasRequest([ComponentData(*component) for component in components], strict)
    response: Any = describe_client_quotas.handle(broker_context.context(1, cluster_image, **options), api_request)
    assert response.entries is not None
    return [
        tuple((component.entity_type, component.entity_name) for component in entry.entity)
        for entry in response.entries
    ]


def test_describe_client_quotas_applies_its_filter() -> None:
    assert len(describe()) == len(RATES)
    assert describe((USER, 0, "u"), strict=True) == [((USER, "u"),)]
    assert len(describe((USER, 0, "u"))) == 3
    assert describe((USER, 1, None), (CLIENT, 2, None)) == [
        ((CLIENT, None), (USER, None)),
        ((CLIENT, "c"), (USER, None)),
    ]
    assert describe((IP, 2, None)) == []
    assert describe(strict=True) == []


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("", 0, "u")], E.INVALID_REQUEST),
        ([(USER, 0, "u"), (USER, 1, None)], E.INVALID_REQUEST),
        ([("group", 0, "g")], E.UNSUPPORTED_VERSION),
        ([(USER, 3, None)], E.INVALID_REQUEST),
        ([(USER, 0, None)], E.INVALID_REQUEST),
        ([(USER, 1, "u")], E.INVALID_REQUEST),
        ([(USER, 2, "u")], E.INVALID_REQUEST),
        ([(USER, 2, None), (IP, 2, None)], E.INVALID_REQUEST),
    ],
)
def test_describe_client_quotas_with_an_invalid_filter_is_refused(
    components: list[tuple[str, int, str | None]], error: ErrorCode
) -> None:
    with pytest.raises(Refusal) as caught:
        describe(*components)
    assert caught.value.error is error


async def test_quota_requests_without_permission_are_refused() -> None:
    authorizer = Deny((AclOperation.DESCRIBE_CONFIGS, "kafka-cluster"), (AclOperation.ALTER_CONFIGS, "kafka-cluster"))
    with pytest.raises(Refusal) as caught:
        describe(authorizer=authorizer)
    assert caught.value.error is E.CLUSTER_AUTHORIZATION_FAILED
    with pytest.raises(Refusal) as caught:
        await response_of(alter(broker_context.context(1, image(), authorizer=authorizer), AlterClientQuotasRequest()))
    assert caught.value.error is E.CLUSTER_AUTHORIZATION_FAILED


def test_describe_user_scram_credentials_finds_no_credentials() -> None:
    api_request = DescribeUserScramCredentialsRequest([UserName("a"), UserName("b"), UserName("a")])
    response: Any = describe_user_scram_credentials.handle(broker_context.context(0, image()), api_request)
    assert [(result.user, result.error_code) for result in response.results] == [
        ("a", E.DUPLICATE_RESOURCE),
        ("b", E.RESOURCE_NOT_FOUND),
    ]
    all_users = DescribeUserScramCredentialsRequest(None)
    response = describe_user_scram_credentials.handle(broker_context.context(0, image()), all_users)
    assert response.results == []
    with pytest.raises(Refusal) as caught:
        authorizer = Deny((AclOperation.DESCRIBE, "kafka-cluster"))
        describe_user_scram_credentials.handle(broker_context.context(0, image(), authorizer=authorizer), all_users)
    assert caught.value.error is E.CLUSTER_AUTHORIZATION_FAILED
