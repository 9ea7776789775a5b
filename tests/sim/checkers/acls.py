"""I18: each broker decides by the ACLs that it has applied, also after a snapshot, and by those alone.

Part of the checkers, without code of the broker.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tests.sim.checkers.evidence import Evidence

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALL, READ, WRITE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 6, 7, 8
IMPLYING_DESCRIBE: Final = (READ, WRITE, DELETE, ALTER, DESCRIBE)
"""Operations whose ALLOW also allows DESCRIBE."""
ANY: Final = "*"
ADDRESS_OF_CLIENTS: Final = "127.0.0.1"
HOSTS_OF_CLIENTS: Final = (ANY, ADDRESS_OF_CLIENTS, "127.0.0.0/8")
"""Hosts of ACLs that match ADDRESS_OF_CLIENTS."""


class AclRow(NamedTuple):
    """One ACL, with Kafka's codes."""

    resource: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


class AclChange(NamedTuple):
    """One record of the metadata log. `acl` is None if the record removes the ACL."""

    offset: int
    id: bytes
    acl: AclRow | None


class Access(NamedTuple):
    """One operation of a user from a host on one resource."""

    principal: str
    host: str
    operation: int
    resource: int
    name: str


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision of a broker, that had applied the metadata log to one of these offsets when it decided."""

    broker: str
    access: Access
    allowed: bool
    offset_first: int
    offset_last: int


@dataclass(frozen=True, slots=True)
class Applied:
    """All ACLs of a broker at the offset to which it has applied the metadata log."""

    broker: str
    offset: int
    acls: tuple[AclRow, ...]


@dataclass
class AclEvidence:
    """Records of ACLs in the metadata log, and what the brokers had and decided."""

    changes: list[AclChange] = field(default_factory=list)
    applied: list[Applied] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    requested: dict[AclRow, None] = field(default_factory=dict)
    """All ACLs that the administrator has ever requested."""


def is_allowed(acls: Iterable[AclRow], access: Access) -> bool:
    """Decide by a pass over all ACLs: a DENY that matches, then an ALLOW, then a denial."""
    allowed = False
    for acl in acls:
        if not _matches(acl, access):
            continue
        if acl.permission == DENY and acl.operation in {access.operation, ALL}:
            return False
        implied = access.operation == DESCRIBE and acl.operation in IMPLYING_DESCRIBE
        allowed = allowed or (acl.permission == ALLOW and (implied or acl.operation in {access.operation, ALL}))
    return allowed


def _matches(acl: AclRow, access: Access) -> bool:
    is_name = acl.name in {access.name, ANY} if acl.pattern == LITERAL else access.name.startswith(acl.name)
    is_host = acl.host == ANY or (access.host == ADDRESS_OF_CLIENTS and acl.host in HOSTS_OF_CLIENTS)
    return acl.resource == access.resource and is_name and is_host and acl.principal in {access.principal, "User:*"}


class AclHistory:
    """The ACLs after each record of the metadata log."""

    def __init__(self, changes: Sequence[AclChange]) -> None:
        self._offsets = [-1]
        self._states: list[tuple[AclRow, ...]] = [()]
        acls: dict[bytes, AclRow] = {}
        for change in changes:
            if change.acl is None:
                acls.pop(change.id, None)
            else:
                acls[change.id] = change.acl
            self._offsets.append(change.offset)
            self._states.append(tuple(sorted(acls.values())))

    def at(self, offset: int) -> tuple[AclRow, ...]:
        """Return the ACLs after all records up to `offset`, sorted."""
        return self.between(offset, offset)[-1]

    def between(self, first: int, last: int) -> list[tuple[AclRow, ...]]:
        """Return the ACLs of each offset from `first` to `last`."""
        start, stop = (bisect_right(self._offsets, max(offset, -1)) for offset in (first, last))
        return self._states[start - 1 : stop]


def check_acls(evidence: "Evidence") -> Iterator[str]:
    """I18: the ACLs of each broker are those of the metadata log at its offset, and they decide each request.

    A broker has these ACLs after a replay of records and after a snapshot. Only the administrator changes them.
    """
    if evidence.acls is not None:
        yield from acl_findings(evidence.acls)


def acl_findings(acls: AclEvidence) -> Iterator[str]:
    """Yield a finding for each violation of I18."""
    history = AclHistory(acls.changes)
    for change in acls.changes:
        if change.acl is not None and change.acl not in acls.requested:
            yield f"I18 the metadata log has at {change.offset} an ACL that the administrator did not add: {change.acl}"
    for applied in acls.applied:
        expected = history.at(applied.offset)
        if applied.acls != expected:
            missing = [acl for acl in expected if acl not in applied.acls]
            extra = [acl for acl in applied.acls if acl not in expected]
            yield f"I18 {applied.broker} at {applied.offset} has other ACLs: missing {missing[:2]}, extra {extra[:2]}"
    for decided in acls.decided:
        states = history.between(decided.offset_first, decided.offset_last)
        if all(is_allowed(state, decided.access) != decided.allowed for state in states):
            verb = "allowed" if decided.allowed else "denied"
            yield (
                f"I18 {decided.broker} {verb} {decided.access} with the ACLs of the offsets {decided.offset_first} to "
                f"{decided.offset_last}"
            )
