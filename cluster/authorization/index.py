"""Index of ACLs: finds the ACLs that match a request without a pass over all of them.

The ACLs of a resource type are in a dictionary by principal and host, and there by permission and operation. The ACLs
of one such entry are in two dictionaries by the name of their pattern, one for literal names and one for prefixes. A
look-up examines the literal name, the longest prefix of the name, and `*`, in the few entries that match the client.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from odradek.cluster.authorization.hosts import HostKey, Network, NetworkSize, host_key, keys_of_client
from odradek.cluster.authorization.prefixes import Prefixes
from odradek.protocol.acls import WILDCARD, WILDCARD_PRINCIPAL, Acl, AclOperation, PatternType, Permission, ResourceType

Subject = tuple[str, HostKey]
"""Principal and host of an ACL."""
Effect = int
"""Permission and operation of an ACL, as one number: Python hashes enumerations slowly."""
_OPERATION_BITS: Final = 8


def _effect(permission: Permission, operation: AclOperation) -> Effect:
    return permission << _OPERATION_BITS | operation


_IMPLYING: Final = {
    AclOperation.DESCRIBE: (
        AclOperation.DESCRIBE,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
}
"""Operations whose ALLOW also allows DESCRIBE, and DESCRIBE_CONFIGS. A DENY implies nothing."""
_ALLOWING: Final[dict[AclOperation, tuple[Effect, ...]]] = {
    operation: tuple(
        _effect(Permission.ALLOW, allowed) for allowed in (*_IMPLYING.get(operation, (operation,)), AclOperation.ALL)
    )
    for operation in AclOperation
}
_DENYING: Final[dict[AclOperation, tuple[Effect, ...]]] = {
    operation: (_effect(Permission.DENY, operation), _effect(Permission.DENY, AclOperation.ALL))
    for operation in AclOperation
}


class _Names:
    """The ACLs of one resource type, subject and effect, by the names of their patterns.

    Each list has one ACL, or several with different notations of one host.
    """

    __slots__ = ("literal", "prefixed", "prefixes")

    def __init__(self) -> None:
        self.literal: dict[str, list[Acl]] = {}
        self.prefixed: dict[str, list[Acl]] = {}
        self.prefixes = Prefixes()

    def add(self, acl: Acl) -> None:
        patterns = self.prefixed if acl.pattern is PatternType.PREFIXED else self.literal
        acls = patterns.get(acl.name)
        if acls is not None:
            acls.append(acl)
            return
        patterns[acl.name] = [acl]
        if patterns is self.prefixed:
            self.prefixes.add(acl.name)

    def remove(self, acl: Acl) -> None:
        patterns = self.prefixed if acl.pattern is PatternType.PREFIXED else self.literal
        patterns[acl.name].remove(acl)
        if not patterns[acl.name]:
            del patterns[acl.name]
            if patterns is self.prefixed:
                self.prefixes.remove(acl.name)

    @property
    def is_empty(self) -> bool:
        return not self.literal and not self.prefixed

    def match(self, name: str) -> tuple[int, Acl] | None:
        """Return the most specific ACL that matches `name`, with the number of characters that its pattern fixes."""
        acls = self.literal.get(name)
        if acls is not None:
            return len(name) + 1, acls[0]
        prefix = self.prefixes.longest(name)
        if prefix is not None:
            return len(prefix), self.prefixed[prefix][0]
        acls = self.literal.get(WILDCARD)
        return None if acls is None else (0, acls[0])

    def all(self) -> Iterator[Acl]:
        """Return one ACL for each pattern."""
        return (acls[0] for acls in chain(self.literal.values(), self.prefixed.values()))

    def denies(self, acl: Acl) -> bool:
        """Return True if one of these DENYs has the name of the ALLOW `acl`, or a prefix of it.

        An ALLOW of each name is denied by a DENY of each name alone.
        """
        if acl.pattern is not PatternType.PREFIXED:
            if acl.name == WILDCARD:
                return False
            if acl.name in self.literal:
                return True
        return self.prefixes.longest(acl.name) is not None


class _Resources:
    """The ACLs of one resource type."""

    def __init__(self) -> None:
        self._of_subject: dict[Subject, dict[Effect, _Names]] = {}
        self._literal: Counter[str] = Counter()
        self._prefixed: Counter[str] = Counter()
        """Number of ACLs by the name of their pattern."""
        self._prefixes = Prefixes()

    def add(self, acl: Acl) -> None:
        effects = self._of_subject.setdefault((acl.principal, host_key(acl.host)), {})
        effect = _effect(acl.permission, acl.operation)
        if effect not in effects:
            effects[effect] = _Names()
        effects[effect].add(acl)
        patterns = self._prefixed if acl.pattern is PatternType.PREFIXED else self._literal
        count = patterns.get(acl.name, 0)
        patterns[acl.name] = count + 1
        if not count and patterns is self._prefixed:
            self._prefixes.add(acl.name)

    def remove(self, acl: Acl) -> None:
        subject, effect = (acl.principal, host_key(acl.host)), _effect(acl.permission, acl.operation)
        effects = self._of_subject[subject]
        effects[effect].remove(acl)
        if effects[effect].is_empty:
            del effects[effect]
            if not effects:
                del self._of_subject[subject]
        patterns = self._prefixed if acl.pattern is PatternType.PREFIXED else self._literal
        patterns[acl.name] -= 1
        if not patterns[acl.name]:
            del patterns[acl.name]
            if patterns is self._prefixed:
                self._prefixes.remove(acl.name)

    def names(self, subjects: Iterable[Subject], effects: Sequence[Effect]) -> list[_Names]:
        """Return the ACLs of these subjects with these effects."""
        found = [self._of_subject[subject] for subject in subjects if subject in self._of_subject]
        return [of_subject[effect] for of_subject in found for effect in effects if effect in of_subject]

    def exists(self, name: str) -> bool:
        """Return True if an ACL of any subject matches `name`."""
        return name in self._literal or WILDCARD in self._literal or self._prefixes.longest(name) is not None


class AclIndex:
    """The ACLs of a metadata image. The same ACL can be added several times, under different ids."""

    def __init__(self) -> None:
        self._counts: Counter[Acl] = Counter()
        self._resources: dict[ResourceType, _Resources] = {}
        self._networks: Counter[NetworkSize] = Counter()

    def add(self, acl: Acl) -> None:
        """Add an ACL."""
        count = self._counts.get(acl, 0)
        self._counts[acl] = count + 1
        if count:
            return
        self._resources.setdefault(acl.resource, _Resources()).add(acl)
        key = host_key(acl.host)
        if isinstance(key, Network):
            self._networks[key.bits, key.length] += 1

    def remove(self, acl: Acl) -> None:
        """Remove an ACL that was added, once."""
        self._counts[acl] -= 1
        if self._counts[acl]:
            return
        del self._counts[acl]
        self._resources[acl.resource].remove(acl)
        key = host_key(acl.host)
        if isinstance(key, Network):
            self._networks[key.bits, key.length] -= 1
            if not self._networks[key.bits, key.length]:
                del self._networks[key.bits, key.length]

    def find(
        self, principal: str, host: str, operation: AclOperation, resource: ResourceType, name: str
    ) -> tuple[Acl | None, bool]:
        """Return the deciding ACL, or None, and whether any ACL exists for the resource.

        A DENY precedes each ALLOW. Among equal permissions, the most specific pattern decides.
        """
        resources = self._resources.get(resource)
        if resources is None:
            return None, False
        subjects = self._subjects(principal, host)
        for effects in (_DENYING[operation], _ALLOWING[operation]):
            matches = [names.match(name) for names in resources.names(subjects, effects)]
            found = max((match for match in matches if match is not None), key=_specificity, default=None)
            if found is not None:
                return found[1], True
        return None, resources.exists(name)

    def find_any(self, principal: str, host: str, operation: AclOperation, resource: ResourceType) -> Acl | None:
        """Return an ACL that allows `operation` on at least one resource; None if there is none.

        This is `Authorizer.authorizeByResourceType` of Apache Kafka: no operation implies another one, and an ALLOW
        counts unless a DENY has the same literal name, or a prefix of it.
        """
        resources = self._resources.get(resource)
        if resources is None:
            return None
        subjects = self._subjects(principal, host)
        denied = resources.names(subjects, _DENYING[operation])
        if any(WILDCARD in names.literal for names in denied):
            return None
        allowed = resources.names(
            subjects, (_effect(Permission.ALLOW, operation), _effect(Permission.ALLOW, AclOperation.ALL))
        )
        acls = chain.from_iterable(names.all() for names in allowed)
        return next((acl for acl in acls if not any(names.denies(acl) for names in denied)), None)

    def _subjects(self, principal: str, host: str) -> list[Subject]:
        keys = keys_of_client(host, self._networks)
        return [(each, key) for each in (principal, WILDCARD_PRINCIPAL) for key in keys]


def _specificity(match: tuple[int, Acl]) -> int:
    return match[0]
