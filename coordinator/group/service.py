"""The group coordinator of a broker: a shard for each led partition of `__consumer_offsets`, and waiting requests.

This driver checks what needs no state, finds the shard of a group, and completes waiting requests. All decisions about
groups and offsets are made in the core.
"""

from asyncio import Future, get_running_loop
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.core import GroupShard
from odradek.coordinator.group.offsets.fetch import fetched_bytes_max
from odradek.coordinator.group.offsets.listing import listed_bytes_max
from odradek.coordinator.group.ports import FeatureLevels, GroupConfigs, Topics
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.hashing import partition_for
from odradek.protocol.internal_topics import CONSUMER_OFFSETS
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek.protocol.messages.list_groups import ListedGroup
from odradek.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from odradek.runtime.clock import Clock
from odradek.runtime.engine import Engine
from odradek.runtime.log_port import ShardLog
from odradek.runtime.shard import Effect, FailureHandler, Marker
from odradek.runtime.shards import LedShard, LedShards
from odradek.runtime.tasks import Spawn

if TYPE_CHECKING:
    from odradek.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
    from odradek.protocol.messages.describe_groups import DescribedGroup

_logger = structlog.get_logger(__name__)

WAITERS_MAX: Final = 100_000
"""Maximum JoinGroup and SyncGroup requests that wait for other members, per broker. Kafka has no limit."""


class GroupCoordinator:
    """Group coordinator of one broker.

    Methods return a Future, which is done already if the response needs no wait. The method or its future raises
    Refusal.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        configs: GroupConfigs,
        topics: Topics,
        features: FeatureLevels,
        new_id: Callable[[], str],
        shard_count: Callable[[], int],
        is_assigned: Callable[[int], bool],
        spawn: Spawn,
        on_failure: FailureHandler,
        waiters_max: int = WAITERS_MAX,
    ) -> None:
        """`new_id` generates member ids. `shard_count` returns the number of partitions of `__consumer_offsets`.

        That number never changes while the topic exists. See `odradek.runtime.shards.LedShards` for the other
        arguments.
        """
        self._configs = configs
        self._shard_count = shard_count
        self._waiters_max = waiters_max
        self._waiters: dict[int, dict[int, Future[Any]]] = {}
        """Shard -> waiter number -> future of the response."""
        self._waiting = 0
        self._last_waiter = 0
        self._shards = LedShards(
            CONSUMER_OFFSETS,
            lambda: GroupShard(configs, topics, features, new_id),
            clock=clock,
            spawn=spawn,
            is_assigned=is_assigned,
            on_effect=self._on_effect,
            on_lost=self._on_lost,
            on_failure=on_failure,
            take_reports=lambda core: core.unreadable.take_reports(),
        )

    # ---- leadership -------------------------------------------------------------------------------------------------

    def on_leadership(self, shard: int, leader_epoch: int, log: ShardLog) -> Coroutine[Any, Any, None]:
        """Load a shard that this broker leads now. See `odradek.runtime.shards.LedShards.on_leadership`."""
        return self._shards.on_leadership(shard, leader_epoch, log)

    def on_resignation(self, shard: int, leader_epoch: int | None = None) -> None:
        """Give up a shard. See `odradek.runtime.shards.LedShards.on_resignation`."""
        self._shards.on_resignation(shard, leader_epoch)

    def stop(self) -> None:
        """Give up all shards. All requests, including waiting ones, receive NOT_COORDINATOR."""
        self._shards.stop()

    @property
    def shards(self) -> dict[int, Engine[c.Command, Any]]:
        """The engines of this broker by partition, for metrics, diagnosis and tests."""
        return {led.shard: led.engine for led in self._shards}

    @property
    def waiting(self) -> int:
        """Number of requests that wait for other members."""
        return self._waiting

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` whose leader coordinates the group."""
        return partition_for(group_id, self._shard_count())

    # ---- members ----------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, caller: c.Caller) -> "Future[JoinGroupResponse]":
        """Add a member to a group, or let it rejoin. The response waits for the end of the join phase."""
        _check_group(request.group_id)
        return self._wait(request.group_id, lambda waiter: c.JoinGroup(request, caller, waiter))

    def sync(self, request: SyncGroupRequest, caller: c.Caller) -> "Future[SyncGroupResponse]":
        """Exchange the assignment. The response waits until the leader of the group has sent it."""
        _check_group(request.group_id)
        return self._wait(request.group_id, lambda waiter: c.SyncGroup(request, caller, waiter))

    async def heartbeat(self, request: HeartbeatRequest, caller: c.Caller) -> HeartbeatResponse:
        """Extend the session of a member. While the group's shard is loading, the response is NONE, as in Kafka."""
        _check_group(request.group_id)
        try:
            response: HeartbeatResponse = await self._submit(request.group_id, c.Heartbeat(request, caller))
        except Refusal as refusal:
            if refusal.error is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return HeartbeatResponse()
        return response

    def leave(self, request: LeaveGroupRequest, caller: c.Caller) -> "Future[LeaveGroupResponse]":
        """Remove members from a group."""
        _check_group(request.group_id)
        return self._submit(request.group_id, c.LeaveGroup(request, caller))

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: c.Caller
    ) -> "Future[ConsumerGroupHeartbeatResponse]":
        """Process a heartbeat of the consumer protocol (KIP-848): join, reconcile or leave."""
        return self._submit(request.group_id, c.ConsumerGroupHeartbeat(request, caller))

    # ---- offsets ----------------------------------------------------------------------------------------------------
    # The empty group id cannot have members, but it can have offsets, for compatibility with old clients.

    def commit_offsets(self, request: OffsetCommitRequest, caller: c.Caller) -> "Future[OffsetCommitResponse]":
        """Commit offsets of partitions that exist."""
        return self._submit(request.group_id, c.CommitOffsets(request, caller))

    def commit_offsets_in_transaction(
        self, request: TxnOffsetCommitRequest, caller: c.Caller, guard: int
    ) -> "Future[TxnOffsetCommitResponse]":
        """Add offsets to a transaction. They become committed offsets when the transaction commits.

        `guard` is the verification guard from before the verification, or before AddPartitionsToTxn. If the
        transaction has ended since then, the log refuses the append with INVALID_TXN_STATE (KIP-890).
        """
        _check_group(request.group_id)
        return self._submit(request.group_id, c.CommitOffsetsInTransaction(request, caller), guard=guard)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, caller: c.Caller, *, require_stable: bool
    ) -> "Future[OffsetFetchResponseGroup]":
        """Return offsets of one group."""
        return self._submit(request.group_id, c.FetchOffsets(request, require_stable, caller))

    def fetched_bytes_max(self, group_id: str) -> int:
        """Return the maximum memory that all offsets of a group take in an OffsetFetch response, in bytes."""
        led = self._shards.get(self.partition_of(group_id))
        return 0 if led is None else fetched_bytes_max(led.core.state, group_id)

    def delete_offsets(self, request: OffsetDeleteRequest) -> "Future[OffsetDeleteResponse]":
        """Delete offsets of a group."""
        _check_group(request.group_id)
        return self._submit(request.group_id, c.DeleteOffsets(request))

    def topics_deleted(self, topics: tuple[c.DeletedTopic, ...]) -> None:
        """Delete the offsets of deleted topics in all shards.

        If an append fails, the offsets stay until they expire.
        """
        for led in self._shards:
            submitted = led.engine.submit(c.TopicsDeleted(topics), timeout_ms=self._timeout_ms)
            submitted.add_done_callback(_ignore_error)

    # ---- administration ---------------------------------------------------------------------------------------------

    def describe(self, group_id: str, api_version: int) -> "Future[DescribedGroup]":
        """Describe one group of the classic protocol."""
        return self._submit(group_id, c.DescribeClassic(group_id, api_version))

    def describe_consumer(self, group_id: str) -> "Future[DescribedConsumerGroup]":
        """Describe one group of the consumer protocol."""
        _check_group(group_id)
        return self._submit(group_id, c.DescribeConsumer(group_id))

    def described_bytes_max(self, group_id: str) -> int:
        """Return the maximum memory that the description of a group takes in a response, in bytes."""
        led = self._shards.get(self.partition_of(group_id))
        group = None if led is None else led.core.state.groups.get(group_id)
        return 0 if group is None else group.described_bytes_max

    def delete(self, group_id: str) -> "Future[None]":
        """Delete a group without members, and its offsets."""
        return self._submit(group_id, c.DeleteGroup(group_id))

    def all_shards(self) -> list[LedShard[GroupShard]]:
        """Return the shards with all groups that this broker coordinates.

        Raise Refusal(COORDINATOR_LOAD_IN_PROGRESS) while a shard loads.
        """
        return self._shards.all_active()

    def listed_bytes_max(self, shard: LedShard[GroupShard]) -> int:
        """Return the maximum memory that `list_groups` takes for this shard, with the encoded groups, in bytes."""
        return listed_bytes_max(shard.core.state)

    async def list_groups(
        self, states: frozenset[str], types: frozenset[str], shards: Sequence[LedShard[GroupShard]]
    ) -> list[ListedGroup]:
        """List the groups of `shards`, which `all_shards` has returned. The filters are in lower case."""
        listed = await self._shards.submit_to_all(c.ListGroups(states, types), shards, timeout_ms=self._timeout_ms)
        return [group for _, groups in listed for group in groups]

    # ---- transactions -----------------------------------------------------------------------------------------------

    def mark(self, partition: int, marker: Marker, write: Callable[[], int]) -> None:
        """Append a marker by `write`. See `odradek.broker.coordinators.marker_writer.MarkerListener`."""
        self._shards.find(partition).engine.mark(marker, write)

    # ---- shards and waiters -----------------------------------------------------------------------------------------

    @property
    def _timeout_ms(self) -> int:
        return self._configs.broker().offset_commit_timeout_ms

    def _submit(self, group_id: str, command: c.Command, *, guard: int = 0) -> "Future[Any]":
        engine = self._shards.find(self.partition_of(group_id)).engine
        return engine.submit(command, timeout_ms=self._timeout_ms, guard=guard)

    def _wait(self, group_id: str, command: Callable[[int], c.Command]) -> "Future[Any]":
        """Submit a command with a new waiter. Return the future of its response, which a later decision may produce."""
        shard = self.partition_of(group_id)
        engine = self._shards.find(shard).engine
        if self._waiting >= self._waiters_max:
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # clients retry it at the same broker, with a backoff
        response: Future[Any] = get_running_loop().create_future()
        self._last_waiter = waiter = self._last_waiter + 1
        self._waiters.setdefault(shard, {})[waiter] = response
        self._waiting += 1
        # The connection cancels the future when the client disconnects.
        response.add_done_callback(lambda _: self._forget(shard, waiter))
        decision = engine.submit(command(waiter), timeout_ms=self._timeout_ms)
        if decision.done():
            self._on_decided(response, decision)
        else:
            decision.add_done_callback(partial(self._on_decided, response))
        return response

    @staticmethod
    def _on_decided(response: "Future[Any]", decision: "Future[Any]") -> None:
        if decision.cancelled():
            return
        refusal = decision.exception()
        if response.done():
            return
        if refusal is not None:
            response.set_exception(refusal)
        elif decision.result() is not c.WAITING:
            response.set_result(decision.result())

    def _forget(self, shard: int, waiter: int) -> None:
        waiters = self._waiters.get(shard)
        if waiters is not None and waiters.pop(waiter, None) is not None:
            self._waiting -= 1
            if not waiters:
                del self._waiters[shard]

    def _on_effect(self, led: LedShard[GroupShard], effect: Effect) -> None:
        if isinstance(effect, c.Notice):
            _logger.warning(effect.event, shard=led.engine.name, **dict(effect.fields))
            return
        assert isinstance(effect, c.Respond), effect
        response = self._waiters.get(led.shard, {}).get(effect.waiter)
        if response is None or response.done():
            return
        if isinstance(effect.response, Refusal):
            response.set_exception(effect.response)
        else:
            response.set_result(effect.response)

    def _on_lost(self, shard: int) -> None:
        waiters = self._waiters.pop(shard, {})
        self._waiting -= len(waiters)
        for response in waiters.values():
            if not response.done():
                response.set_exception(Refusal(ErrorCode.NOT_COORDINATOR))


def _check_group(group_id: str) -> None:
    if not group_id:
        raise Refusal(ErrorCode.INVALID_GROUP_ID)


def _ignore_error(submitted: "Future[Any]") -> None:
    if not submitted.cancelled():
        submitted.exception()
