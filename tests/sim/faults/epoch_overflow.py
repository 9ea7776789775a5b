"""Bring producer epochs close to their maximum by editing the coordinator's log between two incarnations of the node.

An epoch overflows after 32,766 transactions. No run is that long, and the product has no switch for a smaller maximum.
So the epochs of chosen transactional ids are rewritten in their records on disk, with checksums. The node finds a log
as old producers would have left it.
"""

import struct
from collections.abc import Mapping
from typing import Final

import crc32c

from odradek.simulation.environment.medium import Inode, Medium
from tests.sim.checkers.batches import read_batches
from tests.sim.checkers.coordinator_log import parse_entry
from tests.sim.world import TRANSACTION_STATE

EPOCH_POSITION: Final = 10  # in the value: after the version and the producer id
CRC_POSITION: Final = 17
CRC_START: Final = 21


def rewrite_epochs(medium: Medium, root: str, epochs: Mapping[str, int]) -> int:
    """Set the producer epoch in all records of the transactional ids. Return the number of changed records."""
    changed = 0
    for path, inode in medium.walk(root):
        if f"/{TRANSACTION_STATE}-" in path and path.endswith(".log"):
            changed += _rewrite(inode, epochs)
    return changed


def _rewrite(inode: Inode, epochs: Mapping[str, int]) -> int:
    assert not inode.unsynced, "the node was not stopped cleanly"
    changed = 0
    for batch in read_batches(bytes(inode.live)):
        if batch.is_control:
            continue
        start, end = batch.position, batch.position + batch.size
        for key, value in batch.records:
            assert key is not None
            epoch = epochs.get(parse_entry(key, None).transactional_id)
            if epoch is None or value is None:
                continue
            position = inode.live.index(value, start, end) + EPOCH_POSITION
            struct.pack_into(">h", inode.live, position, epoch)
            changed += 1
        struct.pack_into(
            ">I", inode.live, start + CRC_POSITION, crc32c.crc32c(bytes(inode.live[start + CRC_START : end]))
        )
    inode.durable = bytearray(inode.live)
    return changed
