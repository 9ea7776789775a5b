"""The records of the metadata log: the supported types, the versions in which they are written, and their frame.

The value of a record is: unsigned varint frame version (1), unsigned varint record type, unsigned varint record
version, body. An unsupported record is never skipped, because it may change any part of the metadata.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from odradek.cluster.metadata.errors import UnsupportedMetadata
from odradek.protocol import codec
from odradek.protocol.errors import Malformed
from odradek.protocol.primitives import INT32_MAX, VARINT_BYTES_MAX
from odradek.protocol.records.metadata import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
)
from odradek.protocol.records.metadata.client_quota_record import EntityData as ClientQuotaEntity
from odradek.protocol.records.metadata.register_broker_record import BrokerEndpoint, BrokerFeature
from odradek.protocol.records.metadata.register_controller_record import ControllerEndpoint, ControllerFeature

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from odradek.protocol.schema import Buffer

__all__ = [
    "AbortTransactionRecord",
    "AccessControlEntryRecord",
    "BeginTransactionRecord",
    "BrokerEndpoint",
    "BrokerFeature",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ClientQuotaEntity",
    "ClientQuotaRecord",
    "ConfigRecord",
    "ControllerEndpoint",
    "ControllerFeature",
    "DelegationTokenRecord",
    "EndTransactionRecord",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "MetadataRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "UnregisterControllerRecord",
    "UserScramCredentialRecord",
    "decode_record",
    "encode_record",
    "encode_records",
    "written_version",
]

FRAME_VERSION: Final = 1
_PARTITION_ID: Final = Struct(">i")
_all_but_partition_id: Final = attrgetter(*(name for name in PartitionRecord.__slots__ if name != "partition_id"))
_DECODED_PARTITIONS_MAX: Final = 1_024
"""Maximum different partition records, apart from their partition ids, whose decoded fields are kept: about 2 MiB."""
_DECODED_BYTES_MAX: Final = 512
"""Maximum bytes of a partition record whose decoded fields are kept. Three replicas take about 120."""

MetadataRecord: TypeAlias = (
    AbortTransactionRecord
    | AccessControlEntryRecord
    | BeginTransactionRecord
    | BrokerRegistrationChangeRecord
    | ClearElrRecord
    | ClientQuotaRecord
    | ConfigRecord
    | DelegationTokenRecord
    | EndTransactionRecord
    | FeatureLevelRecord
    | FenceBrokerRecord
    | NoOpRecord
    | PartitionChangeRecord
    | PartitionRecord
    | ProducerIdsRecord
    | RegisterBrokerRecord
    | RegisterControllerRecord
    | RemoveAccessControlEntryRecord
    | RemoveDelegationTokenRecord
    | RemoveTopicRecord
    | RemoveUserScramCredentialRecord
    | TopicRecord
    | UnfenceBrokerRecord
    | UnregisterBrokerRecord
    | UnregisterControllerRecord
    | UserScramCredentialRecord
)

WRITTEN_VERSIONS: Final[Mapping[type[MetadataRecord], int]] = {
    RegisterBrokerRecord: 4,
    UnregisterBrokerRecord: 0,
    TopicRecord: 0,
    PartitionRecord: 2,
    ConfigRecord: 0,
    PartitionChangeRecord: 2,
    FenceBrokerRecord: 0,
    UnfenceBrokerRecord: 0,
    RemoveTopicRecord: 0,
    FeatureLevelRecord: 0,
    ProducerIdsRecord: 0,
    BrokerRegistrationChangeRecord: 0,
    NoOpRecord: 0,
    BeginTransactionRecord: 0,
    EndTransactionRecord: 0,
    AbortTransactionRecord: 0,
    RegisterControllerRecord: 0,
    ClearElrRecord: 0,
    ClientQuotaRecord: 0,
    UnregisterControllerRecord: 0,
    AccessControlEntryRecord: 0,
    RemoveAccessControlEntryRecord: 0,
    UserScramCredentialRecord: 0,
    RemoveUserScramCredentialRecord: 0,
    DelegationTokenRecord: 0,
    RemoveDelegationTokenRecord: 0,
}
"""The versions that Kafka writes with each metadata.version from 30 (4.3-IV0) to 33 (4.4-IV2).

See `written_version` for BrokerRegistrationChangeRecord.
"""
SUPPORTED: Final[Mapping[int, type[MetadataRecord]]] = {cls.API_KEY: cls for cls in WRITTEN_VERSIONS}


def written_version(record: MetadataRecord) -> int:
    """Return the version in which Kafka writes the record.

    A broker change has the lowest version that has its fields.
    """
    if isinstance(record, BrokerRegistrationChangeRecord):
        if record.cordoned_log_dirs is not None:
            return 3
        if record.log_dirs:
            return 2
        return 1 if record.in_controlled_shutdown else 0
    return WRITTEN_VERSIONS[type(record)]


def encode_record(record: MetadataRecord, version: int | None = None) -> bytes:
    """Encode and frame `record`, in `version` or in the version that Kafka writes."""
    chosen = written_version(record) if version is None else version
    frame = _uvarint(FRAME_VERSION) + _uvarint(record.API_KEY) + _uvarint(chosen)
    return frame + codec.encode(record, chosen)


def encode_records(records: Iterable[MetadataRecord]) -> list[bytes]:
    """Encode and frame each record in the version that Kafka writes.

    The records of a topic with thousands of partitions have few different values, except for the partition id. It is
    the first field, so each value of the other fields is encoded once.
    """
    frame = _PARTITION_FRAME
    known: dict[tuple[int, ...], tuple[object, bytes]] = {}
    encoded = []
    for record in records:
        if not isinstance(record, PartitionRecord) or not 0 <= record.partition_id <= INT32_MAX:
            encoded.append(encode_record(record))
            continue
        replicas, others = tuple(record.replicas), _all_but_partition_id(record)
        former = known.get(replicas)
        if former is not None and former[0] == others:
            encoded.append(frame + _PARTITION_ID.pack(record.partition_id) + former[1])
        else:
            encoded.append(encode_record(record))
            known[replicas] = others, encoded[-1][len(frame) + _PARTITION_ID.size :]
    return encoded


def decode_record(value: Buffer | None) -> MetadataRecord:
    """Decode a framed value. Raise UnsupportedMetadata, or Malformed if the bytes are corrupt.

    The records of a topic's partitions differ in few values besides the partition id, as in `encode_records`. Each of
    these values is decoded once, so records share their lists, and no list may be changed.
    """
    if value is None:
        raise Malformed("metadata record without a value")
    if value[: len(_PARTITION_FRAME)] == _PARTITION_FRAME and _PARTITION_END <= len(value) <= _DECODED_BYTES_MAX:
        (partition_id,) = _PARTITION_ID.unpack_from(value, len(_PARTITION_FRAME))
        return PartitionRecord(partition_id, *_after_partition_id(bytes(value[_PARTITION_END:])))
    view = memoryview(value)
    frame, position = _read_uvarint(view, 0)
    if frame != FRAME_VERSION:
        raise UnsupportedMetadata(f"metadata frame version {frame} is not supported (only {FRAME_VERSION})")
    kind, position = _read_uvarint(view, position)
    version, position = _read_uvarint(view, position)
    cls = SUPPORTED.get(kind)
    if cls is None:
        raise UnsupportedMetadata(f"metadata record type {kind} is not supported by this version")
    if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
        raise UnsupportedMetadata(
            f"version {version} of metadata record {cls.__name__} is not supported"
            f" ({cls.MIN_VERSION} to {cls.MAX_VERSION})"
        )
    return codec.decode(cls, version, view[position:])


@lru_cache(maxsize=_DECODED_PARTITIONS_MAX)
def _after_partition_id(encoded: bytes) -> tuple[Any, ...]:
    """Return the fields of a PartitionRecord after the partition id, in the order of the constructor."""
    record = codec.decode(PartitionRecord, WRITTEN_VERSIONS[PartitionRecord], _PARTITION_ID.pack(0) + encoded)
    fields: tuple[Any, ...] = _all_but_partition_id(record)
    return fields


def _uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_uvarint(view: memoryview, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 7 * VARINT_BYTES_MAX, 7):
        if position >= len(view):
            break
        byte = view[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise Malformed(f"metadata record: bad varint at {position}")


_PARTITION_FRAME: Final = b"".join(
    map(_uvarint, (FRAME_VERSION, PartitionRecord.API_KEY, WRITTEN_VERSIONS[PartitionRecord]))
)
_PARTITION_END: Final = len(_PARTITION_FRAME) + _PARTITION_ID.size
"""End of the partition id in a framed PartitionRecord."""
