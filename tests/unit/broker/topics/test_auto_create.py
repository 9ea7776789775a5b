import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.broker.topics import auto_create as topics_module
from odradek.broker.topics.auto_create import AutoTopicCreation
from odradek.cluster.controller.messages.topics import CreatedTopic, NewTopic
from odradek.cluster.metadata.image import MetadataImage
from odradek.protocol.errors import ErrorCode, Refusal
from tests.support.broker_context import broker, config, image, topic

E = ErrorCode
TXN = "__transaction_state"


class Metadata:
    """A cache whose image the test replaces."""

    def __init__(self, first: MetadataImage) -> None:
        self.image = first
        self.subscribers: list[Any] = []
        self.subscribe, self.unsubscribe = self.subscribers.append, self.subscribers.remove

    def show(self, changed: MetadataImage) -> None:
        self.image = changed
        for subscriber in list(self.subscribers):
            subscriber(None, changed)


class Controller:
    """Makes what it is asked for, and shows it unless `arrives` says otherwise."""

    def __init__(self, *outcomes: ErrorCode) -> None:
        self.outcomes = list(outcomes)
        self.asked: list[NewTopic] = []
        self.gate = asyncio.Event()
        self.metadata = Metadata(image([], []))
        self.arrives = True

    async def create_topics(self, topics: Sequence[NewTopic], **_: Any) -> tuple[CreatedTopic, ...]:
        self.asked += topics
        await self.gate.wait()
        error = self.outcomes.pop(0) if self.outcomes else E.NONE
        if error is E.NOT_CONTROLLER:
            raise Refusal(error)
        if self.arrives:
            self.show(topics[0].name)
        return (CreatedTopic(topics[0].name, error),)

    def show(self, name: str) -> None:
        before = self.metadata.image
        self.metadata.show(image([topic(name, len(self.asked), [1])], before.brokers.values()))


def maker(
    controller: Controller, *assignments: str, brokers: int = 1, fenced: int = 0, voters: int = 0
) -> AutoTopicCreation:
    registered = [broker(number, fenced=number > brokers - fenced) for number in range(1, brokers + 1)]
    controller.metadata.image = image([], registered)
    metadata: Any = controller.metadata
    controlled: Any = controller
    return AutoTopicCreation(config(*assignments), metadata, controlled, voters=voters)


async def test_however_many_ask_the_controller_is_asked_once() -> None:
    controller = Controller()
    topics = maker(controller)
    first = asyncio.ensure_future(topics.create(["a"]))
    second = asyncio.ensure_future(topics.create(["a", "b"]))
    await asyncio.sleep(0)
    controller.gate.set()
    assert await first == {"a": E.NONE}
    assert await second == {"a": E.NONE, "b": E.NONE}
    assert [each.name for each in controller.asked] == ["a", "b"]
    await topics.create(["a"])
    assert [each.name for each in controller.asked] == ["a", "b", "a"], "a later wish is a new one"


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (E.TOPIC_ALREADY_EXISTS, E.NONE),
        (E.INVALID_REPLICATION_FACTOR, E.INVALID_REPLICATION_FACTOR),
        (E.NOT_CONTROLLER, E.NOT_CONTROLLER),
    ],
)
async def test_what_became_of_it_is_told(outcome: ErrorCode, told: ErrorCode) -> None:
    controller = Controller(outcome)
    controller.gate.set()
    assert await maker(controller).create(["a"]) == {"a": told}


async def test_a_topic_is_told_when_this_broker_knows_it() -> None:
    controller = Controller()
    controller.gate.set()
    controller.arrives = False
    making = asyncio.ensure_future(maker(controller).create(["a"]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not making.done()
    controller.show("other")
    controller.show("a")
    assert await making == {"a": E.NONE}
    assert controller.metadata.subscribers == []


async def test_a_topic_that_does_not_show_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "ARRIVAL_WAIT_S", 0.001)
    controller = Controller()
    controller.gate.set()
    controller.arrives = False
    assert await maker(controller).create(["a"]) == {"a": E.NONE}


async def test_the_transaction_log_waits_for_brokers_that_are_still_starting() -> None:
    """A client comes when one of three is there: the log has three replicas all the same, for good."""
    controller = Controller()
    controller.gate.set()
    making = asyncio.ensure_future(maker(controller, voters=3).create([TXN]))
    for brokers in ([broker(1), broker(2)], [broker(1), broker(2), broker(3, fenced=True)]):
        controller.metadata.show(image([], brokers))
        await asyncio.sleep(0)
        assert controller.asked == []
    controller.metadata.show(image([], [broker(1), broker(2), broker(3)]))
    assert await making == {TXN: E.NONE}
    assert controller.asked[0].replication_factor == 3


async def test_the_transaction_log_does_not_wait_for_ever_for_a_dead_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "BROKERS_WAIT_S", 0.001)
    controller = Controller(E.INVALID_REPLICATION_FACTOR)
    controller.gate.set()
    assert await maker(controller, voters=3, brokers=2).create([TXN]) == {TXN: E.INVALID_REPLICATION_FACTOR}
    assert await maker(controller, voters=3, brokers=3, fenced=1).create([TXN]) == {TXN: E.NONE}
    assert [made.replication_factor for made in controller.asked] == [3, 3]


async def test_internal_topics_that_nothing_uses_are_not_made() -> None:
    controller = Controller()
    assert await maker(controller).create(["__share_group_state"]) == {
        "__share_group_state": E.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert controller.asked == []


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
async def test_the_transaction_log_fits_the_cluster_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, brokers: int, assignments: tuple[str, ...], replicas: int, min_isr: str
) -> None:
    monkeypatch.setattr(topics_module, "BROKERS_WAIT_S", 0.001)
    controller = Controller()
    controller.gate.set()
    await maker(controller, *assignments, brokers=brokers).create([TXN])
    (made,) = controller.asked
    assert (made.num_partitions, made.replication_factor) == (50, replicas)
    configs = dict(made.configs)
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
async def test_the_log_of_groups_is_made_as_kafka_makes_it(
    brokers: int, assignments: tuple[str, ...], partitions: int, replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics_module, "BROKERS_WAIT_S", 0.001)
    controller = Controller()
    controller.gate.set()
    await maker(controller, *assignments, brokers=brokers).create(["__consumer_offsets"])
    (made,) = controller.asked
    assert (made.num_partitions, made.replication_factor) == (partitions, replicas)
    assert dict(made.configs) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
