"""Automatic topic creation: merged requests, results, waiting, and the internal topics."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.broker.quota.controller_mutations import BoundedControllerMutationQuota
from odradek.broker.quota.rates import TokenBucket
from odradek.broker.topics import auto_create as topics_module
from odradek.broker.topics.auto_create import (
    TOPICS_MAX,
    TOPICS_PER_ADDRESS_MAX,
    TOPICS_PER_REQUEST_MAX,
    AutoTopicCreation,
)
from odradek.cluster.controller.messages.topics import CreatedTopic, NewTopic
from odradek.cluster.metadata.image import MetadataImage
from odradek.protocol.errors import ErrorCode, Refusal
from tests.support.broker_context import broker, config, image, topic
from tests.support.data_rig import Clock

E = ErrorCode
TXN = "__transaction_state"


class FakeMetadata:
    """Fake metadata cache whose image the test replaces."""

    def __init__(self, first: MetadataImage) -> None:
        self.image = first
        self.subscribers: list[Any] = []
        self.subscribe, self.unsubscribe = self.subscribers.append, self.subscribers.remove

    def show(self, changed: MetadataImage) -> None:
        self.image = changed
        for subscriber in list(self.subscribers):
            subscriber(None, changed)


class FakeController:
    """Fake controller: creates the requested topics and, if `arrives`, adds them to the metadata image."""

    def __init__(self, *outcomes: ErrorCode) -> None:
        self.outcomes = list(outcomes)
        self.requests: list[NewTopic] = []
        self.calls = 0
        self.creation_allowed = asyncio.Event()
        self.metadata = FakeMetadata(image([], []))
        self.arrives = True

    async def create_topics(self, topics: Sequence[NewTopic], **_: Any) -> tuple[CreatedTopic, ...]:
        self.requests += topics
        self.calls += 1
        await self.creation_allowed.wait()
        error = self.outcomes.pop(0) if self.outcomes else E.NONE
        if error is E.NOT_CONTROLLER:
            raise Refusal(error)
        if self.arrives:
            self.show(*(new_topic.name for new_topic in topics))
        return tuple(CreatedTopic(new_topic.name, error) for new_topic in topics)

    def show(self, *names: str) -> None:
        before = self.metadata.image
        rows = [topic(name, len(self.requests) + index, [1]) for index, name in enumerate(names)]
        self.metadata.show(image([*before.topics.values(), *rows], before.brokers.values()))


def auto_creation(
    controller: FakeController, *assignments: str, brokers: int = 1, fenced: int = 0, voters: int = 0
) -> AutoTopicCreation:
    registered = [broker(number, fenced=number > brokers - fenced) for number in range(1, brokers + 1)]
    controller.metadata.image = image([], registered)
    metadata: Any = controller.metadata
    controlled: Any = controller
    return AutoTopicCreation(config(*assignments), metadata, controlled, voters=voters)


async def test_concurrent_requests_for_a_topic_reach_the_controller_once() -> None:
    controller = FakeController()
    topics = auto_creation(controller)
    first = asyncio.ensure_future(topics.create(["a"]))
    second = asyncio.ensure_future(topics.create(["a", "b"]))
    await asyncio.sleep(0)
    controller.creation_allowed.set()
    assert await first == {"a": E.NONE}
    assert await second == {"a": E.NONE, "b": E.NONE}
    assert [new_topic.name for new_topic in controller.requests] == ["a", "b"]
    assert await topics.create(["a"]) == {"a": E.NONE}
    assert [new_topic.name for new_topic in controller.requests] == ["a", "b", "a"], (
        "a request after the first creation is sent again"
    )


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (E.TOPIC_ALREADY_EXISTS, E.NONE),
        (E.INVALID_REPLICATION_FACTOR, E.INVALID_REPLICATION_FACTOR),
        (E.NOT_CONTROLLER, E.NOT_CONTROLLER),
    ],
)
async def test_result_of_the_controller_is_returned(outcome: ErrorCode, expected: ErrorCode) -> None:
    controller = FakeController(outcome)
    controller.creation_allowed.set()
    assert await auto_creation(controller).create(["a"]) == {"a": expected}


async def test_request_creates_a_bounded_number_of_topics_and_refuses_the_rest_with_a_retriable_error() -> None:
    controller = FakeController()
    controller.creation_allowed.set()
    topics = auto_creation(controller)
    names = [f"t{number}" for number in range(5_000)]
    results = await topics.create(names)
    assert list(results) == names
    assert Counter(results.values()) == {E.NONE: TOPICS_PER_REQUEST_MAX, E.LEADER_NOT_AVAILABLE: 4_900}
    assert controller.calls == 1, "the topics of one request are one request to the controller"
    left = [name for name, error in results.items() if error]
    assert Counter((await topics.create(left)).values())[E.NONE] == TOPICS_PER_REQUEST_MAX


async def test_topics_with_many_partitions_lower_the_number_of_topics_per_request() -> None:
    controller = FakeController()
    controller.creation_allowed.set()
    few = await auto_creation(controller, "num.partitions=300").create(["a", "b", "c", "d"])
    assert list(few.values()) == [E.NONE, E.NONE, E.NONE, E.LEADER_NOT_AVAILABLE]
    one = await auto_creation(controller, "num.partitions=5000").create(["e", "f"])
    assert list(one.values()) == [E.NONE, E.LEADER_NOT_AVAILABLE]


async def test_address_with_many_creations_in_progress_is_refused_and_other_addresses_are_served() -> None:
    controller = FakeController()
    topics = auto_creation(controller)
    shares = [f"10.0.0.{number}" for number in range(TOPICS_MAX // TOPICS_PER_ADDRESS_MAX)]
    waiting = [
        asyncio.ensure_future(topics.create([f"{address}-{request}-{n}" for n in range(200)], address=address))
        for address in shares
        for request in range(3)
    ]
    for _ in range(2):
        await asyncio.sleep(0)
    assert sum(task.done() for task in waiting) == len(shares), "the third request of each address is refused"
    assert len(controller.requests) == TOPICS_MAX
    assert await topics.create(["z"], address="10.1.1.1") == {"z": E.LEADER_NOT_AVAILABLE}
    joined = asyncio.ensure_future(topics.create([f"{shares[0]}-0-0", TXN], address="10.1.1.1"))
    controller.creation_allowed.set()
    assert await joined == {f"{shares[0]}-0-0": E.NONE, TXN: E.NONE}
    for task in waiting:
        await task
    assert await topics.create(["z"], address="10.1.1.1") == {"z": E.NONE}
    assert not topics._by_address
    assert not topics._in_progress


async def test_share_of_one_address_leaves_capacity_for_other_addresses() -> None:
    controller = FakeController()
    topics = auto_creation(controller)
    filling = [asyncio.ensure_future(topics.create([f"a{r}-{n}" for n in range(200)], address="a")) for r in range(9)]
    await asyncio.sleep(0)
    other = asyncio.ensure_future(topics.create(["b"], address="b"))
    controller.creation_allowed.set()
    assert await other == {"b": E.NONE}
    filled = [Counter((await task).values())[E.NONE] for task in filling]
    assert filled == [100, 100, *[0] * 7]


async def test_creation_beyond_the_mutation_quota_of_the_client_is_refused() -> None:
    controller = FakeController()
    controller.creation_allowed.set()
    bucket = TokenBucket(11, 1_000)
    quota = BoundedControllerMutationQuota(bucket, 1.0, Clock(), strict=True)
    results = await auto_creation(controller, "num.partitions=4").create(["a", "b", "c", "d", "e"], mutations=quota)
    assert list(results.values()) == [E.NONE] * 3 + [E.LEADER_NOT_AVAILABLE] * 2
    assert quota.throttle_ms == 1_000


async def test_canceled_request_does_not_cancel_the_creation_that_another_request_waits_for() -> None:
    controller = FakeController()
    topics = auto_creation(controller)
    first, second = (asyncio.ensure_future(topics.create(["a"])) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    controller.creation_allowed.set()
    assert await second == {"a": E.NONE}


async def test_creation_completes_when_this_broker_has_the_topic() -> None:
    controller = FakeController()
    controller.creation_allowed.set()
    controller.arrives = False
    creation = asyncio.ensure_future(auto_creation(controller).create(["a"]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not creation.done()
    controller.show("other")
    controller.show("a")
    assert await creation == {"a": E.NONE}
    assert controller.metadata.subscribers == []


async def test_wait_for_the_metadata_of_a_new_topic_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "ARRIVAL_WAIT_S", 0.001)
    controller = FakeController()
    controller.creation_allowed.set()
    controller.arrives = False
    assert await auto_creation(controller).create(["a"]) == {"a": E.NONE}


async def test_transaction_log_waits_for_starting_brokers() -> None:
    """The first client request arrives when one of three brokers is registered; the log still gets three replicas."""
    controller = FakeController()
    controller.creation_allowed.set()
    creation = asyncio.ensure_future(auto_creation(controller, voters=3).create([TXN]))
    for brokers in ([broker(1), broker(2)], [broker(1), broker(2), broker(3, fenced=True)]):
        controller.metadata.show(image([], brokers))
        await asyncio.sleep(0)
        assert controller.requests == []
    controller.metadata.show(image([], [broker(1), broker(2), broker(3)]))
    assert await creation == {TXN: E.NONE}
    assert controller.requests[0].replication_factor == 3


async def test_wait_for_starting_brokers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "BROKERS_WAIT_S", 0.001)
    controller = FakeController(E.INVALID_REPLICATION_FACTOR)
    controller.creation_allowed.set()
    assert await auto_creation(controller, voters=3, brokers=2).create([TXN]) == {TXN: E.INVALID_REPLICATION_FACTOR}
    assert await auto_creation(controller, voters=3, brokers=3, fenced=1).create([TXN]) == {TXN: E.NONE}
    assert [new_topic.replication_factor for new_topic in controller.requests] == [3, 3]


async def test_unused_internal_topic_is_not_created() -> None:
    controller = FakeController()
    assert await auto_creation(controller).create(["__share_group_state"]) == {
        "__share_group_state": E.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert controller.requests == []


@pytest.mark.parametrize(
    ("brokers", "assignments", "replicas", "min_isr"),
    [
        (1, (), 1, "1"),
        (2, (), 2, "2"),
        (5, (), 3, "2"),
        (1, ("transaction.state.log.replication.factor=3",), 3, "2"),
        (3, ("transaction.state.log.min.isr=3",), 3, "3"),
        (3, ("transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=2"), 1, "2"),
    ],
)
async def test_transaction_log_is_sized_by_the_cluster_unless_configured(
    monkeypatch: pytest.MonkeyPatch, brokers: int, assignments: tuple[str, ...], replicas: int, min_isr: str
) -> None:
    monkeypatch.setattr(topics_module, "BROKERS_WAIT_S", 0.001)
    controller = FakeController()
    controller.creation_allowed.set()
    await auto_creation(controller, *assignments, brokers=brokers).create([TXN])
    (new_topic,) = controller.requests
    assert (new_topic.num_partitions, new_topic.replication_factor) == (50, replicas)
    configs = dict(new_topic.configs)
    assert (configs["min.insync.replicas"], configs["cleanup.policy"]) == (min_isr, "compact")


@pytest.mark.parametrize(
    ("brokers", "assignments", "partitions", "replicas"),
    [
        (1, (), 50, 1),
        (2, (), 50, 2),
        (5, (), 50, 3),
        (1, ("offsets.topic.replication.factor=3",), 50, 3),
        (1, ("offsets.topic.num.partitions=4", "transaction.state.log.replication.factor=3"), 4, 1),
    ],
)
async def test_offsets_topic_is_created_with_kafkas_configs(
    brokers: int, assignments: tuple[str, ...], partitions: int, replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics_module, "BROKERS_WAIT_S", 0.001)
    controller = FakeController()
    controller.creation_allowed.set()
    await auto_creation(controller, *assignments, brokers=brokers).create(["__consumer_offsets"])
    (new_topic,) = controller.requests
    assert (new_topic.num_partitions, new_topic.replication_factor) == (partitions, replicas)
    assert dict(new_topic.configs) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
