"""The limits of the coordinators of groups and transactions, as rows of the second table of docs/configuration.md."""

from typing import Final

from odradek.broker.config.limit import RETRIED, Limit

_PARTITION_OF_OFFSETS: Final = "per partition of `__consumer_offsets`"
_PARTITION_OF_TRANSACTIONS: Final = "per partition of `__transaction_state`"

GROUP_LIMITS: Final[tuple[Limit, ...]] = (
    Limit(
        "coordinator.group.state.GROUPS_MAX",
        f"groups {_PARTITION_OF_OFFSETS}",
        f"COORDINATOR_NOT_AVAILABLE, {RETRIED}; INVALID_COMMIT_OFFSET_SIZE for OffsetCommit. Capacity returns when"
        " groups are deleted or expire.",
    ),
    Limit(
        "coordinator.bounded_ids.IDS_BYTES_MAX",
        "bytes of ids per partition of `__consumer_offsets` or `__transaction_state`",
        "As for GROUPS_MAX and TRANSACTIONAL_IDS_MAX.",
    ),
    Limit(
        "coordinator.group.classic.join.PENDING_MAX",
        "unused member ids per classic group",
        "COORDINATOR_NOT_AVAILABLE. Unused member ids expire after their session time-out.",
    ),
    Limit(
        "coordinator.group.memory_accounting.MEMBERS_BYTES_MAX",
        f"bytes of members {_PARTITION_OF_OFFSETS}",
        "COORDINATOR_NOT_AVAILABLE for new members, and for existing members whose metadata grows. Capacity returns"
        " when members leave.",
        "group.max.size, group.consumer.max.size",
    ),
    Limit(
        "coordinator.group.memory_accounting.RESERVED_FRACTION",
        "parts of MEMBERS_BYTES_MAX",
        "COORDINATOR_NOT_AVAILABLE for new members.",
    ),
    Limit(
        "coordinator.group.classic_requests.PROTOCOLS_MAX",
        "protocols per member of a classic group",
        "INCONSISTENT_GROUP_PROTOCOL.",
    ),
    Limit(
        "coordinator.group.classic_requests.INSTANCE_ID_CHARACTERS_MAX",
        "characters of a group instance id",
        "INVALID_REQUEST.",
    ),
    Limit(
        "coordinator.group.modern.subscriptions.changes.NAMES_MAX",
        "different topic names per consumer group",
        "INVALID_REQUEST. A regular expression can match more topics.",
    ),
    Limit(
        "coordinator.group.modern.subscriptions.changes.REGEXES_MAX",
        "different regular expressions per consumer group",
        "INVALID_REQUEST.",
    ),
    Limit(
        "coordinator.group.modern.subscriptions.regexes.WRITTEN_BYTES_MAX",
        "bytes of matched topics per step",
        "The next step writes the other expressions. An expression whose topics exceed a record batch keeps its old"
        " topics, and the log has `regular expression not resolved`.",
        "message.max.bytes",
    ),
    Limit(
        "protocol.consumer_protocol.CHARGE_BYTES_MAX",
        "bytes of memory per subscription or assignment of a member that is decoded",
        "INCONSISTENT_GROUP_PROTOCOL for a classic member of a consumer group; a classic group is not upgraded.",
    ),
    Limit(
        "coordinator.group.classic.subscriptions.CHARGE_BYTES_MAX",
        "bytes of memory for the different subscriptions of a classic group",
        "The group counts as subscribed to all topics: its offsets are not deleted while it has members.",
    ),
    Limit(
        "coordinator.group.assignors.uniform.VISITS_MAX",
        "pairs of topics and members per assignment",
        "The assignment of a group whose members subscribe to different topics may be less balanced.",
    ),
    Limit(
        "coordinator.group.service.WAITERS_MAX",
        "waiting requests per broker",
        "COORDINATOR_LOAD_IN_PROGRESS. Capacity returns when rebalances end.",
    ),
    Limit(
        "runtime.timers.FIRING_US_MAX",
        "microseconds of timers per coordinator and turn of the event loop",
        "Other timers of the broker's groups, or of its transactions, fire after other work.",
    ),
    Limit(
        "coordinator.group.offsets.commit.OFFSETS_MAX",
        f"offsets {_PARTITION_OF_OFFSETS}",
        "INVALID_COMMIT_OFFSET_SIZE for new offsets. Existing offsets can still be committed. Transactions that"
        " commit existing offsets have the same limit again. Capacity returns when offsets are deleted or expire.",
    ),
    Limit(
        "coordinator.group.offsets.commit.METADATA_BYTES_MAX",
        f"bytes of metadata of offsets {_PARTITION_OF_OFFSETS}",
        "INVALID_COMMIT_OFFSET_SIZE for new offsets. Capacity returns when offsets are deleted or expire.",
    ),
)
TRANSACTION_LIMITS: Final[tuple[Limit, ...]] = (
    Limit(
        "coordinator.txn.init_producer_id.TRANSACTIONAL_IDS_MAX",
        f"transactional ids {_PARTITION_OF_TRANSACTIONS}",
        "COORDINATOR_NOT_AVAILABLE for new ids, for a client earlier, beyond its share. Capacity returns after"
        " `transactional.id.expiration.ms`, or by an operator.",
    ),
    *(
        Limit(constant, unit, "The coordinator continues in a later turn of the event loop, or in a later request.")
        for constant, unit in (
            ("broker.coordinators.marker_writer.MARKERS_PER_TURN", "markers"),
            ("coordinator.txn.markers.MARKERS_PER_REQUEST_MAX", "markers"),
            ("coordinator.txn.markers.MARKERS_RESOLVED_MAX", "markers"),
            ("coordinator.txn.markers.MARKERS_SENT_MAX", "markers"),
            ("coordinator.txn.markers.COMPLETIONS_PER_TURN_MAX", "records"),
            ("coordinator.txn.core.ABORTED_PER_TURN_MAX", "transactions"),
            ("coordinator.txn.core.EXPIRED_PER_TURN_MAX", "transactional ids"),
            ("coordinator.txn.core.SWEPT_PER_TURN_MAX", "transactional ids"),
        )
    ),
    Limit(
        "coordinator.txn.table.PARTITIONS_MAX",
        f"partitions in transactions {_PARTITION_OF_TRANSACTIONS}",
        f"CONCURRENT_TRANSACTIONS, {RETRIED}, for a client earlier, beyond its share. Capacity returns when"
        " transactions end, or are aborted after their time-out.",
    ),
    Limit(
        "client_shares.CLIENT_FACTOR",
        "times the free capacity, per client",
        "The client is refused as if the table were full.",
    ),
    Limit(
        "client_shares.ADDRESS_FACTOR",
        "times the free capacity, per address",
        "The clients of the address are refused as if the table were full.",
    ),
    Limit(
        "storage.producers.state.PRODUCERS_MAX",
        "producers per partition",
        "The producer that has been idle longest is removed. If all were active within EVICTION_IDLE_MS_MIN, new"
        f" producers receive NOT_ENOUGH_REPLICAS, {RETRIED}.",
    ),
    Limit(
        "storage.producers.state.EVICTION_IDLE_MS_MIN",
        "milliseconds per producer",
        "The producer may be removed at PRODUCERS_MAX. All producers count as active when a broker starts.",
        "producer.id.expiration.ms",
    ),
    Limit(
        "storage.producers.state.VERIFICATIONS_MAX",
        "Produce requests per partition",
        "The oldest one receives INVALID_TXN_STATE, and its client must abort.",
    ),
    Limit(
        "broker.coordinators.hanging.PARTITIONS_MAX",
        "partitions per request of a client",
        "INVALID_REQUEST.",
    ),
    Limit(
        "broker.coordinators.hanging.SEARCHES_MAX",
        "searches at the same time per broker",
        f"COORDINATOR_NOT_AVAILABLE, {RETRIED}, until a search ends.",
    ),
    Limit(
        "coordinator.txn.service.SEARCHED_PER_TURN",
        "transactions per turn of the event loop",
        "The search continues in the next turn, and other connections are served in between.",
    ),
    Limit(
        "broker.coordinators.internal_appends.RECORDS_MAX",
        "records per batch",
        "INVALID_RECORD.",
    ),
    Limit(
        "broker.coordinators.internal_appends.BATCH_BYTES_MAX",
        "bytes per batch",
        "INVALID_RECORD.",
    ),
)
