"""The row of an API: its versions, messages and handler.

A handler is a plain function `handle(context, request)`. Its result determines when the response is sent:

=====================  ==============================================================================================
a response             at once; no task is created
an awaitable           stage one is done; stage two (waiting for replication, markers, data) overlaps the requests
                       behind it. Responses still leave in request order
`Ordered(awaitable)`   stage one itself has to wait: the connection takes no further request until the awaitable has
                       yielded one of the former
`None`                 no response is sent (Produce with acks=0)
=====================  ==============================================================================================

A handler may raise `Refusal` before it has changed anything: the dispatcher responds with the row's `refuse`, after
`error_map` has translated the code for the version of the request.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeVar

from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.listener import CLIENT
from odradek.broker.requests.session import Session
from odradek.protocol.connection import RequestFrame
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import Buffer, Message

C = TypeVar("C", bound=RequestContext)
Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


@dataclass(frozen=True, slots=True)
class Ordered(Generic[R]):
    """A stage one that has to wait. `awaitable` yields a response, an awaitable (stage two) or None."""

    awaitable: Awaitable[R | Awaitable[R | None] | None]


@dataclass(frozen=True, slots=True)
class Embedded(Generic[R]):
    """A request that arrived inside another one. `wrap` makes the outer response of the encoded inner response."""

    frame: RequestFrame
    session: Session
    wrap: Callable[[Buffer], R]


class Routing(IntEnum):
    """Where a request is handled."""

    LOCAL = 0
    """On the node that received it."""
    CONTROLLER = 1
    """On the active controller: another node forwards the request in an Envelope (KIP-590)."""
    ENVELOPE = 2
    """The handler returns an `Embedded` request, which is dispatched in its turn."""


Handler = Callable[[C, Q], R | Awaitable[R | None] | Ordered[R] | Embedded[R] | None]
Refuse = Callable[[C, Q, ErrorCode, str | None], R | None]
"""Return the response that reports an error for each item of a request; None if the protocol has no such response."""


def always(_request: Any) -> bool:
    """Return True for each request."""
    return True


def never(_request: Any) -> bool:
    """Return False for each request."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Api(Generic[C, Q, R]):
    """One row of the API table. `C` is the request context that the handler needs.

    The broker serves the versions `min_version` to `max_version`. ApiVersions announces `announced_min` as the lowest if it is
    set (Produce, KAFKA-18659). `acl` and `gaps` appear in docs/apis.md.
    """

    key: int
    min_version: int
    max_version: int
    request: type[Q]
    response: type[R]
    handle: Handler[C, Q, R]
    refuse: Refuse[C, Q, R]
    announced_min: int | None = None
    listeners: tuple[str, ...] = (CLIENT,)
    """Roles of listeners; one of them suffices."""
    early: Callable[[Any], bool] = never
    """Return whether a request is served before the broker is registered, when only the quorum of the metadata log runs. Without
    such requests a cluster could not start. All other requests wait."""
    routing: Routing = Routing.LOCAL
    acl: str = ""
    gaps: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.response.__name__.removesuffix("Response")

    @property
    def lowest_announced(self) -> int:
        return self.min_version if self.announced_min is None else self.announced_min

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version


AnyApi = Api[Any, Any, Any]
