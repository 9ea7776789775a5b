"""Request contexts over a metadata image, for handlers that are tested without a node."""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from odradek.broker.config.properties import Config
from odradek.broker.config.sources import load
from odradek.broker.config.topics import TopicSettings
from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Ordered
from odradek.broker.requests.listener import Listener
from odradek.broker.requests.session import Session
from odradek.broker.security.authorizer import AllowAll
from odradek.cluster.authorizer import AclOperation, Decision, Principal, ResourceType, Rule
from odradek.cluster.controller.messages.topics import CreatedTopic, NewTopic
from odradek.cluster.metadata.image import (
    DIRECTORY_UNASSIGNED,
    RESOURCE_TOPIC,
    BrokerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    TopicImage,
    VersionRange,
)
from odradek.protocol.errors import ErrorCode
from tests.support.quotas import Unlimited

LISTENER = Listener("PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 9092)
FEATURES = {"metadata.version": VersionRange(7, 33), "transaction.version": VersionRange(0, 2)}


def config(*assignments: str) -> Config:
    return load(environment={}, assignments=["log.dirs=/data", *assignments])


def broker(broker_id: int, *, fenced: bool = False, listener: str = "PLAINTEXT") -> BrokerImage:
    endpoint = Endpoint(listener, f"host{broker_id}", 9000 + broker_id)
    return BrokerImage(broker_id, broker_id, UUID(int=1000 + broker_id), (endpoint,), FEATURES, None, fenced, False, ())


def topic(name: str, number: int, leaders: Sequence[int], *, replicas: Sequence[int] = (1,)) -> TopicImage:
    """Return a topic with the id `number` and one partition per leader in `leaders`."""
    made = tuple(replicas)
    directories = (DIRECTORY_UNASSIGNED,) * len(made)
    partitions = {i: PartitionImage(i, made, made, leader, 5 + i, 7, directories) for i, leader in enumerate(leaders)}
    return TopicImage(name, UUID(int=number), partitions)


def image(
    topics: Iterable[TopicImage] = (),
    brokers: Iterable[BrokerImage] = (broker(1),),
    configs: Mapping[str, Mapping[str, str]] | None = None,
) -> MetadataImage:
    made = {row.name: row for row in topics}
    return MetadataImage(
        offset=9,
        epoch=1,
        brokers={entry.broker_id: entry for entry in brokers},
        topics=made,
        topics_by_id={each.topic_id: each for each in made.values()},
        configs={(RESOURCE_TOPIC, name): values for name, values in (configs or {}).items()},
        features={"transaction.version": 2, "metadata.version": 33},
    )


class Deny(AllowAll):
    """Authorizer that denies each `(operation, resource name)` of `denied` and allows everything else."""

    def __init__(self, *denied: tuple[AclOperation, str]) -> None:
        self.denied = denied

    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> list[bool]:
        return [(operation, name) not in self.denied for name in names]

    def decide_any(self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType) -> Decision:
        return Decision(operation not in dict(self.denied), Rule.NO_AUTHORIZER)


class FakeAutoTopicCreation:
    """Fake automatic topic creation: adds topics with one partition to the image and records their names."""

    def __init__(self, metadata: Any, refusals: Mapping[str, ErrorCode] | None = None) -> None:
        self.metadata = metadata
        self.refusals = refusals or {}
        self.created: list[str] = []
        self.charged: list[tuple[str, Any]] = []

    async def create(
        self, names: Iterable[str], *, address: str = "", mutations: Any = None, before: int = 0
    ) -> dict[str, ErrorCode]:
        self.charged.append((address, mutations))
        results = {}
        for name in names:
            results[name] = self.refusals.get(name, ErrorCode.NONE)
            if not results[name]:
                self.created.append(name)
                made = topic(name, 500 + len(self.created), [1])
                old = self.metadata.image
                self.metadata.image = replace(
                    old,
                    topics={**old.topics, name: made},
                    topics_by_id={**old.topics_by_id, made.topic_id: made},
                )
        return results


class FakeController:
    """Fake controller: returns `results` for each call and records the calls as `(items, options)`."""

    def __init__(self, results: Sequence[Any] = ()) -> None:
        self.results = tuple(results)
        self.calls: list[tuple[Any, dict[str, Any]]] = []

    async def create_topics(self, topics: Sequence[NewTopic], **options: Any) -> tuple[Any, ...]:
        self.calls.append((tuple(topics), options))
        return self.results or tuple(CreatedTopic(row.name, topic_id=UUID(int=1)) for row in topics)

    async def create_partitions(self, topics: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        self.calls.append((tuple(topics), options))
        return self.results

    async def elect_leaders(self, partitions: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        self.calls.append((tuple(partitions), options))
        return self.results

    async def delete_topics(self, topics: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        self.calls.append((tuple(topics), options))
        return self.results


def context(
    version: int,
    metadata: MetadataImage,
    *assignments: str,
    authorizer: AllowAll | None = None,
    controller: FakeController | None = None,
    refusals: Mapping[str, ErrorCode] | None = None,
    apis: tuple[Any, ...] = (),
) -> BrokerRequestContext:
    """Return the request context of a handler that needs metadata, configuration and a controller."""
    cache = SimpleNamespace(image=metadata)
    made = config(*assignments)
    services: Any = SimpleNamespace(
        config=made,
        metadata=cache,
        suspected_leaders=SimpleNamespace(any=lambda _topics=None: False),
        controller=controller or FakeController(),
        auto_topic_creation=FakeAutoTopicCreation(cache, refusals),
        topic_settings=TopicSettings(made),
        authorizer=authorizer or AllowAll(),
        audit=None,
        quotas=Unlimited(),
        apis=apis,
        cluster_id="cluster",
        node_id=1,
    )
    return request_context(0, version, Session(1, LISTENER, "127.0.0.1", 5), services, 1_700_000_000_000)


def request_context(
    api_key: int, version: int, session: Session, services: Any, now_ms: int, client_id: str = "client", size: int = 0
) -> BrokerRequestContext:
    """Return a request context whose three contexts are all `services`, an object with the fields of the handler."""
    authorizer = services.authorizer
    return BrokerRequestContext(
        api_key, version, 1, client_id, session, authorizer, now_ms, size, services, services, services
    )


def services_of(request_context: BrokerRequestContext) -> Any:
    """Return the object that stands for all contexts of `request_context`."""
    return request_context.node


async def response_of(result: Any) -> Any:
    """Return the response of a handler. Await its stages if the handler returned an awaitable or an Ordered."""
    while isinstance(result, (Ordered, Awaitable)):
        result = await (result.awaitable if isinstance(result, Ordered) else result)
    return result


class OneSuspect:
    """Suspected leaders with broker 2, for which `decided` elects broker 1. `waited` has its arguments."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        self.waited: list[Sequence[str] | None] = []

    def any(self, topics: Sequence[str] | None = None) -> bool:
        return topics is None or any(
            partition.leader == 2 for name in topics for partition in self._cache.image.topic(name).partitions.values()
        )

    async def decided(self, topics: Sequence[str] | None = None) -> None:
        self.waited.append(topics)
        elected = {
            name: replace(each, partitions={index: replace(one, leader=1) for index, one in each.partitions.items()})
            for name, each in self._cache.image.topics.items()
        }
        self._cache.image = replace(
            self._cache.image, topics=elected, topics_by_id={each.topic_id: each for each in elected.values()}
        )
