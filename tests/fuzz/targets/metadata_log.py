"""Fuzz targets of the metadata log: replay of records, and batches and snapshots as another node sends them.

The parts of an input of the replay are the values of records. A committed record that cannot be applied stops the node,
with a typed error.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from odradek.cluster.metadata import records as r
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.errors import InconsistentMetadata, UnsupportedMetadata
from odradek.cluster.metadata.image import EMPTY_IMAGE
from odradek.cluster.metadata.snapshot import delta_between, image_records, snapshot_batches
from odradek.cluster.raft.batches import decode_batches, decode_entries, encode_records, leader_change_voters
from odradek.cluster.raft.messages import EpochEnd
from odradek.cluster.raft.ports import SnapshotBytes
from odradek.cluster.raft.snapshot_reader import read_snapshot
from odradek.protocol.errors import Malformed
from tests.fuzz import parts
from tests.fuzz.mutations import damaged
from tests.fuzz.target import KIB, Bound, Target
from tests.fuzz.targets.records import sealed
from tests.fuzz.valid import random_struct

if TYPE_CHECKING:
    from odradek.cluster.metadata.image import MetadataImage

SEED, SEEDS, RECORDS_MAX = 6, 60, 8
TYPES = [r.SUPPORTED[kind] for kind in sorted(r.SUPPORTED)]
SNAPSHOT = EpochEnd(5, 100)
NOW_MS = 1_700_000_000_000
READ_BYTES = 700


def replayed(values: list[bytes]) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for offset, value in enumerate(values):
        delta.replay(offset, 5, r.decode_record(value))
    return delta.build()


def run_records(data: bytes) -> int:
    """Replay records. A snapshot of the resulting image must lead to the same image."""
    image = replayed(parts.split(data))
    again = replayed([r.encode_record(record) for record in image_records(image)])
    difference = delta_between(again, image)
    assert not list(difference.changed_partitions()), "a snapshot has other partitions than the log"
    assert not list(difference.changed_brokers()), "a snapshot has other brokers than the log"
    return 0


class Pieces:
    """Storage of one snapshot, which is read in small pieces."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read_snapshot(self, snapshot: EpochEnd, position: int, max_bytes: int) -> SnapshotBytes | None:
        return SnapshotBytes(len(self._data), self._data[position : position + READ_BYTES])


def run_batches(data: bytes) -> int:
    """Decode batches of a leader, or a snapshot."""
    if not data:
        return 0
    batches = sealed(data[1:]) if data[0] & 2 else data[1:]
    if data[0] & 1:
        drive(batches)
        return 0
    for _ in decode_entries(batches):
        pass
    for batch in decode_batches(batches):
        for _, value in batch.records:
            r.decode_record(value)
    leader_change_voters(batches)
    return 0


def drive(data: bytes) -> None:
    """Read a snapshot. The storage never waits, so the coroutine ends without an event loop."""

    async def read_all() -> None:
        async for batches in read_snapshot(Pieces(data), SNAPSHOT):  # type: ignore[arg-type]
            for batch in batches:
                for _, value in batch.records:
                    r.decode_record(value)

    coroutine = read_all()
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("the reader of a snapshot waits for something else than its storage")


def random_record(rng: Random) -> bytes:
    """Return a record, mostly about one of two topics and two brokers."""
    cls = rng.choice(TYPES)
    version = rng.randint(cls.MIN_VERSION, cls.MAX_VERSION)
    record = random_struct(cls, version, rng)
    for name, values in (
        ("topic_id", IDS),
        ("broker_id", (1, 2)),
        ("id", (1, 2)),
        ("id", IDS),
        ("partition_id", (0, 1)),
        ("name", ("t", "u")),
    ):
        if isinstance(getattr(record, name, None), type(values[0])) and rng.random() < 0.9:
            setattr(record, name, rng.choice(values))
    return r.encode_record(record, version)


IDS = tuple(random_struct(r.TopicRecord, 0, Random(number)).topic_id for number in (1, 2, 3))


def random_log(rng: Random) -> bytes:
    return parts.joined([random_record(rng) for _ in range(rng.randint(1, RECORDS_MAX))])


def record_seeds() -> list[bytes]:
    rng = Random(SEED)
    found: list[bytes] = []
    while len(found) < SEEDS:
        data = random_log(rng)
        try:
            run_records(data)
        except (InconsistentMetadata, UnsupportedMetadata):
            continue
        found.append(data)
    return found


def mutate_records(data: bytes, rng: Random) -> bytes:
    kind = rng.random()
    if kind < 0.5:
        return data + random_log(rng) if kind < 0.25 else parts.mutate(data, rng)
    return damaged(data, rng) if kind < 0.6 else random_log(rng)


def batch_seeds() -> list[bytes]:
    topic = r.TopicRecord("t", IDS[1])
    image = replayed([r.encode_record(topic), r.encode_record(r.FeatureLevelRecord("metadata.version", 30))])
    snapshot = b"".join(snapshot_batches(image, SNAPSHOT, last_contained_ms=NOW_MS, now_ms=NOW_MS))
    entry = encode_records([(None, r.encode_record(topic))] * 3, base_offset=7, epoch=5, now_ms=NOW_MS)
    return [b"\x01" + snapshot, b"\x00" + entry, b"\x00" + entry + entry, b"\x03" + snapshot, b"\x02" + entry]


METADATA_RECORDS = Target(
    "metadata-records", run_records, record_seeds, typed=(InconsistentMetadata, UnsupportedMetadata, Malformed),
    memory=Bound(512 * KIB, 512), steps=Bound(60_000, 600), mutate=mutate_records,
)  # fmt: skip
# A batch of a leader may decompress to 8 MiB.
METADATA_BATCHES = Target(
    "metadata-batches", run_batches, batch_seeds, typed=(UnsupportedMetadata, Malformed),
    memory=Bound(24 * 1024 * KIB, 512), steps=Bound(100_000, 1_000),
    mutate=lambda data, rng: bytes((rng.randrange(4),)) + damaged(data[1:], rng),
)  # fmt: skip
