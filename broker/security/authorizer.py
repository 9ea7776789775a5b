"""The broker's authorizer: the implementation of `odradek.cluster.authorizer.Authorizer` that handlers use."""

from collections.abc import Sequence

from odradek.cluster.authorizer import AclOperation, Principal, ResourceType


class AllowAll:
    """Allow every operation: the authorizer of a cluster without ACLs."""

    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> list[bool]:
        return [True] * len(names)
