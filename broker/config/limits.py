"""The limits on the work and the memory that clients cause, as rows of the second table of docs/configuration.md.

Value and description of a row come from the constant and its docstring (`broker/config/doc.py`).
"""

from typing import Final

from odradek.broker.config.coordinator_limits import GROUP_LIMITS, TRANSACTION_LIMITS
from odradek.broker.config.limit import RETRIED, Limit

PROPERTY_LIMITS: Final[tuple[str, ...]] = (
    "socket.request.max.bytes",
    "odradek.request.max.bytes",
    "queued.max.request.bytes",
    "odradek.max.in.flight.requests",
    "odradek.frame.deadline.ms",
    "max.incremental.fetch.session.cache.slots",
    "max.connections",
    "max.connections.per.ip",
    "group.max.size",
    "group.consumer.max.size",
)
"""Properties that bound what clients can cause. The page names them before the constants."""

LIMITS: Final[dict[str, tuple[Limit, ...]]] = {
    "Requests": (
        Limit(
            "protocol.compilation.decoder.ARRAY_ELEMENTS_MAX",
            "elements per array",
            "The connection is closed.",
        ),
        Limit(
            "protocol.compilation.decoder.TAGGED_FIELDS_MAX",
            "tagged fields per struct",
            "The connection is closed.",
        ),
        Limit(
            "protocol.connection.HEADER_TAGS_MAX",
            "tagged fields per request header",
            "The connection is closed.",
        ),
        Limit(
            "protocol.connection.HEADER_TAG_BYTES_MAX",
            "bytes per request header",
            "The connection is closed.",
        ),
        Limit(
            "broker.security.failed_logins.FAILURES_MAX",
            "failed SASL logins per address",
            "Further logins of the address wait, five per second.",
        ),
        Limit(
            "broker.requests.session_login.VERSIONS_BEFORE_LOGIN_MAX",
            "ApiVersions requests per connection before a SASL login",
            "The connection is closed.",
        ),
        Limit(
            "broker.tls.records.WITHOUT_DATA_MAX",
            "TLS records without data per connection",
            "The connection is closed.",
        ),
        Limit(
            "broker.tls.principal_mapping.SUBJECT_CHARACTERS_MAX",
            "characters of the subject of a client certificate",
            "Rules with a pattern do not apply. The rule DEFAULT does.",
        ),
        Limit(
            "broker.security.failed_logins.WAIT_SECONDS_MAX",
            "seconds per login",
            "The login is refused.",
        ),
        Limit(
            "cluster.controller.settings.scram.SALT_BYTES_MAX",
            "bytes per SCRAM credential",
            "UNACCEPTABLE_CREDENTIAL",
        ),
        Limit("cluster.controller.settings.tokens.TOKENS_MAX", "delegation tokens per cluster", "POLICY_VIOLATION"),
        Limit("cluster.controller.settings.tokens.OWNER_TOKENS_MAX", "delegation tokens per owner", "POLICY_VIOLATION"),
        Limit(
            "cluster.controller.settings.tokens.PRINCIPAL_CHARACTERS_MAX",
            "characters per delegation token",
            "POLICY_VIOLATION",
        ),
        Limit(
            "broker.dispatch.request_limits.CHARGE_BYTES_MAX",
            "bytes per request",
            "The connection is closed.",
        ),
        Limit(
            "broker.dispatch.request_limits.SMALL_CHARGE_BYTES_MAX",
            "bytes per request",
            "The connection is closed.",
        ),
        Limit(
            "broker.dispatch.request_limits.OPERATOR_MARKERS_BYTES_MAX",
            "bytes per request",
            "The connection is closed.",
        ),
        Limit(
            "broker.quorum.forwarding.FORWARDING_MS_MAX",
            "milliseconds per request to the controller",
            "The client receives REQUEST_TIMED_OUT.",
        ),
        Limit(
            "broker.dispatch.large_requests.IMMEDIATE_CHARGE_BYTES_MAX",
            "bytes per request",
            "The request is decoded in slices. One such request is decoded at a time; small requests do not wait.",
        ),
        Limit(
            "broker.dispatch.large_requests.WAIT_SECONDS_MAX",
            "seconds per large request while the byte budget is exhausted",
            "The connection is closed.",
        ),
        Limit(
            "broker.dispatch.large_requests.UNSENT_SHARE",
            "1/64 of queued.max.request.bytes per broker",
            "Large requests wait. Clients that receive nothing for UNSENT_SECONDS_MAX are disconnected.",
        ),
        Limit(
            "broker.network.deadlines.UNSENT_SECONDS_MAX",
            "seconds per connection with responses that are not received, while the byte budget is exhausted",
            "The connection is closed.",
        ),
        Limit(
            "broker.network.held_requests.HELD_BYTES_MIN",
            "bytes per Fetch, JoinGroup or SyncGroup that waits while the byte budget is exhausted",
            "The connection is closed after HELD_SECONDS_MAX.",
        ),
        Limit(
            "broker.network.held_requests.HELD_SECONDS_MAX",
            "seconds per such request",
            "The connection is closed.",
        ),
        Limit(
            "broker.network.server_state.ITERATION_US_MAX",
            "microseconds of requests of clients per turn of the event loop",
            "The connections continue in the next turn, in their order. Those of brokers do not wait.",
        ),
        Limit(
            "protocol.errors.MESSAGE_CHARACTERS_MAX",
            "characters of an error message",
            "The rest is omitted.",
        ),
        Limit(
            "broker.config.property.NUMBER_CHARACTERS_MAX",
            "characters of a number in a configuration",
            "INVALID_CONFIG.",
        ),
        Limit(
            "client_shares.CLIENT_ID_CHARACTERS_MAX",
            "characters of a client id",
            "Logs, quotas, metrics and limits use the first ones.",
        ),
        Limit(
            "broker.requests.splitting.CHARACTERS_PER_PART",
            "characters of group ids or transactional ids per turn of the event loop",
            "The request is handled in parts, and other connections are served in between.",
        ),
        Limit(
            "protocol.patterns.CHARACTERS_PER_SLICE",
            "characters per turn of the event loop",
            "The matching of regular expressions continues in the next turn, and other connections are served in"
            " between.",
        ),
        Limit(
            "broker.requests.splitting.ELEMENTS_PER_PART",
            "elements per turn of the event loop",
            "The request is handled in parts, and other connections are served in between.",
        ),
        Limit(
            "broker.requests.splitting.DESCRIBED_PER_PART",
            "elements per turn of the event loop",
            "The request is handled in parts, and other connections are served in between.",
        ),
        Limit(
            "broker.apis.update_features.UPDATES_MAX",
            "updates per UpdateFeatures request",
            "INVALID_REQUEST.",
        ),
        Limit(
            "broker.apis.alter_client_quotas.COMPONENTS_MAX",
            "components per entity of an AlterClientQuotas request",
            "INVALID_REQUEST.",
        ),
        Limit(
            "broker.apis.alter_client_quotas.OPERATIONS_MAX",
            "operations per entity of an AlterClientQuotas request",
            "INVALID_REQUEST.",
        ),
        Limit(
            "broker.apis.describe_configs.RESOURCES_PER_PART",
            "resources per turn of the event loop",
            "The request is handled in parts, and other connections are served in between.",
        ),
        Limit(
            "broker.fetch.requested.PARTITIONS_PER_TURN",
            "partitions per turn of the event loop",
            "The fetch continues in the next turn, and other connections are served in between.",
        ),
        Limit(
            "broker.apis.fetch.WOKEN_PARTITIONS_MAX",
            "partitions of a parked Fetch that continues when it is woken",
            "The fetch waits for its turn: one such fetch goes on at a time.",
        ),
        Limit(
            "broker.network.connection.REQUESTS_AT_A_TIME",
            "requests per connection and turn of the event loop",
            "Other connections are served first.",
        ),
        Limit(
            "broker.network.connection.TURN_US_MAX",
            "microseconds per connection and turn of the event loop",
            "Other connections are served before the next request of this one.",
        ),
        Limit(
            "broker.network.listeners.CONNECTIONS_AT_A_TIME",
            "connections per turn of the event loop while a broker starts",
            "The remaining ones are served in later turns, in their order.",
        ),
        Limit(
            "broker.apis.write_txn_markers.MARKERS_PER_PART",
            "markers and partitions per turn of the event loop",
            "The request is handled in parts. On a listener for clients alone: INVALID_REQUEST.",
        ),
        Limit(
            "broker.fetch.sessions.PARTITIONS_PER_SESSION_MAX",
            "partitions per fetch session",
            "The consumer receives no session, and sends full fetches.",
        ),
        Limit(
            "broker.fetch.sessions.PARTITIONS_MAX",
            "partitions in all fetch sessions of a broker",
            "The consumer receives no session, and sends full fetches. Capacity returns when sessions end, or are idle"
            " for two minutes.",
            "max.incremental.fetch.session.cache.slots",
        ),
        Limit(
            "broker.replication.leader_sessions.SESSIONS_PER_REPLICA_MAX",
            "fetch sessions per follower",
            "The oldest session ends; its next fetch receives FETCH_SESSION_ID_NOT_FOUND. A Fetch with the id of no"
            " registered broker receives an error of each partition and no session.",
        ),
        Limit(
            "broker.replication.leader_sessions.SPARE_SLOTS_MAX",
            "partitions per follower",
            "The oldest session ends; its next fetch receives FETCH_SESSION_ID_NOT_FOUND.",
        ),
    ),
    "Topics and the controller": (
        Limit(
            "broker.topics.auto_create.TOPICS_PER_REQUEST_MAX",
            "automatically created topics per Metadata request",
            f"LEADER_NOT_AVAILABLE, {RETRIED}.",
        ),
        Limit(
            "broker.topics.auto_create.PARTITIONS_PER_REQUEST_MAX",
            "automatically created partitions per Metadata request",
            f"LEADER_NOT_AVAILABLE, {RETRIED}.",
        ),
        Limit(
            "broker.topics.auto_create.TOPICS_PER_ADDRESS_MAX",
            "topics at the same time per address and broker",
            f"LEADER_NOT_AVAILABLE, {RETRIED}, until the broker has the created topics in its metadata."
            " The quota `controller_mutation_rate` of the client counts their partitions.",
        ),
        Limit(
            "broker.topics.auto_create.TOPICS_MAX",
            "topics at the same time per broker",
            f"LEADER_NOT_AVAILABLE, {RETRIED}, until the broker has the created topics in its metadata.",
        ),
        Limit(
            "broker.config.brokers.CUSTOM_PROPERTIES_MAX",
            "custom properties per broker",
            "POLICY_VIOLATION. Capacity returns when properties are deleted.",
        ),
        Limit(
            "cluster.controller.partitions.creation.PARTITIONS_PER_CALL_MAX",
            "new partitions per request",
            "POLICY_VIOLATION for the whole request.",
        ),
        Limit(
            "cluster.controller.slices.RECORDS_PER_REQUEST_MAX",
            "records of the metadata log per request, and partitions, topics or resources that it names",
            "POLICY_VIOLATION for the whole request. An election or list without partitions covers all of them.",
        ),
        Limit(
            "cluster.controller.slices.RECORDS_PER_SLICE",
            "records per decision of the controller",
            "The request is decided in slices, and other requests are decided in between.",
        ),
        Limit(
            "cluster.controller.slices.CHECKS_PER_SLICE",
            "partitions per decision of the controller",
            "The request is decided in slices, and other requests are decided in between.",
        ),
        Limit(
            "cluster.controller.sweeps.CHANGES_PER_SLICE",
            "partitions per decision of the controller about a broker",
            "Leaders move in slices, and the broker is fenced after the last one.",
        ),
        Limit(
            "cluster.controller.sweeps.CHECKS_PER_SLICE",
            "visited partitions per decision of the controller",
            "The next slice continues there.",
        ),
        Limit(
            "cluster.raft.delivery.TURN_BYTES_MAX",
            "bytes of the metadata log per turn of the event loop",
            "A larger committed batch is decoded in parts, and published as a whole.",
        ),
        Limit(
            "cluster.raft.delivery.TURN_RECORDS_MAX",
            "records of the metadata log per turn of the event loop",
            "As for TURN_BYTES_MAX.",
        ),
        Limit(
            "cluster.raft.delivery.RECORDS_PER_PART",
            "records of the metadata log per turn of the event loop",
            "The next part follows after other work.",
        ),
        Limit(
            "cluster.controller.leaders.ELECTIONS_PER_JOB_MAX",
            "elections per decision of a job of the controller",
            "The job continues immediately in the next decision.",
        ),
        Limit(
            "broker.partition.registry.ROLE_CHANGES_PER_SLICE",
            "role changes per turn of the event loop",
            "The changes are applied in slices: partitions of coordinators first, then those of hosted partitions.",
        ),
        Limit(
            "broker.partition.registry.CREATE_LOG_COST",
            "role changes per created or deleted log",
            "As for ROLE_CHANGES_PER_SLICE.",
        ),
        Limit(
            "broker.partition.registry.LOG_SLICE_US_MAX",
            "microseconds per turn of the event loop",
            "The next slice follows after a rest, or immediately if urgent changes wait.",
        ),
        Limit(
            "broker.partition.new_logs.LOGS_PER_TURN",
            "logs per request and turn of the event loop",
            "The request goes on in the next turn. Later requests of its connection wait.",
        ),
        Limit(
            "broker.partition.sliced_updates.PARTITIONS_PER_SLICE",
            "partitions per turn of the event loop",
            "The next slice follows after a rest.",
        ),
        Limit(
            "broker.partition.isr_changes.CHANGES_PER_REQUEST_MAX",
            "ISR changes per AlterPartition request",
            "The next request has the next changes.",
        ),
        Limit(
            "broker.partition.registry.SLICE_US_MAX",
            "microseconds per turn of the event loop",
            "As for ROLE_CHANGES_PER_SLICE.",
        ),
        Limit(
            "cluster.raft.epoch_limits.EPOCH_JUMP_MAX",
            "epochs per node",
            "UNKNOWN_LEADER_EPOCH. The node learns a higher epoch from a reply of a voter.",
        ),
        Limit(
            "cluster.raft.epoch_limits.EPOCHS_PER_SECOND",
            "epochs per second and node",
            "UNKNOWN_LEADER_EPOCH. The node learns a higher epoch from a reply of a voter.",
        ),
    ),
    "Groups and offsets": GROUP_LIMITS,
    "Transactions and producers": TRANSACTION_LIMITS,
    "Records of produced batches": (
        Limit(
            "protocol.record.RECORD_BYTES_MIN",
            "bytes of max.message.bytes per record of a batch",
            "MESSAGE_TOO_LARGE for a batch with more records than max.message.bytes divided by it.",
            "message.max.bytes",
        ),
        Limit(
            "broker.fetch.record_jobs.LARGE_JOB_BYTES",
            "bytes of memory of a job above which one runs at a time",
            "The job waits for the other large ones, and for its memory.",
        ),
        Limit(
            "broker.fetch.record_jobs.MEMORY_SECONDS_MAX",
            "seconds per such job while the byte budget is exhausted",
            f"REQUEST_TIMED_OUT for the partition, {RETRIED}.",
        ),
        Limit(
            "storage.compaction.cleaner.CHUNK_BYTES_MAX",
            "bytes per read and per write of a compaction",
            "log.cleaner.io.buffer.size has no further effect.",
            "log.cleaner.io.buffer.size",
        ),
        Limit(
            "storage.compaction.cleaner.DEDUPE_BYTES_MAX",
            "bytes for the keys of a compaction",
            "The compaction takes more passes.",
            "log.cleaner.dedupe.buffer.size",
        ),
        Limit(
            "broker.fetch.read.ABORTED_MAX",
            "aborted transactions per partition of a Fetch response with read_committed",
            "The response has fewer records, and the reader fetches the rest next.",
        ),
        Limit(
            "storage.batches.limits.EXPANSION_MAX",
            "times `max.message.bytes`",
            "MESSAGE_TOO_LARGE. The Java producer splits the batch.",
            "message.max.bytes",
        ),
        Limit(
            "storage.batches.limits.RATIO_MAX",
            "decompressed bytes per compressed byte",
            "MESSAGE_TOO_LARGE. The Java producer splits the batch.",
        ),
        Limit(
            "storage.batches.limits.RECORD_BYTES_MAX",
            "bytes per decompressed batch",
            "MESSAGE_TOO_LARGE. The Java producer splits the batch.",
        ),
        Limit(
            "broker.fetch.record_jobs.JOBS_MAX",
            "long checks and look-ups of records at the same time per broker",
            "The request waits. The job with the fewest records starts first, and each fourth time the oldest one.",
        ),
        Limit(
            "storage.batches.record_errors.RECORD_ERRORS_MAX",
            "errors of records per Produce response",
            "The check stops, and the error message says so.",
        ),
        Limit(
            "storage.segment.index.INDEX_INTERVAL_BYTES_MAX",
            "bytes between two index entries",
            "log.index.interval.bytes has no further effect.",
            "log.index.interval.bytes",
        ),
        Limit(
            "storage.log.timestamps.SEARCH_RECORDS_MAX",
            "records per look-up by timestamp",
            "The result is the first offset of a batch with such a timestamp.",
        ),
        Limit(
            "storage.log.timestamp_tables.TABLES_MAX",
            "tables of large batches per broker",
            "The least recently used table is removed.",
        ),
        Limit(
            "storage.log.timestamp_tables.POINTS_MAX",
            "points per table",
            "Pairs of points are merged. A look-up then returns the first offset of the two.",
        ),
    ),
    "Connections and descriptors": (
        Limit(
            "broker.process.open_files.RESERVED_DIVISOR",
            "parts of the limit of open files",
            "A new connection replaces one that has sent no request, or none for EVICTION_IDLE_S. If there is none, it"
            " replaces one of the address with most connections, or is closed if its own address has as many.",
            "max.connections, max.connections.per.ip",
        ),
        Limit(
            "broker.process.open_files.RESERVED_MIN",
            "descriptors per process",
            "As for RESERVED_DIVISOR.",
        ),
        Limit(
            "broker.process.open_files.CONNECTIONS_MIN",
            "connections per process",
            "As for RESERVED_DIVISOR.",
        ),
        Limit(
            "broker.network.limits.PROTECTED_EXTRA",
            "connections per process",
            "As for RESERVED_DIVISOR.",
        ),
        Limit(
            "broker.network.server_state.EVICTION_IDLE_S",
            "seconds per connection",
            "The connection may be closed at the limit of connections.",
        ),
        Limit(
            "broker.metrics.endpoint.CONNECTIONS_MAX",
            "connections to the metrics listener per node",
            "The connection is closed.",
        ),
        Limit(
            "storage.disk.free_space.RESERVED_BYTES_MAX",
            "bytes of the file system",
            "Produce is refused with NOT_ENOUGH_REPLICAS, and the broker requests to be fenced.",
        ),
        Limit(
            "storage.disk.free_space.RESERVED_DIVISOR",
            "parts of the file system",
            "As for RESERVED_BYTES_MAX, on a file system of less than 5 GiB.",
        ),
        Limit(
            "storage.disk.descriptors.RESERVED_DESCRIPTORS",
            "descriptors per broker",
            "A roll of a segment waits. New partitions wait, and clients receive NOT_LEADER_OR_FOLLOWER. An append to a"
            " segment of 2 GiB receives NOT_ENOUGH_REPLICAS. All of these are retried.",
        ),
    ),
}
"""The rows of the table, by the heading of their section."""
