"""Base of all simulated clients: connections, leaders and coordinators.

Every attempt is recorded; there are no hidden retries.
"""

import asyncio
from functools import cached_property
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.sim.cluster.users import Credentials, client_id_of, log_in
from tests.sim.history import FAIL, INFO, OK, Operation, Partition
from tests.sim.options.tenants import ADMIN, ALICE, BOB
from tests.sim.world import TENANT_TOPICS
from tests.support.raw_client import ConnectionLost, RawClient

if TYPE_CHECKING:
    from odradek.protocol.schema import Message
    from tests.sim.world import World

NONE: Final = 0
OUT_OF_ORDER_SEQUENCE: Final = 45
INVALID_PRODUCER_EPOCH: Final = 47
INVALID_TXN_STATE: Final = 48
INVALID_PRODUCER_ID_MAPPING: Final = 49
CONCURRENT_TRANSACTIONS: Final = 51
PRODUCER_FENCED: Final = 90
TRANSACTION_ABORTABLE: Final = 120
NOT_ENOUGH_REPLICAS: Final = 19
ILLEGAL_GENERATION: Final = 22
UNKNOWN_MEMBER_ID: Final = 25
NON_EMPTY_GROUP: Final = 68
GROUP_ID_NOT_FOUND: Final = 69
GROUP_SUBSCRIBED_TO_TOPIC: Final = 86
REBALANCE_IN_PROGRESS: Final = 27
FENCED_INSTANCE_ID: Final = 82
UNSTABLE_OFFSET_COMMIT: Final = 88
FENCED_MEMBER_EPOCH: Final = 110
STALE_MEMBER_EPOCH: Final = 113
FENCED_MEMBER: Final = (
    ILLEGAL_GENERATION,
    UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    STALE_MEMBER_EPOCH,
)
"""Errors that mean that the member is unknown, fenced, or has an old generation or member epoch."""
LOST: Final = -1
NOT_SENT: Final = -2

# Errors that prove that the request wrote nothing. After any other error it may have taken effect.
DEFINITE: Final = frozenset(
    {
        NOT_SENT,
        2,  # CORRUPT_MESSAGE
        10,  # MESSAGE_TOO_LARGE
        18,  # RECORD_LIST_TOO_LARGE
        14,  # COORDINATOR_LOAD_IN_PROGRESS: returned before any decision
        NOT_ENOUGH_REPLICAS,
        35,  # UNSUPPORTED_VERSION
        42,  # INVALID_REQUEST
        OUT_OF_ORDER_SEQUENCE,
        INVALID_PRODUCER_EPOCH,
        INVALID_TXN_STATE,
        INVALID_PRODUCER_ID_MAPPING,
        CONCURRENT_TRANSACTIONS,
        87,  # INVALID_RECORD
        PRODUCER_FENCED,
        TRANSACTION_ABORTABLE,
        *FENCED_MEMBER,
        REBALANCE_IN_PROGRESS,
        UNSTABLE_OFFSET_COMMIT,
        NON_EMPTY_GROUP,
        GROUP_ID_NOT_FOUND,
        GROUP_SUBSCRIBED_TO_TOPIC,
    }
)
# Errors after which the same request may be sent again.
RETRIABLE: Final = frozenset(
    {LOST, NOT_SENT, 3, 5, 6, 7, 13, 14, 15, 16, NOT_ENOUGH_REPLICAS, 20, CONCURRENT_TRANSACTIONS, 56, 74, 75, 78}
)
REFUSAL_COUNTERS: Final = {
    6: "not the leader",
    14: "coordinator is loading",
    16: "not the coordinator",
    NOT_ENOUGH_REPLICAS: "not enough replicas",
    20: "not enough replicas after append",
    74: "fenced leader epoch",
    78: "offset not available after an election",
    PRODUCER_FENCED: "producer fenced",
}
CALL_SECONDS: Final = 6.0
CONNECT_SECONDS: Final = 1.5
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
BACKOFF_SECONDS: Final = 0.08
SESSION_USED: Final = 0.85
"""Part of the lifetime of a session after which a client authenticates again, as Apache Kafka's clients do."""


class NoLeaderKnown(ConnectionError):
    """Raised if the cluster names no leader or coordinator now: the request was not sent."""


class Client:
    """One client process. It looks up leaders and coordinators, again after every failure."""

    user = ALICE
    """The user with which the client logs in, if the run has SASL."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.rng = Random(world.rng.getrandbits(64))
        self._connections: dict[int, RawClient] = {}
        self._repeat_login_at: dict[int, float] = {}
        """By node: the time at which the client authenticates again on its connection."""
        self._leaders: dict[Partition, int] = {}
        self._epochs: dict[Partition, int] = {}
        self._coordinators: dict[str, int] = {}
        self._group_coordinators: dict[str, int] = {}

    @property
    def written(self) -> list[Partition]:
        """Partitions that this client may read and write: those of its tenant, or all."""
        if self.world.options.security is None or self.user == ADMIN:
            return self.world.written
        return [place for place in self.world.written if (place[0] in TENANT_TOPICS) == (self.user == BOB)]

    # leaders and coordinators

    async def leader_of(self, partition: Partition) -> int:
        """Return the leader of the partition. Raise OSError if no broker names one now."""
        if self._is_single:
            return 1
        if partition not in self._leaders:
            response = await self._call_random_node(
                MetadataRequest(topics=[MetadataRequestTopic(name=partition[0])]), 9
            )
            for topic in response.topics:
                for partition_metadata in topic.partitions:
                    self._learn(
                        (topic.name, partition_metadata.partition_index),
                        partition_metadata.leader_id,
                        partition_metadata.leader_epoch,
                    )
        if partition not in self._leaders:
            raise NoLeaderKnown(f"no leader of {partition} is known")
        return self._leaders[partition]

    def epoch_of(self, partition: Partition) -> int:
        """Return the known leader epoch, which the broker compares with its own; -1 if unknown."""
        return self._epochs.get(partition, -1)

    def _learn(self, partition: Partition, leader: int, epoch: int) -> None:
        """Record the leader if its epoch is not older than the known one (KIP-320).

        A partitioned broker may name a former leader, possibly itself.
        """
        if leader > 0 and epoch >= self._epochs.get(partition, 0):
            self._leaders[partition], self._epochs[partition] = leader, epoch

    async def coordinator_of(self, transactional_id: str | None) -> int:
        """Return the transaction coordinator, or a random node without an id.

        Raise OSError if no broker names one now.
        """
        if self._is_single:
            return 1
        if transactional_id is None:
            return self._random_node()
        return await self._find_coordinator(self._coordinators, TRANSACTION_KEY, transactional_id)

    async def group_coordinator_of(self, group: str) -> int:
        """Return the group coordinator. Raise OSError if no broker names one now."""
        return 1 if self._is_single else await self._find_coordinator(self._group_coordinators, GROUP_KEY, group)

    async def _find_coordinator(self, known: dict[str, int], kind: int, key: str) -> int:
        if key not in known:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            (coordinator,) = (await self._call_random_node(request, 4)).coordinators
            if coordinator.error_code != NONE:
                raise NoLeaderKnown(f"no coordinator of {key}: error {coordinator.error_code}")
            known[key] = coordinator.node_id
        return known[key]

    @property
    def _is_single(self) -> bool:
        return self.world.options.brokers == 1

    def _random_node(self) -> int:
        return self.rng.randint(1, self.world.options.brokers)

    async def _call_random_node(self, request: "Message", version: int) -> Any:
        return await self.call(request, version, self._random_node())

    def forget(self, operation: Operation) -> None:
        """Forget the leader and the coordinators that the failed operation used."""
        self._leaders.pop(operation.partition, None)
        if operation.transactional_id is not None:
            self._coordinators.pop(operation.transactional_id, None)
        self._group_coordinators.pop(operation.group, None)

    # requests

    async def connection(self, node: int) -> RawClient:
        """Return the open connection to the node, with a valid session. Raise OSError if the node does not listen."""
        connection = self._connections.get(node)
        if connection is None or not connection.is_open:
            self._connections.pop(node, None)
            host, port = self.world.cluster.address_of(node)
            connecting = RawClient.connect(host, port, client_id=self._client_id)
            connection = await asyncio.wait_for(connecting, CONNECT_SECONDS)
            if self.world.options.security is not None:
                await self._log_in(node, connection)
            self._connections[node] = connection
        elif self._repeat_login_at.get(node, inf) <= self.world.now():
            await self._log_in(node, connection)
            self.world.count("client authenticated again")
        return connection

    @property
    def _client_id(self) -> str:
        return self.name if self.world.options.security is None else client_id_of(self.user, self.name)

    @cached_property
    def _credentials(self) -> Credentials:
        return Credentials(self.user, self.name, self.world.options.seed)

    async def _log_in(self, node: int, connection: RawClient) -> None:
        self._repeat_login_at[node] = inf
        lifetime = await log_in(connection, self._credentials.client())
        if lifetime:
            self._repeat_login_at[node] = self.world.now() + SESSION_USED * lifetime

    async def call(self, request: "Message", version: int, node: int) -> Any:
        """Return the response. Raise ConnectionLost, or another OSError if the request was not sent."""
        connection = await self.connection(node)
        return await connection.call(request, version, timeout=CALL_SECONDS)

    def invoke(self, kind: str, **details: Any) -> Operation:
        return self.world.history.invoke(kind, self.name, self.world.now(), **details)

    def settle(self, operation: Operation, error: int, **details: Any) -> Operation:
        """Record the result of the operation."""
        outcome = OK if error == NONE else FAIL if error in DEFINITE else INFO
        if outcome != OK:
            self.forget(operation)
            if error in REFUSAL_COUNTERS:
                self.world.count(f"refused: {REFUSAL_COUNTERS[error]}")
        return self.world.history.complete(operation, outcome, self.world.now(), error=error, **details)

    def settle_lost(self, operation: Operation, error: OSError) -> Operation:
        return self.settle(operation, LOST if isinstance(error, ConnectionLost) else NOT_SENT)

    async def backoff(self) -> None:
        await asyncio.sleep(BACKOFF_SECONDS * (0.1 + self.rng.random()))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
