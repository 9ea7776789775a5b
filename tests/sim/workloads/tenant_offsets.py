"""A simple consumer of the second honest tenant: it commits offsets of its group, and reads them again."""

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.sim.options.tenants import BOB, BOB_GROUP
from tests.sim.workloads.client import NONE, Client
from tests.sim.world import TENANT_TOPICS

if TYPE_CHECKING:
    from tests.sim.checkers.isolation import TenantEvidence
    from tests.sim.world import World

THINK_SECONDS: Final = 0.3
COMMIT_VERSION, FETCH_VERSION = 9, 9


class OffsetOwner(Client):
    """The only client that may commit offsets of BOB_GROUP."""

    user = BOB

    def __init__(self, world: "World", name: str, evidence: "TenantEvidence") -> None:
        super().__init__(world, name)
        self._evidence = evidence
        self._next = 1

    async def run(self) -> None:
        while not self.world.stopping:
            try:
                node = await self.group_coordinator_of(BOB_GROUP)
                if self.rng.random() < 0.5:
                    await self._commit(node)
                else:
                    await self._fetch(node)
            except OSError:
                self._group_coordinators.clear()
            await asyncio.sleep(2 * self.rng.random() * THINK_SECONDS)
        self.close()

    async def _commit(self, node: int) -> None:
        offset, self._next = self._next, self._next + 1
        self._evidence.sent[offset] = None
        topic = OffsetCommitRequestTopic(TENANT_TOPICS[0], partitions=[OffsetCommitRequestPartition(0, offset)])
        try:
            response = await self.call(OffsetCommitRequest(BOB_GROUP, topics=[topic]), COMMIT_VERSION, node)
        except OSError:
            self._evidence.unresolved[offset] = None
            raise
        if response.topics[0].partitions[0].error_code == NONE:
            self._evidence.is_committed = True
        else:
            self._group_coordinators.clear()

    async def _fetch(self, node: int) -> None:
        topic = OffsetFetchRequestTopics(TENANT_TOPICS[0], partition_indexes=[0])
        was_committed = self._evidence.is_committed
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(BOB_GROUP, topics=[topic])])
        (group,) = (await self.call(request, FETCH_VERSION, node)).groups
        if group.error_code != NONE:
            self._group_coordinators.clear()
            return
        row = group.topics[0].partitions[0]
        if row.error_code == NONE and (was_committed or row.committed_offset >= 0):
            self._evidence.fetched.append(row.committed_offset)
