"""The configuration of a node: one row per property, Kafka's dotted names with Kafka's defaults.

`Config` is an immutable snapshot with one typed attribute per row (`log.segment.bytes` is `log_segment_bytes`).
`odradek.broker.config.sources` reads files, `--set` and the environment; `odradek.broker.config.topics` derives a topic's settings.
A property stands here only if something obeys it; names that start with `odradek.` are not Kafka's.
"""

from dataclasses import dataclass
from typing import Final

from odradek.broker.config.property import DOUBLE_MAX, INT_MAX, LONG_MAX, Kind, Property, Scope, properties_of, row
from odradek.storage.compaction.offset_map import ENTRY_BYTES

BOOL, STR, INT, SHORT, LONG, LIST = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.SHORT, Kind.LONG, Kind.LIST
DOUBLE: Final = Kind.DOUBLE
CLUSTER: Final = Scope.CLUSTER

OWN_BYTE_BUDGET: Final = 512 * 1024 * 1024
"""Bytes of requests and responses in memory, where `queued.max.request.bytes` does not say otherwise."""

NO_TIERED_STORAGE: Final = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
)
SEGMENT_BYTES_SET_MIN: Final = 1024 * 1024
"""What Kafka asks of who sets a size of segments while it runs; a node's own configuration may name less."""
REPLICAS: Final = (
    "([0-9]+:[0-9]+)?",
    "must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
)
NO_PREALLOCATION: Final = "Segments are not preallocated here: the length of a file says where its log ends."


@dataclass(frozen=True, kw_only=True)
class Config:
    # fmt: off
    # The node, its listeners and connections
    node_id: int = row("node.id", INT, 1, "The id of this node in its cluster.", low=0)
    log_dirs: str = row("log.dirs", STR, "", "The data directory (exactly one).")
    listeners: tuple[str, ...] = row("listeners", LIST, ("PLAINTEXT://:9092",), "Where to listen: NAME://host:port, comma separated. An empty host is every interface; port 0 is any free port.")
    advertised_listeners: tuple[str, ...] = row("advertised.listeners", LIST, (), "What clients are told to connect to: NAME://host:port for names in listeners. Where unset, the listener's own address.")
    inter_broker_listener_name: str | None = row("inter.broker.listener.name", STR, None, "The listener for the other brokers. Set, it is the only one that serves what brokers ask of each other; where unset, every listener does.")
    controller_listener_names: tuple[str, ...] = row("controller.listener.names", LIST, (), "Listeners for controllers alone; they are not told to clients. Where unset, the listeners for brokers serve controllers, too.")
    controller_quorum_voters: tuple[str, ...] = row("controller.quorum.voters", LIST, (), "The nodes that agree on the metadata of the cluster: id@host:port, comma separated, the same on every node. Where unset, this node alone. A node that is not named follows.", may_be_empty=True)
    broker_rack: str | None = row("broker.rack", STR, None, "Where this node stands: replicas are spread over racks, and consumers may read from their own.")
    odradek_cluster_id: str | None = row("odradek.cluster.id", STR, None, "The id of the cluster, 22 characters of base64url; the same on every node. Where unset, what the data directory says, or a new one for a cluster of one voter.")
    socket_listen_backlog_size: int = row("socket.listen.backlog.size", INT, 50, "Connections that may wait to be accepted.", low=1)
    socket_request_max_bytes: int = row("socket.request.max.bytes", INT, 104857600, "The largest request in bytes; a longer one closes its connection.", low=1)
    max_connections: int = row("max.connections", INT, INT_MAX, "Connections at any time; further ones are closed at once. On a listener for brokers or controllers, beside one for clients, they count and are accepted.", low=0, scope=Scope.DYNAMIC)
    max_connections_per_ip: int = row("max.connections.per.ip", INT, INT_MAX, "Connections from one address at any time, on every listener.", low=0, scope=Scope.DYNAMIC)
    max_connection_creation_rate: int = row("max.connection.creation.rate", INT, INT_MAX, "New connections a second; further ones wait to be read until the second has passed. Those on a listener for brokers or controllers, beside one for clients, neither wait nor count.", low=1, scope=Scope.DYNAMIC)
    connections_max_idle_ms: int = row("connections.max.idle.ms", LONG, 600000, "A connection of a client that is silent for so long is closed; -1 is never.", low=-1)
    queued_max_request_bytes: int = row("queued.max.request.bytes", LONG, -1, f"Bytes of requests and responses that may be in memory before connections stop being read; -1 is {OWN_BYTE_BUDGET}.", low=-1)
    odradek_max_in_flight_requests: int = row("odradek.max.in.flight.requests", INT, 64, "Requests of one connection in work before it stops being read.", low=1)
    odradek_frame_deadline_ms: int = row("odradek.frame.deadline.ms", LONG, 30000, "A request that has begun to arrive must be complete within this time, or its connection is closed.", low=1)
    request_timeout_ms: int = row("request.timeout.ms", INT, 30000, "The longest a broker waits for another part of the cluster on behalf of a request.", low=1)

    # Topics
    num_partitions: int = row("num.partitions", INT, 1, "Partitions of a topic for which nobody said how many.", low=1)
    default_replication_factor: int = row("default.replication.factor", INT, 1, "Replicas of a topic for which nobody said how many.", low=1)
    auto_create_topics_enable: bool = row("auto.create.topics.enable", BOOL, True, "Create a topic when a client asks for the metadata of one that does not exist.")
    delete_topic_enable: bool = row("delete.topic.enable", BOOL, True, "Whether topics can be deleted.")
    max_request_partition_size_limit: int = row("max.request.partition.size.limit", INT, 2000, "The most partitions in one answer to DescribeTopicPartitions.", low=1)

    # Logs: the defaults of topics
    log_cleanup_policy: tuple[str, ...] = row("log.cleanup.policy", LIST, ("delete",), "delete: old segments go by retention. compact: of each key the last record stays. Or both. Neither: everything stays.", choices=("compact", "delete"), may_be_empty=True, topic="cleanup.policy")
    compression_type: str = row("compression.type", STR, "producer", "producer: batches are kept as they come; any other: they are brought into that form.", choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), topic="compression.type")
    compression_gzip_level: int = row("compression.gzip.level", INT, -1, "How hard batches are compressed that the broker itself brings into gzip; -1 is 6.", low=1, high=9, or_equal=-1, topic="compression.gzip.level")
    compression_lz4_level: int = row("compression.lz4.level", INT, 9, "How hard batches are compressed that the broker itself brings into lz4; 9 is fast, every other value is the high compression of that level.", low=1, high=17, topic="compression.lz4.level")
    compression_zstd_level: int = row("compression.zstd.level", INT, 3, "How hard batches are compressed that the broker itself brings into zstd.", low=-131072, high=22, topic="compression.zstd.level")
    message_max_bytes: int = row("message.max.bytes", INT, 1048588, "The largest record batch in bytes.", low=0, topic="max.message.bytes")
    min_insync_replicas: int = row("min.insync.replicas", INT, 1, "Replicas that must have a record before acks=all is answered.", low=1, topic="min.insync.replicas")
    log_message_timestamp_type: str = row("log.message.timestamp.type", STR, "CreateTime", "Whether a record keeps its producer's time or gets the broker's.", choices=("CreateTime", "LogAppendTime"), topic="message.timestamp.type")
    log_message_timestamp_before_max_ms: int = row("log.message.timestamp.before.max.ms", LONG, LONG_MAX, "How far a record's CreateTime may lie in the past.", low=0, topic="message.timestamp.before.max.ms")
    log_message_timestamp_after_max_ms: int = row("log.message.timestamp.after.max.ms", LONG, 3600000, "How far a record's CreateTime may lie in the future.", low=0, topic="message.timestamp.after.max.ms")
    log_segment_bytes: int = row("log.segment.bytes", INT, 1073741824, "The size at which a segment is rolled.", low=14, set_low=SEGMENT_BYTES_SET_MIN, topic="segment.bytes")
    log_preallocate: bool = row("log.preallocate", BOOL, False, "Segments grow as they are written: the length of a file says where its log ends.", fixed=NO_PREALLOCATION, topic="preallocate")
    log_roll_ms: int | None = row("log.roll.ms", LONG, None, "The age at which a segment is rolled; where unset, log.roll.hours.", low=1, topic="segment.ms")
    log_roll_hours: int = row("log.roll.hours", INT, 168, "The age at which a segment is rolled, in hours.", low=1)
    log_roll_jitter_ms: int | None = row("log.roll.jitter.ms", LONG, None, "The most by which that age is shortened at random; where unset, log.roll.jitter.hours.", low=0, topic="segment.jitter.ms")
    log_roll_jitter_hours: int = row("log.roll.jitter.hours", INT, 0, "The most by which that age is shortened at random, in hours.", low=0)
    log_retention_ms: int | None = row("log.retention.ms", LONG, None, "How long records are kept, -1 is for ever; where unset, log.retention.minutes.", low=-1, topic="retention.ms")
    log_retention_minutes: int | None = row("log.retention.minutes", INT, None, "How long records are kept, in minutes; where unset, log.retention.hours.")
    log_retention_hours: int = row("log.retention.hours", INT, 168, "How long records are kept, in hours.")
    log_retention_bytes: int = row("log.retention.bytes", LONG, -1, "The size a partition is cut back to; below 0 is no limit.", topic="retention.bytes")
    log_local_retention_ms: int = row("log.local.retention.ms", LONG, -2, "As the retention in milliseconds: all records are local.", low=-2, fixed=NO_TIERED_STORAGE, topic="local.retention.ms")
    log_local_retention_bytes: int = row("log.local.retention.bytes", LONG, -2, "As the retention in bytes: all records are local.", low=-2, fixed=NO_TIERED_STORAGE, topic="local.retention.bytes")
    remote_storage_enable: bool = row("remote.storage.enable", BOOL, False, "There is no tiered storage.", fixed=NO_TIERED_STORAGE, topic="remote.storage.enable", scope=Scope.TOPIC_ALONE)
    remote_log_copy_disable: bool = row("remote.log.copy.disable", BOOL, False, "There is no tiered storage.", fixed=NO_TIERED_STORAGE, topic="remote.log.copy.disable", scope=Scope.TOPIC_ALONE)
    remote_log_delete_on_disable: bool = row("remote.log.delete.on.disable", BOOL, False, "There is no tiered storage.", fixed=NO_TIERED_STORAGE, topic="remote.log.delete.on.disable", scope=Scope.TOPIC_ALONE)
    log_index_size_max_bytes: int = row("log.index.size.max.bytes", INT, 10485760, "The size at which an index makes its segment roll.", low=4, topic="segment.index.bytes")
    log_index_interval_bytes: int = row("log.index.interval.bytes", INT, 4096, "Bytes of records between two entries of an index.", low=0, topic="index.interval.bytes")
    log_flush_interval_messages: int = row("log.flush.interval.messages", LONG, LONG_MAX, "Records after which a partition is flushed to stable storage; 1 flushes before every acknowledgment.", low=1, topic="flush.messages")
    log_flush_interval_ms: int | None = row("log.flush.interval.ms", LONG, None, "The longest that records stay unflushed; where unset, for as long as the operating system likes.", low=0, topic="flush.ms")
    log_segment_delete_delay_ms: int = row("log.segment.delete.delay.ms", LONG, 60000, "How long the files of a deleted segment stay.", low=0, topic="file.delete.delay.ms")
    unclean_leader_election_enable: bool = row("unclean.leader.election.enable", BOOL, False, "Whether a replica that is not in sync may lead when no other can.", topic="unclean.leader.election.enable")
    odradek_validate_records: str = row("odradek.validate.records", STR, "headers", "headers: checksum, counts and sequences of every batch. all: every record inside, too.", choices=("headers", "all"), scope=CLUSTER)

    # Logs: compaction
    log_cleaner_enable: bool = row("log.cleaner.enable", BOOL, True, "Whether topics whose cleanup.policy has compact are compacted.")
    log_cleaner_min_cleanable_ratio: float = row("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, "A log is compacted when more than this part of it is new since it was compacted last.", low=0, high=1, topic="min.cleanable.dirty.ratio")
    log_cleaner_min_compaction_lag_ms: int = row("log.cleaner.min.compaction.lag.ms", LONG, 0, "How long a record is safe from compaction.", low=0, topic="min.compaction.lag.ms")
    log_cleaner_max_compaction_lag_ms: int = row("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, "A log with a record that has waited longer is compacted however little of it is new; segments are rolled in time for that.", low=1, topic="max.compaction.lag.ms")
    log_cleaner_delete_retention_ms: int = row("log.cleaner.delete.retention.ms", LONG, 86400000, "How long tombstones, and markers of transactions of which nothing is left, stay when compaction has met them.", low=0, topic="delete.retention.ms")
    log_cleaner_dedupe_buffer_size: int = row("log.cleaner.dedupe.buffer.size", LONG, 134217728, f"Bytes of memory for the keys of the log that is being compacted, some {ENTRY_BYTES} each: what does not fit is compacted the next time.", low=1048576, scope=Scope.DYNAMIC)
    log_cleaner_io_buffer_load_factor: float = row("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, "How full that memory may become.", low=0.01, high=1, scope=Scope.DYNAMIC, may_be_nan=False)
    log_cleaner_io_buffer_size: int = row("log.cleaner.io.buffer.size", INT, 524288, "Bytes of memory for what is read and written meanwhile; a larger batch comes alone.", low=0, scope=Scope.DYNAMIC)
    log_cleaner_io_max_bytes_per_second: float = row("log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, "Bytes a second that compaction may read and write.", low=1, scope=Scope.DYNAMIC)
    log_cleaner_backoff_ms: int = row("log.cleaner.backoff.ms", LONG, 15000, "How long compaction rests when there is nothing to do.", low=0, scope=Scope.DYNAMIC)

    # Logs: jobs
    log_flush_scheduler_interval_ms: int = row("log.flush.scheduler.interval.ms", LONG, LONG_MAX, "How often logs are looked through for one that is due to be flushed by time.", low=1)
    log_initial_task_delay_ms: int = row("log.initial.task.delay.ms", LONG, 30000, "How long after the start the jobs on logs begin.", low=0)
    log_retention_check_interval_ms: int = row("log.retention.check.interval.ms", LONG, 300000, "How often retention is looked at.", low=1)
    log_flush_offset_checkpoint_interval_ms: int = row("log.flush.offset.checkpoint.interval.ms", INT, 60000, "How often recovery points are written down.", low=0)
    log_flush_start_offset_checkpoint_interval_ms: int = row("log.flush.start.offset.checkpoint.interval.ms", INT, 60000, "How often log start offsets are written down.", low=0)
    replica_high_watermark_checkpoint_interval_ms: int = row("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, "How often high watermarks are written down.", low=1)

    # Fetch
    fetch_max_bytes: int = row("fetch.max.bytes", INT, 57671680, "The most bytes in one answer to Fetch.", low=1024)
    max_incremental_fetch_session_cache_slots: int = row("max.incremental.fetch.session.cache.slots", INT, 1000, "Fetch sessions that are remembered.", low=0)

    # Replication
    replica_lag_time_max_ms: int = row("replica.lag.time.max.ms", LONG, 30000, "A follower that has not caught up for so long is taken out of the in-sync replicas.", low=1)
    replica_fetch_max_bytes: int = row("replica.fetch.max.bytes", INT, 1048576, "The most bytes of one partition in an answer to a follower; a larger batch comes alone.", low=0)
    replica_fetch_response_max_bytes: int = row("replica.fetch.response.max.bytes", INT, 10485760, "The most bytes in one answer to a follower.", low=0)
    replica_fetch_wait_max_ms: int = row("replica.fetch.wait.max.ms", INT, 500, "The longest that a leader holds the fetch of a follower that has everything.", low=1)
    replica_fetch_min_bytes: int = row("replica.fetch.min.bytes", INT, 1, "Bytes that a leader waits for, at most so long, before it answers a follower.", low=0)
    replica_fetch_backoff_ms: int = row("replica.fetch.backoff.ms", INT, 1000, "The longest pause before a follower asks again after a failure; pauses begin at 20 ms and double.", low=0)
    leader_replication_throttled_rate: int = row("leader.replication.throttled.rate", LONG, LONG_MAX, "Bytes a second that followers may take of throttled replicas here, unless they are in sync.", low=0, scope=Scope.DYNAMIC_ALONE)
    follower_replication_throttled_rate: int = row("follower.replication.throttled.rate", LONG, LONG_MAX, "Bytes a second that throttled replicas here take from their leaders, unless they are in sync.", low=0, scope=Scope.DYNAMIC_ALONE)
    leader_replication_throttled_replicas: tuple[str, ...] = row("leader.replication.throttled.replicas", LIST, (), "The replicas whose leaders are throttled: partition:broker, comma separated, or * for all.", items=REPLICAS, may_be_empty=True, topic="leader.replication.throttled.replicas", scope=Scope.TOPIC_ALONE)
    follower_replication_throttled_replicas: tuple[str, ...] = row("follower.replication.throttled.replicas", LIST, (), "The replicas that are throttled as followers: partition:broker, comma separated, or * for all.", items=REPLICAS, may_be_empty=True, topic="follower.replication.throttled.replicas", scope=Scope.TOPIC_ALONE)
    replica_selector_class: str | None = row("replica.selector.class", STR, None, "Which replica consumers are sent to: unset is the leader, RackAwareReplicaSelector one in the rack that they name (client.rack).", choices=("org.apache.kafka.common.replica.RackAwareReplicaSelector", "org.apache.kafka.common.replica.LeaderSelector"))

    # Transactions and producers
    transaction_state_log_num_partitions: int = row("transaction.state.log.num.partitions", INT, 50, "Partitions of the topic that holds the transactions.", low=1)
    transaction_state_log_replication_factor: int | None = row("transaction.state.log.replication.factor", SHORT, None, "Replicas of that topic; where unset, 3 or as many as there are brokers.", low=1)
    transaction_state_log_min_isr: int | None = row("transaction.state.log.min.isr", INT, None, "Its min.insync.replicas; where unset, 2 or as many as there are brokers.", low=1)
    transaction_state_log_segment_bytes: int = row("transaction.state.log.segment.bytes", INT, 104857600, "Its segment.bytes.", low=1)
    transaction_state_log_load_buffer_size: int = row("transaction.state.log.load.buffer.size", INT, 5242880, "Bytes read at a time when transactions are loaded from it.", low=1)
    transaction_max_timeout_ms: int = row("transaction.max.timeout.ms", INT, 900000, "The longest time-out a producer may ask for its transactions.", low=1)
    transactional_id_expiration_ms: int = row("transactional.id.expiration.ms", INT, 604800000, "A transactional id that is idle for so long is forgotten.", low=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = row("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000, "How often transactions are looked through for timed out ones.", low=1)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = row("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3600000, "How often transactional ids are looked through for expired ones.", low=1)
    transaction_partition_verification_enable: bool = row("transaction.partition.verification.enable", BOOL, True, "Ask the coordinator whether a partition is part of a transaction before its first batch is written (KIP-890).", scope=Scope.DYNAMIC)
    producer_id_expiration_ms: int = row("producer.id.expiration.ms", INT, 86400000, "A producer that is idle on a partition for so long is forgotten there.", low=1, scope=Scope.DYNAMIC)
    producer_id_expiration_check_interval_ms: int = row("producer.id.expiration.check.interval.ms", INT, 600000, "How often partitions are looked through for expired producers.", low=1)
    add_partitions_to_txn_retry_backoff_ms: int = row("add.partitions.to.txn.retry.backoff.ms", INT, 20, "The pause before a produce asks the coordinator again to add its partition.", low=1)
    add_partitions_to_txn_retry_backoff_max_ms: int = row("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, "The longest that it goes on asking.", low=0)
    odradek_initial_transaction_version: int = row("odradek.initial.transaction.version", SHORT, 2, "The level of transaction.version that a new cluster starts with.", low=0, high=2, scope=CLUSTER)

    # Groups and their offsets
    offsets_topic_num_partitions: int = row("offsets.topic.num.partitions", INT, 50, "Partitions of the topic that holds groups and their offsets.", low=1)
    offsets_topic_replication_factor: int | None = row("offsets.topic.replication.factor", SHORT, None, "Replicas of that topic; where unset, 3 or as many as there are brokers.", low=1)
    offsets_topic_segment_bytes: int = row("offsets.topic.segment.bytes", INT, 104857600, "Its segment.bytes.", low=1)
    offsets_load_buffer_size: int = row("offsets.load.buffer.size", INT, 5242880, "Bytes read at a time when groups are loaded from it.", low=1)
    offsets_commit_timeout_ms: int = row("offsets.commit.timeout.ms", INT, 5000, "How long a change of a group or of its offsets may take to be committed before the client is told to come again.", low=1)
    offsets_retention_minutes: int = row("offsets.retention.minutes", INT, 10080, "How long the offsets of a group without members, or of a topic that it does not subscribe to, are kept, in minutes.", low=1)
    offsets_retention_check_interval_ms: int = row("offsets.retention.check.interval.ms", LONG, 600000, "How often offsets are looked through for expired ones.", low=1)
    offset_metadata_max_bytes: int = row("offset.metadata.max.bytes", INT, 4096, "The most that a client may store beside an offset.")
    group_min_session_timeout_ms: int = row("group.min.session.timeout.ms", INT, 6000, "The shortest session time-out that a member of a classic group may ask for.")
    group_max_session_timeout_ms: int = row("group.max.session.timeout.ms", INT, 1800000, "The longest one.")
    group_initial_rebalance_delay_ms: int = row("group.initial.rebalance.delay.ms", INT, 3000, "How long a new classic group waits for further members before its first rebalance.")
    group_max_size: int = row("group.max.size", INT, INT_MAX, "Members of a classic group.", low=1)
    group_consumer_session_timeout_ms: int = row("group.consumer.session.timeout.ms", INT, 45000, "A member of a group of the consumer protocol that is silent for so long is taken out of it.", low=1)
    group_consumer_min_session_timeout_ms: int = row("group.consumer.min.session.timeout.ms", INT, 45000, "The least that may be set for one group.", low=1)
    group_consumer_max_session_timeout_ms: int = row("group.consumer.max.session.timeout.ms", INT, 60000, "The most.", low=1)
    group_consumer_heartbeat_interval_ms: int = row("group.consumer.heartbeat.interval.ms", INT, 5000, "How often members of a group of the consumer protocol are told to say that they are alive.", low=1)
    group_consumer_min_heartbeat_interval_ms: int = row("group.consumer.min.heartbeat.interval.ms", INT, 5000, "The least that may be set for one group.", low=1)
    group_consumer_max_heartbeat_interval_ms: int = row("group.consumer.max.heartbeat.interval.ms", INT, 15000, "The most.", low=1)
    group_consumer_max_size: int = row("group.consumer.max.size", INT, INT_MAX, "Members of a group of the consumer protocol.", low=1)
    group_consumer_assignors: tuple[str, ...] = row("group.consumer.assignors", LIST, ("uniform", "range"), "How the broker may assign partitions to members; the first one is taken where a member names none.", choices=("uniform", "range"))
    group_consumer_migration_policy: str = row("group.consumer.migration.policy", STR, "bidirectional", "Whether a group may change from the classic protocol to the consumer protocol (upgrade), back (downgrade), or both.", choices=("bidirectional", "upgrade", "downgrade", "disabled"))
    group_consumer_regex_refresh_interval_ms: int = row("group.consumer.regex.refresh.interval.ms", INT, 600000, "How often the regular expressions of groups are matched again although no topic has come or gone.", low=10000)
    group_consumer_assignment_interval_ms: int = row("group.consumer.assignment.interval.ms", INT, 1000, "The shortest time between two assignments of a group of the consumer protocol.", low=0, scope=Scope.DYNAMIC)
    group_consumer_min_assignment_interval_ms: int = row("group.consumer.min.assignment.interval.ms", INT, 0, "The least that may be set for one group.", low=0)
    group_consumer_max_assignment_interval_ms: int = row("group.consumer.max.assignment.interval.ms", INT, 15000, "The most.", low=0)

    # Quotas
    quota_window_num: int = row("quota.window.num", INT, 11, "Windows of time over which the use of clients is measured.", low=1)
    quota_window_size_seconds: int = row("quota.window.size.seconds", INT, 1, "How long one is.", low=1)
    controller_quota_window_num: int = row("controller.quota.window.num", INT, 11, "As quota.window.num, for partitions that are made and deleted.", low=1)
    controller_quota_window_size_seconds: int = row("controller.quota.window.size.seconds", INT, 1, "As quota.window.size.seconds, for those.", low=1)

    # The controller
    controller_quorum_election_timeout_ms: int = row("controller.quorum.election.timeout.ms", INT, 1000, "How long a controller without a leader waits before it starts an election.", low=1)
    controller_quorum_fetch_timeout_ms: int = row("controller.quorum.fetch.timeout.ms", INT, 2000, "How long a controller goes on without hearing of its leader.", low=1)
    controller_quorum_election_backoff_max_ms: int = row("controller.quorum.election.backoff.max.ms", INT, 1000, "The longest pause after a lost election.", low=0)
    metadata_log_max_record_bytes_between_snapshots: int = row("metadata.log.max.record.bytes.between.snapshots", LONG, 20971520, "How many bytes of new metadata lead to a snapshot.", low=1)
    metadata_log_max_snapshot_interval_ms: int = row("metadata.log.max.snapshot.interval.ms", LONG, 3600000, "How old the last snapshot may become while there is new metadata; 0: as old as it likes.", low=0)
    metadata_log_segment_bytes: int = row("metadata.log.segment.bytes", INT, 1073741824, "The size at which a segment of the metadata log is rolled.", low=8388608)
    broker_heartbeat_interval_ms: int = row("broker.heartbeat.interval.ms", INT, 2000, "How often a broker tells the controller that it is alive.", low=1)
    auto_leader_rebalance_enable: bool = row("auto.leader.rebalance.enable", BOOL, True, "Give partitions back to their preferred leaders from time to time.")
    leader_imbalance_check_interval_seconds: int = row("leader.imbalance.check.interval.seconds", LONG, 300, "How often that is looked at.", low=1)
    leader_imbalance_per_broker_percentage: int = row("leader.imbalance.per.broker.percentage", INT, 10, "It is done for a broker that others stand in for on more than this share of the partitions that prefer it. Kafka had this property until 4.0.", low=0)
    unclean_leader_election_interval_ms: int = row("unclean.leader.election.interval.ms", LONG, 300000, "How often partitions without a leader are looked through for those whose topics allow an unclean election.", low=1)
    broker_session_timeout_ms: int = row("broker.session.timeout.ms", INT, 9000, "A broker that is not heard of for so long is fenced.", low=1)

    # Who is alive
    odradek_membership_port: int = row("odradek.membership.port", INT, 0, "The UDP port for failure detection, the same on every node; 0 is the number of the listener for brokers.", low=0, high=65535)
    odradek_membership_probe_interval_ms: int = row("odradek.membership.probe.interval.ms", INT, 100, "How often a node pings one of the others.", low=1)
    odradek_membership_probe_timeout_ms: int = row("odradek.membership.probe.timeout.ms", INT, 150, "How long a ping may go unanswered before other nodes are asked to ping, and those before the node is suspected.", low=1)
    odradek_membership_suspicion_timeout_ms: int = row("odradek.membership.suspicion.timeout.ms", INT, 800, "How long a suspected node may stay silent before it is held dead and the controller is asked to fence it.", low=1)

    # What it tells of itself
    odradek_metrics_listener: str | None = row("odradek.metrics.listener", STR, None, "host:port where Prometheus finds /metrics over HTTP; port 0 is any free port. Where unset, nowhere.")

    # Logs of the program
    odradek_log_format: str = row("odradek.log.format", STR, "console", "How the program's own log is written.", choices=("console", "json"))
    odradek_log_level: str = row("odradek.log.level", STR, "info", "The lowest level that is written.", choices=("debug", "info", "warning", "error"))
    # fmt: on

    given: frozenset[str] = frozenset()
    """The names somebody set, as opposed to defaults."""

    @property
    def byte_budget(self) -> int:
        """Bytes of requests and responses that may be in memory before connections stop being read."""
        return self.queued_max_request_bytes if self.queued_max_request_bytes > 0 else OWN_BYTE_BUDGET


PROPERTIES: Final[dict[str, Property]] = properties_of(Config)
"""Every property by its dotted name."""
