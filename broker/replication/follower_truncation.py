"""Making a follower's log agree with its leader's: cutting it where the two part, or beginning anew where the leader begins.

Rare work that waits: for the disk (recovery points are lowered there before a log is cut, and the cut is there before anything is
fetched again) or for the leader's word. Whatever is waited for, the partition may have got another leader, or leads itself, by then:
`holds` says whether it is still wanted.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from odradek.broker.quorum.peers import Channel, Peers
from odradek.broker.replication.follower_session import Followed
from odradek.broker.replication.log_start_check import LogStartChecks
from odradek.cluster.replication.follower import Event, Remedy, Truncation, remedy_for, truncation_for
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.special_values import EARLIEST_LOCAL, LATEST
from odradek.runtime.clock import Clock
from odradek.storage.data_directory.log_manager import LogManager

LIST_OFFSETS_VERSION: Final = 8
LOG: Final = structlog.get_logger(__name__)

Holds = Callable[[Followed], bool]


@dataclass(frozen=True, slots=True)
class FollowerTruncation:
    """Truncate the logs of followers. Each coroutine returns the event that its outcome is for the fetch state."""

    node_id: int
    logs: LogManager
    peers: Peers
    clock: Clock
    request_timeout_ms: int
    log_start_checks: LogStartChecks

    async def truncate_to_epoch(self, followed: Followed, epoch: int, end_offset: int, holds: Holds) -> Event:
        """The leader's log has `epoch` up to `end_offset`, and nothing of what this one has behind that."""
        log = followed.partition.log
        cut = truncation_for(epoch, end_offset, log.end_offset_for_epoch, log.log_end_offset)
        return await self._truncate(followed, cut, holds)

    async def start_at(self, followed: Followed, offset: int, holds: Holds) -> Event:
        """Drop everything and begin at `offset`."""
        partition = followed.partition
        try:
            await self.logs.lower_recovery_point(partition.topic, partition.index, 0)
            if holds(followed):
                started = partition.log.log_start_offset
                _say("a replica begins anew where its leader begins", followed, offset)
                partition.log.truncate_fully_and_start_at(offset, now_ms=self.clock.wall_ms())
                partition.truncated()
                await partition.log.sync_truncation()
                if offset < started:  # a later start, written down, would hide from the next life what comes now
                    await self.logs.checkpoint_log_starts()
        except OSError as error:
            partition.take_offline(error)
            return Event.DISK_FAILED
        return Event.TRUNCATED

    async def locate(self, followed: Followed, holds: Holds) -> Event:
        """The leader does not have the offset: ask where its log begins and ends, and act on it."""
        try:
            end = await self._ask(followed, LATEST)
            start = 0 if end is None else await self._ask(followed, EARLIEST_LOCAL)
        except OSError:
            return Event.RETRIABLE_ERROR
        if end is None or start is None or not holds(followed):
            return Event.RETRIABLE_ERROR
        log = followed.partition.log
        remedy, offset = remedy_for(log.log_end_offset, start, end)
        followed.fetch_state.step(Event.LOCATED)
        if self.log_start_checks.needs(log.topic, log.partition) and start < log.log_start_offset:
            remedy, offset = Remedy.START_AT, start
        event = await (
            self.start_at(followed, offset, holds)
            if remedy is Remedy.START_AT
            else self._truncate(followed, Truncation(offset), holds)
        )
        if holds(followed):
            self.log_start_checks.complete(log.topic, log.partition)
        return event

    async def _truncate(self, followed: Followed, cut: Truncation, holds: Holds) -> Event:
        partition = followed.partition
        log = partition.log
        try:
            if cut.offset < log.recovery_point:
                await self.logs.lower_recovery_point(partition.topic, partition.index, cut.offset)
            if holds(followed):
                if cut.offset < log.log_end_offset:
                    _say("a replica is cut to agree with its leader", followed, cut.offset)
                log.truncate_to(cut.offset, now_ms=self.clock.wall_ms())
                partition.truncated()
                await log.sync_truncation()
        except OSError as error:
            partition.take_offline(error)
            return Event.DISK_FAILED
        return Event.TRUNCATED

    async def _ask(self, followed: Followed, timestamp: int) -> int | None:
        """An end of the leader's log; None when it does not say. Raises OSError."""
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
        answer: Any = response.topics[0].partitions[0]
        return None if answer.error_code else int(answer.offset)


def _say(what: str, followed: Followed, offset: int) -> None:
    log = followed.partition.log
    LOG.info(
        what,
        topic=log.topic,
        partition=log.partition,
        leader=followed.fetch_state.leader,
        leader_epoch=followed.fetch_state.leader_epoch,
        log_end=log.log_end_offset,
        high_watermark=log.high_watermark,
        cut_at=offset,
    )
