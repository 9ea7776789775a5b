"""The nodes of the cluster that sessions belong to, and the principals that a listener serves as nodes."""

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.cluster.authorizer import (
    ANONYMOUS,
    CLUSTER_RESOURCE,
    AclOperation,
    Authorizer,
    Principal,
    ResourceType,
    Rule,
)


@dataclass(slots=True)
class SessionNode:
    """The node that the other end of a connection is.

    If its principal may act as several nodes, the first request that names one of them decides for the connection.
    """

    node_id: int | None = None
    """Id of the node. None: no request has named it yet."""
    candidates: frozenset[int] | None = None
    """Ids of the nodes that the principal may act as; None: any."""

    @property
    def is_known(self) -> bool:
        """True if the login shows that the other end is a node. Otherwise, it can also be a client."""
        return self.candidates is not None

    def acts_as(self, node_id: int) -> bool:
        """Return True if the connection may act as the node `node_id`. It can then act as no other one."""
        if self.node_id is None and (self.candidates is None or node_id in self.candidates):
            self.node_id = node_id
        return self.node_id == node_id

    def __str__(self) -> str:
        """Return the text of the node in an error message."""
        known = self.node_id is not None or self.candidates is None
        return f"node {self.node_id}" if known else f"one of the nodes {sorted(self.candidates or ())}"

    @classmethod
    def of(cls, candidates: frozenset[int] | None) -> "SessionNode":
        """Return the node of a new session whose principal may act as `candidates`."""
        only = next(iter(candidates)) if candidates is not None and len(candidates) == 1 else None
        return cls(only, candidates)


@dataclass(frozen=True, slots=True, eq=False)
class NodePrincipals:
    """The principals that one listener serves as nodes."""

    ids: Mapping[Principal, frozenset[int]]
    """Ids of the nodes that each principal may act as. Empty: CLUSTER_ACTION decides, and each id is allowed."""
    own: Principal | None
    """Principal of this node at listeners of this name, if it is the same on all nodes; None if it is not known."""
    authorizer: Authorizer
    alone: bool
    """True if the listener serves no node by the cluster secret."""

    def node_of(self, principal: Principal, host: str) -> SessionNode | None:
        """Return the node of a new session of `principal` from the address `host`; None if it is a client.

        Handlers of requests of nodes authorize each request, too.
        """
        if principal == ANONYMOUS:
            return None
        if self.ids:
            candidates = self.ids.get(principal)
            return None if candidates is None else SessionNode.of(candidates)
        return SessionNode.of(None) if principal == self.own or self._has_cluster_action(principal, host) else None

    def _has_cluster_action(self, principal: Principal, host: str) -> bool:
        """Return True if an ACL or super.users gives CLUSTER_ACTION. The absence of ACLs does not."""
        if not self.authorizer.enabled:
            return False
        decision = self.authorizer.decide(
            principal, host, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_RESOURCE
        )
        return decision.allowed and decision.rule in {Rule.ACL, Rule.SUPER_USER}
