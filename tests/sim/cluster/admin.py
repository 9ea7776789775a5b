"""Administrator of a run: it moves leaders, reassigns replicas, and creates and deletes topics during the faults."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.sim.history import Partition
from tests.sim.options.tenants import ADMIN
from tests.sim.workloads.client import NONE, Client

if TYPE_CHECKING:
    from odradek.protocol.schema import Message

SCRATCH: Final = "scratch"
TIMEOUT_MS: Final = 3000
PREFERRED: Final = 0
ATTEMPTS_MAX: Final = 6


class Admin(Client):
    """Administrative client. Its requests are not part of the history; its responses are counted."""

    user = ADMIN

    async def _try(self, what: str, request: "Message", version: int) -> Any:
        """Return the first response, or None after ATTEMPTS_MAX failed attempts."""
        for _ in range(ATTEMPTS_MAX):
            if self.world.stopping:
                break
            try:
                response = await self.call(request, version, self._random_node())
            except OSError:
                await self.backoff()
                continue
            self.world.count(f"admin: {what} answered")
            return response
        return None

    async def move_leader(self, place: Partition) -> None:
        """Make the second replica the preferred one, then elect the preferred leader."""
        state = self.world.monitor.metadata.partitions.get(place)
        if state is None:
            return
        replicas = [*state.replicas[1:], state.replicas[0]]
        await self._try("reassignment", self._assignment(place, replicas), 0)
        await asyncio.sleep(0.2)
        request = ElectLeadersRequest(
            election_type=PREFERRED,
            topic_partitions=[TopicPartitions(topic=place[0], partitions=[place[1]])],
            timeout_ms=TIMEOUT_MS,
        )
        await self._try("election", request, 2)

    async def reassign(self, place: Partition) -> None:
        """Move the partition to a random set of brokers; cancel one reassignment in five halfway."""
        options = self.world.options
        replicas = self.rng.sample(range(1, options.brokers + 1), options.replication)
        await self._try("reassignment", self._assignment(place, replicas), 0)
        if self.rng.random() < 0.2:
            await asyncio.sleep(self.rng.random())
            await self._try("cancellation", self._assignment(place, None), 0)

    @staticmethod
    def _assignment(place: Partition, replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
        partition = ReassignablePartition(partition_index=place[1], replicas=replicas)
        return AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=place[0], partitions=[partition])]
        )

    async def delete_topic(self, seconds: float) -> None:
        """Create and delete a topic twice under the same name."""
        for _ in range(2):
            topic = CreatableTopic(name=SCRATCH, num_partitions=3, replication_factor=-1)
            created = await self._try("creation", CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 7)
            await asyncio.sleep(seconds)
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=SCRATCH)], timeout_ms=TIMEOUT_MS)
            deleted = await self._try("deletion", request, 6)
            if created is not None and deleted is not None and deleted.responses[0].error_code == NONE:
                self.world.count("topic deleted")
