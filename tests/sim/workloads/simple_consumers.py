"""Simple consumers: clients that commit and delete offsets of a group without membership, and delete the group.

One process sends one request after another to a group that only visitors join. So OffsetFetch must return the offset
that it wrote last.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.sim.history import FAIL, INFO, OK, SIMPLE, Partition
from tests.sim.workloads.client import Client
from tests.sim.workloads.copiers import ENDED, Copier
from tests.sim.workloads.membership import ClassicMember, Membership
from tests.sim.workloads.offsets import commit_offsets, fetch_offsets
from tests.sim.world import TOPIC

if TYPE_CHECKING:
    from odradek.protocol.schema import Message
    from tests.sim.workloads.producers import Dialect
    from tests.sim.world import World

DELETED: Final = -1
"""Offset of an operation that deletes the offset."""
TURN_SECONDS_MAX: Final = 0.5
VISIT_SECONDS_MAX: Final = 4.0
VISIT_ATTEMPTS: Final = 3
TV2_GENERATION: Final = 2


class SimpleConsumer(Copier):
    """Commits, fetches and deletes offsets without membership; with TV2 also in transactions.

    With the classic protocol, a delayed EndTxn may end another transaction, so its outcome would prove nothing.
    """

    def __init__(self, world: "World", group: str, dialect: "Dialect") -> None:
        super().__init__(world, f"{group}-0", dialect, f"{group}/0")
        self.timeout_ms = world.options.transaction_timeout_ms
        self.become(Membership(self, group, "", None))
        self._group = group
        self._offset = 0

    async def run_member(self) -> str:
        watch = self.world.monitor.groups
        steps = [self._commit] * 4 + [self._fetch] * 3 + [self._delete_offset] * 2 + [self._delete_group]
        if self.dialect.generation == TV2_GENERATION:
            steps += [self._commit_in_transaction] * 3
        while not watch.over:
            await (self._fetch if watch.calm else self.rng.choice(steps))()
            await asyncio.sleep(self.rng.random() * TURN_SECONDS_MAX)
        self.close()
        return ENDED

    def _next(self) -> dict[Partition, int]:
        """Return a random partition with an offset that was never committed before."""
        self._offset += 1
        return {self.rng.choice(self.world.partitions): self._offset}

    async def _fetch(self) -> None:
        await fetch_offsets(self, self._group, self.world.partitions, stable=True)

    async def _commit(self) -> None:
        self.world.count("simple consumer commits")
        await commit_offsets(self, self.member, self._next(), kind=SIMPLE)

    async def _commit_in_transaction(self) -> None:
        if not self._ready:
            self._ready = await self.initialize()
        if not self._ready:
            return
        ends = self._next()
        self.transaction = self.world.next_transaction()
        self.added.clear()
        operation = self.invoke(SIMPLE, group=self._group, offsets=tuple(ends.items()))
        commit = await self._commit_offsets([], ends) and self.rng.random() >= self.options.abort
        self._ready = await self.end(commit=commit)
        self.world.count("simple consumer commits in a transaction", self._ready and commit)
        outcome = FAIL if not commit else OK if self._ready else INFO
        self.world.history.complete(operation, outcome, self.world.now())

    async def _delete_offset(self) -> None:
        place = self.rng.choice(self.world.partitions)
        request = OffsetDeleteRequest(
            group_id=self._group,
            topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=[OffsetDeleteRequestPartition(place[1])])],
        )
        if await self._delete(request, 0, [place]):
            self.world.count("offset deleted")

    async def _delete_group(self) -> None:
        if await self._delete(DeleteGroupsRequest(groups_names=[self._group]), 2, self.world.partitions):
            self.world.count("group deleted")

    async def _delete(self, request: "Message", version: int, places: list[Partition]) -> bool:
        deleted = tuple((place, DELETED) for place in places)
        operation = self.invoke(SIMPLE, group=self._group, offsets=deleted)
        try:
            response = await self.call(request, version, await self.group_coordinator_of(self._group))
        except OSError as error:
            self.settle_lost(operation, error)
            return False
        if isinstance(request, DeleteGroupsRequest):
            code = response.results[0].error_code
        else:
            code = response.error_code or response.topics[0].partitions[0].error_code
        return self.settle(operation, code).outcome == OK


class Visitor(Client):
    """Joins the group of a simple consumer for a while, or only requests a member id.

    While the group has members, clients without membership may not commit or delete offsets.
    """

    def __init__(self, world: "World", group: str) -> None:
        super().__init__(world, f"{group}-visitor")
        self._group = group

    async def run_member(self) -> str:
        watch = self.world.monitor.groups
        while not watch.calm:
            await asyncio.sleep(self.rng.random() * VISIT_SECONDS_MAX)
            await self._visit(ClassicMember(self, self._group, "", None))
        self.close()
        return ENDED

    async def _visit(self, member: ClassicMember) -> None:
        for _ in range(self.rng.randint(1, VISIT_ATTEMPTS)):
            if await member.join():
                self.world.count("visitor joins the group of a simple consumer")
                await member.heartbeat()
                break
        if self.rng.random() < 0.7:
            await member.leave()
