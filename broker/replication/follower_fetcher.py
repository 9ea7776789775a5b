"""Fetch from one leader all partitions that this broker follows there, in one task with one fetch session.

A fetch contains the partitions whose log has grown since the last fetch (this acknowledges the records), new partitions
and removed ones. The next fetch follows as soon as the response is appended. If a fetch is parked at the leader when a
partition becomes due, an ApiVersions request on the same connection makes the leader respond to the fetch immediately
(`_expire_parked_fetch`).

The states of a partition are in `odradek.cluster.replication.follower`.
"""

import asyncio
from asyncio import Future, get_running_loop
from collections.abc import Coroutine
from typing import Any, Final
from uuid import UUID

import structlog

from odradek.broker.partition.partition import Partition
from odradek.broker.quorum.peers import Channel, Peers
from odradek.broker.replication.follower_session import BrokerIdentity, FetchSettings, Followed, FollowerSession
from odradek.broker.replication.follower_truncation import FollowerTruncation
from odradek.broker.replication.throttle import ReplicaThrottles
from odradek.cluster.replication.follower import Event, PartitionFetchState, State, event_of, pause_ms
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.fetch import FetchResponse, PartitionData
from odradek.protocol.schema import Buffer
from odradek.protocol.special_values import NO_LEADER_EPOCH
from odradek.runtime.clock import Clock
from odradek.runtime.repeated_tasks import report
from odradek.runtime.tasks import Spawn
from odradek.storage.log.empty_markers import TransactionCompactedAway

FETCH_VERSION: Final = 17
"""Version of the Fetch requests to a leader. All brokers of a cluster support it."""
SLICE_BYTES: Final = 1024 * 1024
"""Bytes of a response that are appended before the event loop runs other tasks (about 1 ms)."""
SLICE_PARTITIONS: Final = 64
"""Partitions of a response that are applied before the event loop runs other tasks."""
PAUSE_FIRST_MS: Final = 20
"""Pause after the first failure, in milliseconds. Each further failure doubles it, up to replica.fetch.backoff.ms."""
RESPONSE_GRACE_MS: Final = 30_000
"""Milliseconds beyond replica.fetch.wait.max.ms after which a fetch fails and its connection is closed. Kafka's
default of replica.socket.timeout.ms."""
_logger = structlog.get_logger(__name__)

Key = tuple[UUID, int]


class ReplicaFetcher:
    """Fetcher of one leader. `run` ends after `close`."""

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
        self._in_flight = False
        self._expiring = False
        self._failures = 0
        self._waiting: Future[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._session.followed)

    # ---- partitions -------------------------------------------------------------------------------------------------

    def add(self, partition: Partition, leader_epoch: int) -> None:
        """Fetch `partition` in `leader_epoch`. The fetch state of an older epoch is discarded."""
        known = self._session.followed.get((partition.topic_id.int, partition.index))
        if known is not None:
            if known.fetch_state.leader_epoch == leader_epoch:
                return
            self.remove(partition)
        followed = Followed(partition, PartitionFetchState(self.leader, leader_epoch))
        self._session.add(followed)
        self._start(followed)

    def remove(self, partition: Partition) -> None:
        """Stop fetching `partition`. Responses in flight and truncations in progress have no effect on it."""
        followed = self._session.followed.pop((partition.topic_id.int, partition.index), None)
        if followed is not None:
            self._exclude(followed)

    def is_current(self, followed: Followed) -> bool:
        """Return True if this broker still follows the partition in the leader epoch of `followed`."""
        return self._session.followed.get(followed.key) is followed and followed.partition.follows

    def close(self) -> None:
        """Remove all partitions and end `run`."""
        self._closed = True
        for followed in list(self._session.followed.values()):
            self.remove(followed.partition)
        self.wake()

    def wake(self) -> None:
        """End a pause: the leader may be reachable again, or there is a partition to fetch."""
        self._failures = 0
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _start(self, followed: Followed) -> None:
        """Fetch a partition, after the check of its log start if it needs one (`log_start_check`)."""
        if self._truncation.log_start_checks.needs(followed.partition.topic, followed.partition.index):
            self._stop(followed, Event.OUT_OF_RANGE)
            self._truncate(followed, self._truncation.locate(followed, self.is_current))
        else:
            self._fetch(followed)

    def _fetch(self, followed: Followed) -> None:
        self._session.due[followed] = None
        if self._in_flight:
            self._expire_parked_fetch()
        elif self._waiting is not None and not self._failures:
            self.wake()

    def _exclude(self, followed: Followed) -> None:
        """Stop fetching a partition, temporarily or permanently, and cancel its timer."""
        self._session.exclude(followed)
        if followed.timer is not None:
            followed.timer.cancel()
            followed.timer = None

    def _expire_parked_fetch(self) -> None:
        """Make the leader respond to the parked fetch: the next request on a connection expires it."""
        if not self._expiring:
            self._expiring = True
            response = self._peers.request(
                self.leader, Channel.REPLICA_FETCH, ApiVersionsRequest(), 0, timeout_ms=self._timeout_ms
            )
            response.add_done_callback(_ignore_result)

    # ---- fetches ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch until `close`, with a pause after each failure. It can run again after an unexpected exception."""
        self._in_flight = self._expiring = False
        self._session.lost()
        while not self._closed:
            await self._flush_due()
            self._pause_throttled()
            if self._session.idle:
                self._session.restart()
                self._failures = 0  # The next partition that is added is fetched immediately.
                await self._wait(None)
                continue
            self._in_flight = True
            request = self._session.next_request(self._identity, self._settings)
            try:
                response = await self._peers.request(
                    self.leader, Channel.REPLICA_FETCH, request, FETCH_VERSION, timeout_ms=self._timeout_ms
                )
            except OSError as error:
                self._in_flight = self._expiring = False
                self._fetch_failed(str(error))
                await self._pause()
                continue
            self._in_flight = self._expiring = False
            if response.error_code:
                self._fetch_failed(ErrorCode(response.error_code).name)
                await self._pause()
            else:
                self._failures = 0
                await self._apply_response(response)
                self._session.completed(response.session_id)

    @property
    def _timeout_ms(self) -> int:
        return self._settings.wait_max_ms + RESPONSE_GRACE_MS

    async def _wait(self, pause: int | None) -> None:
        """Wait for `wake`, at most `pause` milliseconds if it is not None."""
        loop = get_running_loop()
        self._waiting = waiting = loop.create_future()
        timer = None if pause is None else loop.call_later(pause / 1_000, _finish, waiting)
        try:
            await waiting
        finally:
            self._waiting = None
            if timer is not None:
                timer.cancel()

    async def _pause(self) -> None:
        await self._wait(pause_ms(self._failures, PAUSE_FIRST_MS, self._settings.backoff_ms))

    def _fetch_failed(self, reason: str) -> None:
        """Count a failed fetch. The next one opens a new session: the leader may or may not have received this one."""
        self._failures += 1
        if self._failures == 1 and not self._closed:
            _logger.info("fetch from leader failed", leader=self.leader, reason=reason)
        self._session.lost()

    # ---- responses --------------------------------------------------------------------------------------------------

    async def _apply_response(self, response: FetchResponse) -> None:
        size = count = 0
        for topic in response.responses:
            topic_id = topic.topic_id.int
            for data in topic.partitions:
                followed = self._session.followed.get((topic_id, data.partition_index))
                if followed is None:
                    continue
                try:
                    size += self._apply(followed, data)
                except Exception as error:  # noqa: BLE001  it is reported
                    self._report(followed, error)
                    if followed.fetch_state.state is State.FETCHING:
                        self._retry_later(followed)
                count += 1
                if size >= SLICE_BYTES or count >= SLICE_PARTITIONS:
                    size = count = 0
                    await asyncio.sleep(0)

    def _apply(self, followed: Followed, data: PartitionData) -> int:
        """Apply the response for one partition. Return the number of appended bytes."""
        fetch_state, partition = followed.fetch_state, followed.partition
        if fetch_state.state is not State.FETCHING:
            return 0
        if not partition.online:
            self._disk_failed(followed)
            return 0
        if fetch_state.fetch_offset != partition.log.log_end_offset:
            # 1. A fetch is in flight when the partition gets a new leader epoch of the same leader, and is truncated.
            # 2. The response is for the former fetch offset, so it is discarded.
            self._session.due[followed] = None
            return 0
        if data.error_code:
            self._handle_error(followed, ErrorCode(data.error_code))
            return 0
        if data.diverging_epoch.epoch != NO_LEADER_EPOCH:
            self._stop(followed, Event.DIVERGED)
            diverging = data.diverging_epoch
            self._truncate(
                followed,
                self._truncation.truncate_to_epoch(followed, diverging.epoch, diverging.end_offset, self.is_current),
            )
            return 0
        records = data.records or b""
        if not self._append(followed, data, records):
            return 0
        partition.follow_watermarks(data.high_watermark, data.log_start_offset)
        if partition.log.log_start_offset != followed.sent_log_start:
            # The leader's log start was applied just now, or retention advanced the log start here: DeleteRecords at
            # the leader waits for the new value.
            self._session.due[followed] = None
        fetch_state.step(Event.DATA)
        if records:
            self._throttles.record_follower_bytes(partition, len(records))
        return len(records)

    def _append(self, followed: Followed, data: PartitionData, records: Buffer) -> bool:
        """Append `records`. Return False if the partition is not fetched for now."""
        if not records:
            return True
        partition = followed.partition
        try:
            grown = partition.replicate(
                records, leader_epoch=followed.fetch_state.leader_epoch, now_ms=self._clock.wall_ms()
            )
        except TransactionCompactedAway as error:
            self._stop(followed, Event.DIVERGED)
            epoch = partition.log.epochs.latest
            self._truncate(followed, self._truncation.truncate_to_epoch(followed, epoch, error.offset, self.is_current))
            return False
        except Refusal as refusal:
            if refusal.error is ErrorCode.KAFKA_STORAGE_ERROR:
                self._disk_failed(followed)
            elif refusal.error is ErrorCode.NOT_ENOUGH_REPLICAS:  # no descriptor or memory is left
                self._retry_later(followed)
            elif refusal.error is ErrorCode.OFFSET_OUT_OF_RANGE and partition.log.is_empty:
                # 1. DeleteRecords advances the leader's log start offset into a batch.
                # 2. This replica restarts at that offset, and the leader sends the whole batch, with a lower base
                #    offset.
                # 3. So the empty log restarts at the base offset.
                self._stop(followed, Event.OUT_OF_RANGE)
                followed.fetch_state.step(Event.LOCATED)
                self._truncate(followed, self._truncation.start_at(followed, base_offset(records), self.is_current))
            else:
                self._damaged(followed, refusal)
            return False
        if not grown:
            # All batches have a later leader epoch. The metadata of that election have not arrived here yet.
            self._retry_later(followed)
            return False
        self._session.due[followed] = None
        return True

    def _damaged(self, followed: Followed, refusal: Refusal) -> None:
        partition = followed.partition
        _logger.error(
            "damaged batch received from the leader",
            topic=partition.topic,
            partition=partition.index,
            leader=self.leader,
            offset=partition.log.log_end_offset,
            reason=str(refusal),
            remedy="check the disk of the leader; if its log is damaged, elect another leader",
        )
        self._retry_later(followed)

    def _handle_error(self, followed: Followed, error: ErrorCode) -> None:
        event = event_of(error)
        if event is Event.RETRIABLE_ERROR:
            self._retry_later(followed)
            return
        self._stop(followed, event)
        if event is Event.OUT_OF_RANGE:
            self._truncate(followed, self._truncation.locate(followed, self.is_current))

    # ---- pauses -----------------------------------------------------------------------------------------------------

    def _stop(self, followed: Followed, event: Event) -> None:
        followed.fetch_state.step(event)
        self._exclude(followed)

    def _disk_failed(self, followed: Followed) -> None:
        """Stop fetching an offline partition.

        The leader removes this replica from the ISR after replica.lag.time.max.ms.
        """
        self._stop(followed, Event.DISK_FAILED)

    def _retry_later(self, followed: Followed) -> None:
        """Fetch the partition again after a pause that doubles with each failure."""
        self._stop(followed, Event.RETRIABLE_ERROR)
        delay_ms = pause_ms(followed.fetch_state.failures, PAUSE_FIRST_MS, self._settings.backoff_ms)
        followed.timer = get_running_loop().call_later(delay_ms / 1_000, self._resume, followed)

    def _resume(self, followed: Followed) -> None:
        followed.timer = None
        followed.fetch_state.step(Event.PAUSE_ENDED)
        self._start(followed)

    def _report(self, followed: Followed, error: Exception) -> None:
        partition = followed.partition
        report(error, self._spawn, f"replicate {partition.topic}-{partition.index}")

    def _truncate(self, followed: Followed, work: Coroutine[Any, Any, Event]) -> None:
        partition = followed.partition
        self._spawn(self._truncated(followed, work), f"truncate {partition.topic}-{partition.index}")

    async def _truncated(self, followed: Followed, work: Coroutine[Any, Any, Event]) -> None:
        """Await a truncation, and continue with the fetch state that follows from its event."""
        try:
            event = await work
        except Exception as error:  # noqa: BLE001  it is reported
            self._report(followed, error)
            event = Event.RETRIABLE_ERROR
        if not self.is_current(followed):
            return
        if event is Event.RETRIABLE_ERROR:
            self._retry_later(followed)
            return
        followed.fetch_state.step(event)
        if followed.fetch_state.state is State.FETCHING:
            self._fetch(followed)

    def _pause_throttled(self) -> None:
        """Pause the due partitions that are throttled and have exceeded the rate (KIP-73)."""
        due = self._session.due
        throttled = [
            followed for followed in due if followed.partition.log.config.follower_replication_throttled_replicas
        ]
        for followed in throttled:
            delay_ms = self._throttles.follower_wait_ms(followed.partition)
            if delay_ms:
                self._stop(followed, Event.RETRIABLE_ERROR)
                followed.timer = get_running_loop().call_later(delay_ms / 1_000, self._resume, followed)

    async def _flush_due(self) -> None:
        """Flush the due partitions as flush.messages requires, because the next fetch acknowledges their records."""
        while True:
            flushes = [
                self._spawn(followed.partition.flush(), f"flush {followed.partition.topic}-{followed.partition.index}")
                for followed in self._session.due
                if followed.partition.unflushed >= followed.partition.log.config.flush_messages
            ]
            if not flushes:
                return
            for flush in flushes:
                await flush
            for followed in [followed for followed in self._session.due if not followed.partition.online]:
                self._disk_failed(followed)


def base_offset(records: Buffer) -> int:
    """Return the base offset of the batch at the start of `records`."""
    return int.from_bytes(records[:8], "big")


def _finish(waiting: "Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)


def _ignore_result(response: "Future[Any]") -> None:
    """Retrieve the exception of an ApiVersions request, so that asyncio does not log it."""
    if not response.cancelled():
        response.exception()
