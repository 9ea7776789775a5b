"""Damage of log segments on the disk of a node that is down.

The caller decides whether the replicas can repair it (`Cluster.may_be_damaged`). This module decides which bytes a
broker can find damaged:

- Recovery reads the segments from the recovery point on, and the first one from its recovery start on. Damage below it
  is found by the first reader of the batch, and no replica repairs it (docs/guarantees.md), so it is not injected.
- The checksum of a batch covers all bytes from its attributes on. Recovery also checks length, magic and checksum. The
  base offset is checked in topics without compaction. The leader epoch is protected by nothing, as in Apache Kafka.
- A damaged length in front of an incomplete batch cannot be distinguished from that incomplete batch. The length of the
  last complete batch is damaged only if the file ends with it.
"""

from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

from odradek.simulation.environment.medium import Directory, Inode, Medium
from tests.sim.checkers.batches import Batch, Unreadable, read_batches
from tests.sim.checkers.replicas import read_watermarks
from tests.sim.history import Partition
from tests.sim.world import COMPACTED

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
RECOVERY_STARTS: Final = "odradek.recovery-starts"
"""Checkpoint files with the format of `replication-offset-checkpoint`."""
BASE_OFFSET, LENGTH, MAGIC, CHECKSUM, BODY = (0, 8), (8, 12), (16, 17), (17, 21), (21, 61)
"""Bytes of a batch header, first and end. BODY extends to the end of the batch."""
INDEX_ENDINGS: Final = ("index", "timeindex", "txnindex")


@dataclass(frozen=True, slots=True)
class Damage:
    """A changed byte: partition, base offset of the batch, path, and position in the file."""

    partition: Partition
    offset: int
    path: str
    position: int


def damage_log(medium: Medium, root: str, partitions: list[Partition], rng: Random) -> Damage | None:
    """Change one byte of a batch in one of the logs, and in half of the cases one bit of an index of its segment.

    Return None if no log has a batch that recovery reads.
    """
    points, starts = (_offsets(medium, f"{root}/{name}") for name in (RECOVERY_POINTS, RECOVERY_STARTS))
    places = [
        (partition, path, batch, is_last)
        for partition in partitions
        for path in _recovered_segments(medium, f"{root}/{partition[0]}-{partition[1]}", points.get(partition, 0))
        for batch, is_last in _batches(medium.contents(path))
        if batch.base_offset >= starts.get(partition, 0)
    ]
    if not places:
        return None
    partition, path, batch, is_last = rng.choice(places)
    fields = [LENGTH, MAGIC, CHECKSUM, BODY, BODY, BODY]
    if partition[0] not in COMPACTED:
        fields.append(BASE_OFFSET)
    field = rng.choice(fields)
    if field == LENGTH and is_last and batch.position + batch.size < len(medium.contents(path)):
        field = BODY
    first, end = field
    position = batch.position + rng.randrange(first, batch.size if field == BODY else end)
    _change(medium.file(path), position, 1 << rng.randrange(8) if rng.random() < 0.5 else rng.randrange(1, 256))
    if rng.random() < 0.5 and partition not in starts:
        indexes = [f"{path.removesuffix('log')}{ending}" for ending in INDEX_ENDINGS]
        indexes = [index for index in indexes if isinstance(medium.entry(index), Inode)]
        if indexes:
            medium.flip_bit(rng.choice(indexes), rng)
    return Damage(partition, batch.base_offset, path, position)


def _offsets(medium: Medium, path: str) -> dict[Partition, int]:
    return read_watermarks(medium.contents(path).decode()) if isinstance(medium.entry(path), Inode) else {}


def _recovered_segments(medium: Medium, directory: str, recovery_point: int) -> list[str]:
    """Return the segments that recovery reads after an unclean shutdown; none during a segment swap."""
    entry = medium.entry(directory)
    names = sorted(entry.live) if isinstance(entry, Directory) else []
    if any(name.endswith((".swap", ".cleaned")) for name in names):
        return []
    segments = [name for name in names if name.endswith(".log")]
    first = max((name for name in segments if int(name.removesuffix(".log")) <= recovery_point), default="")
    return [f"{directory}/{name}" for name in segments if name >= first]


def _batches(content: bytes) -> list[tuple[Batch, bool]]:
    """Return the batches of a segment, with True for the last one.

    A segment that an earlier fault has damaged, and that no recovery has read since, has batches up to that damage.
    """
    batches: list[Batch] = []
    with suppress(Unreadable):
        batches.extend(read_batches(content, check_crc=True))
    return [(batch, batch is batches[-1]) for batch in batches]


def _change(inode: Inode, position: int, mask: int) -> None:
    inode.live[position] ^= mask
    if position < len(inode.durable):
        inode.durable[position] ^= mask
