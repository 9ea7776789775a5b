"""Meaning of each field that commands print, and the place where Apache Kafka uses the same name.

A place is an API, whose schema has a field of this name, or a tool with its heading. The schema writes `TopicId` for
`topic_id`, and some tools write `TOPIC-ID`. A field without a place is Odradek's own.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Meaning(NamedTuple):
    """Meaning of a field, and the place where Kafka uses its name."""

    text: str
    kafka: str = ""


PARTITION_FIELDS: Final = {
    "topic": Meaning("name of the topic", "kafka-topics: Topic"),
    "topic_id": Meaning("id of the topic", "Metadata"),
    "partition": Meaning("partition index", "kafka-topics: Partition"),
    "partitions": Meaning("objects of the partitions", "DescribeLogDirs"),
    "partition_count": Meaning("number of partitions", "kafka-topics: PartitionCount"),
    "replication_factor": Meaning("replicas per partition", "CreateTopics"),
    "is_internal": Meaning("true for a topic of the cluster itself", "Metadata"),
    "leader": Meaning("node id of the leader; -1 if there is none", "kafka-topics: Leader"),
    "leader_epoch": Meaning("epoch of the leader", "Metadata"),
    "replicas": Meaning("node ids of the replicas, the preferred leader first", "kafka-topics: Replicas"),
    "isr": Meaning("node ids of the in-sync replicas", "kafka-topics: Isr"),
    "adding_replicas": Meaning("replicas that a reassignment adds", "ListPartitionReassignments"),
    "removing_replicas": Meaning("replicas that a reassignment removes", "ListPartitionReassignments"),
    "log_start_offset": Meaning("first offset of the log", "Fetch"),
    "last_stable_offset": Meaning("first offset of the earliest open transaction, or the high watermark", "Fetch"),
    "high_watermark": Meaning("offset after the last committed record", "Fetch"),
    "log_end_offset": Meaning("offset after the last record of the leader", "DescribeQuorum"),
    "low_watermark": Meaning("first offset after the deletion", "DeleteRecords"),
    "base_offset": Meaning("offset of the first record that was written", "Produce"),
    "records": Meaning("number of records"),
}
GROUP_FIELDS: Final = {
    "group": Meaning("group id", "kafka-consumer-groups: GROUP"),
    "type": Meaning("type of the group: classic, consumer, share or streams", "kafka-groups: TYPE"),
    "protocol_type": Meaning("type of the protocol of members", "ListGroups"),
    "state": Meaning("state of the group or broker", "kafka-consumer-groups: STATE"),
    "coordinator": Meaning("node id of the coordinator", "kafka-transactions: Coordinator"),
    "group_epoch": Meaning("epoch of the group; null for a classic group", "ConsumerGroupDescribe"),
    "assignor_name": Meaning("assignor that distributes the partitions", "ConsumerGroupDescribe"),
    "members": Meaning("objects of the members", "DescribeGroups"),
    "member_id": Meaning("id of the member; of a partition, of the member that owns it", "DescribeGroups"),
    "member_epoch": Meaning("epoch of the member; null in a classic group", "ConsumerGroupDescribe"),
    "instance_id": Meaning("`group.instance.id` of a static member", "ConsumerGroupDescribe"),
    "assignment": Meaning(
        "partition indexes by topic; of a streams group, the inputs of the active tasks", "ConsumerGroupDescribe"
    ),
    "committed_offset": Meaning(
        "offset that the group has committed; of a share group, its start offset", "OffsetFetch"
    ),
    "new_offset": Meaning("offset after the reset", "kafka-consumer-groups: NEW-OFFSET"),
    "metadata": Meaning("metadata of the committed offset", "OffsetFetch"),
    "lag": Meaning("records from the committed offset to the high watermark", "kafka-consumer-groups: LAG"),
    "stable_lag": Meaning("records from the committed offset to the last stable offset"),
    "executed": Meaning("true if the offsets were committed"),
    "deleted": Meaning("true if the group was deleted"),
}
TRANSACTION_FIELDS: Final = {
    "transactional_id": Meaning("transactional id", "ListTransactions"),
    "transaction_state": Meaning("state of the transaction", "ListTransactions"),
    "producer_id": Meaning("producer id", "ListTransactions"),
    "producer_epoch": Meaning("epoch of the producer", "DescribeTransactions"),
    "client_id": Meaning("client id of the client", "ConsumerGroupDescribe"),
    "client_host": Meaning("address of the client", "ConsumerGroupDescribe"),
    "transaction_timeout_ms": Meaning("time-out of the transaction in milliseconds", "DescribeTransactions"),
    "transaction_start_time_ms": Meaning("start in milliseconds since 1970", "DescribeTransactions"),
    "transaction_duration_ms": Meaning("milliseconds since the start", "kafka-transactions: TransactionDurationMs"),
    "topic_partitions": Meaning(
        "partitions of the transaction as topic-partition", "kafka-transactions: TopicPartitions"
    ),
    "since": Meaning(
        "start of the transaction as text in UTC; if no coordinator knows it, the timestamp of its last record"
    ),
    "times_out": Meaning("time-out of the transaction as text in UTC, or never"),
    "in_doubt": Meaning("true if it takes part in a two-phase commit"),
    "held_back": Meaning("records between the last stable offset and the high watermark"),
    "condition": Meaning("open, in doubt, completing, hanging, unknown or just ended"),
    "was": Meaning("state before the command"),
    "idle_ms": Meaning("milliseconds since the last use"),
    "open_transaction": Meaning("true if the producer has an open transaction in the partition"),
    "last_sequence": Meaning("sequence number of the last record", "DescribeProducers"),
    "last_timestamp": Meaning("timestamp of the last record in milliseconds since 1970", "DescribeProducers"),
    "current_txn_start_offset": Meaning("first offset of the open transaction; null if none", "DescribeProducers"),
    "producers": Meaning("number of producers"),
    "transactional_ids": Meaning("number of transactional ids"),
    "selected": Meaning("number of selected entries"),
    "removed": Meaning("number of removed entries"),
    "kept": Meaning("reason by transactional id, for those that were not removed"),
    "message": Meaning("the result as text"),
}
CLUSTER_FIELDS: Final = {
    "cluster_id": Meaning("cluster id", "DescribeCluster"),
    "controller_id": Meaning("node id of the active controller", "DescribeCluster"),
    "current_voters": Meaning("node ids of the voters", "DescribeQuorum"),
    "brokers": Meaning("objects of the brokers", "DescribeCluster"),
    "groups": Meaning("objects of the groups", "ListGroups"),
    "transactions": Meaning("objects of the open transactions"),
    "unreachable": Meaning("node ids of brokers that did not respond"),
    "under_replicated": Meaning("partitions with a replica that is not in sync; of a broker, their number"),
    "node_id": Meaning("node id of the broker", "Metadata"),
    "endpoint": Meaning("host:port of the broker"),
    "role": Meaning("controller, voter or observer"),
    "rack": Meaning("`broker.rack`", "Metadata"),
    "leads": Meaning("number of partitions that the broker leads"),
    "log_bytes": Meaning("size of all logs in bytes"),
    "offline_log_dirs": Meaning("log directories of the broker that failed"),
    "offline_partitions": Meaning("partitions whose replicas the broker does not serve, as topic-partition"),
    "running": Meaning("true if the broker runs, or responds if it is on another host"),
    "is_fenced": Meaning("true if the controller has fenced the broker", "DescribeCluster"),
    "pid": Meaning("process id, for a local cluster"),
    "metrics": Meaning("address of the metrics, for a local cluster"),
    "log": Meaning("file of the log, for a local cluster"),
    "healthy": Meaning("true, false, or null if the cluster was not checked"),
    "problems": Meaning("objects of the problems"),
    "problem": Meaning("what is wrong"),
    "remedy": Meaning("what to do"),
    "feature": Meaning("name of the feature", "kafka-features: Feature"),
    "supported_min_version": Meaning("lowest level that brokers support", "kafka-features: SupportedMinVersion"),
    "supported_max_version": Meaning("highest level that brokers support", "kafka-features: SupportedMaxVersion"),
    "finalized_version_level": Meaning("level that the cluster uses", "kafka-features: FinalizedVersionLevel"),
    "validate_only": Meaning("true after --dry-run", "CreateTopics"),
    "name": Meaning("name of the property or profile", "DescribeConfigs"),
    "value": Meaning("value of the property or record", "DescribeConfigs"),
    "source": Meaning("where the value comes from", "DescribeConfigs"),
    "read_only": Meaning("true if it cannot change while the broker runs", "DescribeConfigs"),
    "documentation": Meaning("description of the property", "DescribeConfigs"),
    "synonyms": Meaning("objects of all values, in the order of precedence", "DescribeConfigs"),
    "changed": Meaning("names of the changed properties"),
    "used": Meaning("true for the profile in use; * in the table"),
    "bootstrap": Meaning("addresses of brokers"),
    "command_config": Meaning("file of client properties", "kafka-topics: --command-config"),
}
SECURITY_FIELDS: Final = {
    "resource": Meaning("resource, as `odradek acls add` takes it"),
    "resource_type": Meaning("type of the resource", "DescribeAcls"),
    "resource_name": Meaning("name of the resource", "DescribeAcls"),
    "pattern_type": Meaning("literal or prefixed", "DescribeAcls"),
    "principal": Meaning("principal, such as User:alice", "DescribeAcls"),
    "host": Meaning("address of clients; * for all", "DescribeAcls"),
    "operation": Meaning("operation", "DescribeAcls"),
    "permission_type": Meaning("allow or deny", "DescribeAcls"),
    "allowed": Meaning("true if the operation is allowed"),
    "rule": Meaning("the rule that decides, as text"),
    "acl": Meaning("object of the ACL that decides, or null"),
    "user": Meaning("name of the user", "DescribeUserScramCredentials"),
    "mechanism": Meaning("SCRAM mechanism", "DescribeUserScramCredentials"),
    "mechanisms": Meaning("SCRAM mechanisms"),
    "iterations": Meaning("iterations of the hash", "DescribeUserScramCredentials"),
    "entity": Meaning("names by type of entity", "DescribeClientQuotas"),
    "quotas": Meaning("values by name of the quota"),
    "token_id": Meaning("id of the token", "DescribeDelegationToken"),
    "owner": Meaning("principal of the owner", "kafka-delegation-tokens: OWNER"),
    "requester": Meaning("principal that created the token", "kafka-delegation-tokens: REQUESTER"),
    "renewers": Meaning("principals that may renew the token", "DescribeDelegationToken"),
    "issue_timestamp": Meaning("creation in milliseconds since 1970", "DescribeDelegationToken"),
    "expiry_timestamp": Meaning("expiration in milliseconds since 1970", "DescribeDelegationToken"),
    "max_timestamp": Meaning("end of renewals in milliseconds since 1970", "DescribeDelegationToken"),
    "issue_date": Meaning("creation as text in UTC", "kafka-delegation-tokens: ISSUEDATE"),
    "expiry_date": Meaning("expiration as text in UTC", "kafka-delegation-tokens: EXPIRYDATE"),
    "max_date": Meaning("end of renewals as text in UTC", "kafka-delegation-tokens: MAXDATE"),
    "hmac": Meaning("HMAC of the token, a secret", "DescribeDelegationToken"),
}
RECORD_FIELDS: Final = {
    "offset": Meaning("offset of the record", "kafka-console-consumer: Offset:"),
    "timestamp": Meaning("timestamp in milliseconds since 1970", "ListOffsets"),
    "key": Meaning("key of the record"),
    "headers": Meaning("pairs of name and value"),
    "transaction": Meaning("none, committed or aborted"),
    "file": Meaning("path of the file"),
    "entries": Meaning("decoded content, with the names of the file format"),
}
MEANINGS: Final = {
    **PARTITION_FIELDS,
    **GROUP_FIELDS,
    **TRANSACTION_FIELDS,
    **CLUSTER_FIELDS,
    **SECURITY_FIELDS,
    **RECORD_FIELDS,
}
"""Meaning of each field by its name."""
