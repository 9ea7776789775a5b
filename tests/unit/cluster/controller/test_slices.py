"""Slices of large requests: sizes, order of results, duplicates, limits, and the event loop between two slices."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from odradek.cluster.controller.commands import (
    AlterClientQuotas,
    AlterConfigs,
    AlterReassignments,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    ListReassignments,
)
from odradek.cluster.controller.election import Election
from odradek.cluster.controller.messages.partitions import NewReplicas
from odradek.cluster.controller.messages.settings import ConfigChange, ConfigOperation, QuotaChange
from odradek.cluster.controller.messages.topics import NewPartitions, NewTopic, TopicName
from odradek.cluster.controller.partitions.creation import PARTITIONS_PER_CALL_MAX
from odradek.cluster.controller.slices import (
    CHECKS_PER_SLICE,
    RECORDS_PER_REQUEST_MAX,
    RECORDS_PER_SLICE,
    Merged,
    slices_of,
)
from odradek.protocol.errors import ErrorCode, Refusal
from tests.support.controller_node import ControllerNode
from tests.support.raft_memory import ControllerRig, MemoryRaftStorage

if TYPE_CHECKING:
    from odradek.cluster.controller.commands import Command

E = ErrorCode
TOPIC = 2
TOO_LARGE = "Unable to perform excessively large batch operation."


def in_slices(rig: ControllerRig, command: Command) -> tuple[Any, ...]:
    """Decide all slices of `command` and return the merged results."""
    slices = slices_of(rig.core.state, command)
    assert len(slices) > 1, "the request is large enough for several slices"
    merged = Merged()
    for part in slices:
        merged.add(part, rig.do(part.command))
    return merged.ordered()


def both(prepare: tuple[Command, ...], command: Command) -> tuple[tuple[Any, ...], tuple[Any, ...], ControllerRig]:
    """Return the results of one decision and of slices from equal states, and the rig of the slices."""
    one, divided = (ControllerRig(seed=3).with_brokers(1, 2) for _ in range(2))
    for rig in (one, divided):
        for each in prepare:
            rig.do(each)
    whole = one.do(command)
    return whole, in_slices(divided, command), divided


def topics(count: int) -> tuple[NewTopic, ...]:
    return tuple(NewTopic(f"t{number}", 1, 1) for number in range(count))


def set_retention(name: str) -> ConfigChange:
    return ConfigChange(TOPIC, name, (("retention.ms", ConfigOperation.SET, "5"),))


def test_created_topics_have_the_results_of_one_decision_in_the_order_of_the_request() -> None:
    requested = (*topics(150), NewTopic("a.b", 1, 1), NewTopic("bad name"), *topics(3), *topics(400)[200:])
    whole, divided, rig = both((), CreateTopics(requested))
    assert [(r.name, r.error, r.message) for r in divided] == [(r.name, r.error, r.message) for r in whole]
    assert [r.name for r in divided if r.error is E.INVALID_REQUEST] == ["t0", "t1", "t2"]
    assert max(len(batch) for batch in rig.batches) <= RECORDS_PER_SLICE


def test_name_that_collides_with_a_topic_of_an_earlier_slice_is_refused() -> None:
    rig = ControllerRig().with_brokers(1)
    requested = (NewTopic("a.b", 1, 1), *topics(200), NewTopic("a_b", 1, 1))
    results = in_slices(rig, CreateTopics(requested))
    assert results[-1].error is E.INVALID_TOPIC_EXCEPTION
    assert results[-1].message == "Topic 'a_b' collides with existing topic: a.b"
    rig.do(DeleteTopics((TopicName("a.b"),)))
    assert rig.do(CreateTopics((NewTopic("a_b", 1, 1),)))[0].error is E.NONE


def test_deletions_have_the_results_of_one_decision() -> None:
    created = CreateTopics(topics(300))
    probe = ControllerRig(seed=3).with_brokers(1, 2)
    ids = {row.name: row.topic_id for row in probe.do(created)}
    requested = (
        *(TopicName(f"t{number}") for number in range(250)),
        TopicName("missing"),
        TopicName(None, ids["t7"]),
        *(TopicName(None, ids[f"t{number}"]) for number in range(260, 300)),
        TopicName("missing"),
    )
    whole, divided, rig = both((created,), DeleteTopics(requested))
    assert divided == whole
    refused = [row for row in divided if row.error is E.INVALID_REQUEST]
    assert [row.message for row in refused] == [
        "The provided topic name maps to an ID that was already supplied.",
        "Duplicate topic name.",
    ]
    assert len(rig.core.state.image.topics) == 10


def test_configurations_quotas_and_reassignments_have_the_results_of_one_decision() -> None:
    created = (CreateTopics(topics(250)),)
    names = [f"t{number}" for number in range(250)]
    changes = (*map(set_retention, names), set_retention("t3"), set_retention("missing"))
    whole, divided, rig = both(created, AlterConfigs(changes))
    assert divided == whole
    assert [row.name for row in divided if row.error] == ["t3", "t3", "missing"]
    assert rig.core.state.image.topic_config("t249") == {"retention.ms": "5"}
    quotas = tuple(QuotaChange((("user", name),), (("producer_byte_rate", 1.0),)) for name in (*names, "t5"))
    whole, divided, rig = both((), AlterClientQuotas(quotas))
    assert divided == whole
    assert [row.error for row in divided[-2:]] == [E.NONE, E.INVALID_REQUEST]
    moves = (*(NewReplicas(name, 0, (1, 2)) for name in names), NewReplicas("t9", 0, None), NewReplicas("u", 0, (1,)))
    whole, divided, rig = both(created, AlterReassignments(moves))
    assert divided == whole
    everything = in_slices(rig, ListReassignments(None))
    assert [row.topic for row in everything] == [name for name in names if name != "t9"]
    assert in_slices(rig, ListReassignments(tuple((name, 0) for name in names))) == everything


@pytest.mark.parametrize("everywhere", [True, False])
def test_elections_have_the_results_of_one_decision(everywhere: bool) -> None:
    prepared: tuple[Command, ...] = (
        CreateTopics(
            tuple(NewTopic(f"t{number}", assignments=tuple((i, (1, 2)) for i in range(5))) for number in range(100))
        ),
        AlterReassignments(tuple(NewReplicas(f"t{number}", 3, (2, 1)) for number in range(100))),
    )
    named = tuple((f"t{number}", index) for number in range(101) for index in range(5))
    whole, divided, rig = both(prepared, ElectLeaders(None if everywhere else named, Election.PREFERRED))
    assert divided == whole
    assert len(divided) == (100 if everywhere else 505)
    assert [row.topic for row in divided if row.error is E.NONE] == [f"t{number}" for number in range(100)]
    assert [len(batch) for batch in rig.batches[-3:]] == [CHECKS_PER_SLICE // 5] * 2 + [100 - 2 * CHECKS_PER_SLICE // 5]


def test_more_partitions_of_existing_topics_are_divided_by_their_number() -> None:
    rig = ControllerRig().with_brokers(1)
    rig.do(CreateTopics(topics(5)))
    requested = tuple(NewPartitions(f"t{number}", 61) for number in (0, 1, 9, 2, 3, 3))
    results = in_slices(rig, CreatePartitions(requested))
    assert [(row.name, row.error) for row in results] == [
        ("t0", E.NONE),
        ("t1", E.NONE),
        ("t9", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("t2", E.NONE),
        ("t3", E.INVALID_REQUEST),
    ]
    assert [len(batch) for batch in rig.batches[-3:]] == [60, 60, 60]


def test_topic_with_many_partitions_is_one_batch() -> None:
    rig = ControllerRig().with_brokers(1)
    results = in_slices(rig, CreateTopics((NewTopic("a", 1, 1), NewTopic("b", 1_000, 1), NewTopic("c", 1, 1))))
    assert [row.num_partitions for row in results] == [1, 1_000, 1]
    assert [len(batch) for batch in rig.batches[-3:]] == [2, 1_001, 2]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            CreateTopics((NewTopic("a", PARTITIONS_PER_CALL_MAX), NewTopic("b", 1))),
            "Excessively large number of partitions per request.",
        ),
        (
            CreatePartitions((NewPartitions("t0", PARTITIONS_PER_CALL_MAX + 2),)),
            "Excessively large number of additional partitions per request.",
        ),
        (CreateTopics(topics(RECORDS_PER_REQUEST_MAX // 2 + 1)), TOO_LARGE),
        (DeleteTopics(tuple(TopicName(f"t{n}") for n in range(RECORDS_PER_REQUEST_MAX + 1))), TOO_LARGE),
        (AlterConfigs(tuple(set_retention(f"t{n}") for n in range(RECORDS_PER_REQUEST_MAX + 1))), TOO_LARGE),
        (
            AlterConfigs((ConfigChange(TOPIC, "t0", set_retention("t0").changes * (RECORDS_PER_REQUEST_MAX + 1)),)),
            TOO_LARGE,
        ),
        (AlterClientQuotas((QuotaChange((("user", "u"),), ()),) * (RECORDS_PER_REQUEST_MAX + 1)), TOO_LARGE),
        (AlterReassignments((NewReplicas("t0", 0, (1,)),) * (RECORDS_PER_REQUEST_MAX + 1)), TOO_LARGE),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_excessively_large_request_is_refused_before_the_first_decision(command: Command, message: str) -> None:
    rig = ControllerRig().with_brokers(1)
    rig.do(CreateTopics(topics(1)))
    with pytest.raises(Refusal) as caught:
        slices_of(rig.core.state, command)
    assert (caught.value.error, caught.value.message) == (E.POLICY_VIOLATION, message)


def test_largest_topic_is_allowed() -> None:
    rig = ControllerRig().with_brokers(1)
    (part,) = slices_of(rig.core.state, CreateTopics((NewTopic("a", RECORDS_PER_REQUEST_MAX - 1, 1),)))
    assert rig.do(part.command)[0].num_partitions == RECORDS_PER_REQUEST_MAX - 1


async def test_other_requests_are_decided_between_the_slices_of_a_large_one() -> None:
    node = await ControllerNode(MemoryRaftStorage()).start()
    large = asyncio.ensure_future(node.service.create_topics(topics(2_000), timeout_ms=60_000))
    await asyncio.sleep(0)
    (small,) = await node.service.create_topics([NewTopic("small", 1, 1)])
    assert small.error is E.NONE
    assert not large.done()
    created = await large
    assert [row.name for row in created] == [f"t{number}" for number in range(2_000)]
    assert len(node.cache.image.topics) == 2_001
    # Refused items need no commit; the event loop must run between their slices, too.
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count_turns())
    again = await node.service.create_topics(topics(2_000))
    counting.cancel()
    assert list(dict.fromkeys(row.error for row in again)) == [E.TOPIC_ALREADY_EXISTS]
    assert turns >= 2_000 * 2 // RECORDS_PER_SLICE
    await node.stop()


async def test_refusal_of_a_large_request_reaches_the_caller() -> None:
    node = await ControllerNode(MemoryRaftStorage()).start()
    with pytest.raises(Refusal, match="POLICY_VIOLATION"):
        await node.service.create_topics([NewTopic("a", PARTITIONS_PER_CALL_MAX + 1, 1)])
    waiting = asyncio.ensure_future(node.service.create_topics(topics(1_000)))
    await asyncio.sleep(0)
    node.service.stop()
    with pytest.raises(Refusal, match="NOT_CONTROLLER"):
        await waiting
    await node.stop()


def test_long_lists_of_configurations_are_divided() -> None:
    """Each item of a list is compared with the items that the property has."""
    rig = ControllerRig(seed=3).with_brokers(1, 2)
    rig.do(CreateTopics(tuple(NewTopic(f"t{number}", 1) for number in range(9))))
    items = ",".join(["0:1"] * 8_000)
    change = ("leader.replication.throttled.replicas", ConfigOperation.SUBTRACT, items)
    slices = slices_of(rig.core.state, AlterConfigs(tuple(ConfigChange(TOPIC, f"t{n}", (change,)) for n in range(9))))
    assert len(slices) == 9


def test_deletions_and_in_sync_numbers_count_partitions() -> None:
    rig = ControllerRig(seed=3).with_brokers(1, 2)
    for number in range(9):
        rig.do(CreateTopics((NewTopic(f"t{number}", 500),)))
    assert len(slices_of(rig.core.state, DeleteTopics(tuple(TopicName(f"t{n}") for n in range(9))))) == 9
    change = ("min.insync.replicas", ConfigOperation.SET, "2")
    raised = AlterConfigs(tuple(ConfigChange(TOPIC, f"t{number}", (change,)) for number in range(9)))
    assert len(slices_of(rig.core.state, raised)) == 9
