"""Quotas of clients: which one counts, who shares it, how long who is over it has to be silent."""

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
from odradek.broker.requests.session import Session
from odradek.broker.security.authorizer import AllowAll
from odradek.cluster.authorizer import AclOperation, Principal
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
Named = tuple[str, str | None]


def of(*rows: tuple[tuple[Named, ...], str, float | None]) -> ClientQuotas:
    """Quotas that have heard of these, in order; None takes away."""
    made = ClientQuotas(broker_context.config(), Clock())
    tell(made, *rows)
    return made


def tell(made: ClientQuotas, *rows: tuple[tuple[Named, ...], str, float | None]) -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    for offset, (entity, key, value) in enumerate(rows):
        named = [ClientQuotaEntity(kind, name) for kind, name in entity]
        delta.replay(offset, 1, ClientQuotaRecord(named, key, value or 0.0, remove=value is None))
    made.on_metadata(delta, delta.build())


def request(
    user: str = "u", client_id: str | None = "c", api_key: int = PRODUCE, size: int = 0, busy_s: float = 0.0
) -> RequestContext:
    session = Session(1, broker_context.LISTENER, "127.0.0.1", 5, Principal("User", user))
    made = RequestContext(api_key, 12, 1, client_id, session, AllowAll(), 0, size)
    made.busy_us = int(busy_s * 1_000_000)
    return made


def fetched(*sizes: int) -> FetchResponse:
    rows = [PartitionData(index, records=b"x" * size if size else None) for index, size in enumerate(sizes)]
    return FetchResponse(responses=[FetchableTopicResponse("t", partitions=rows)])


RATES: list[tuple[tuple[Named, ...], float]] = [
    (((CLIENT, None),), 1.0),
    (((CLIENT, "c"),), 2.0),
    (((USER, None),), 3.0),
    (((USER, None), (CLIENT, None)), 4.0),
    (((USER, None), (CLIENT, "c")), 5.0),
    (((USER, "u"),), 6.0),
    (((USER, "u"), (CLIENT, None)), 7.0),
    (((USER, "u"), (CLIENT, "c")), 8.0),
]
"""From the least specific to the most specific one."""


@pytest.mark.parametrize("count", range(1, len(RATES) + 1))
def test_the_most_specific_quota_counts(count: int) -> None:
    made = of(*((entity, "consumer_byte_rate", rate) for entity, rate in RATES[:count]))
    assert made.fetch_bytes_max(request()) == 10 * RATES[count - 1][1]


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
def test_who_shares_a_quota(entity: tuple[Named, ...], shared: list[tuple[str, str]]) -> None:
    made = of((entity, "producer_byte_rate", 100.0))
    first, second = shared
    assert made.throttle_ms(request(*first, size=1_000), None) == 0
    assert made.throttle_ms(request(*second, size=100), None) == 1_000


def test_others_have_their_own() -> None:
    made = of((((USER, None), (CLIENT, None)), "producer_byte_rate", 100.0))
    assert made.throttle_ms(request("u", "c", size=2_000), None) == 10_000
    assert (
        made.throttle_ms(request("u", "d", size=900), None) == made.throttle_ms(request("v", "c", size=900), None) == 0
    )
    assert made.throttle_ms(request("u", None, size=900), None) == 0


def test_without_a_quota_nothing_is_measured() -> None:
    made = of()
    assert not made.measure_time
    assert made.throttle_ms(request(size=10**9, busy_s=1e6), None) == 0
    assert made.fetch_bytes_max(request()) == FETCH_BYTES_MAX
    made = of((((USER, "v"),), "producer_byte_rate", 1.0))
    assert made.throttle_ms(request(size=10**9), None) == 0


def test_a_consumer_is_silent_for_what_it_has_got() -> None:
    made = of((((USER, "u"),), "consumer_byte_rate", 10.0))
    assert made.throttle_ms(request(api_key=FETCH), fetched(60, 0, 40)) == 0
    assert made.throttle_ms(request(api_key=FETCH), fetched(50)) == 5_000
    assert made.throttle_ms(request(api_key=METADATA, size=10**6), None) == 0
    assert made.throttle_ms(request(api_key=PRODUCE, size=10**6), None) == 0


def test_time_counts_for_every_request_and_is_paid_in_small_parts() -> None:
    made = of((((CLIENT, "c"),), "request_percentage", 50.0))
    assert made.measure_time
    assert made.throttle_ms(request(api_key=METADATA, busy_s=5.0), None) == 0
    assert made.throttle_ms(request(api_key=METADATA, busy_s=0.1), None) == 200
    assert made.throttle_ms(request(api_key=METADATA, busy_s=9.0), None) == 1_000


def test_a_quota_that_is_changed_counts_at_once() -> None:
    made = of((((USER, "u"),), "producer_byte_rate", 10.0))
    assert made.throttle_ms(request(size=200), None) == 10_000
    tell(made, (((USER, "u"),), "producer_byte_rate", 1_000.0))
    assert made.throttle_ms(request(size=1), None) == 0
    tell(made, (((USER, "u"),), "producer_byte_rate", 1.0), (((USER, "u"),), "producer_byte_rate", None))
    assert made.throttle_ms(request(size=10**6), None) == 0


@pytest.mark.parametrize(
    ("client_id", "free"),
    [("broker-2-replica-fetch", True), ("broker-12-probe", True), ("broker-2", False), ("broker-app-1", False)],
)
def test_brokers_have_no_quota(client_id: str, free: bool) -> None:
    made = of((((USER, None),), "producer_byte_rate", 1.0))
    assert (made.throttle_ms(request("ANONYMOUS", client_id, size=10**6), None) == 0) == free


def test_no_more_are_remembered_than_a_limit_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "TRACKED_MAX", 2)
    made = of((((CLIENT, None),), "producer_byte_rate", 10.0))
    for client_id in ("a", "b", "a", "c"):
        made.throttle_ms(request(client_id=client_id, size=100), None)
    assert made.throttle_ms(request(client_id="a", size=0), None) == 10_000
    assert made.throttle_ms(request(client_id="b", size=100), None) == 0, "it was heard of least recently"


def test_addresses_have_a_rate_of_connections() -> None:
    made = of((((IP, "10.0.0.1"),), "connection_creation_rate", 5.0))
    assert [made.connection_rate("10.0.0.1"), made.connection_rate("10.0.0.2")] == [5.0, None]
    tell(made, (((IP, None),), "connection_creation_rate", 7.0))
    assert made.connection_rate("10.0.0.2") == 7.0


# ---- partitions that are made and deleted -----------------------------------------------------------------------------


def test_one_request_may_run_into_debt_and_the_next_one_waits() -> None:
    made = of((((USER, "u"),), "controller_mutation_rate", 2.0))
    strict = made.controller_mutations(request(), strict=True)
    strict.record(30)
    assert strict.throttle_ms == 0
    with pytest.raises(Refusal) as caught:
        strict.record(1)
    assert (caught.value.error, strict.throttle_ms) == (E.THROTTLING_QUOTA_EXCEEDED, 4_000)
    older = made.controller_mutations(request(), strict=False)
    older.record(1)
    assert older.throttle_ms == 4_500
    made.controller_mutations(request(user="v"), strict=True).record(10**6)


class Controller(FakeController):
    async def create_partitions(self, topics: Any, **options: Any) -> tuple[Any, ...]:
        return tuple(TopicResult(each.name) for each in topics)

    async def delete_topics(self, topics: Any, **options: Any) -> tuple[Any, ...]:
        self.calls.append((tuple(topics), options))
        return tuple(TopicResult(each.name, each.topic_id) for each in topics)

    async def alter_client_quotas(self, entities: Any, **options: Any) -> tuple[Any, ...]:
        self.calls.append((tuple(entities), options))
        return tuple(QuotaResult(each.entity) for each in entities)


def over_quota(version: int, controller: Controller) -> BrokerRequestContext:
    """A client with eleven partitions to spend."""
    made = broker_context.context(version, image([topic("old", 1, [1] * 5)]), controller=controller)
    services_of(made).quotas = of((((USER, None),), "controller_mutation_rate", 1.0))
    return made


async def test_topics_are_made_as_the_quota_allows() -> None:
    controller = Controller()
    asked = CreateTopicsRequest(
        topics=[
            CreatableTopic("old", 100, 1),
            CreatableTopic("a", 5, 1),
            CreatableTopic("b", -1, -1, [CreatableReplicaAssignment(index, [1]) for index in range(8)]),
            CreatableTopic("c", 1, 1),
        ]
    )
    response = await response_of(create_topics.handle(over_quota(6, controller), asked))
    assert [E(each.error_code) for each in response.topics] == [E.NONE] * 3 + [E.THROTTLING_QUOTA_EXCEEDED]
    assert response.throttle_time_ms == 2_000
    assert [each.name for each in controller.calls[0][0]] == ["old", "a", "b"]
    response = await response_of(create_topics.handle(over_quota(5, Controller()), asked))
    assert [E(each.error_code) for each in response.topics] == [E.NONE] * 4
    assert response.throttle_time_ms == 3_000


async def test_partitions_are_added_as_the_quota_allows() -> None:
    asked = CreatePartitionsRequest([CreatePartitionsTopic("old", 20)])
    context = over_quota(3, Controller())
    for error, throttle_ms in ((E.NONE, 0), (E.THROTTLING_QUOTA_EXCEEDED, 4_000)):
        response = await response_of(create_partitions.handle(context, asked))
        assert ([E(each.error_code) for each in response.results], response.throttle_time_ms) == ([error], throttle_ms)


async def test_topics_are_deleted_as_the_quota_allows() -> None:
    controller = Controller()
    context = over_quota(6, controller)
    asked = DeleteTopicsRequest([DeleteTopicState("old"), DeleteTopicState("unknown")])
    for error in (E.NONE, E.NONE, E.NONE, E.THROTTLING_QUOTA_EXCEEDED):
        response = await response_of(delete_topics.handle(context, asked))
        assert [E(each.error_code) for each in response.responses] == [error, E.NONE]
    assert response.throttle_time_ms == 4_000
    assert controller.calls[-1][0] == (TopicName("unknown"),)


# ---- the APIs ---------------------------------------------------------------------------------------------------------


async def test_a_change_reaches_the_controller() -> None:
    controller = Controller()
    entry = RequestEntryData([RequestEntityData(USER, None)], [OpData("a", 2.0), OpData("b", 1.0, True)])
    context = broker_context.context(1, image(), controller=controller)
    response = await response_of(alter(context, AlterClientQuotasRequest([entry], True)))
    ((each,),) = [response.entries]
    assert (each.error_code, each.error_message, each.entity[0].entity_type, each.entity[0].entity_name) == (
        0,
        None,
        USER,
        None,
    )
    assert controller.calls == [((QuotaChange(((USER, None),), (("a", 2.0), ("b", None))),), {"validate_only": True})]


def described(*components: tuple[str, int, str | None], strict: bool = False, **options: Any) -> list[QuotaEntity]:
    seen = image()
    object.__setattr__(seen, "client_quotas", {quota_entity(entity): {"x": rate} for entity, rate in RATES})
    asked = DescribeClientQuotasRequest([ComponentData(*each) for each in components], strict)
    response = describe_client_quotas.handle(broker_context.context(1, seen, **options), asked)
    assert response.entries is not None
    return [tuple((each.entity_type, each.entity_name) for each in entry.entity) for entry in response.entries]


def test_what_is_set_is_found_by_a_filter() -> None:
    assert len(described()) == len(RATES)
    assert described((USER, 0, "u"), strict=True) == [((USER, "u"),)]
    assert len(described((USER, 0, "u"))) == 3
    assert described((USER, 1, None), (CLIENT, 2, None)) == [
        ((CLIENT, None), (USER, None)),
        ((CLIENT, "c"), (USER, None)),
    ]
    assert described((IP, 2, None)) == []
    assert described(strict=True) == []


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
def test_filters_that_are_refused(components: list[tuple[str, int, str | None]], error: ErrorCode) -> None:
    with pytest.raises(Refusal) as caught:
        described(*components)
    assert caught.value.error is error


async def test_quotas_are_for_those_who_may() -> None:
    nobody = Deny((AclOperation.DESCRIBE_CONFIGS, "kafka-cluster"), (AclOperation.ALTER_CONFIGS, "kafka-cluster"))
    with pytest.raises(Refusal) as caught:
        described(authorizer=nobody)
    assert caught.value.error is E.CLUSTER_AUTHORIZATION_FAILED
    with pytest.raises(Refusal) as caught:
        await response_of(alter(broker_context.context(1, image(), authorizer=nobody), AlterClientQuotasRequest()))
    assert caught.value.error is E.CLUSTER_AUTHORIZATION_FAILED


def test_nobody_has_credentials() -> None:
    asked = DescribeUserScramCredentialsRequest([UserName("a"), UserName("b"), UserName("a")])
    found = describe_user_scram_credentials.handle(broker_context.context(0, image()), asked).results
    assert [(each.user, each.error_code) for each in found] == [
        ("a", E.DUPLICATE_RESOURCE),
        ("b", E.RESOURCE_NOT_FOUND),
    ]
    everybody = DescribeUserScramCredentialsRequest(None)
    assert describe_user_scram_credentials.handle(broker_context.context(0, image()), everybody).results == []
    with pytest.raises(Refusal) as caught:
        nobody = Deny((AclOperation.DESCRIBE, "kafka-cluster"))
        describe_user_scram_credentials.handle(broker_context.context(0, image(), authorizer=nobody), everybody)
    assert caught.value.error is E.CLUSTER_AUTHORIZATION_FAILED
