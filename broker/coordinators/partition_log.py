"""`odradek.runtime.log_port.ShardLog` over a partition: how a coordinator's engine reaches its log."""

from collections.abc import Sequence

from odradek.broker.coordinators.log_replay import Turns, replay
from odradek.broker.coordinators.standby_cache import LatestRecords
from odradek.broker.partition.partition import Partition
from odradek.protocol.batch import build_batch
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.log_port import ReplayVisitor, WatermarkCallback
from odradek.runtime.shard import ShardRecord
from odradek.storage.producers.entry import Origin


class PartitionLogPort:
    """One leadership of one partition, as a shard's log."""

    def __init__(
        self,
        partition: Partition,
        *,
        read_bytes: int,
        turns: Turns,
        latest: LatestRecords | None = None,
        base_sequence: int = -1,
    ) -> None:
        """`read_bytes`: what is read at a time at a replay. `latest`: what this broker has kept of the log while it followed,
        if it has: it is for the first replay alone. `base_sequence`: what is written into each batch.
        """
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._read_bytes = read_bytes
        self._turns = turns
        self._latest = latest
        self._base_sequence = base_sequence

    @property
    def log_end_offset(self) -> int:
        return self._partition.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._partition.log.high_watermark

    def append(self, records: Sequence[ShardRecord], now_ms: int, guard: int = 0, *, deferred: bool = False) -> int:
        """One atomic batch; returns the log end offset behind it.

        Raises:
            Refusal: nothing was written.
            OSError: it is not known what was written; the partition is offline.
        """
        partition = self._partition
        if partition.leader_epoch != self._leader_epoch:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        first = records[0]
        batch = build_batch(
            [(record.key, record.value, now_ms, ()) for record in records],
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            base_sequence=self._base_sequence,
            transactional=first.producer_id >= 0,
        )
        try:
            partition.append(batch, origin=Origin.COORDINATOR, now_ms=now_ms, guard=guard, deferred=deferred)
        except Refusal as refusal:
            # A client is told KAFKA_STORAGE_ERROR. A shard has to know that log and memory are apart now.
            if isinstance(refusal.__cause__, OSError):
                raise refusal.__cause__ from None
            raise
        return partition.log.log_end_offset

    async def replay(self, visit: ReplayVisitor) -> None:
        """Every data record and marker from log start to log end, in order; of what was kept, what has not been overwritten."""
        log = self._partition.log
        latest, self._latest = self._latest, None  # compaction may have been here before another one
        kept_to = 0 if latest is None else latest.kept_to()
        await self._turns.take(log.log_end_offset - max(kept_to, log.log_start_offset))
        try:
            start = log.log_start_offset
            if latest is not None:
                start = await latest.replay(visit)
            await replay(self._partition, start, log.log_end_offset, visit, read_bytes=self._read_bytes)
        finally:
            self._turns.give()

    def subscribe(self, callback: WatermarkCallback) -> None:
        self._partition.watermarks.subscribe(callback)

    def unsubscribe(self, callback: WatermarkCallback) -> None:
        self._partition.watermarks.unsubscribe(callback)
