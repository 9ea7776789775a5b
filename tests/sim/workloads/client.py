"""What every simulated client does: one connection, one request at a time or several, every outcome judged and recorded, no hidden retries."""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.sim.history import FAIL, INFO, OK, Operation
from tests.support.raw_client import ConnectionLost, RawClient

if TYPE_CHECKING:
    from protocol.schema import Message
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
LOST: Final = -1
NOT_SENT: Final = -2

# Errors that prove that this request wrote nothing. Everything else may have happened, whatever the broker says.
DEFINITE: Final = frozenset(
    {
        NOT_SENT,
        2,  # CORRUPT_MESSAGE
        10,  # MESSAGE_TOO_LARGE
        18,  # RECORD_LIST_TOO_LARGE
        14,  # COORDINATOR_LOAD_IN_PROGRESS: answered before anything is decided
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
    }
)
# Errors after which the same request may be sent again.
RETRIABLE: Final = frozenset(
    {LOST, NOT_SENT, 3, 5, 6, 7, 13, 14, 15, 16, NOT_ENOUGH_REPLICAS, 20, CONCURRENT_TRANSACTIONS, 56}
)
CALL_SECONDS: Final = 6.0
BACKOFF_SECONDS: Final = 0.08


class Client:
    """One process of the workload."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.rng = Random(world.rng.getrandbits(64))
        self._connection: RawClient | None = None

    async def connection(self) -> RawClient:
        """The open connection. Raises OSError when the node does not listen."""
        if self._connection is None or not self._connection.is_open:
            self._connection = None
            host, port = self.world.cluster.address
            self._connection = await RawClient.connect(host, port, client_id=self.name)
        return self._connection

    async def call(self, request: "Message", version: int) -> Any:
        """The response; raises ConnectionLost, or another OSError when the request was never sent."""
        connection = await self.connection()
        return await connection.call(request, version, timeout=CALL_SECONDS)

    def invoke(self, kind: str, **details: Any) -> Operation:
        return self.world.history.invoke(kind, self.name, self.world.now(), **details)

    def settle(self, operation: Operation, error: int, **details: Any) -> Operation:
        """Record what came of it."""
        outcome = OK if error == NONE else FAIL if error in DEFINITE else INFO
        return self.world.history.complete(operation, outcome, self.world.now(), error=error, **details)

    def settle_lost(self, operation: Operation, error: OSError) -> Operation:
        return self.settle(operation, LOST if isinstance(error, ConnectionLost) else NOT_SENT)

    async def backoff(self) -> None:
        await asyncio.sleep(BACKOFF_SECONDS * (0.1 + self.rng.random()))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
