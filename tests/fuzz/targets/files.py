"""Fuzz targets of the small files of a data directory: checkpoints, indexes, producer snapshots, quorum-state.

The first byte of an input selects the file. A decoded file must encode to content that decodes to the same values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from crc32c import crc32c

from odradek.cluster.raft.messages import HardState, Standing
from odradek.cluster.raft.quorum_state import BadQuorumState, decode_quorum_state, encode_quorum_state
from odradek.storage.files import checkpoint
from odradek.storage.files.leader_epochs import LeaderEpochs
from odradek.storage.producers.entry import CachedBatch, ProducerEntry
from odradek.storage.producers.snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from odradek.storage.segment.index import AbortedTransaction, CorruptIndex, OffsetIndex, TimeIndex, TxnIndex
from tests.fuzz.mutations import damaged
from tests.fuzz.target import KIB, Bound, Target

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

BASE_OFFSET = 100
VOTERS = (1, 2, 3)
SNAPSHOT_CRC_AT, SNAPSHOT_CONTENT_AT = 2, 6
TOPIC_ID = UUID(int=7)


def read_offsets(data: bytes) -> Any:
    offsets = checkpoint.decode_offsets(data)
    again = checkpoint.decode_offsets(checkpoint.encode_offsets(offsets))
    assert again == offsets
    return offsets


def read_leader_epochs(data: bytes) -> Any:
    """Decode the file, and use the epochs as a log does."""
    epochs = LeaderEpochs(checkpoint.decode_leader_epochs(data))
    entries = epochs.entries()
    assert checkpoint.decode_leader_epochs(checkpoint.encode_leader_epochs(entries)) == entries
    epochs.truncate_from_end(BASE_OFFSET + 1)
    epochs.truncate_from_start(BASE_OFFSET // 2)
    epochs.end_offset_for(3, BASE_OFFSET)
    return entries


def read_meta_properties(data: bytes) -> Any:
    meta = checkpoint.decode_meta_properties(data)
    assert checkpoint.decode_meta_properties(checkpoint.encode_meta_properties(meta)) == meta
    return meta


def read_quorum_state(data: bytes) -> Any:
    state = decode_quorum_state(data, VOTERS)
    assert decode_quorum_state(encode_quorum_state(state, VOTERS), VOTERS) == state
    return state


def read_offset_index(data: bytes) -> Any:
    index = OffsetIndex(BASE_OFFSET, data)
    assert index.encode() == data
    index.position_for(BASE_OFFSET + 5)
    index.truncate_to(BASE_OFFSET + 5)
    return index.entries()


def read_time_index(data: bytes) -> Any:
    index = TimeIndex(BASE_OFFSET, data)
    assert index.encode() == data
    index.offset_for(5)
    index.truncate_to(BASE_OFFSET + 5)
    return index.entries()


def read_txn_index(data: bytes) -> Any:
    index = TxnIndex(BASE_OFFSET, data)
    assert index.encode() == data
    index.collect(BASE_OFFSET, BASE_OFFSET + 5, [])
    index.truncate_to(BASE_OFFSET + 5)
    return index.entries()


def read_snapshot(data: bytes) -> Any:
    """Decode a producer snapshot with a correct checksum."""
    content = data[SNAPSHOT_CONTENT_AT:]
    sealed = data[:SNAPSHOT_CRC_AT] + crc32c(content).to_bytes(4, "big") + content
    entries = decode_snapshot(sealed if len(data) > SNAPSHOT_CONTENT_AT else data)
    return decode_snapshot(encode_snapshot(entries))


EPOCHS = [(0, 0), (2, 50), (3, 90)]
ENTRY = ProducerEntry(7, 1, 3, 1_700_000_000_000, 60, [CachedBatch(9, 80, 4, 1_700_000_000_000)])
META = checkpoint.MetaProperties("MkU3OEVBNTcwNTJENDM2Qk", 1, TOPIC_ID)
FILES: tuple[tuple[Callable[[bytes], Any], Callable[[], bytes]], ...] = (
    (read_offsets, lambda: checkpoint.encode_offsets({("t", 0): 5, ("topic.b", 11): 2**40})),
    (read_leader_epochs, lambda: checkpoint.encode_leader_epochs(EPOCHS)),
    (read_meta_properties, lambda: checkpoint.encode_meta_properties(META)),
    (checkpoint.decode_partition_metadata, lambda: checkpoint.encode_partition_metadata(TOPIC_ID)),
    (checkpoint.decode_clean_shutdown, lambda: checkpoint.encode_clean_shutdown(44)),
    (read_quorum_state, lambda: encode_quorum_state(HardState(5, 1, 2, Standing.ORDINARY), VOTERS)),
    (read_offset_index, lambda: b"".join(n.to_bytes(4, "big") + (n * 90).to_bytes(4, "big") for n in (1, 5, 9))),
    (read_time_index, lambda: b"".join(n.to_bytes(8, "big") + n.to_bytes(4, "big") for n in (1, 5, 9))),
    (
        read_txn_index,
        lambda: AbortedTransaction(7, 100, 110, 105).encode() + AbortedTransaction(8, 101, 120, 121).encode(),
    ),
    (read_snapshot, lambda: encode_snapshot([ENTRY, ENTRY])),
)


def run(data: bytes) -> int:
    """Decode the file that the first byte selects."""
    if data:
        read, _ = FILES[data[0] % len(FILES)]
        read(data[1:])
    return 0


def seeds() -> list[bytes]:
    return [bytes((number,)) + content() for number, (_, content) in enumerate(FILES)]


def mutate(data: bytes, rng: Random) -> bytes:
    """Damage a file; rarely repeat its parts many times, as long numbers and deep nesting need it."""
    content = damaged(data[1:], rng)
    if content and rng.random() < 0.1:
        at = rng.randrange(len(content))
        content = content[:at] + content[at : at + rng.randint(1, 4)] * rng.randint(100, 3_000) + content[at:]
    return data[:1] + content


SMALL_FILES = Target(
    "files", run, seeds, typed=(checkpoint.CorruptCheckpoint, BadQuorumState, CorruptIndex, CorruptSnapshot),
    memory=Bound(128 * KIB, 256), bytes_max=16 * KIB, mutate=mutate,
)  # fmt: skip
