"""Authorizer of a broker without ACLs, an implementation of `odradek.cluster.authorizer.Authorizer`."""

from collections.abc import Sequence

from odradek.cluster.authorizer import AclOperation, Principal, ResourceType


class AllowAll:
    """Authorizer that allows every operation, as Kafka does without `authorizer.class.name`."""

    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> list[bool]:
        """Return True for each of `names`."""
        return [True] * len(names)
