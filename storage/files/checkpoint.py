"""Encode and decode the small text files of a data directory, in Kafka's formats. This module is pure.

| file | content | format |
|---|---|---|
| `recovery-point-offset-checkpoint` | recovery points | version 0, count, lines `topic partition offset` |
| `replication-offset-checkpoint` | high watermarks | as above |
| `log-start-offset-checkpoint` | log start offsets | as above |
| `cleaner-offset-checkpoint` | ends of the compacted parts | as above |
| `odradek.recovery-starts` | offsets at which recovery may start in a segment | as above |
| `leader-epoch-checkpoint` | leader epochs of one log | version 0, count, lines `epoch startOffset` |
| `partition.metadata` | topic id of one log | `version: 0`, `topic_id: <base64url>`, no newline at the end |
| `meta.properties` | cluster, node and directory ids | Java properties, version 1 |
| `.kafka_cleanshutdown` | broker epoch at the clean shutdown | one line of JSON |
| `odradek.decoys` | key of the salts of unknown SCRAM users, in a cluster without a secret | random bytes |

An empty offset or epoch file has no entries. All other malformed content raises `CorruptCheckpoint`.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
RECOVERY_STARTS = "odradek.recovery-starts"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
DECOYS = "odradek.decoys"

CHECKPOINT_VERSION = 0
DIGITS_MAX = 19
"""Maximum digits of a number. The largest number is an offset of 64 bits. Python refuses to convert 4,301 digits."""
META_PROPERTIES_VERSION = 1

TopicPartition = tuple[str, int]


class CorruptCheckpoint(ValueError):
    """The content of a checkpoint file is malformed."""


def _entries(data: bytes, fields: int) -> list[list[str]]:
    """Return the lines of an offset or epoch file without its two header lines, split into `fields` fields each."""
    lines = _text(data).splitlines()
    if not lines:
        return []
    if len(lines) < 2:
        raise CorruptCheckpoint("the line with the number of entries is missing")
    version, count = _integer(lines[0]), _integer(lines[1])
    if version != CHECKPOINT_VERSION:
        raise CorruptCheckpoint(f"version {version} is not supported")
    rows = [line.split() for line in lines[2:]]
    if len(rows) != count:
        raise CorruptCheckpoint(f"the header counts {count} entries, the file has {len(rows)}")
    for number, row in enumerate(rows, 3):
        if len(row) != fields:
            raise CorruptCheckpoint(f"line {number} has {len(row)} fields instead of {fields}")
    return rows


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"not UTF-8: {error}") from error


def _integer(text: str) -> int:
    # int() would also accept "+1", "1_0" and digits of other scripts. No version of Kafka writes these.
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX):
        raise CorruptCheckpoint(f"{text[:100]!r} is not a number of at most {DIGITS_MAX} digits")
    return int(text)


def _lines(rows: list[str]) -> bytes:
    return encode_header(len(rows)) + "".join(f"{line}\n" for line in rows).encode()


def encode_header(count: int) -> bytes:
    """Return the first lines of a checkpoint with `count` entries."""
    return f"{CHECKPOINT_VERSION}\n{count}\n".encode()


def encode_rows(entries: Iterable[tuple[TopicPartition, int]]) -> bytes:
    """Return the lines of some entries of an offset checkpoint."""
    return "".join([f"{topic} {partition} {offset}\n" for (topic, partition), offset in entries]).encode()


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return encode_header(len(offsets)) + encode_rows(offsets.items())


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    return {(topic, _integer(index)): _integer(offset) for topic, index, offset in _entries(data, 3)}


def encode_leader_epochs(entries: list[tuple[int, int]]) -> bytes:
    return _lines([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def decode_leader_epochs(data: bytes) -> list[tuple[int, int]]:
    """Return (epoch, start offset) of each entry, in the order of the file."""
    return [(_integer(epoch), _integer(offset)) for epoch, offset in _entries(data, 2)]


def encode_uuid(value: uuid.UUID) -> str:
    """Return Kafka's text form of a uuid: base64url of its 16 bytes, without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    """Return the uuid for Kafka's text form. Raise CorruptCheckpoint if the text is not one."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptCheckpoint(f"{text!r} is not a uuid") from error
    if len(raw) != 16:
        raise CorruptCheckpoint(f"{text!r} is not a uuid")
    return uuid.UUID(bytes=raw)


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    return f"version: {CHECKPOINT_VERSION}\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> uuid.UUID:
    fields = dict(line.split(": ", 1) for line in _text(data).splitlines() if ": " in line)
    if _integer(fields.get("version", "")) < 0:
        raise CorruptCheckpoint(f"version {fields['version']} is not supported")
    topic_id = decode_uuid(fields.get("topic_id", ""))
    if topic_id == ZERO_UUID:
        raise CorruptCheckpoint("the topic id is zero")
    return topic_id


@dataclass(frozen=True)
class MetaProperties:
    """Content of `meta.properties`: the owner of a data directory."""

    cluster_id: str
    node_id: int
    directory_id: uuid.UUID


def encode_meta_properties(meta: MetaProperties) -> bytes:
    return (
        f"version={META_PROPERTIES_VERSION}\n"
        f"cluster.id={meta.cluster_id}\n"
        f"directory.id={encode_uuid(meta.directory_id)}\n"
        f"node.id={meta.node_id}\n"
    ).encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    fields = {}
    for raw in _text(data).splitlines():
        line = raw.strip()
        if line and not line.startswith(("#", "!")):
            name, _, value = line.partition("=")
            fields[name.strip()] = value.strip()
    missing = [name for name in ("version", "cluster.id", "node.id", "directory.id") if name not in fields]
    if missing:
        raise CorruptCheckpoint(f"properties {', '.join(missing)} are missing")
    if _integer(fields["version"]) != META_PROPERTIES_VERSION:
        raise CorruptCheckpoint(f"version {fields['version']} is not supported")
    return MetaProperties(fields["cluster.id"], _integer(fields["node.id"]), decode_uuid(fields["directory.id"]))


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """Return the broker epoch in a clean-shutdown marker; -1 if it contains none, as in older formats."""
    try:
        epoch = json.loads(_text(data))["brokerEpoch"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return -1
    return epoch if isinstance(epoch, int) else -1
