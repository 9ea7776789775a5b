"""Check the records that a client appends to a topic of a coordinator.

Only Kafka's tools with the client id `__admin_client` append there. Any client can have this id, so each record must be
one that the coordinator can load.
"""

from typing import Final

from odradek.coordinator.group import records as group_records
from odradek.coordinator.hashing import partition_for
from odradek.coordinator.txn import records as txn_records
from odradek.protocol.batch import read_header, records_of
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.schema import Buffer
from odradek.runtime.shard import ShardRecord

RECORDS_MAX: Final = 100
"""Maximum records per batch that a client appends to a topic of a coordinator. The check takes about 2 ms."""
RECORD_BYTES_MAX: Final = 1024 * 1024
"""Maximum decompressed bytes of such a batch."""


def check_client_append(topic: str, partition: int, partition_count: int, batch: Buffer) -> None:
    """Raise Refusal(INVALID_RECORD) if the coordinator of this partition cannot load each record of `batch`."""
    if topic not in {CONSUMER_OFFSETS, TRANSACTION_STATE}:
        return
    try:
        header = read_header(batch)
        if header.is_control or header.record_count > RECORDS_MAX:
            raise Malformed(f"a client appends at most {RECORDS_MAX} data records per batch to {topic}")
        for record in records_of(memoryview(batch), header, max_decompressed_bytes=RECORD_BYTES_MAX):
            owner = _owner(topic, ShardRecord(record.key, record.value))
            if partition_for(owner, partition_count) != partition:
                raise Malformed(f"id {owner[:100]!r} does not belong to partition {partition} of {topic}")
    except Malformed as malformed:
        raise Refusal(ErrorCode.INVALID_RECORD, str(malformed)) from malformed


def _owner(topic: str, record: ShardRecord) -> str:
    """Return the id that the record belongs to. Raise Malformed if the coordinator cannot decode the record."""
    if topic == CONSUMER_OFFSETS:
        entry = group_records.from_record(record)
        if entry is None:
            raise Malformed("the record has an unknown type")
        return group_records.group_of(entry.key)
    transactional_id = txn_records.decode_key(record.key)
    if transactional_id is None:
        raise Malformed("the key of the record has an unknown version")
    if record.value is not None:
        txn_records.decode_value(transactional_id, record.value)
    return transactional_id
