"""Authorizer of a broker without ACLs, an implementation of `odradek.cluster.authorizer.Authorizer`."""

from collections.abc import Sequence

from odradek.cluster.authorizer import AclOperation, Decision, Principal, ResourceType, Rule


class AllowAll:
    """Authorizer that allows every operation, as Kafka does without `authorizer.class.name`."""

    enabled = False

    def authorize(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, names: Sequence[str]
    ) -> list[bool]:
        """Return True for each of `names`."""
        return [True] * len(names)

    def decide(
        self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType, name: str
    ) -> Decision:
        """Return the decision of `authorize`."""
        return Decision(self.authorize(principal, host, operation, resource, (name,))[0], Rule.NO_AUTHORIZER)

    def decide_any(self, principal: Principal, host: str, operation: AclOperation, resource: ResourceType) -> Decision:
        """Allow the operation on each resource."""
        return Decision(allowed=True, rule=Rule.NO_AUTHORIZER)
