"""Decode the files of a data directory into values that JSON can represent.

`python -m odradek.storage.dump FILE... [--records]` prints a JSON array: one object per file, with `file` and
`entries`. It opens files for reading only, so it may run beside a broker. The broker itself does not use this module.

A damaged file raises no error. Its last entry is `{"error": ...}` with the defect and its position.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import json
import signal
import sys
import uuid
from typing import TYPE_CHECKING, Any

from odradek.broker_interface import META_PROPERTIES
from odradek.protocol import tls_stores
from odradek.protocol.batch import (
    BatchHeader,
    Compression,
    ControlType,
    Record,
    control_type,
    iter_records,
    parse_end_txn_marker,
    verify_crc,
)
from odradek.protocol.codec import decode
from odradek.protocol.errors import Malformed
from odradek.protocol.internal_topics import CLUSTER_METADATA, TRANSACTION_STATE
from odradek.protocol.primitives import read_unsigned_varint
from odradek.protocol.records.kraft_version_record import KRaftVersionRecord
from odradek.protocol.records.leader_change_message import LeaderChangeMessage
from odradek.protocol.records.metadata import RECORDS, ConfigRecord
from odradek.protocol.records.snapshot_footer_record import SnapshotFooterRecord
from odradek.protocol.records.snapshot_header_record import SnapshotHeaderRecord
from odradek.protocol.records.transaction_log import TransactionLogKey, TransactionLogValue
from odradek.protocol.records.voters_record import VotersRecord
from odradek.protocol.schema import Struct, field_values
from odradek.storage.batches.limits import RECORD_BYTES_MAX
from odradek.storage.batches.scan import Scan
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.files import checkpoint, names
from odradek.storage.producers.snapshot import CorruptSnapshot, decode_snapshot
from odradek.storage.segment.index import CorruptIndex, OffsetIndex, TimeIndex, TxnIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from odradek.protocol.schema import Message
    from odradek.storage.disk.port import Disk

Entry = dict[str, Any]

METADATA_FRAME_VERSION = 1
CONTROL_MESSAGES: dict[ControlType, type[Message]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


HIDDEN = "[hidden]"
SECRET_FIELDS = {"UserScramCredentialRecord": ("salt", "stored_key", "server_key")}
"""Fields of metadata records that are not shown: with them, a process can try passwords, or impersonate a server."""
SECRET_PROPERTIES = (
    tls_stores.KEY_STORE_PASSWORD,
    tls_stores.KEY_STORE_KEY,
    tls_stores.KEY_STORE_CHAIN,
    tls_stores.KEY_PASSWORD,
    tls_stores.TRUST_STORE_PASSWORD,
    tls_stores.TRUST_STORE_CERTIFICATES,
    "sasl.jaas.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.client.credentials.client.secret",
    "delegation.token.secret.key",
)
"""Properties of brokers whose values DescribeConfigs does not show. Their names can follow `listener.name.<name>.`."""


def dump_file(disk: Disk, path: str, *, records: bool = False) -> Iterator[Entry]:
    """Yield the entries of a segment, index, snapshot or checkpoint file. With `records`, batches have their records.

    The directory name determines the topic. Records of `__transaction_state` and `__cluster_metadata` are decoded.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file name is not one of a data directory.
    """
    name = path.rpartition("/")[2].removesuffix(names.DELETED_SUFFIX)
    if name.endswith((names.LOG_SUFFIX, ".checkpoint")):
        return _segment(disk, path, records=records)
    parser = _parser(name)
    if parser is None:
        raise ValueError(
            f"{path}: unknown kind of file; segments, indexes, producer snapshots and checkpoints can be decoded"
        )
    return _parsed(parser, disk.read_file(path))


def _parsed(parser: Callable[[bytes], list[Entry]], data: bytes) -> Iterator[Entry]:
    try:
        yield from parser(data)
    except (checkpoint.CorruptCheckpoint, CorruptIndex, CorruptSnapshot) as error:
        yield {"error": str(error)}


def _parser(name: str) -> Callable[[bytes], list[Entry]] | None:
    offset_file = names.parse_offset_file(name)
    if offset_file is not None:
        base, suffix = offset_file
        by_suffix: dict[str, Callable[[bytes], list[Entry]]] = {
            names.OFFSET_INDEX_SUFFIX: lambda data: [
                {"offset": offset, "position": position} for offset, position in OffsetIndex(base, data).entries()
            ],
            names.TIME_INDEX_SUFFIX: lambda data: [
                {"timestamp": timestamp, "offset": offset} for timestamp, offset in TimeIndex(base, data).entries()
            ],
            names.TXN_INDEX_SUFFIX: lambda data: [
                {"version": 0, **dataclasses.asdict(entry)} for entry in TxnIndex(base, data).entries()
            ],
            names.SNAPSHOT_SUFFIX: _producers,
        }
        return by_suffix.get(suffix)
    return {
        checkpoint.RECOVERY_POINTS: _offsets,
        checkpoint.HIGH_WATERMARKS: _offsets,
        checkpoint.LOG_START_OFFSETS: _offsets,
        checkpoint.CLEANER_OFFSETS: _offsets,
        checkpoint.RECOVERY_STARTS: _offsets,
        checkpoint.LEADER_EPOCHS: lambda data: [
            {"epoch": epoch, "start_offset": offset} for epoch, offset in checkpoint.decode_leader_epochs(data)
        ],
        checkpoint.PARTITION_METADATA: lambda data: [
            {"topic_id": checkpoint.encode_uuid(checkpoint.decode_partition_metadata(data))}
        ],
        META_PROPERTIES: lambda data: [plain(dataclasses.asdict(checkpoint.decode_meta_properties(data)))],
        checkpoint.CLEAN_SHUTDOWN: lambda data: [{"broker_epoch": checkpoint.decode_clean_shutdown(data)}],
    }.get(name)


def _offsets(data: bytes) -> list[Entry]:
    decoded = checkpoint.decode_offsets(data)
    return [{"topic": topic, "partition": index, "offset": offset} for (topic, index), offset in decoded.items()]


def _producers(data: bytes) -> list[Entry]:
    return [
        {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": entry.transaction_first_offset,
            "last_timestamp": entry.last_timestamp,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_data_offset,
            "offset_delta": entry.last_offset_delta,
        }
        for entry in decode_snapshot(data)
    ]


def _segment(disk: Disk, path: str, *, records: bool) -> Iterator[Entry]:
    topic = path.split("/")[-2].rpartition("-")[0] if path.count("/") else ""
    file = disk.open(path, create=False)
    try:
        scan = Scan(file, 0, file.size)
        for position, header, batch in scan:
            entry = _batch(header, position, valid=verify_crc(batch, 0, header))
            if records:
                entry["records"] = _records(batch, header, topic)
            yield entry
        if scan.position < file.size:
            yield {"error": f"{file.size - scan.position} bytes from byte {scan.position} on: {scan.defect}"}
    finally:
        file.close()


def _batch(header: BatchHeader, position: int, *, valid: bool) -> Entry:
    try:
        codec = header.compression.name.lower()
    except Malformed as error:
        codec = str(error)
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "leader_epoch": header.leader_epoch,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "position": position,
        "size": header.size,
        "timestamp_type": "LogAppendTime" if header.timestamp_type else "CreateTime",
        "max_timestamp": header.max_timestamp,
        "compression": codec if codec != Compression.NONE.name.lower() else "none",
        "crc": header.crc,
        "valid": valid,
    }


def _records(batch: memoryview, header: BatchHeader, topic: str) -> list[Entry]:
    shown = []
    try:
        for record in iter_records(batch, max_decompressed_bytes=RECORD_BYTES_MAX):
            entry: Entry = {"offset": record.offset, "timestamp": record.timestamp}
            entry |= _control(record) if header.is_control else _content(record, topic)
            shown.append(entry)
    except Malformed as error:
        shown.append({"error": str(error)})
    return shown


def _control(record: Record) -> Entry:
    kind = control_type(record.key)
    if kind in {ControlType.ABORT, ControlType.COMMIT}:
        return {"marker": kind.name, "coordinator_epoch": parse_end_txn_marker(record.value)}
    message = CONTROL_MESSAGES.get(kind)
    if message is None:
        return {"control": kind.name, "value": plain(record.value)}
    version = int.from_bytes((record.value or b"")[:2], "big")  # each control message begins with its version
    return {"control": kind.name, "value": _message(message, version, record.value or b"")}


def _content(record: Record, topic: str) -> Entry:
    if topic == TRANSACTION_STATE:
        return _transaction(record)
    if topic == CLUSTER_METADATA:
        return _metadata(record.value or b"")
    return {
        "key": plain(record.key),
        "value": plain(record.value),
        "headers": [[name, plain(value)] for name, value in record.headers],
    }


def _transaction(record: Record) -> Entry:
    key = _message(TransactionLogKey, 0, (record.key or b"")[2:])
    if record.value is None:
        return {"key": key, "value": None}
    version = int.from_bytes(record.value[:2], "big", signed=True)
    return {"key": key, "version": version, "value": _message(TransactionLogValue, version, record.value[2:])}


def _metadata(value: bytes) -> Entry:
    frame, at = read_unsigned_varint(value, 0)
    kind, at = read_unsigned_varint(value, at)
    version, at = read_unsigned_varint(value, at)
    message = RECORDS.get(kind)
    if frame != METADATA_FRAME_VERSION or message is None:
        return {"frame": frame, "type": kind, "version": version, "value": plain(value[at:])}
    decoded = _message(message, version, value[at:])
    is_secret = message is ConfigRecord and decoded.get("name", "").endswith(SECRET_PROPERTIES)
    for field in ("value",) if is_secret else SECRET_FIELDS.get(message.NAME, ()):
        if decoded.get(field) is not None:
            decoded[field] = HIDDEN
    return {"type": message.NAME, "version": version, "value": decoded}


def _message(message: type[Message], version: int, data: bytes) -> Any:
    if not message.MIN_VERSION <= version <= message.MAX_VERSION:
        return {"unknown_version": version, "bytes": plain(data)}
    return plain(decode(message, version, data))


def plain(value: Any) -> Any:
    """Return the value in a form that JSON can represent.

    Bytes become text if they are UTF-8, else {"base64": ...}. UUIDs get Kafka's form (base64 without padding).
    """
    if isinstance(value, bytes | bytearray | memoryview):
        raw = bytes(value)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(raw).decode()}
    if isinstance(value, uuid.UUID):
        return checkpoint.encode_uuid(value)
    if isinstance(value, Struct):
        value = dict(field_values(value))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key != "unknown_tagged_fields" or item}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the entries of the files as JSON. Return 1 if a file cannot be read or its kind is unknown, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m odradek.storage.dump",
        description="Print files of a data directory as JSON: segments, indexes, producer snapshots, checkpoints.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--records", action="store_true", help="include the records of each batch")
    options = parser.parse_args(arguments)
    disk = OsDisk()
    dumped: list[Entry] = []
    try:
        for path in options.files:
            try:
                dumped.append({"file": path, "entries": list(dump_file(disk, path, records=options.records))})
            except OSError as error:
                sys.stderr.write(f"{path} cannot be read: {error.strerror or error}\n")
                return 1
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        disk.close()
    json.dump(dumped, sys.stdout, ensure_ascii=False)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    for number in (signal.SIGPIPE, signal.SIGINT):  # end without a traceback, as other command-line tools do
        signal.signal(number, signal.SIG_DFL)
    sys.exit(main())
