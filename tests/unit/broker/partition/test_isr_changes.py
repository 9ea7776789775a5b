"""Pending ISR changes of the partitions of a broker, and the AlterPartition requests that carry them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog

from odradek.broker.partition.isr_changes import CHANGES_LOGGED_MAX, CHANGES_PER_REQUEST_MAX, IsrChanges
from odradek.cluster.controller.messages.partitions import AlteredPartition, PartitionIsr
from odradek.cluster.replication.leader import IsrChangeResult
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

NODE = 1
BROKER_EPOCH = 5


class FakePartition:
    """Partition that this broker leads, with a pending ISR change."""

    topic = "t"
    topic_id = UUID(int=7)

    def __init__(self, index: int) -> None:
        self.index = index
        self.change: Any = SimpleNamespace(isr=(NODE,), leader_epoch=0, partition_epoch=0)
        replicas = SimpleNamespace(pending_change=self.change, isr_with_epochs=self.members)
        self.leader_term: Any = SimpleNamespace(replicas=replicas)
        self.completed = 0

    def members(self, _change: Any, epoch: int) -> tuple[tuple[int, int], ...]:
        return ((NODE, epoch),)

    def complete_isr_change(self, _change: Any, error: ErrorCode, *_state: Any) -> IsrChangeResult:
        if error is ErrorCode.NOT_CONTROLLER:
            return IsrChangeResult.RETRY
        self.completed += 1
        return IsrChangeResult.COMMITTED


class FakeController:
    """Client of a controller that accepts each change, after it has refused `refusals` requests.

    If it is the controller of this node, it responds without a turn of the event loop.
    """

    def __init__(self, refusals: int = 0, *, is_local: bool = False) -> None:
        self.refusals = refusals
        self.refused_once: set[int] = set()
        """Partitions whose change is refused in the next request, which is otherwise accepted."""
        self.is_local = is_local
        self.requests: list[list[int]] = []

    async def alter_partition(
        self, _broker_id: int, _broker_epoch: int, partitions: Sequence[PartitionIsr]
    ) -> tuple[AlteredPartition, ...]:
        self.requests.append([change.index for change in partitions])
        if not self.is_local:
            await asyncio.sleep(0)
        if self.refusals:
            self.refusals -= 1
            raise Refusal(ErrorCode.NOT_CONTROLLER)
        altered = []
        for change in partitions:
            error = ErrorCode.NOT_CONTROLLER if change.index in self.refused_once else ErrorCode.NONE
            self.refused_once.discard(change.index)
            altered.append(AlteredPartition(change.topic_id, change.index, error, isr=(NODE,)))
        return tuple(altered)


async def sent(controller: FakeController, partitions: Sequence[FakePartition]) -> None:
    """Send the ISR change of each partition, and wait for the end of the task that does it."""
    tasks: list[asyncio.Task[Any]] = []

    def spawn(work: Any, name: str) -> Any:
        tasks.append(asyncio.create_task(work, name=name))
        return tasks[-1]

    client: Any = controller
    changes = IsrChanges(NODE, lambda: BROKER_EPOCH, client, spawn)
    for partition in partitions:
        hosted: Any = partition
        changes.send(hosted, partition.change)
    async with asyncio.timeout(10):
        await tasks[0]
    assert len(tasks) == 1


async def test_many_isr_changes_are_divided_into_several_requests() -> None:
    controller, partitions = (
        FakeController(),
        [FakePartition(index) for index in range(2 * CHANGES_PER_REQUEST_MAX + 1)],
    )
    await sent(controller, partitions)
    assert [len(request) for request in controller.requests] == [CHANGES_PER_REQUEST_MAX, CHANGES_PER_REQUEST_MAX, 1]
    assert [index for request in controller.requests for index in request] == list(range(len(partitions)))
    assert all(partition.completed == 1 for partition in partitions)


async def test_other_tasks_run_between_the_requests_to_the_controller_of_this_node() -> None:
    controller, partitions = (
        FakeController(is_local=True),
        [FakePartition(i) for i in range(4 * CHANGES_PER_REQUEST_MAX)],
    )
    sending = asyncio.ensure_future(sent(controller, partitions))
    seen: list[int] = []
    while not sending.done():
        await asyncio.sleep(0)
        seen.append(len(controller.requests))
    await sending
    assert sorted(set(seen) - {0}) == [1, 2, 3, 4]


async def test_isr_changes_of_ended_leader_terms_are_not_sent() -> None:
    controller, partitions = FakeController(), [FakePartition(index) for index in range(2 * CHANGES_PER_REQUEST_MAX)]
    for partition in partitions[1:]:
        partition.leader_term = None
    await sent(controller, partitions)
    assert controller.requests == [[0]]


async def test_refused_request_is_sent_again_after_the_other_changes() -> None:
    controller, partitions = FakeController(refusals=1), [FakePartition(i) for i in range(CHANGES_PER_REQUEST_MAX + 1)]
    await sent(controller, partitions)
    first, second, third = controller.requests
    assert (first, second) == (list(range(CHANGES_PER_REQUEST_MAX)), [CHANGES_PER_REQUEST_MAX, *first[:-1]])
    assert third == first[-1:]
    assert all(partition.completed == 1 for partition in partitions)


async def test_one_refused_change_delays_no_other_change(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("odradek.broker.partition.isr_changes.asyncio.sleep", pause)
    controller, partitions = FakeController(), [FakePartition(i) for i in range(10 * CHANGES_PER_REQUEST_MAX)]
    controller.refused_once = set(range(0, len(partitions), CHANGES_PER_REQUEST_MAX))
    await sent(controller, partitions)
    assert len(controller.requests) == 11
    assert sum(pauses) == 0
    assert all(partition.completed == 1 for partition in partitions)


async def test_changes_of_one_event_are_one_line_of_the_log() -> None:
    partitions = [FakePartition(index) for index in range(CHANGES_LOGGED_MAX + 1)]
    with structlog.testing.capture_logs() as lines:
        await sent(FakeController(), partitions)
    [line] = lines
    assert (line["event"], line["partitions"]) == ("ISR changed", len(partitions))
    assert line["isr"].split(", ") == [f"t-{index}: [{NODE}]" for index in range(CHANGES_LOGGED_MAX)]


async def test_refused_changes_are_one_line_of_the_log_for_each_reason() -> None:
    controller, partitions = FakeController(), [FakePartition(index) for index in range(CHANGES_LOGGED_MAX + 2)]
    controller.refused_once = set(range(CHANGES_LOGGED_MAX + 1))
    with structlog.testing.capture_logs() as lines:
        await sent(controller, partitions)
    refused = [line for line in lines if line["event"] == "ISR change refused"]
    assert [(line["partitions"], line["reason"]) for line in refused] == [(CHANGES_LOGGED_MAX + 1, "NOT_CONTROLLER")]
    assert refused[0]["proposed_isr"].count("t-") == CHANGES_LOGGED_MAX
