"""Follow the ACLs of each broker while it runs: after each change, its ACLs and its decisions are recorded."""

from typing import TYPE_CHECKING, Final

from odradek.cluster.authorization.standard import StandardAuthorizer
from odradek.cluster.authorizer import AclOperation, Principal, ResourceType
from odradek.simulation.environment.links import HOSTILE
from tests.sim.checkers.acls import ADDRESS_OF_CLIENTS, Access, AclEvidence, AclRow, Applied, Decided
from tests.sim.options.tenants import ALICE, BOB, LENT_GROUP, LENT_ID, LENT_TOPICS, MALLORY
from tests.sim.world import TENANT_TOPICS, TOPIC

if TYPE_CHECKING:
    from odradek.broker.node import Node
    from odradek.cluster.metadata.delta import MetadataDelta
    from odradek.cluster.metadata.image import MetadataImage
    from odradek.protocol.acls import Acl

HOSTS: Final = {ALICE: ADDRESS_OF_CLIENTS, BOB: ADDRESS_OF_CLIENTS, MALLORY: HOSTILE}
"""Addresses of the clients of each tenant, as brokers see them."""
RESOURCES: Final = (
    *((ResourceType.TOPIC, name) for name in (TOPIC, *TENANT_TOPICS, *LENT_TOPICS)),
    (ResourceType.GROUP, LENT_GROUP),
    (ResourceType.TRANSACTIONAL_ID, LENT_ID),
)
OPERATIONS: Final = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)


class AclWatch:
    """Records the ACLs of all brokers of a run."""

    def __init__(self) -> None:
        self.evidence = AclEvidence()

    def follow(self, name: str, node: "Node") -> None:
        """Record the ACLs of a node after its first image and after each change, and decisions by them."""
        is_loaded = False

        def on_metadata(delta: "MetadataDelta", image: "MetadataImage") -> None:
            nonlocal is_loaded
            if is_loaded and not delta.changed_acls():
                return
            is_loaded = True
            authorizer = node._authorizer
            assert isinstance(authorizer, StandardAuthorizer)
            of_parts = {name: image.acls.values(), f"authorizer of {name}": authorizer._index._counts.elements()}
            for part, acls in of_parts.items():
                rows = tuple(sorted(_row(acl) for acl in acls))
                self.evidence.applied.append(Applied(part, image.offset, rows))
            self._decide(name, node, image.offset)

        node.metadata.subscribe(on_metadata)

    def _decide(self, name: str, node: "Node", offset: int) -> None:
        for user, host in HOSTS.items():
            for operation in OPERATIONS:
                for resource, resource_name in RESOURCES:
                    (allowed,) = node._authorizer.authorize(
                        Principal("User", user), host, operation, resource, [resource_name]
                    )
                    access = Access(f"User:{user}", host, int(operation), int(resource), resource_name)
                    self.evidence.decided.append(Decided(name, access, allowed, offset, offset))


def _row(acl: "Acl") -> AclRow:
    numbers = int(acl.operation), int(acl.permission)
    return AclRow(int(acl.resource), acl.name, int(acl.pattern), acl.principal, acl.host, *numbers)
