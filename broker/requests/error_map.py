"""Translation of error codes for the version of a request.

Cores refuse with the newest error codes. Each row of the table names an API, the last version that does not know an
error code (or must not receive it), and the code that is sent instead. All other errors are sent unchanged.
"""

from typing import Final

from odradek.protocol.errors import ErrorCode

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
OFFSET_FETCH: Final = 9
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
WRITE_TXN_MARKERS: Final = 27
TXN_OFFSET_COMMIT: Final = 28
DESCRIBE_CLUSTER: Final = 60
EVERY_VERSION: Final = 32767

_E = ErrorCode
# Rows of (API key, last version, error, error that is sent up to that version).
_ROWS: Final[tuple[tuple[int, int, ErrorCode, ErrorCode], ...]] = (
    # KIP-588: clients that do not know PRODUCER_FENCED treat INVALID_PRODUCER_EPOCH as fatal, as they should here.
    (INIT_PRODUCER_ID, 3, _E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH),
    (ADD_PARTITIONS_TO_TXN, 1, _E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH),
    (ADD_OFFSETS_TO_TXN, 1, _E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH),
    (END_TXN, 1, _E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH),
    # KAFKA-10687: a producer can abort and continue after INVALID_PRODUCER_EPOCH, but not after PRODUCER_FENCED.
    (PRODUCE, EVERY_VERSION, _E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH),
    # KIP-890: clients know TRANSACTION_ABORTABLE from v11. Older ones can abort after INVALID_TXN_STATE.
    (PRODUCE, 10, _E.TRANSACTION_ABORTABLE, _E.INVALID_TXN_STATE),
    # Errors of the transaction's verification become one that producers retry without fetching metadata (KAFKA-16386).
    (PRODUCE, EVERY_VERSION, _E.NETWORK_EXCEPTION, _E.NOT_ENOUGH_REPLICAS),
    (PRODUCE, EVERY_VERSION, _E.COORDINATOR_LOAD_IN_PROGRESS, _E.NOT_ENOUGH_REPLICAS),
    (PRODUCE, EVERY_VERSION, _E.COORDINATOR_NOT_AVAILABLE, _E.NOT_ENOUGH_REPLICAS),
    (PRODUCE, EVERY_VERSION, _E.NOT_COORDINATOR, _E.NOT_ENOUGH_REPLICAS),
    (PRODUCE, 11, _E.CONCURRENT_TRANSACTIONS, _E.NOT_ENOUGH_REPLICAS),
    (PRODUCE, 3, _E.KAFKA_STORAGE_ERROR, _E.NOT_LEADER_OR_FOLLOWER),
    # The group coordinator cannot apply a marker yet. The sender (transaction coordinator or operator) retries after
    # this.
    (WRITE_TXN_MARKERS, EVERY_VERSION, _E.COORDINATOR_LOAD_IN_PROGRESS, _E.NOT_LEADER_OR_FOLLOWER),
    (WRITE_TXN_MARKERS, EVERY_VERSION, _E.COORDINATOR_NOT_AVAILABLE, _E.NOT_LEADER_OR_FOLLOWER),
    (WRITE_TXN_MARKERS, EVERY_VERSION, _E.NOT_COORDINATOR, _E.NOT_LEADER_OR_FOLLOWER),
    (FETCH, 5, _E.KAFKA_STORAGE_ERROR, _E.NOT_LEADER_OR_FOLLOWER),
    # Clients do not expect COORDINATOR_NOT_AVAILABLE here and fail
    # (GroupCoordinatorService.handleOffsetFetchException).
    (OFFSET_FETCH, EVERY_VERSION, _E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR),
    # Producers before Kafka 2.0 can crash when they receive COORDINATOR_LOAD_IN_PROGRESS.
    (TXN_OFFSET_COMMIT, 1, _E.COORDINATOR_LOAD_IN_PROGRESS, _E.COORDINATOR_NOT_AVAILABLE),
    (TXN_OFFSET_COMMIT, 3, _E.TRANSACTION_ABORTABLE, _E.INVALID_TXN_STATE),
    (LIST_OFFSETS, 4, _E.OFFSET_NOT_AVAILABLE, _E.LEADER_NOT_AVAILABLE),
    (DESCRIBE_CLUSTER, 0, _E.MISMATCHED_ENDPOINT_TYPE, _E.INVALID_REQUEST),
)


def _table() -> dict[tuple[int, ErrorCode], tuple[int, ErrorCode]]:
    table: dict[tuple[int, ErrorCode], tuple[int, ErrorCode]] = {}
    for api_key, last_version, error, sent in _ROWS:
        assert (api_key, error) not in table, f"two rows for {api_key} {error!r}"
        table[api_key, error] = (last_version, sent)
    return table


_TABLE: Final = _table()


def wire_error(api_key: int, version: int, error: ErrorCode) -> ErrorCode:
    """Return the error code that a response of this API and version contains for `error`."""
    last_version, sent = _TABLE.get((api_key, error), (-1, error))
    return sent if version <= last_version else error


def known_error(code: int) -> ErrorCode:
    """Return the error with the number `code` in another node's response, or UNKNOWN_SERVER_ERROR if unknown."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
