"""Values of request fields to which Kafka gives a special meaning."""

from typing import Final

LATEST: Final = -1
"""ListOffsets timestamp of the end: the high watermark or, with READ_COMMITTED, the last stable offset."""
EARLIEST: Final = -2
"""ListOffsets timestamp of the log start offset."""
MAX_TIMESTAMP: Final = -3
"""ListOffsets timestamp of the record with the largest timestamp (KIP-734)."""
EARLIEST_LOCAL: Final = -4
"""ListOffsets timestamp of the first offset on the leader's own disk (KIP-405)."""
LATEST_TIERED: Final = -5
"""ListOffsets timestamp of the last offset in remote storage (KIP-1005)."""
EARLIEST_PENDING_UPLOAD: Final = -6
"""ListOffsets timestamp of the first offset that is not in remote storage (KIP-1023)."""

CONSUMER_REPLICA_ID: Final = -1
"""Replica id of a request that no broker sent."""
DEBUGGING_REPLICA_ID: Final = -2
"""Replica id of a tool that inspects the log as a replica would."""

READ_UNCOMMITTED: Final = 0
"""Isolation level that returns records of all transactions."""
READ_COMMITTED: Final = 1
"""Isolation level that ends before the first open transaction and omits aborted records."""

NO_LEADER: Final = -1
"""Leader id of a partition without a leader."""
NO_LEADER_EPOCH: Final = -1
"""Leader epoch of a request, record or log without one. Such a request is not fenced (KIP-320)."""
UNKNOWN_BROKER_EPOCH: Final = -1
"""Broker epoch of a sender without one: Fetch before v15 (KIP-903), or registration after an unclean shutdown."""
UNKNOWN_OFFSET: Final = -1
"""Offset in a request or response for which the sender knows no offset."""
NO_COMMITTED_OFFSET: Final = -1
"""Committed offset in an OffsetFetch response of a partition for which the group has committed none."""

ACKS_ALL: Final = -1
"""Acks of a Produce request whose records must be on each in-sync replica before the response."""
