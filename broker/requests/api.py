"""The shape of an API: one row that names its versions, messages and handler.

A handler is a plain function `handle(context, request)`. What it returns says when the answer comes:

=====================  ==============================================================================================
a response             answered at once, no task is made
an awaitable           stage one is done; stage two (waiting for replication, markers, data) overlaps the requests
                       behind it. Responses still leave in request order
`Ordered(awaitable)`   stage one itself has to wait: the connection takes no further request until the awaitable has
                       yielded one of the former
`None`                 no response at all (Produce with acks=0)
=====================  ==============================================================================================

A handler may raise `Refusal` before it has changed anything: dispatch answers with the row's `refuse`, after
`error_map` has translated the code for the version of the request.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from odradek.broker.requests.listener import CLIENT
from odradek.cluster.authorizer import CLUSTER_RESOURCE, AclOperation, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import Message

if TYPE_CHECKING:
    from odradek.broker.dispatch.services import Services
    from odradek.broker.requests.session import Session

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


@dataclass(slots=True)
class RequestContext:
    """One request on its way through the broker. `now_ms` is wall-clock time when it was taken up."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    session: "Session"
    services: "Services"
    now_ms: int
    request_bytes: int = 0
    busy_us: int = 0
    """What it has taken of the loop's time, where that is measured."""
    throttle_ms: int = 0
    """How long its client was asked to stay silent."""

    def allowed(self, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """May this session do `operation` on the one resource called `name`?"""
        return self._authorize(operation, resource, (name,))[0]

    def allowed_on_cluster(self, operation: AclOperation) -> bool:
        return self._authorize(operation, ResourceType.CLUSTER, (CLUSTER_RESOURCE,))[0]

    def split_allowed(
        self, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """(allowed, denied), both in the order given: the one way in which handlers ask about many resources."""
        answers = self._authorize(operation, resource, names)
        allowed = [name for name, ok in zip(names, answers, strict=True) if ok]
        denied = [name for name, ok in zip(names, answers, strict=True) if not ok]
        return allowed, denied

    def _authorize(self, operation: AclOperation, resource: ResourceType, names: Sequence[str]) -> list[bool]:
        session = self.session
        return self.services.authorizer.authorize(session.principal, session.client_host, operation, resource, names)


@dataclass(frozen=True, slots=True)
class Ordered(Generic[R]):
    """A stage one that has to wait: `awaitable` yields a response, an awaitable (stage two) or None."""

    awaitable: Awaitable[R | Awaitable[R | None] | None]


Handler = Callable[[RequestContext, Q], R | Awaitable[R | None] | Ordered[R] | None]
Refuse = Callable[[RequestContext, Q, ErrorCode, str | None], R | None]
"""Builds the answer that says `error` to everything a request asked; None where the protocol has no answer."""


def always(_request: Any) -> bool:
    return True


def never(_request: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Api(Generic[Q, R]):
    """One row of the API table.

    `min_version` to `max_version` is what is served; `announced_min` is what ApiVersions says where that differs
    (Produce, KAFKA-18659). `acl` and `gaps` are for docs/apis.md.
    """

    key: int
    min_version: int
    max_version: int
    request: type[Q]
    response: type[R]
    handle: Handler[Q, R]
    refuse: Refuse[Q, R]
    announced_min: int | None = None
    listeners: tuple[str, ...] = (CLIENT,)
    """Roles of listeners; one of them is enough."""
    early: Callable[[Any], bool] = never
    """Which requests are served while the node starts, when there is nothing but the metadata log and the controller: without
    them a cluster could not begin. All others wait until the node is ready."""
    forward: bool = False
    """Answered by the active controller: a node that is not it passes the request on in an Envelope (KIP-590)."""
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


AnyApi = Api[Any, Any]
