"""Bit fields of authorized operations in responses about topics, groups and the cluster (KIP-430)."""

from typing import Final

from odradek.broker.requests.context import RequestContext
from odradek.cluster.authorizer import CLUSTER_RESOURCE, AclOperation, ResourceType

# Operations that Kafka defines for each resource type (AclEntry.supportedOperations).
_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}


def topic_operations(context: RequestContext, topic: str) -> int:
    """Return the operations that the client may do on `topic`. Bit n stands for the operation with Kafka's code n."""
    return _bits(context, ResourceType.TOPIC, topic)


def group_operations(context: RequestContext, group: str) -> int:
    """Return the operations that the client may do on `group`. Bit n stands for the operation with Kafka's code n."""
    return _bits(context, ResourceType.GROUP, group)


def cluster_operations(context: RequestContext) -> int:
    """Return the operations that the client may do on the cluster. Bit n stands for the operation with Kafka's code n.

    Return 0 if it may not describe the cluster, as in Kafka.
    """
    if not context.permits_on_cluster(AclOperation.DESCRIBE):
        return 0
    return _bits(context, ResourceType.CLUSTER, CLUSTER_RESOURCE)


def _bits(context: RequestContext, resource: ResourceType, name: str) -> int:
    return sum(1 << operation for operation in _OPERATIONS[resource] if context.permits(operation, resource, name))
