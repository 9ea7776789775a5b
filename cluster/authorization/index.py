"""Index of ACLs: finds the ACLs that match a request without a pass over all of them.

The ACLs of a resource type are in two dictionaries by the name of their pattern, one for literal names and one for
prefixes. The ACLs of one pattern are in a dictionary by principal and host. A look-up therefore examines the ACLs of
the literal name, of `*`, and of the prefixes of the name, and there only those of the principal and the host.
"""

from collections import Counter
from collections.abc import Container, Iterator
from typing import Final

from odradek.cluster.authorization.hosts import HostKey, Network, NetworkSize, host_key, keys_of_client
from odradek.cluster.authorization.prefixes import Prefixes
from odradek.protocol.acls import WILDCARD, WILDCARD_PRINCIPAL, Acl, AclOperation, PatternType, Permission, ResourceType

Subject = tuple[str, HostKey]
"""Principal and host of an ACL."""
Effect = tuple[Permission, AclOperation]
"""Permission and operation of an ACL."""
_Entries = dict[Subject, dict[Effect, list[Acl]]]
"""The ACLs of one pattern. Each list has one ACL, or several with different notations of one host."""

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
        (Permission.ALLOW, allowed) for allowed in (*_IMPLYING.get(operation, (operation,)), AclOperation.ALL)
    )
    for operation in AclOperation
}
_DENYING: Final[dict[AclOperation, tuple[Effect, ...]]] = {
    operation: ((Permission.DENY, operation), (Permission.DENY, AclOperation.ALL)) for operation in AclOperation
}


class _Resources:
    """The ACLs of one resource type."""

    def __init__(self) -> None:
        self.literal: dict[str, _Entries] = {}
        self.prefixed: dict[str, _Entries] = {}
        self.of_subject: dict[Subject, dict[Effect, dict[Acl, None]]] = {}
        self.prefixes = Prefixes()

    def add(self, acl: Acl) -> None:
        subject, effect = (acl.principal, host_key(acl.host)), (acl.permission, acl.operation)
        patterns = self._patterns(acl)
        if acl.name not in patterns:
            patterns[acl.name] = {}
            if patterns is self.prefixed:
                self.prefixes.add(acl.name)
        patterns[acl.name].setdefault(subject, {}).setdefault(effect, []).append(acl)
        self.of_subject.setdefault(subject, {}).setdefault(effect, {})[acl] = None

    def remove(self, acl: Acl) -> None:
        subject, effect = (acl.principal, host_key(acl.host)), (acl.permission, acl.operation)
        patterns = self._patterns(acl)
        entries = patterns[acl.name]
        entries[subject][effect].remove(acl)
        if not entries[subject][effect]:
            del entries[subject][effect]
            if not entries[subject]:
                del entries[subject]
                if not entries:
                    del patterns[acl.name]
                    if patterns is self.prefixed:
                        self.prefixes.remove(acl.name)
        effects = self.of_subject[subject]
        del effects[effect][acl]
        if not effects[effect]:
            del effects[effect]
            if not effects:
                del self.of_subject[subject]

    def matching(self, name: str) -> Iterator[_Entries]:
        """Return the ACLs of each pattern that matches `name`, from the most specific pattern on."""
        entries = self.literal.get(name)
        if entries is not None:
            yield entries
        for prefix in self.prefixes.of(name):
            yield self.prefixed[prefix]
        if name != WILDCARD:
            entries = self.literal.get(WILDCARD)
            if entries is not None:
                yield entries

    def _patterns(self, acl: Acl) -> dict[str, _Entries]:
        return self.prefixed if acl.pattern is PatternType.PREFIXED else self.literal


class AclIndex:
    """The ACLs of a metadata image. The same ACL can be added several times, under different ids."""

    def __init__(self) -> None:
        self._counts: Counter[Acl] = Counter()
        self._resources: dict[ResourceType, _Resources] = {}
        self._networks: Counter[NetworkSize] = Counter()

    def add(self, acl: Acl) -> None:
        """Add an ACL."""
        self._counts[acl] += 1
        if self._counts[acl] > 1:
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
        denying, allowing = _DENYING[operation], _ALLOWING[operation]
        allow, exists = None, False
        for entries in resources.matching(name):
            exists = True
            for subject in subjects:
                effects = entries.get(subject)
                if effects is None:
                    continue
                for effect in denying:
                    if effect in effects:
                        return effects[effect][0], True
                if allow is None:
                    allow = next((effects[effect][0] for effect in allowing if effect in effects), None)
        return allow, exists

    def find_any(self, principal: str, host: str, operation: AclOperation, resource: ResourceType) -> Acl | None:
        """Return an ACL that allows `operation` on at least one resource; None if there is none.

        This is `Authorizer.authorizeByResourceType` of Apache Kafka: no operation implies another one, and an ALLOW
        counts unless a DENY has the same literal name, or a prefix of it.
        """
        resources = self._resources.get(resource)
        if resources is None:
            return None
        of_subject = resources.of_subject
        found = [of_subject[subject] for subject in self._subjects(principal, host) if subject in of_subject]
        denied = [effects[effect] for effects in found for effect in _DENYING[operation] if effect in effects]
        literals = {acl.name: None for acls in denied for acl in acls if acl.pattern is not PatternType.PREFIXED}
        if WILDCARD in literals:
            return None
        prefixes = Prefixes()
        for prefix in dict.fromkeys(acl.name for acls in denied for acl in acls if acl.pattern is PatternType.PREFIXED):
            prefixes.add(prefix)
        effects_of_any = ((Permission.ALLOW, operation), (Permission.ALLOW, AclOperation.ALL))
        allowed = [effects[effect] for effects in found for effect in effects_of_any if effect in effects]
        return next((acl for acls in allowed for acl in acls if not _is_denied(acl, literals, prefixes)), None)

    def _subjects(self, principal: str, host: str) -> list[Subject]:
        keys = keys_of_client(host, self._networks)
        return [(each, key) for each in (principal, WILDCARD_PRINCIPAL) for key in keys]


def _is_denied(acl: Acl, literals: Container[str], prefixes: Prefixes) -> bool:
    """Return True if a DENY has the name of `acl` or a prefix of it. A wildcard is denied by a wildcard alone."""
    if acl.pattern is not PatternType.PREFIXED:
        if acl.name == WILDCARD:
            return False
        if acl.name in literals:
            return True
    return next(prefixes.of(acl.name), None) is not None
