"""Advance the watermarks of one partition replica, and wake the requests and followers that wait for them."""

from collections.abc import Callable
from typing import Protocol

from odradek.broker.partition.waiters import FetchWatchers, OffsetWaiters
from odradek.invariants.partition import ACKNOWLEDGED_OFFSET
from odradek.protocol.errors import ErrorCode
from odradek.storage.log.log import PartitionLog


class FollowerWatch(Protocol):
    """Receive the events of one partition for the fetch session of one follower.

    `odradek.broker.replication.leader_sessions.ReplicaSlot` implements it.
    """

    def appended(self, *, deferred: bool) -> None:
        """Note that the log end advanced. A `deferred` append may wait for the next response of the session."""

    def watermark_advanced(self) -> None:
        """Note that the high watermark or the log start offset advanced: the next response contains it."""

    def left_isr(self) -> None:
        """Note that the follower left the ISR."""

    def ended(self) -> None:
        """Note that this broker no longer leads the partition in the epoch that the session knows."""

    def replaced(self) -> None:
        """Note that a newer session of the same follower receives the events from now on."""


class Watermarks:
    """Watermarks of one partition replica, with the requests that wait for them.

    They outlive changes of the replica's role.
    """

    __slots__ = (
        "_closed",
        "_subscribers",
        "acknowledged",
        "acknowledged_offset",
        "committed",
        "fetch_watchers",
        "followers",
        "log",
    )

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.followers: dict[int, FollowerWatch] = {}
        """Fetch sessions of followers, by broker id."""
        self.acknowledged_offset = 0
        """All offsets below it are flushed on this broker as flush.messages requires."""
        self.committed = OffsetWaiters()
        """Produce requests with acks=all: they wait for the high watermark."""
        self.acknowledged = OffsetWaiters()
        """Produce requests with acks=1: they wait for `acknowledged_offset`, which differs from the log end if
        flush.messages is set."""
        self.fetch_watchers = FetchWatchers()
        self._subscribers: dict[Callable[[int], None], None] = {}
        self._closed = False

    def subscribe(self, callback: Callable[[int], None]) -> None:
        """Call `callback(high watermark)` after each advance of the high watermark."""
        self._subscribers[callback] = None

    def unsubscribe(self, callback: Callable[[int], None]) -> None:
        """Stop calling `callback`. An unknown callback is ignored."""
        self._subscribers.pop(callback, None)

    def advance_high_watermark(self, offset: int) -> None:
        """Commit all offsets below `offset`. An offset below the high watermark is ignored."""
        log = self.log
        if offset <= log.high_watermark or self._closed:
            return
        stable = log.last_stable_offset
        log.update_high_watermark(offset)
        high_watermark = log.high_watermark
        for follower in self.followers.values():
            follower.watermark_advanced()
        self.fetch_watchers.advanced(
            high_watermark, log.last_stable_offset if log.last_stable_offset > stable else None
        )
        if high_watermark >= self.committed.next_offset:
            self.committed.advance(high_watermark)
        if self._subscribers:
            for callback in list(self._subscribers):
                callback(high_watermark)

    def acknowledge(self, offset: int) -> bool:
        """Acknowledge all offsets below `offset` on this broker. Return False if they were acknowledged before."""
        if offset <= self.acknowledged_offset:
            return False
        if offset > self.log.log_end_offset:
            raise ACKNOWLEDGED_OFFSET.violated(
                log=self.log.directory, offset=offset, log_end_offset=self.log.log_end_offset
            )
        self.acknowledged_offset = offset
        if offset >= self.acknowledged.next_offset:
            self.acknowledged.advance(offset)
        return True

    def restart_acknowledgment(self) -> None:
        """Lower `acknowledged_offset` to the high watermark, because a leader term begins.

        1. This broker leads the partition and acknowledges offsets up to 10.
        2. It becomes a follower, and truncates its log to 5.
        3. It leads the partition again, and appends. Without this step, the offsets from 5 to 10 would count as
           flushed.
        """
        self.acknowledged_offset = min(self.acknowledged_offset, self.log.high_watermark)

    def fail_waiters(self, error: ErrorCode) -> None:
        """Fail the waiting produce requests with `error`, and let the parked fetches read again."""
        self.committed.fail(error)
        self.acknowledged.fail(error)
        self.fetch_watchers.wake_all()

    def end_followers(self) -> None:
        """Notify the fetch sessions of all followers that the leader term ended."""
        for follower in list(self.followers.values()):
            follower.ended()

    def close(self) -> None:
        """Freeze the watermarks: the log is deleted, or its disk failed."""
        self._closed = True
