"""What a follower keeps of a log of which the last record of each key is all that matters.

A coordinator that is elected would have to read its log from the start; nobody is coordinated until it has. So every replica
reads on while it follows, and at election only what came last is left to read. Nothing is decoded here.
"""

from asyncio import sleep
from typing import Final

from broker.log_replay import RECORDS_AT_A_TIME, replay
from broker.partition import Partition
from protocol.errors import Malformed, Refusal
from runtime.log_port import ReplayVisitor
from runtime.shard import Marker, ShardRecord

NO_EPOCH: Final = -1


class LatestRecords:
    """The last committed record of each key of one log, up to `kept_to`. What is not committed may be cut off again."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self._latest: dict[bytes, tuple[int, bytes, int]] = {}
        """key -> (offset, value, leader epoch), in order of the offsets"""
        self._next = 0
        self._epoch = NO_EPOCH

    def __len__(self) -> int:
        """Keys that are kept."""
        return len(self._latest)

    def kept_to(self) -> int:
        """The offset from which on the log has to be read."""
        log = self.partition.log
        # Below the high watermark a log is never cut, unless data was lost with more replicas than the settings allow for.
        fits = self._next <= log.log_end_offset and log.epoch_for_offset(self._next - 1) == self._epoch
        if self._next and not fits:
            self._latest.clear()
            self._next, self._epoch = 0, NO_EPOCH
        return self._next

    async def read_on(self, *, read_bytes: int) -> None:
        """Take in what has been committed since."""
        log = self.partition.log
        start, end = max(self.kept_to(), log.log_start_offset), log.high_watermark
        if start >= end:
            return
        try:
            await replay(self.partition, start, end, self._take, read_bytes=read_bytes)
        except (Malformed, Refusal):
            return  # whoever is elected meets it too, and says so

    async def replay(self, visit: ReplayVisitor) -> int:
        """Visit what is kept; the offset from which on the log has to be read."""
        kept_to, start = self.kept_to(), self.partition.log.log_start_offset
        for number, (key, (offset, value, epoch)) in enumerate(list(self._latest.items()), 1):
            if offset >= start:
                visit(offset, ShardRecord(key, value), epoch)
            if number % RECORDS_AT_A_TIME == 0:
                await sleep(0)
        return max(kept_to, start)

    def _take(self, offset: int, entry: ShardRecord | Marker, leader_epoch: int) -> None:
        if isinstance(entry, ShardRecord):
            if entry.key is None:
                raise Malformed(f"{self.partition.log.directory}: a record without a key at offset {offset}")
            self._latest.pop(entry.key, None)
            if entry.value is not None:
                self._latest[entry.key] = (offset, entry.value, leader_epoch)
        self._next, self._epoch = offset + 1, leader_epoch
