"""The follower's half of replication: one task for each leader, which fetches all partitions that follow it in one session.

A fetch names what has changed since the last one: partitions whose log has grown (which acknowledges to the leader), new ones, and
those that are not fetched any more. The next one leaves as soon as the answer is in the logs. While one is parked at the leader
and there is something new to say, a request of no consequence behind it makes the leader answer at once (`_nudge`).

What is decided about a partition is in `odradek.cluster.replication.follower`.
"""

import asyncio
from asyncio import Future, get_running_loop
from collections.abc import Coroutine
from typing import Any, Final
from uuid import UUID

import structlog

from odradek.broker.partition.partition import NO_EPOCH, Partition
from odradek.broker.quorum.peers import Channel, Peers
from odradek.broker.replication.follower_session import BrokerIdentity, FetchSettings, Followed, FollowerSession
from odradek.broker.replication.follower_truncation import FollowerTruncation
from odradek.broker.replication.throttle import ReplicaThrottles
from odradek.cluster.replication.follower import Event, PartitionFetchState, State, event_of, pause_ms
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.fetch import FetchResponse, PartitionData
from odradek.protocol.schema import Buffer
from odradek.runtime.clock import Clock
from odradek.runtime.tasks import Spawn
from odradek.storage.log.empty_markers import TransactionCompactedAway

FETCH_VERSION: Final = 17
SLICE_BYTES: Final = 1024 * 1024
"""Appended before the loop has its turn: about 1 ms."""
SLICE_PARTITIONS: Final = 64
PAUSE_FIRST_MS: Final = 20
"""Doubled with each failure in a row, up to replica.fetch.backoff.ms."""
ANSWER_GRACE_MS: Final = 30_000
"""How much later than it may a leader answers before its connection is given up (replica.socket.timeout.ms in Kafka)."""
LOG: Final = structlog.get_logger(__name__)

Key = tuple[UUID, int]


class ReplicaFetcher:
    """Follows one leader. `run` until `close`."""

    def __init__(
        self,
        leader: int,
        identity: BrokerIdentity,
        peers: Peers,
        truncation: FollowerTruncation,
        clock: Clock,
        spawn: Spawn,
        settings: FetchSettings,
        throttles: ReplicaThrottles,
    ) -> None:
        self.leader = leader
        self._identity = identity
        self._peers = peers
        self._truncation = truncation
        self._clock = clock
        self._spawn = spawn
        self._settings = settings
        self._throttles = throttles
        self._session = FollowerSession()
        self._asked = False
        self._nudged = False
        self._failures = 0
        self._idle: Future[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._session.followed)

    # ---- what is followed -------------------------------------------------------------------------------------------

    def add(self, partition: Partition, leader_epoch: int) -> None:
        """Fetch it from now on, in that epoch; what was known of it in another epoch is forgotten."""
        known = self._session.followed.get((partition.topic_id.int, partition.index))
        if known is not None:
            if known.fetch_state.leader_epoch == leader_epoch:
                return
            self.remove(partition)
        followed = Followed(partition, PartitionFetchState(self.leader, leader_epoch))
        self._session.add(followed)
        self._begin(followed)

    def remove(self, partition: Partition) -> None:
        """Nothing that comes for it counts any more."""
        followed = self._session.followed.pop((partition.topic_id.int, partition.index), None)
        if followed is not None:
            self._leave_out(followed)

    def holds(self, followed: Followed) -> bool:
        """Is that still what this broker has to do about the partition?"""
        return self._session.followed.get(followed.key) is followed and followed.partition.follows

    def close(self) -> None:
        self._closed = True
        for followed in list(self._session.followed.values()):
            self.remove(followed.partition)
        self.kick()

    def kick(self) -> None:
        """Whatever is waited for, look again: the leader may be back, or there is something to fetch."""
        self._failures = 0
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _begin(self, followed: Followed) -> None:
        """Fetch, unless the leader has to be asked first where its log begins."""
        if self._truncation.log_start_checks.needs(followed.partition.topic, followed.partition.index):
            self._stop_for(followed, Event.OUT_OF_RANGE)
            self._truncate(followed, self._truncation.locate(followed, self.holds))
        else:
            self._ask_for(followed)

    def _ask_for(self, followed: Followed) -> None:
        self._session.due[followed] = None
        if self._asked:
            self._nudge()
        elif self._idle is not None and not self._failures:
            self.kick()

    def _leave_out(self, followed: Followed) -> None:
        """Not to be fetched, for now or for good."""
        self._session.leave_out(followed)
        if followed.timer is not None:
            followed.timer.cancel()
            followed.timer = None

    def _nudge(self) -> None:
        if not self._nudged:
            self._nudged = True
            answer = self._peers.request(
                self.leader, Channel.REPLICA_FETCH, ApiVersionsRequest(), 0, timeout_ms=self._timeout_ms
            )
            answer.add_done_callback(_forget)

    # ---- the loop ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        while not self._closed:
            await self._secure()
            self._hold_back_throttled()
            if self._session.idle:
                self._session.begin_anew()
                self._failures = 0  # who is added next is not kept waiting for a pause that nobody takes
                await self._rest(None)
                continue
            self._asked = True
            question = self._session.question(self._identity, self._settings)
            try:
                response = await self._peers.request(
                    self.leader, Channel.REPLICA_FETCH, question, FETCH_VERSION, timeout_ms=self._timeout_ms
                )
            except OSError as error:
                self._asked = self._nudged = False
                self._lost(str(error))
                await self._pause()
                continue
            self._asked = self._nudged = False
            if response.error_code:
                self._lost(ErrorCode(response.error_code).name)
                await self._pause()
            else:
                self._failures = 0
                await self._take_all(response)
                self._session.answered(response.session_id)

    @property
    def _timeout_ms(self) -> int:
        return self._settings.wait_max_ms + ANSWER_GRACE_MS

    async def _rest(self, pause: int | None) -> None:
        """Until somebody kicks, or for `pause` ms."""
        loop = get_running_loop()
        self._idle = idle = loop.create_future()
        timer = None if pause is None else loop.call_later(pause / 1_000, _finish, idle)
        try:
            await idle
        finally:
            self._idle = None
            if timer is not None:
                timer.cancel()

    async def _pause(self) -> None:
        await self._rest(pause_ms(self._failures, PAUSE_FIRST_MS, self._settings.backoff_ms))

    def _lost(self, reason: str) -> None:
        """Nothing is known of what the leader has heard: begin a new session, with everything in it."""
        self._failures += 1
        if self._failures == 1 and not self._closed:
            LOG.info("a leader cannot be fetched from", leader=self.leader, reason=reason)
        self._session.lost()

    # ---- taking -----------------------------------------------------------------------------------------------------

    async def _take_all(self, response: FetchResponse) -> None:
        size = count = 0
        for topic in response.responses:
            topic_id = topic.topic_id.int
            for answer in topic.partitions:
                followed = self._session.followed.get((topic_id, answer.partition_index))
                if followed is None:
                    continue
                size += self._take(followed, answer)
                count += 1
                if size >= SLICE_BYTES or count >= SLICE_PARTITIONS:
                    size = count = 0
                    await asyncio.sleep(0)

    def _take(self, followed: Followed, answer: PartitionData) -> int:
        """Do what the answer says; how many bytes were appended."""
        fetch_state, partition = followed.fetch_state, followed.partition
        if fetch_state.state is not State.FETCHING:
            return 0
        if not partition.online:
            self._give_up(followed)
            return 0
        if fetch_state.fetch_offset != partition.log.log_end_offset:
            self._session.due[followed] = None  # an answer to an older question, maybe of an older epoch
            return 0
        if answer.error_code:
            self._refused(followed, ErrorCode(answer.error_code))
            return 0
        if answer.diverging_epoch.epoch != NO_EPOCH:
            self._stop_for(followed, Event.DIVERGED)
            diverging = answer.diverging_epoch
            self._truncate(
                followed,
                self._truncation.truncate_to_epoch(followed, diverging.epoch, diverging.end_offset, self.holds),
            )
            return 0
        records = answer.records or b""
        if not self._append(followed, answer, records):
            return 0
        partition.follow_watermarks(answer.high_watermark, answer.log_start_offset)
        if partition.log.log_start_offset != followed.told_start:
            # Followed just now, or moved by retention here before: the leader waits to hear it (DeleteRecords).
            self._session.due[followed] = None
        fetch_state.step(Event.DATA)
        if records:
            self._throttles.follower_took(partition, len(records))
        return len(records)

    def _append(self, followed: Followed, answer: PartitionData, records: Buffer) -> bool:
        """False where the partition is not to be asked for right now."""
        if not records:
            return True
        partition = followed.partition
        try:
            grown = partition.replicate(
                records, leader_epoch=followed.fetch_state.leader_epoch, now_ms=self._clock.wall_ms()
            )
        except TransactionCompactedAway as forgot:
            self._stop_for(followed, Event.DIVERGED)
            epoch = partition.log.epochs.latest
            self._truncate(followed, self._truncation.truncate_to_epoch(followed, epoch, forgot.offset, self.holds))
            return False
        except Refusal as refusal:
            if refusal.error is ErrorCode.KAFKA_STORAGE_ERROR:
                self._give_up(followed)
            elif refusal.error is ErrorCode.OFFSET_OUT_OF_RANGE and partition.log.is_empty:
                # DeleteRecords has moved the leader's log start into a batch, which comes whole.
                self._stop_for(followed, Event.OUT_OF_RANGE)
                followed.fetch_state.step(Event.LOCATED)
                self._truncate(followed, self._truncation.start_at(followed, base_offset(records), self.holds))
            else:
                self._damaged(followed, refusal)
            return False
        if not grown:
            # Nothing but batches of a later leader epoch: the metadata that tells of it is on its way here.
            self._wait_for(followed)
            return False
        self._session.due[followed] = None
        return True

    def _damaged(self, followed: Followed, refusal: Refusal) -> None:
        partition = followed.partition
        LOG.error(
            "the leader sends a damaged batch, which is not replicated: check the disk of the leader; if its log is damaged, "
            "let another replica lead the partition",
            topic=partition.topic,
            partition=partition.index,
            leader=self.leader,
            offset=partition.log.log_end_offset,
            reason=str(refusal),
        )
        self._wait_for(followed)

    def _refused(self, followed: Followed, error: ErrorCode) -> None:
        event = event_of(error)
        if event is Event.RETRIABLE_ERROR:
            self._wait_for(followed)
            return
        self._stop_for(followed, event)
        if event is Event.OUT_OF_RANGE:
            self._truncate(followed, self._truncation.locate(followed, self.holds))

    # ---- stops and goes ---------------------------------------------------------------------------------------------

    def _stop_for(self, followed: Followed, event: Event) -> None:
        followed.fetch_state.step(event)
        self._leave_out(followed)

    def _give_up(self, followed: Followed) -> None:
        """The disk has refused: the partition is offline here, and its leader will take this replica out of the ISR."""
        self._stop_for(followed, Event.DISK_FAILED)

    def _wait_for(self, followed: Followed) -> None:
        """Ask again after a while."""
        self._stop_for(followed, Event.RETRIABLE_ERROR)
        delay_ms = pause_ms(followed.fetch_state.failures, PAUSE_FIRST_MS, self._settings.backoff_ms)
        followed.timer = get_running_loop().call_later(delay_ms / 1_000, self._resume, followed)

    def _resume(self, followed: Followed) -> None:
        followed.timer = None
        followed.fetch_state.step(Event.PAUSE_ENDED)
        self._begin(followed)

    def _truncate(self, followed: Followed, work: Coroutine[Any, Any, Event]) -> None:
        partition = followed.partition
        self._spawn(self._truncated(followed, work), f"truncate {partition.topic}-{partition.index}")

    async def _truncated(self, followed: Followed, work: Coroutine[Any, Any, Event]) -> None:
        """The log has been made to agree with the leader's, or something has come in between."""
        event = await work
        if not self.holds(followed):
            return
        if event is Event.RETRIABLE_ERROR:
            self._wait_for(followed)
            return
        followed.fetch_state.step(event)
        if followed.fetch_state.state is State.FETCHING:
            self._ask_for(followed)

    def _hold_back_throttled(self) -> None:
        """Throttled replicas that have taken more than they may are not asked for just now."""
        due = self._session.due
        named = [each for each in due if each.partition.log.config.follower_replication_throttled_replicas]
        for followed in named:
            delay_ms = self._throttles.follower_wait_ms(followed.partition)
            if delay_ms:
                self._stop_for(followed, Event.RETRIABLE_ERROR)
                followed.timer = get_running_loop().call_later(delay_ms / 1_000, self._resume, followed)

    async def _secure(self) -> None:
        """What the next fetch will acknowledge has to be as safe here as flush.messages asks."""
        while True:
            flushes = [
                self._spawn(each.partition.flush(), f"flush {each.partition.topic}-{each.partition.index}")
                for each in self._session.due
                if each.partition.unflushed >= each.partition.log.config.flush_messages
            ]
            if not flushes:
                return
            for flush in flushes:
                await flush
            for followed in [each for each in self._session.due if not each.partition.online]:
                self._give_up(followed)


def base_offset(records: Buffer) -> int:
    return int.from_bytes(records[:8], "big")


def _finish(idle: "Future[None]") -> None:
    if not idle.done():
        idle.set_result(None)


def _forget(answer: "Future[Any]") -> None:
    """Nobody waits for the answer to a nudge, nor for its failure, which the fetch before it shares."""
    if not answer.cancelled():
        answer.exception()
