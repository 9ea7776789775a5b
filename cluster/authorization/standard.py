"""Authorizer over the ACLs of the metadata image, with a bounded memory of its decisions."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.cluster.authorization.index import AclIndex
from odradek.cluster.authorizer import CLUSTER_NODE, AclOperation, Decision, Principal, ResourceType, Rule
from odradek.cluster.metadata.records import AccessControlEntryRecord

if TYPE_CHECKING:
    from odradek.cluster.metadata.delta import MetadataDelta
    from odradek.cluster.metadata.image import MetadataImage
    from odradek.cluster.metadata.records import MetadataRecord

DECISIONS_PER_GENERATION_MAX: Final = 8_192
"""Maximum remembered decisions per generation. Two generations of names with NAME_CHARACTERS_MAX take about 8 MiB."""
NAME_CHARACTERS_MAX: Final = 256
"""Maximum characters of a resource name whose decision is remembered. A topic name has at most 249."""
ANY_RESOURCE: Final = "hardcode"
"""Name that `decide_any` decides first, as Apache Kafka does. Super users, and clusters without ACLs, are allowed."""

_SUPER_USER: Final = Decision(allowed=True, rule=Rule.SUPER_USER)
_NODE: Final = Decision(allowed=True, rule=Rule.NODE)
_NO_ACL: Final = Decision(allowed=True, rule=Rule.NO_ACL)
_DEFAULT: Final = Decision(allowed=False, rule=Rule.DEFAULT)
_NOT_LOADED: Final = Decision(allowed=False, rule=Rule.NOT_LOADED)

_Key = tuple[AclOperation, ResourceType, str | None, str, Principal]
"""Operation, resource type, resource name, host and principal. Name None: at least one resource of the type."""


@dataclass(slots=True)
class _Prepared:
    """The ACLs of a snapshot that is being loaded."""

    offset: int
    index: AclIndex = field(default_factory=AclIndex)
    count: int = 0


class StandardAuthorizer:
    """Implementation of `odradek.cluster.authorizer.Authorizer` with the semantics of Apache Kafka's class.

    Subscribe `on_metadata` and `prepare` to the metadata cache. Until the first image only super users and nodes are
    allowed.
    """

    enabled: Final = True

    def __init__(self, super_users: Collection[str] = (), *, allow_if_no_acl: bool = False) -> None:
        """`super_users` are principals as text, such as `User:admin`.

        `allow_if_no_acl` is allow.everyone.if.no.acl.found.
        """
        self._super_users = frozenset(super_users)
        self._without_acl = _NO_ACL if allow_if_no_acl else _DEFAULT
        self._index = AclIndex()
        self._prepared: _Prepared | None = None
        self._loaded = False
        self._recent: dict[_Key, Decision] = {}
        self._former: dict[_Key, Decision] = {}

    def on_metadata(self, delta: "MetadataDelta", image: "MetadataImage") -> None:
        """Apply the changes of ACLs, and forget all decisions if there are any."""
        changed = delta.changed_acls()
        if changed and not self._use_prepared(image):
            for acl_id in changed:
                removed, added = delta.base.acls.get(acl_id), image.acls.get(acl_id)
                if removed is not None:
                    self._index.remove(removed)
                if added is not None:
                    self._index.add(added)
        if changed or not self._loaded:
            self._loaded = True
            self._recent, self._former = {}, {}

    def prepare(self, offset: int) -> "Callable[[MetadataDelta, MetadataRecord], None]":
        """Return a function that indexes the ACLs of the snapshot at `offset` while its records arrive.

        `on_metadata` then replaces the index. To index 10,000 ACLs takes 50 ms, too long for one callback.
        """
        prepared = self._prepared = _Prepared(offset)

        def take(delta: "MetadataDelta", record: "MetadataRecord") -> None:
            if isinstance(record, AccessControlEntryRecord):
                acl = delta.changes.acls.get(record.id)
                assert acl is not None
                prepared.index.add(acl)
                prepared.count += 1

        return take

    def _use_prepared(self, image: "MetadataImage") -> bool:
        """Use the index of the snapshot that `image` comes from. Return False if there is none."""
        prepared = self._prepared
        if prepared is None or prepared.offset > image.offset:
            return False
        self._prepared = None
        if prepared.offset != image.offset or prepared.count != len(image.acls):
            return False
        self._index = prepared.index
        return True

    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> list[bool]:
        """Return one decision for each of `names`, in their order."""
        recent = self._recent
        allowed = []
        for name in names:
            known = recent.get((operation, resource, name, host, principal))
            if known is None:
                known = self.decide(principal, host, operation, resource, name)
            allowed.append(known.allowed)
        return allowed

    def decide(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, name: str
    ) -> Decision:
        """Return the decision on the resource `name`, with the deciding rule."""
        key = (operation, resource, name, host, principal)
        known = self._remembered(key)
        if known is None:
            known = self._decide(principal, host, operation, resource, name)
            if len(name) <= NAME_CHARACTERS_MAX:
                self._remember(key, known)
        return known

    def decide_any(self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType) -> Decision:
        """Decide as Apache Kafka's `authorizeByResourceType`: InitProducerId uses it for WRITE on any topic."""
        key = (operation, resource, None, host, principal)
        known = self._remembered(key)
        if known is None:
            known = self._decide(principal, host, operation, resource, ANY_RESOURCE)
            if not known.allowed and known.rule is not Rule.NOT_LOADED:
                acl = self._index.find_any(str(principal), host, operation, resource)
                known = _DEFAULT if acl is None else Decision.by_acl(acl)
            self._remember(key, known)
        return known

    def _decide(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, name: str
    ) -> Decision:
        if principal == CLUSTER_NODE:
            return _NODE
        text = str(principal)
        if text in self._super_users:
            return _SUPER_USER
        if not self._loaded:
            return _NOT_LOADED
        acl, exists = self._index.find(text, host, operation, resource, name)
        if acl is not None:
            return Decision.by_acl(acl)
        return _DEFAULT if exists else self._without_acl

    def _remembered(self, key: _Key) -> Decision | None:
        known = self._recent.get(key)
        if known is None:
            known = self._former.get(key)
            if known is not None:
                self._remember(key, known)
        return known

    def _remember(self, key: _Key, decision: Decision) -> None:
        """Remember a decision. A full generation replaces the former one: decisions in use are remembered again."""
        if len(self._recent) >= DECISIONS_PER_GENERATION_MAX:
            self._former, self._recent = self._recent, {}
        self._recent[key] = decision
