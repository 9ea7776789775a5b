"""Give a coordinator's engine access to the log of its partition (`odradek.runtime.log_port.ShardLog`)."""

from collections.abc import Sequence

from odradek.broker.coordinators.log_replay import replay
from odradek.broker.coordinators.standby_cache import StandbyCache
from odradek.broker.partition.partition import Partition
from odradek.broker.quota.shortest_first import ShortestFirst
from odradek.protocol.batch import build_batch
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.log_port import ReplayVisitor, WatermarkCallback
from odradek.runtime.shard import ShardRecord
from odradek.storage.producers.entry import Origin


class PartitionLogPort:
    """The log of one shard, for one leader epoch of its partition."""

    def __init__(
        self,
        partition: Partition,
        *,
        read_bytes: int,
        load_queue: ShortestFirst,
        standby: StandbyCache | None = None,
        base_sequence: int = -1,
    ) -> None:
        """Create the log of the present leader epoch.

        `read_bytes` is the size of one read of a replay. `standby` holds the records that this broker cached as a
        follower; only the first replay uses it. `base_sequence` is the sequence number of each written batch.
        """
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._read_bytes = read_bytes
        self._load_queue = load_queue
        self._standby = standby
        self._base_sequence = base_sequence

    @property
    def log_end_offset(self) -> int:
        """Return the offset of the next record."""
        return self._partition.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Return the offset below which all records are committed."""
        return self._partition.log.high_watermark

    def append(self, records: Sequence[ShardRecord], now_ms: int, guard: int = 0, *, deferred: bool = False) -> int:
        """Append `records` as one batch, and return the log end offset after it.

        Raises:
            Refusal: Nothing was written, for example because the leader epoch ended.
            OSError: The disk failed. It is unknown how much was written, and the partition is offline.
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
            # A client receives KAFKA_STORAGE_ERROR. The shard receives the OSError: its state and its log may differ
            # now.
            if refusal.error is ErrorCode.KAFKA_STORAGE_ERROR and isinstance(refusal.__cause__, OSError):
                raise refusal.__cause__ from None
            raise
        return partition.log.log_end_offset

    async def replay(self, visit: ReplayVisitor) -> None:
        """Visit all data records and markers from log start to log end, in order.

        Records of the standby cache omit values that newer records replaced.
        """
        log = self._partition.log
        standby, self._standby = self._standby, None  # Compaction may remove tombstones before a second replay.
        cached_end = 0 if standby is None else standby.cached_end()
        await self._load_queue.acquire(log.log_end_offset - max(cached_end, log.log_start_offset))
        try:
            start = log.log_start_offset
            if standby is not None:
                start = await standby.replay(visit)
            await replay(self._partition, start, log.log_end_offset, visit, read_bytes=self._read_bytes)
        finally:
            self._load_queue.release()

    def subscribe(self, callback: WatermarkCallback) -> None:
        """Call `callback` with the high watermark after each advance."""
        self._partition.watermarks.subscribe(callback)

    def unsubscribe(self, callback: WatermarkCallback) -> None:
        """Stop calling `callback`."""
        self._partition.watermarks.unsubscribe(callback)
