"""One place where an error becomes the code that a request's version understands.

Cores refuse with the newest vocabulary. A row says: for this API, up to this version, this error is sent as that one.
What is not listed goes out unchanged.
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
EVERY_VERSION: Final = 32767

_E = ErrorCode
_ROWS: Final[tuple[tuple[int, int, ErrorCode, ErrorCode], ...]] = (
    # KIP-588: clients that do not know PRODUCER_FENCED treat INVALID_PRODUCER_EPOCH as fatal, which is meant.
    (INIT_PRODUCER_ID, 3, _E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH),
    (ADD_PARTITIONS_TO_TXN, 1, _E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH),
    (ADD_OFFSETS_TO_TXN, 1, _E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH),
    (END_TXN, 1, _E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH),
    # KAFKA-10687: Produce never says PRODUCER_FENCED, so that the producer can abort and go on.
    (PRODUCE, EVERY_VERSION, _E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH),
    # KIP-890: TRANSACTION_ABORTABLE is known from v11 on; before it, an abortable error has to be a known one.
    (PRODUCE, 10, _E.TRANSACTION_ABORTABLE, _E.INVALID_TXN_STATE),
    # Verification errors of older producers become one that is retried without fetching metadata (KAFKA-16386).
    (PRODUCE, EVERY_VERSION, _E.NETWORK_EXCEPTION, _E.NOT_ENOUGH_REPLICAS),
    (PRODUCE, EVERY_VERSION, _E.COORDINATOR_LOAD_IN_PROGRESS, _E.NOT_ENOUGH_REPLICAS),
    (PRODUCE, EVERY_VERSION, _E.COORDINATOR_NOT_AVAILABLE, _E.NOT_ENOUGH_REPLICAS),
    (PRODUCE, EVERY_VERSION, _E.NOT_COORDINATOR, _E.NOT_ENOUGH_REPLICAS),
    (PRODUCE, 11, _E.CONCURRENT_TRANSACTIONS, _E.NOT_ENOUGH_REPLICAS),
    (PRODUCE, 3, _E.KAFKA_STORAGE_ERROR, _E.NOT_LEADER_OR_FOLLOWER),
    # A marker for a shard that cannot take it in: the coordinator of the transaction, or an administrator, comes again.
    (WRITE_TXN_MARKERS, EVERY_VERSION, _E.COORDINATOR_LOAD_IN_PROGRESS, _E.NOT_LEADER_OR_FOLLOWER),
    (WRITE_TXN_MARKERS, EVERY_VERSION, _E.COORDINATOR_NOT_AVAILABLE, _E.NOT_LEADER_OR_FOLLOWER),
    (WRITE_TXN_MARKERS, EVERY_VERSION, _E.NOT_COORDINATOR, _E.NOT_LEADER_OR_FOLLOWER),
    (FETCH, 5, _E.KAFKA_STORAGE_ERROR, _E.NOT_LEADER_OR_FOLLOWER),
    # Clients do not expect COORDINATOR_NOT_AVAILABLE here, and give up (GroupCoordinatorService.handleOffsetFetchException).
    (OFFSET_FETCH, EVERY_VERSION, _E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR),
    # Producers before 2.0 could crash at a coordinator that loads.
    (TXN_OFFSET_COMMIT, 1, _E.COORDINATOR_LOAD_IN_PROGRESS, _E.COORDINATOR_NOT_AVAILABLE),
    (TXN_OFFSET_COMMIT, 3, _E.TRANSACTION_ABORTABLE, _E.INVALID_TXN_STATE),
    (LIST_OFFSETS, 4, _E.OFFSET_NOT_AVAILABLE, _E.LEADER_NOT_AVAILABLE),
)


def _table() -> dict[tuple[int, ErrorCode], tuple[int, ErrorCode]]:
    table: dict[tuple[int, ErrorCode], tuple[int, ErrorCode]] = {}
    for api_key, last_version, error, sent in _ROWS:
        assert (api_key, error) not in table, f"two rows for {api_key} {error!r}"
        table[api_key, error] = (last_version, sent)
    return table


_TABLE: Final = _table()


def wire_error(api_key: int, version: int, error: ErrorCode) -> ErrorCode:
    """The code that `error` is sent as in a response of this API and version."""
    last_version, sent = _TABLE.get((api_key, error), (-1, error))
    return sent if version <= last_version else error


def known_error(code: int) -> ErrorCode:
    """The error that another node's answer names; one that this version does not know is a failure of that node."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
