"""Connections of a client to the brokers of a cluster, and requests to leaders, coordinators and the controller."""

from __future__ import annotations

import asyncio
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final, Self

from odradek.client.errors import AuthenticationFailed, ClientError, ConnectionLost, Unreachable, refused
from odradek.client.network.addresses import parse_bootstrap
from odradek.client.network.connection import VERSION_MAX, Connection
from odradek.client.network.metadata import metadata_of, metadata_request
from odradek.client.network.retry import Attempts, Recovery, recovery_of
from odradek.client.network.settings import Settings
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from odradek.client.network.addresses import Address
    from odradek.client.network.metadata import Broker, Metadata, Topic
    from odradek.protocol.schema import Message

COORDINATORS_MAX: Final = 1_000
"""Maximum coordinators that are remembered: up to 32 MiB, with the longest ids. The oldest one is evicted.

A coordinator is found for each id, also of a group that does not exist.
"""


class CoordinatorType(IntEnum):
    """Key type of a FindCoordinator request."""

    GROUP = 0
    TRANSACTION = 1


class Purpose(Enum):
    """Use of a connection.

    A fetch may wait for records, so it does not share a connection with requests that must not wait.
    """

    REQUESTS = "requests"
    FETCH = "fetch"


class Cluster:
    """Connections to the brokers of a cluster, opened when they are needed. All calls belong on one event loop.

    Example:
        ```python
        async with Cluster("127.0.0.1:9092") as cluster:
            topics = await list_topics(cluster)
        ```

    Args:
        bootstrap: `host:port,...` of some brokers. The others are found through them.
        settings: Time limits, client id, retry policy and security.
    """

    def __init__(self, bootstrap: str, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self._bootstrap = parse_bootstrap(bootstrap)
        self._first: Connection | None = None
        self._first_address: Address | None = None
        self._connections: dict[tuple[int, Purpose], Connection] = {}
        self._locks: dict[object, asyncio.Lock] = {}
        self._brokers: Mapping[int, Broker] = {}
        self._controller_id = -1
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}

    async def __aenter__(self) -> Self:
        await self.fetch_metadata([])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in (*self._connections.values(), self._first):
            if connection is not None:
                connection.close()
        self._connections.clear()
        self._first = None

    def attempts(self) -> Attempts:
        """Return the attempts of a new operation under the retry policy of this cluster."""
        return Attempts(self.settings.retry)

    # ---- metadata ---------------------------------------------------------------------------------------------------

    async def fetch_metadata(self, topics: Sequence[str] | None) -> Metadata:
        """Fetch the brokers and the named topics, or all topics if `topics` is None. Missing topics have an error code.

        Raises:
            Unreachable: No address of the cluster accepts a connection.
            AuthenticationFailed: The client or the broker refused the certificate or the credentials of the other.
        """
        response = await (await self._any()).call(metadata_request(topics))
        metadata = metadata_of(response)
        self._brokers = metadata.brokers
        self._controller_id = metadata.controller_id
        for name, topic in metadata.topics.items():
            self._topics.pop(name, None)
            if topic.error_code == ErrorCode.NONE:
                self._topics[name] = topic
        return metadata

    async def topic(self, name: str, *, refresh: bool = False) -> Topic:
        """Return a topic, fetched if it is unknown or if `refresh` is true. Raise NotFound if it does not exist."""
        topic = self._topics.get(name)
        if topic is None or refresh:
            topic = (await self.fetch_metadata([name])).topics[name]
        topic.check()
        return topic

    async def coordinator(self, kind: CoordinatorType, key: str) -> int:
        """Return the node id of the coordinator of a group or transactional id.

        Raise Refused if there is none in time.
        """
        return await self._coordinator(kind, key, self.attempts())

    async def _coordinator(self, kind: CoordinatorType, key: str, attempts: Attempts) -> int:
        if (kind, key) in self._coordinators:
            return self._coordinators[kind, key]
        while True:
            response = await self.request_any(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
            found = response.coordinators[0]
            if found.error_code == ErrorCode.NONE:
                while len(self._coordinators) >= COORDINATORS_MAX:
                    del self._coordinators[next(iter(self._coordinators))]
                self._coordinators[kind, key] = found.node_id
                return int(found.node_id)
            if await attempts.prepare(found.error_code) is None:
                raise refused(found.error_code, f"coordinator of {key}", found.error_message)

    # ---- requests ---------------------------------------------------------------------------------------------------

    async def request(
        self, node_id: int, request: Message, *, version_min: int = 0, version_max: int = VERSION_MAX
    ) -> Any:
        """Send a request to one broker and return its response. See `Connection.call` for the exceptions."""
        connection = await self.connection(node_id)
        return await connection.call(request, version_min=version_min, version_max=version_max)

    async def request_any(self, request: Message, *, version_max: int = VERSION_MAX) -> Any:
        """Send a request that every broker serves."""
        return await (await self._any()).call(request, version_max=version_max)

    async def request_controller(self, request: Message) -> Any:
        """Send a request to the node that serves controller requests: in KRaft, any broker, which forwards it."""
        return await self.request(self._controller_id, request)

    async def request_coordinator(
        self,
        kind: CoordinatorType,
        key: str,
        request: Message,
        error_of: Callable[[Any], int],
        *,
        version_min: int = 0,
        version_max: int = VERSION_MAX,
    ) -> Any:
        """Send a request to the coordinator of `key`, under the retry policy, and return the last response.

        `error_of` returns the error code of a response. The request must be safe to repeat, since it is sent again if
        the connection ends before its response. The last response may have an error code.
        """
        attempts = self.attempts()
        while True:
            failure: int | ClientError
            try:
                node_id = await self._coordinator(kind, key, attempts)
                response = await self.request(node_id, request, version_min=version_min, version_max=version_max)
                failure = error_of(response)
            except (Unreachable, ConnectionLost) as error:
                failure, response = error, None
            if recovery_of(failure) is Recovery.LOCATE:
                self._coordinators.pop((kind, key), None)
            if await attempts.prepare(failure) is None:
                if isinstance(failure, ClientError):
                    raise failure
                return response

    # ---- connections ------------------------------------------------------------------------------------------------

    async def connection(self, node_id: int, purpose: Purpose = Purpose.REQUESTS) -> Connection:
        """Return an open connection to a broker.

        Raise Unreachable if it is down or is not in the cluster's metadata.
        """
        key = node_id, purpose
        async with self._locks.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is not None and not connection.closed:
                return connection
            if node_id not in self._brokers:
                await self.fetch_metadata([])
            if node_id not in self._brokers:
                raise Unreachable(f"broker {node_id} is not in the cluster's metadata")
            address = self._brokers[node_id].host, self._brokers[node_id].port
            first = self._first
            if (
                purpose is Purpose.REQUESTS
                and first is not None
                and not first.closed
                and address == self._first_address
            ):
                return first
            connection = await Connection.open(address, self.settings)
            self._connections[key] = connection
            return connection

    async def _any(self) -> Connection:
        """Return the first connection of this cluster. If it is closed, connect to the first address that responds."""
        async with self._locks.setdefault(None, asyncio.Lock()):
            if self._first is not None and not self._first.closed:
                return self._first
            known = [(broker.host, broker.port) for broker in self._brokers.values()]
            problems, remedy = [], "is it running? see: odradek up --help"
            for address in dict.fromkeys((*self._bootstrap, *known)):
                try:
                    self._first = await Connection.open(address, self.settings)
                except AuthenticationFailed:
                    raise  # the other brokers would refuse the same credentials
                except ClientError as error:
                    problems.append(error.problem)
                    remedy = error.remedy or remedy
                    continue
                self._first_address = address
                return self._first
            raise Unreachable("; ".join(problems), remedy)
