"""Truncate a follower's log where it diverges from the leader's log, or restart it at the leader's log start offset.

A truncation awaits the disk: the recovery point is lowered before it, and it is durable before the next fetch. During
an await, the partition may get another leader, or become a leader itself. `is_current` returns False then, and the log
is left unchanged.
"""

from collections.abc import Callable
from typing import Any, Final

import structlog

from odradek.broker.quorum.peers import Channel, Peers
from odradek.broker.replication.follower_session import Followed
from odradek.broker.replication.log_start_check import LogStartChecks
from odradek.cluster.replication.follower import Event, Remedy, Truncation, remedy_for, truncation_for
from odradek.frozen import frozen_dataclass
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.special_values import EARLIEST_LOCAL, LATEST
from odradek.runtime.clock import Clock
from odradek.storage.data_directory.log_manager import LogManager
from odradek.storage.disk.port import ResourcesExhausted

LIST_OFFSETS_VERSION: Final = 8
"""Version of the ListOffsets requests to a leader: the first with EARLIEST_LOCAL (KIP-405)."""
_logger = structlog.get_logger(__name__)

IsCurrent = Callable[[Followed], bool]
"""Function that returns True if this broker still follows the partition in the same leader epoch."""


@frozen_dataclass(frozen=True, slots=True)
class FollowerTruncation:
    """Truncate the logs of followed partitions. Each coroutine returns the resulting event of the fetch state."""

    node_id: int
    logs: LogManager
    peers: Peers
    clock: Clock
    request_timeout_ms: int
    log_start_checks: LogStartChecks

    async def truncate_to_epoch(self, followed: Followed, epoch: int, end_offset: int, is_current: IsCurrent) -> Event:
        """Truncate the log to the leader's log, in which leader epoch `epoch` ends at `end_offset` (KIP-595)."""
        log = followed.partition.log
        truncation = truncation_for(epoch, end_offset, log.end_offset_for_epoch, log.log_end_offset)
        return await self._truncate(followed, truncation, is_current)

    async def start_at(self, followed: Followed, offset: int, is_current: IsCurrent) -> Event:
        """Remove all records, and restart the log at `offset`."""
        partition, log = followed.partition, followed.partition.log
        try:
            self.logs.disk.check_resources()
            await self.logs.lower_recovery_point(partition.topic, partition.index, 0)
            if is_current(followed):
                old_start = partition.log.log_start_offset
                _log_truncation("replica restarted at the leader's log start offset", followed, offset)
                partition.log.truncate_fully_and_start_at(offset, now_ms=self.clock.wall_ms())
                partition.truncated()
                await partition.log.sync_truncation()
                if offset < old_start:
                    # The checkpoint still has `old_start`. At the next start, it would hide the records before it.
                    await self.logs.checkpoint_log_starts()
        except ResourcesExhausted as error:
            if log.failed:
                partition.take_offline(error)
                return Event.DISK_FAILED
            return Event.RETRIABLE_ERROR
        except OSError as error:
            partition.take_offline(error)
            return Event.DISK_FAILED
        return Event.TRUNCATED

    async def locate(self, followed: Followed, is_current: IsCurrent) -> Event:
        """Request the leader's log start and log end after OFFSET_OUT_OF_RANGE, and truncate or restart the log."""
        try:
            end = await self._list_offset(followed, LATEST)
            start = 0 if end is None else await self._list_offset(followed, EARLIEST_LOCAL)
        except OSError:
            return Event.RETRIABLE_ERROR
        if end is None or start is None or not is_current(followed):
            return Event.RETRIABLE_ERROR
        log = followed.partition.log
        remedy, offset = remedy_for(log.log_end_offset, start, end)
        followed.fetch_state.step(Event.LOCATED)
        if self.log_start_checks.needs(log.topic, log.partition) and start < log.log_start_offset:
            remedy, offset = Remedy.START_AT, start
        event = await (
            self.start_at(followed, offset, is_current)
            if remedy is Remedy.START_AT
            else self._truncate(followed, Truncation(offset), is_current)
        )
        if is_current(followed) and event is not Event.RETRIABLE_ERROR:
            self.log_start_checks.complete(log.topic, log.partition)
        return event

    async def _truncate(self, followed: Followed, truncation: Truncation, is_current: IsCurrent) -> Event:
        partition = followed.partition
        log = partition.log
        try:
            self.logs.disk.check_resources()
            await self.logs.lower_recovery_point(partition.topic, partition.index, truncation.offset)
            if is_current(followed):
                if truncation.offset < log.log_end_offset:
                    _log_truncation("replica truncated", followed, truncation.offset)
                log.truncate_to(truncation.offset, now_ms=self.clock.wall_ms(), monotonic_ms=self.clock.monotonic_ms())
                partition.truncated()
                await log.sync_truncation()
        except ResourcesExhausted as error:
            if log.failed:
                partition.take_offline(error)
                return Event.DISK_FAILED
            return Event.RETRIABLE_ERROR
        except OSError as error:
            partition.take_offline(error)
            return Event.DISK_FAILED
        return Event.TRUNCATED

    async def _list_offset(self, followed: Followed, timestamp: int) -> int | None:
        """Return the offset of `timestamp` in the leader's log; None if the leader refuses.

        Raise OSError if it cannot be reached.
        """
        partition, fetch_state = followed.partition, followed.fetch_state
        request = ListOffsetsRequest(
            self.node_id,
            0,
            [
                ListOffsetsTopic(
                    partition.topic, [ListOffsetsPartition(partition.index, fetch_state.leader_epoch, timestamp)]
                )
            ],
        )
        response: ListOffsetsResponse = await self.peers.request(
            fetch_state.leader, Channel.REPLICA_FETCH, request, LIST_OFFSETS_VERSION, timeout_ms=self.request_timeout_ms
        )
        result: Any = response.topics[0].partitions[0]
        return None if result.error_code else int(result.offset)


def _log_truncation(event: str, followed: Followed, offset: int) -> None:
    log = followed.partition.log
    _logger.info(
        event,
        topic=log.topic,
        partition=log.partition,
        leader=followed.fetch_state.leader,
        leader_epoch=followed.fetch_state.leader_epoch,
        log_end=log.log_end_offset,
        high_watermark=log.high_watermark,
        offset=offset,
    )
