"""Context of one request: its header, its session, its permissions and its measurements."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from odradek.broker.requests.large_work import LargeWork
from odradek.broker.requests.session import Session
from odradek.cluster.authorizer import CLUSTER_RESOURCE, AclOperation, Authorizer, ResourceType
from odradek.protocol.errors import ErrorCode, Refusal

CHANGES: Final = (
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.ALTER_CONFIGS,
    AclOperation.CREATE_TOKENS,
)
"""Operations that change topics, groups, configurations, ACLs or credentials. The audit log has allowed ones, too."""


@dataclass(frozen=True, slots=True)
class Access:
    """One operation on resources of one type.

    `about` are the things that the request changes if the resource is the cluster.
    """

    operation: AclOperation
    resource: ResourceType
    names: Sequence[str]
    about: Iterable[str] = ()
    rule: str = ""
    """The deciding rule, if the operation needs no ACL. Empty: the authorizer decides."""


class Audit(Protocol):
    """Log of authorization decisions. `odradek.broker.security.audit` implements it."""

    def denied(self, context: "RequestContext", access: "Access") -> None:
        """Log an operation that is denied."""

    def changed(self, context: "RequestContext", access: "Access") -> None:
        """Log an operation that is allowed and changes the state of the cluster."""


@dataclass(slots=True)
class RequestContext:
    """Header of one request, its session, and the measurements that quotas and metrics need."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    session: Session
    authorizer: Authorizer
    now_ms: int
    """Wall-clock time when the broker began to handle the request."""
    request_bytes: int
    busy_us: int = field(default=0, init=False)
    """Microseconds of the event loop that the handler's first stage took. Zero unless a `request_percentage` quota
    exists.
    """
    created_topics: int = field(default=0, init=False)
    """Topics that the broker has created automatically for this request. The parts of a large request share it."""
    record_errors: int = field(default=0, init=False)
    """Errors of single records in the response. The parts of a large request share it."""
    throttle_ms: int = field(default=0, init=False)
    """Throttle time of the response in milliseconds."""
    charge: int = field(default=0, init=False)
    """Bytes that the byte budget holds until the response is sent: for decoded elements, records and results."""
    large: LargeWork | None = field(default=None, init=False)
    """Work on this request, if it is large and has begun."""
    ends_connection: bool = field(default=False, init=False)
    """True if the connection closes when the response is sent."""
    audit: Audit | None = field(default=None, init=False)
    """Audit log. None: the broker has no authorizer. The dispatcher sets it."""
    encode_in_slices: bool = field(default=False, init=False)
    """True if the response is large: it is encoded in slices, between other work of the event loop."""

    def reserve(self, count: int) -> None:
        """Reserve `count` bytes of the byte budget until the response is sent; release them if negative."""
        self.charge += count
        self.session.charge(count)

    def allowed(self, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Return True if the session's principal may do `operation` on the resource `name`. Audit the decision."""
        return self._audited(operation, resource, (name,))[0]

    def allowed_on_cluster(self, operation: AclOperation, about: Iterable[str] = ()) -> bool:
        """Return True if the session's principal may do `operation` on the cluster. Audit the decision.

        `about` are the things that the request changes, for the audit log. It reads only the first ones.
        """
        return self._audited(operation, ResourceType.CLUSTER, (CLUSTER_RESOURCE,), about)[0]

    def allowed_change_of_cluster(self, operation: AclOperation, about: Iterable[str]) -> bool:
        """Return like `allowed_on_cluster`. Audit an allowed operation as a change, also if it is not in CHANGES."""
        allowed = self.allowed_on_cluster(operation, about)
        if allowed and operation not in CHANGES and self.audit is not None:
            self.audit.changed(self, Access(operation, ResourceType.CLUSTER, (CLUSTER_RESOURCE,), about))
        return allowed

    @property
    def is_node(self) -> bool:
        """True if the client is a node with CLUSTER_ACTION, whose requests need no other permission.

        It could send each request in an Envelope, with the principal of a super user.
        """
        return self.session.node is not None and self.permits_on_cluster(AclOperation.CLUSTER_ACTION)

    def note_denied_node(self, about: str, rule: str) -> None:
        """Audit that the client may not act as a node in this request, by a rule that is no ACL."""
        if self.audit is not None:
            access = Access(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, (CLUSTER_RESOURCE,), (about,), rule)
            self.audit.denied(self, access)

    def require_node(self, node_id: int) -> None:
        """Raise Refusal(CLUSTER_AUTHORIZATION_FAILED) unless the client may act as the node `node_id`.

        It needs CLUSTER_ACTION on the cluster. If it has authenticated as a node, it cannot act as another one.
        """
        if not self.allowed_on_cluster(AclOperation.CLUSTER_ACTION):
            raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        node = self.session.node
        if node is not None and not node.acts_as(node_id):
            self.note_denied_node(f"node {node_id}", f"the connection belongs to {node}")
            raise Refusal(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"The request names node {node_id}, but its connection belongs to {node}.",
            )

    def split_allowed(
        self, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """Return (allowed names, denied names), both in the given order. One call authorizes all resources of a
        request. The decisions are audited.
        """
        return _split(names, self._audited(operation, resource, names))

    def permits(self, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Return like `allowed`, without an audit: the request does not name the resource, or does not need it."""
        return self._authorize(operation, resource, (name,))[0]

    def permits_on_cluster(self, operation: AclOperation) -> bool:
        """Return like `allowed_on_cluster`, without an audit: other permissions suffice, or a later step audits it."""
        return self._authorize(operation, ResourceType.CLUSTER, (CLUSTER_RESOURCE,))[0]

    def permitted(self, operation: AclOperation, resource: ResourceType, names: Sequence[str]) -> list[str]:
        """Return the names that the session's principal may do `operation` on, without an audit.

        It filters resources that the request does not name, such as all topics.
        """
        return _split(names, self._authorize(operation, resource, names))[0]

    def permits_any(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Return True if the principal may do `operation` on at least one resource of the type. No audit."""
        session = self.session
        return self.authorizer.decide_any(session.principal, session.client_host, operation, resource).allowed

    def _audited(
        self, operation: AclOperation, resource: ResourceType, names: Sequence[str], about: Iterable[str] = ()
    ) -> list[bool]:
        decisions = self._authorize(operation, resource, names)
        audit = self.audit
        if audit is not None and names:
            if False in decisions:
                audit.denied(self, Access(operation, resource, _split(names, decisions)[1], about))
            if operation in CHANGES and True in decisions:
                audit.changed(self, Access(operation, resource, _split(names, decisions)[0], about))
        return decisions

    def _authorize(self, operation: AclOperation, resource: ResourceType, names: Sequence[str]) -> list[bool]:
        session = self.session
        return self.authorizer.authorize(session.principal, session.client_host, operation, resource, names)


def _split(names: Sequence[str], decisions: Sequence[bool]) -> tuple[list[str], list[str]]:
    """Return (allowed names, denied names)."""
    allowed = [name for name, ok in zip(names, decisions, strict=True) if ok]
    denied = [name for name, ok in zip(names, decisions, strict=True) if not ok]
    return allowed, denied
