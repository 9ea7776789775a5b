import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from broker.topics import TopicMaker
from cluster.controller.port import CreatedTopic, NewTopic
from protocol.errors import ErrorCode, Refusal
from tests.support.broker_context import broker, config, image

E = ErrorCode
TXN = "__transaction_state"


class Controller:
    def __init__(self, *outcomes: ErrorCode) -> None:
        self.outcomes = list(outcomes)
        self.asked: list[NewTopic] = []
        self.gate = asyncio.Event()

    async def create_topics(self, topics: Sequence[NewTopic], **_: Any) -> tuple[CreatedTopic, ...]:
        self.asked += topics
        await self.gate.wait()
        error = self.outcomes.pop(0) if self.outcomes else E.NONE
        if error is E.NOT_CONTROLLER:
            raise Refusal(error)
        return (CreatedTopic(topics[0].name, error),)


def maker(controller: Controller, *assignments: str, brokers: int = 1) -> TopicMaker:
    metadata: Any = SimpleNamespace(image=image([], [broker(number) for number in range(1, brokers + 1)]))
    controlled: Any = controller
    return TopicMaker(config(*assignments), metadata, controlled)


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


async def test_internal_topics_that_nothing_uses_are_not_made() -> None:
    controller = Controller()
    assert await maker(controller).create(["__consumer_offsets"]) == {
        "__consumer_offsets": E.UNKNOWN_TOPIC_OR_PARTITION
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
    brokers: int, assignments: tuple[str, ...], replicas: int, min_isr: str
) -> None:
    controller = Controller()
    controller.gate.set()
    await maker(controller, *assignments, brokers=brokers).create([TXN])
    (made,) = controller.asked
    assert (made.num_partitions, made.replication_factor) == (50, replicas)
    configs = dict(made.configs)
    assert (configs["min.insync.replicas"], configs["cleanup.policy"]) == (min_isr, "compact")
