"""Check the records that a client appends to a topic of a coordinator.

Only tools with the client id `__admin_client` append there. Any client can have this id. So a record must neither carry
the authority of the coordinator, nor block an id, nor add state without the limits of requests: a client appends
tombstones alone (docs/decisions/0105).
"""

from typing import Final

from odradek.coordinator.group import records as group_records
from odradek.coordinator.txn import records as txn_records
from odradek.protocol.batch import NO_TIMESTAMP, read_header, records_of
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.hashing import partition_for
from odradek.protocol.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.schema import Buffer
from odradek.runtime.shard import ShardRecord

RECORDS_MAX: Final = 100
"""Maximum records per batch that a client appends to a topic of a coordinator."""
BATCH_BYTES_MAX: Final = 64 * 1024
"""Maximum bytes of such a batch, compressed and decompressed. The check takes at most 9 ms: it hashes each id, at 0.13
microseconds per character."""


def check_client_append(topic: str, partition: int, partition_count: int, batch: Buffer) -> None:
    """Raise Refusal if a client may not append `batch` to this partition of the topic.

    To a topic of a coordinator, a client may append tombstones of keys that the coordinator can load. Compaction has to
    remove them later, so their timestamps must be valid: it cannot set a delete horizon beside a timestamp near -2**63.

    Raises:
        Refusal: INVALID_RECORD, or INVALID_TIMESTAMP for a timestamp below NO_TIMESTAMP.
    """
    if topic not in {CONSUMER_OFFSETS, TRANSACTION_STATE}:
        return
    try:
        header = read_header(batch)
        if header.is_control or header.record_count > RECORDS_MAX:
            raise Malformed(f"a client appends at most {RECORDS_MAX} data records per batch to {topic}")
        if header.is_transactional:
            raise Malformed(f"a client appends no transactional batch to {topic}: use TxnOffsetCommit for offsets")
        if header.size > BATCH_BYTES_MAX:
            raise Malformed(f"a client appends at most {BATCH_BYTES_MAX} bytes per batch to {topic}")
        records = records_of(batch, header, max_decompressed_bytes=BATCH_BYTES_MAX, headers_max=0)
        for record in records:
            if record.timestamp < NO_TIMESTAMP:
                message = f"the timestamp {record.timestamp} is negative: send a time since 1970, or {NO_TIMESTAMP}"
                raise Refusal(ErrorCode.INVALID_TIMESTAMP, message)
            owner = _owner(topic, ShardRecord(record.key, record.value))
            if partition_for(owner, partition_count) != partition:
                raise Malformed(f"id {owner[:100]!r} does not belong to partition {partition} of {topic}")
    except Malformed as malformed:
        raise Refusal(ErrorCode.INVALID_RECORD, str(malformed)) from malformed


def _owner(topic: str, record: ShardRecord) -> str:
    """Return the id that the record belongs to. Raise Malformed if a client may not append the record."""
    return _transactional_id(record) if topic == TRANSACTION_STATE else _group_id(record)


def _transactional_id(record: ShardRecord) -> str:
    transactional_id = txn_records.decode_key(record.key)
    if transactional_id is None:
        raise Malformed("the key of the record has an unknown version")
    if record.value is not None:
        raise Malformed(
            f"only the transaction coordinator writes TransactionLogValue to {TRANSACTION_STATE}, clients append "
            "tombstones: use InitProducerId or EndTxn, kafka-transactions, or `odradek txns`"
        )
    return transactional_id


def _group_id(record: ShardRecord) -> str:
    entry = group_records.from_record(ShardRecord(record.key, None))
    if entry is None:
        raise Malformed("the record has an unknown type")
    if record.value is not None:
        raise Malformed(
            f"only the group coordinator writes values for {entry.key.NAME} to {CONSUMER_OFFSETS}, clients append "
            "tombstones: use OffsetCommit, JoinGroup or ConsumerGroupHeartbeat, kafka-consumer-groups, or "
            "`odradek groups`"
        )
    return group_records.group_of(entry.key)
