"""Odradek's wire client for Kafka's protocol, on asyncio.

It works with every Kafka-compatible broker, and depends on `odradek.protocol` alone. A `Cluster` holds the
connections; functions and classes use it:

```python
from odradek import client

async with client.Cluster("127.0.0.1:9092") as cluster:
    await client.create_topic(cluster, "payments", partitions=6)
    producer = client.Producer(cluster, transactional_id="payments-1")
    await producer.begin()
    await producer.send("payments", [client.ProducerRecord(b"alice", b"3")])
    await producer.commit()
    async for batch in client.Consumer(cluster, "payments").batches():
        print([record.value for record in batch])
```

- Connections: `Cluster`, `Settings`, `RetryPolicy`, and `Security` from Kafka's client properties (`read_security`
  reads a file of them). Versions are agreed once per connection. Retriable errors and lost
  connections are retried by one policy. Times are in seconds if the name ends with `_s`, in milliseconds with `_ms`.
- Administration: functions that return frozen dataclasses.
  - Topics: `list_topics`, `describe_partitions`, `create_topic`, `delete_topic`, `list_offsets`,
    `offsets_of_partitions`, `describe_configs`, `alter_configs`.
  - Partitions: `partitions_of`, `add_partitions`, `reassign_partitions`, `list_reassignments`, `elect_leaders`,
    `delete_records`.
  - Groups: `list_groups`, `describe_group`, `delete_group`, `committed_offsets`, `plan_offset_reset`, `plan_offsets`,
    `commit_offsets`.
  - Transactions and producers: `list_transactions`, `describe_transaction`, `fence_producer`,
    `expire_transactional_ids`, `blocked_partitions`, `abort_hanging_transaction`, `list_producers`,
    `producers_by_partition`, `expire_producers`.
  - The cluster: `cluster_status`, `wait_until_serving`, `wait_until_all_serve`, `wait_until_in_sync`,
    `list_features`, `update_feature`, `unregister_broker`.
  - Users: `describe_acls`, `create_acls`, `delete_acls`, `explain_acl`, `describe_users`, `set_user`, `remove_user`,
    `create_token`, `renew_token`, `expire_token`, `describe_tokens`, `describe_quotas`, `alter_quotas`.
- Records: `Producer` (with `PreparedTransaction` for two-phase commits), `SharedTransaction` and `Consumer`;
  `fetch_range` and `checked_batches` for undecoded batches.
- Errors: all exceptions are subclasses of `ClientError`, which has the error code, the problem and the remedy.

Names are imported at first use, so that a program loads only the messages that it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.client.admin.acls import (
        Acl,
        AclExplanation,
        AclFilter,
        AclOperation,
        PatternType,
        Permission,
        ResourceType,
        create_acls,
        delete_acls,
        describe_acls,
        explain_acl,
    )
    from odradek.client.admin.configs import (
        ConfigChange,
        ConfigEntry,
        ConfigKind,
        ConfigOperation,
        ConfigSynonym,
        alter_configs,
        describe_configs,
    )
    from odradek.client.admin.features import (
        FeatureLevel,
        UpgradeType,
        list_features,
        unregister_broker,
        update_feature,
    )
    from odradek.client.admin.group_members import GroupListing, GroupMember
    from odradek.client.admin.group_offsets import CommittedOffset, PlannedOffset, commit_offsets, committed_offsets
    from odradek.client.admin.group_reset import ResetTarget, plan_offset_reset, plan_offsets
    from odradek.client.admin.groups import (
        GroupDescription,
        GroupLag,
        GroupPartition,
        delete_group,
        describe_group,
        list_groups,
    )
    from odradek.client.admin.hanging import (
        BlockedPartition,
        HolderState,
        OpenProducer,
        abort_hanging_transaction,
        blocked_partitions,
    )
    from odradek.client.admin.offsets import EARLIEST, LATEST, IsolationLevel, list_offsets, offsets_of_partitions
    from odradek.client.admin.partitions import (
        HIGH_WATERMARK,
        ElectionType,
        Reassignment,
        add_partitions,
        delete_records,
        elect_leaders,
        list_reassignments,
        partitions_of,
        reassign_partitions,
    )
    from odradek.client.admin.producers import (
        ProducerListing,
        expire_producers,
        list_producers,
        producers_by_partition,
    )
    from odradek.client.admin.quotas import ENTITY_TYPES, Quota, alter_quotas, describe_quotas
    from odradek.client.admin.readiness import wait_until_all_serve, wait_until_in_sync, wait_until_serving
    from odradek.client.admin.status import BrokerDescription, ClusterStatus, cluster_status
    from odradek.client.admin.tokens import Token, create_token, describe_tokens, expire_token, renew_token
    from odradek.client.admin.topics import (
        CreatedTopic,
        PartitionDescription,
        TopicListing,
        create_topic,
        delete_topic,
        describe_partitions,
        list_topics,
    )
    from odradek.client.admin.transactions import (
        TransactionDescription,
        TransactionListing,
        describe_transaction,
        expire_transactional_ids,
        fence_producer,
        list_transactions,
    )
    from odradek.client.admin.users import UserCredential, describe_users, remove_user, set_user
    from odradek.client.consumer.consumer import Consumer, ConsumerRecord
    from odradek.client.consumer.decode import checked_batches
    from odradek.client.consumer.ranges import FetchedBatches, fetch_range
    from odradek.client.errors import (
        AuthenticationFailed,
        ClientError,
        ConnectionLost,
        Fenced,
        InvalidArgument,
        InvalidState,
        NotFound,
        ProtocolError,
        Refused,
        RequestTimedOut,
        Unreachable,
        UnsupportedRequest,
    )
    from odradek.client.network.cluster import Cluster, CoordinatorType
    from odradek.client.network.fan_out import PartialResult
    from odradek.client.network.metadata import Broker, Metadata, Partition, Topic, TopicPartition
    from odradek.client.network.retry import RetryPolicy
    from odradek.client.network.settings import Settings
    from odradek.client.producer.prepared import PreparedTransaction
    from odradek.client.producer.producer import Producer, ProducerIdentity, Written
    from odradek.client.producer.records import ProducerRecord
    from odradek.client.producer.shared import SharedTransaction
    from odradek.client.security.security import Security, read_security

_MODULES = {
    "admin.acls": (
        "Acl", "AclExplanation", "AclFilter", "AclOperation", "PatternType", "Permission", "ResourceType",
        "create_acls", "delete_acls", "describe_acls", "explain_acl",
    ),
    "admin.configs": (
        "ConfigChange", "ConfigEntry", "ConfigKind", "ConfigOperation", "ConfigSynonym", "alter_configs",
        "describe_configs",
    ),
    "admin.features": (
        "FeatureLevel", "UpgradeType", "list_features", "unregister_broker", "update_feature",
    ),
    "admin.partitions": (
        "HIGH_WATERMARK", "ElectionType", "Reassignment", "add_partitions", "delete_records", "elect_leaders",
        "list_reassignments", "partitions_of", "reassign_partitions",
    ),
    "admin.quotas": (
        "ENTITY_TYPES", "Quota", "alter_quotas", "describe_quotas",
    ),
    "admin.group_offsets": ("CommittedOffset", "PlannedOffset", "commit_offsets", "committed_offsets"),
    "admin.group_reset": ("ResetTarget", "plan_offset_reset", "plan_offsets"),
    "admin.group_members": ("GroupListing", "GroupMember"),
    "admin.groups": (
        "GroupDescription", "GroupLag", "GroupPartition", "delete_group", "describe_group", "list_groups",
    ),
    "admin.hanging": (
        "BlockedPartition", "HolderState", "OpenProducer", "abort_hanging_transaction", "blocked_partitions",
    ),
    "admin.offsets": ("EARLIEST", "LATEST", "IsolationLevel", "list_offsets", "offsets_of_partitions"),
    "admin.producers": ("ProducerListing", "expire_producers", "list_producers", "producers_by_partition"),
    "admin.readiness": ("wait_until_all_serve", "wait_until_in_sync", "wait_until_serving"),
    "admin.status": ("BrokerDescription", "ClusterStatus", "cluster_status"),
    "admin.topics": (
        "CreatedTopic", "PartitionDescription", "TopicListing", "create_topic", "delete_topic", "describe_partitions",
        "list_topics",
    ),
    "admin.transactions": (
        "TransactionDescription", "TransactionListing", "describe_transaction", "expire_transactional_ids",
        "fence_producer", "list_transactions",
    ),
    "admin.tokens": ("Token", "create_token", "describe_tokens", "expire_token", "renew_token"),
    "admin.users": ("UserCredential", "describe_users", "remove_user", "set_user"),
    "consumer.consumer": ("Consumer", "ConsumerRecord"),
    "consumer.decode": ("checked_batches",),
    "consumer.ranges": ("FetchedBatches", "fetch_range"),
    "errors": (
        "AuthenticationFailed", "ClientError", "ConnectionLost", "Fenced", "InvalidArgument", "InvalidState",
        "NotFound", "ProtocolError", "Refused", "RequestTimedOut", "Unreachable", "UnsupportedRequest",
    ),
    "network.cluster": ("Cluster", "CoordinatorType"),
    "network.fan_out": ("PartialResult",),
    "network.metadata": ("Broker", "Metadata", "Partition", "Topic", "TopicPartition"),
    "network.retry": ("RetryPolicy",),
    "network.settings": ("Settings",),
    "producer.prepared": ("PreparedTransaction",),
    "producer.producer": ("Producer", "ProducerIdentity", "Written"),
    "producer.records": ("ProducerRecord",),
    "producer.shared": ("SharedTransaction",),
    "security.security": ("Security", "read_security"),
}  # fmt: skip
"""Public names by the module that defines them."""
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "EARLIEST",
    "ENTITY_TYPES",
    "HIGH_WATERMARK",
    "LATEST",
    "Acl",
    "AclExplanation",
    "AclFilter",
    "AclOperation",
    "AuthenticationFailed",
    "BlockedPartition",
    "Broker",
    "BrokerDescription",
    "ClientError",
    "Cluster",
    "ClusterStatus",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigKind",
    "ConfigOperation",
    "ConfigSynonym",
    "ConnectionLost",
    "Consumer",
    "ConsumerRecord",
    "CoordinatorType",
    "CreatedTopic",
    "ElectionType",
    "FeatureLevel",
    "Fenced",
    "FetchedBatches",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "GroupMember",
    "GroupPartition",
    "HolderState",
    "InvalidArgument",
    "InvalidState",
    "IsolationLevel",
    "Metadata",
    "NotFound",
    "OpenProducer",
    "PartialResult",
    "Partition",
    "PartitionDescription",
    "PatternType",
    "Permission",
    "PlannedOffset",
    "PreparedTransaction",
    "Producer",
    "ProducerIdentity",
    "ProducerListing",
    "ProducerRecord",
    "ProtocolError",
    "Quota",
    "Reassignment",
    "Refused",
    "RequestTimedOut",
    "ResetTarget",
    "ResourceType",
    "RetryPolicy",
    "Security",
    "Settings",
    "SharedTransaction",
    "Token",
    "Topic",
    "TopicListing",
    "TopicPartition",
    "TransactionDescription",
    "TransactionListing",
    "Unreachable",
    "UnsupportedRequest",
    "UpgradeType",
    "UserCredential",
    "Written",
    "abort_hanging_transaction",
    "add_partitions",
    "alter_configs",
    "alter_quotas",
    "blocked_partitions",
    "checked_batches",
    "cluster_status",
    "commit_offsets",
    "committed_offsets",
    "create_acls",
    "create_token",
    "create_topic",
    "delete_acls",
    "delete_group",
    "delete_records",
    "delete_topic",
    "describe_acls",
    "describe_configs",
    "describe_group",
    "describe_partitions",
    "describe_quotas",
    "describe_tokens",
    "describe_transaction",
    "describe_users",
    "elect_leaders",
    "expire_producers",
    "expire_token",
    "expire_transactional_ids",
    "explain_acl",
    "fence_producer",
    "fetch_range",
    "list_features",
    "list_groups",
    "list_offsets",
    "list_producers",
    "list_reassignments",
    "list_topics",
    "list_transactions",
    "offsets_of_partitions",
    "partitions_of",
    "plan_offset_reset",
    "plan_offsets",
    "producers_by_partition",
    "read_security",
    "reassign_partitions",
    "remove_user",
    "renew_token",
    "set_user",
    "unregister_broker",
    "update_feature",
    "wait_until_all_serve",
    "wait_until_in_sync",
    "wait_until_serving",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
