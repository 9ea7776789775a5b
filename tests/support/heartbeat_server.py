"""A server on a TCP socket that serves ApiVersions, and Heartbeat with a handler of the test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from odradek.broker.apis import api_versions
from odradek.broker.config.addresses import parse_listeners
from odradek.broker.config.topics import TopicSettings
from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.dispatch.dispatcher import Dispatcher
from odradek.broker.dispatch.large_requests import LargeRequests
from odradek.broker.dispatch.request_metrics import api_metrics
from odradek.broker.network.limits import ConnectionLimits
from odradek.broker.network.listeners import Acceptor
from odradek.broker.network.server_state import ServerState
from odradek.broker.process.clock import SystemClock
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.requests.api import Api
from odradek.broker.requests.context import RequestContext
from odradek.broker.security.authorizer import AllowAll
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.runtime.tasks import Tasks
from tests.support.broker_context import config, image
from tests.support.quotas import Unlimited
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from odradek.broker.network.connection import Connection

Handle = Callable[[RequestContext, HeartbeatRequest], Any]
THROTTLE_BASE_MS = -10
UNTIL_SECONDS_MAX = 30.0
"""Maximum seconds that a test waits for a condition. A machine under load needs several seconds."""
LOOP_TURNS = 50


def heartbeat(name: str, generation: int = 0) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=name, generation_id=generation)


def numbered_response(number: int) -> HeartbeatResponse:
    """Return a response that contains `number` as a negative throttle time. A positive one mutes the connection."""
    return HeartbeatResponse(throttle_time_ms=THROTTLE_BASE_MS - number)


def number_of(response: HeartbeatResponse) -> int:
    """Return the number in a result of `numbered_response`."""
    return THROTTLE_BASE_MS - response.throttle_time_ms


def refuse(
    context: RequestContext, request: HeartbeatRequest, error: ErrorCode, message: str | None
) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error)


class Server:
    """Serves ApiVersions, and Heartbeat with the test's handler."""

    def __init__(self, handle: Handle, *assignments: str, **services: Any) -> None:
        """`services` replace fields of the contexts."""
        self.config = config("listeners=PLAINTEXT://127.0.0.1:0", *assignments)
        self.unexpected: list[BaseException] = []
        self.tasks = Tasks(lambda _, exception: self.unexpected.append(exception))
        row = Api(
            key=12,
            min_version=0,
            max_version=4,
            request=HeartbeatRequest,
            response=HeartbeatResponse,
            handle=handle,
            refuse=refuse,
        )
        table = (row, api_versions.API)
        parts = {
            "clock": SimpleNamespace(wall_ms=lambda: 0, monotonic_us=lambda: 0),
            "quotas": Unlimited(),
            "authorizer": AllowAll(),
            "audit": None,
            "metadata": SimpleNamespace(image=image()),
            "controller": None,
            "apis": table,
            "node_id": 1,
        }
        context: Any = SimpleNamespace(**(parts | services))
        budget = ByteBudget(self.config.byte_budget, self.config.socket_request_max_bytes)
        metrics = api_metrics(table)
        self.dispatcher = Dispatcher(
            table,
            BrokerRequestContext,
            (context, context, context),
            forwarding=context,
            metrics=metrics,
            large_requests=LargeRequests(budget, metrics),
            on_unexpected=lambda _, exception: self.unexpected.append(exception),
        )
        self.shared: ServerState[Connection] = ServerState(
            self.config, budget, ConnectionLimits(TopicSettings(self.config), Unlimited()), self.tasks
        )
        self.acceptor = Acceptor(self.config.socket_listen_backlog_size, SystemClock().monotonic_us)

    async def start(self) -> None:
        await self.acceptor.bind(parse_listeners(self.config), self.shared)
        self.serve()

    def serve(self) -> None:
        self.acceptor.open(self.dispatcher)
        self.acceptor.ready(self.dispatcher)

    async def stop(self) -> None:
        await self.acceptor.close()
        await self.tasks.cancel_all()
        for _ in range(5):
            await asyncio.sleep(0)
        assert self.shared.budget.used_bytes == 0, "bytes were not given back"
        assert self.shared.limits.total == 0

    async def connect(self, client_id: str = "raw", *, listener: int = 0) -> RawClient:
        return await RawClient.connect("127.0.0.1", self.acceptor.listeners[listener].port, client_id=client_id)

    async def stream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.acceptor.listeners[0].port)


@asynccontextmanager
async def serving(handle: Handle, *assignments: str, **services: Any) -> AsyncIterator[Server]:
    server = Server(handle, *assignments, **services)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def settle() -> None:
    """Let the server handle everything that was sent to it.

    Client and server share an event loop, and bytes on a loopback connection have arrived when the call that sends them
    returns. So a number of turns of the loop is enough, and no time has to pass.
    """
    for _ in range(LOOP_TURNS):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds. Raise TimeoutError after UNTIL_SECONDS_MAX."""
    async with asyncio.timeout(UNTIL_SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.001)
