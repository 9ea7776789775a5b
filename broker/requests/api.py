"""Row of the API table: the versions, messages and handler of one API.

A handler is a plain function `handle(context, request)`. Its result determines when the response is sent:

=====================  ==============================================================================================
a response             The response is sent immediately; no task is created.
an awaitable           Stage one is done. Stage two (a wait for replication, markers or data) runs while the next
                       requests of the connection are handled. Responses still leave in the order of requests.
`Ordered(awaitable)`   Stage one itself has to wait. The connection handles no further request until the awaitable has
                       yielded one of the results above.
`None`                 No response is sent (Produce with acks=0).
=====================  ==============================================================================================

A handler may raise `Refusal` before it has changed any state. The dispatcher then responds with the row's `refuse`,
after `error_map` has translated the error code for the version of the request.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeVar

from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.listener import CLIENT
from odradek.broker.requests.session import Session
from odradek.broker.requests.splitting import ELEMENT_CHARGE_BYTES_MIN, ELEMENTS_PER_PART, Splitting
from odradek.protocol.connection import RequestFrame
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import Buffer, Message

C = TypeVar("C", bound=RequestContext)
Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


@dataclass(frozen=True, slots=True)
class Ordered(Generic[R]):
    """Result of a handler whose stage one has to wait.

    `awaitable` yields a response, an awaitable (stage two), another Ordered (stage one waits again) or None.
    """

    awaitable: Awaitable[R | Awaitable[R | None] | None]


@dataclass(frozen=True, slots=True)
class Embedded(Generic[R]):
    """Request that arrived inside an Envelope. `wrap` makes the Envelope's response of the encoded inner response."""

    frame: RequestFrame
    session: Session
    wrap: Callable[[Buffer], R]


class Routing(IntEnum):
    """Node that handles a request."""

    LOCAL = 0
    """The node that received the request handles it."""
    CONTROLLER = 1
    """The active controller handles the request. Any other node forwards it in an Envelope (KIP-590)."""
    ENVELOPE = 2
    """The handler returns an `Embedded` request. The dispatcher handles that request next, on the same node."""


Handler = Callable[[C, Q], R | Awaitable[R | None] | Ordered[R] | Embedded[R] | None]
Refuse = Callable[[C, Q, ErrorCode, str | None], R | None]
"""Return the response that reports an error for each item of a request; None if the protocol has no such response."""


def always(_request: Any) -> bool:
    """Return True for each request."""
    return True


def never(_request: Any) -> bool:
    """Return False for each request."""
    return False


def unsplit(_version: int) -> Splitting | None:
    """Handle a request of any size in one piece."""
    return None


def split_by(
    request: tuple[str, ...],
    response: tuple[str, ...],
    size: int = ELEMENTS_PER_PART,
    *,
    hashed: Callable[[Any], str] | None = None,
) -> Callable[[int], Splitting | None]:
    """Split large requests of all versions by these arrays (`Splitting`)."""
    splitting = Splitting(request, response, size, hashed)
    return lambda _version: splitting


@dataclass(frozen=True, slots=True)
class Gated:
    """Later versions of an API that a broker serves only if a boolean property is true.

    Kafka 4.4 marks these versions as unstable. Clients do not see them in a broker with the default configuration.
    """

    max_version: int
    property_name: str


@dataclass(frozen=True, slots=True)
class Remainder:
    """A request without the elements that a check has refused."""

    request: Any
    complete: Callable[[Any], None]
    """Add the results of the refused elements to the response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api(Generic[C, Q, R]):
    """Row of the API table. `C` is the request context that the handler needs.

    The broker serves the versions `min_version` to `max_version`. If `announced_min` is set, ApiVersions announces it
    as the lowest version (Produce, KAFKA-18659). `acl` and `gaps` appear in docs/apis.md.
    """

    key: int
    min_version: int
    max_version: int
    request: type[Q]
    response: type[R]
    handle: Handler[C, Q, R]
    refuse: Refuse[C, Q, R]
    announced_min: int | None = None
    gated: Gated | None = None
    listeners: tuple[str, ...] = (CLIENT,)
    """Listener roles that serve this API. A listener with one of them serves it."""
    early: Callable[[Any], bool] = never
    """Return True if the request is served before this broker is registered.

    Until then only the quorum of the metadata log runs. A cluster needs these requests to start; all other requests
    wait.
    """
    routing: Routing = Routing.LOCAL
    long_poll: bool = False
    """True if a long wait is intended: for records, or for other members. It is not logged then."""
    splitting: Callable[[int], Splitting | None] = unsplit
    """Return how a large request of this version is split into parts, which are handled one after the other.

    The controller handles a request in one piece. Only the response that refuses it is made in parts.
    """
    elements: Callable[[Q], int] | None = None
    """Return the number of elements of a request for the controller: topics, partitions or resources.

    The broker that receives a request with more than RECORDS_PER_REQUEST_MAX refuses it with POLICY_VIOLATION.
    """
    parts_charge_bytes_min: int = ELEMENT_CHARGE_BYTES_MIN * ELEMENTS_PER_PART
    """Minimum charge of a request that can have more than one part. Smaller requests, such as nearly all Produce
    requests, are not examined.
    """
    check: Callable[[C, Q], Awaitable[Remainder | None] | None] | None = None
    """Check a request for the controller on the node that receives it from the client. Raise Refusal.

    If the result is an awaitable, the request, and later ones of its connection, are handled after it. It can return
    the part of the request that is forwarded.
    """
    combine: Callable[[Q], Iterator[None]] | None = None
    """Combine elements of a large request that name the same thing, before the request is split.

    The generator changes the request. It yields when the event loop has to run other work.
    """
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
