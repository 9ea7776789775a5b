"""The group coordinator: a shard for each led partition of `__consumer_offsets`, and the clients that wait for a response.

A driver: it checks what needs no state, finds the shard, and hands answers out. Every judgement on a group or an offset is
made in the core.
"""

from asyncio import Future, get_running_loop
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.core import GroupShard
from odradek.coordinator.group.ports import FeatureLevels, GroupConfigs, Topics
from odradek.coordinator.hashing import partition_for
from odradek.protocol.errors import ErrorCode, Refusal
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
from odradek.runtime.shards import Led, LedShards
from odradek.runtime.tasks import Spawn

if TYPE_CHECKING:
    from odradek.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
    from odradek.protocol.messages.describe_groups import DescribedGroup

WAITERS_MAX: Final = 100_000
"""JoinGroup and SyncGroup requests that wait for the other members of their groups, of all groups of a broker; who comes on top
of that is told to come again.
"""


class GroupCoordinator:
    """Kafka's group coordinator.

    Calls return a Future, done already where nothing has to be waited for. They raise, or their future raises, Refusal.
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
        is_awaited: Callable[[int], bool],
        spawn: Spawn,
        on_failure: FailureHandler,
        waiters_max: int = WAITERS_MAX,
    ) -> None:
        """`new_id` makes ids of members. `shard_count`: partitions of `__consumer_offsets`, which never change once the topic
        is there. The others are as for `odradek.runtime.shards.LedShards`.
        """
        self._configs = configs
        self._shard_count = shard_count
        self._waiters_max = waiters_max
        self._waiters: dict[int, dict[int, Future[Any]]] = {}
        """By shard and number."""
        self._waiting = 0
        self._last_waiter = 0
        self._shards = LedShards(
            CONSUMER_OFFSETS,
            lambda: GroupShard(configs, topics, features, new_id),
            clock=clock,
            spawn=spawn,
            is_awaited=is_awaited,
            on_effect=self._on_effect,
            on_lost=self._on_lost,
            on_failure=on_failure,
        )

    # ---- leadership -------------------------------------------------------------------------------------------------

    def on_leadership(self, shard: int, leader_epoch: int, log: ShardLog) -> Coroutine[Any, Any, None]:
        """As `odradek.runtime.shards.LedShards.on_leadership`."""
        return self._shards.on_leadership(shard, leader_epoch, log)

    def on_resignation(self, shard: int, leader_epoch: int | None = None) -> None:
        """As `odradek.runtime.shards.LedShards.on_resignation`."""
        self._shards.on_resignation(shard, leader_epoch)

    def stop(self) -> None:
        """Give up every shard: requests are told to look elsewhere, those that wait included."""
        self._shards.stop()

    @property
    def shards(self) -> dict[int, Engine[c.Command, Any]]:
        """The engines of this broker by partition, for metrics, inspection and tests."""
        return {led.shard: led.engine for led in self._shards}

    @property
    def waiting(self) -> int:
        """Requests that wait for other members."""
        return self._waiting

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` whose leader coordinates the group."""
        return partition_for(group_id, self._shard_count())

    # ---- members ----------------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, caller: c.Caller) -> "Future[JoinGroupResponse]":
        """Answered when the rebalance has ended that the member takes part in."""
        _check_group(request.group_id)
        return self._wait(request.group_id, lambda waiter: c.JoinGroup(request, caller, waiter))

    def sync(self, request: SyncGroupRequest, caller: c.Caller) -> "Future[SyncGroupResponse]":
        """Answered when the leader of the group has assigned the partitions."""
        _check_group(request.group_id)
        return self._wait(request.group_id, lambda waiter: c.SyncGroup(request, caller, waiter))

    async def heartbeat(self, request: HeartbeatRequest, caller: c.Caller) -> HeartbeatResponse:
        """A member is alive. While the group is loading nobody knows better, so it is told that all is well."""
        _check_group(request.group_id)
        try:
            response: HeartbeatResponse = await self._submit(request.group_id, c.Heartbeat(request, caller))
        except Refusal as refusal:
            if refusal.error is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return HeartbeatResponse()
        return response

    def leave(self, request: LeaveGroupRequest, caller: c.Caller) -> "Future[LeaveGroupResponse]":
        """Members go."""
        _check_group(request.group_id)
        return self._submit(request.group_id, c.LeaveGroup(request, caller))

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: c.Caller
    ) -> "Future[ConsumerGroupHeartbeatResponse]":
        """The one request of members of the consumer protocol (KIP-848)."""
        return self._submit(request.group_id, c.ConsumerGroupHeartbeat(request, caller))

    # ---- offsets ----------------------------------------------------------------------------------------------------
    # A group without a name is no group with members, but may have offsets, as ever.

    def commit_offsets(self, request: OffsetCommitRequest, caller: c.Caller) -> "Future[OffsetCommitResponse]":
        """Offsets of partitions that exist."""
        return self._submit(request.group_id, c.CommitOffsets(request, caller))

    def commit_offsets_in_transaction(
        self, request: TxnOffsetCommitRequest, caller: c.Caller, guard: int
    ) -> "Future[TxnOffsetCommitResponse]":
        """Offsets that count when their transaction commits.

        `guard` is what the log of the group's partition gave out before the transaction was verified, or the partition added
        to it: a transaction that has ended since is refused by the log, with INVALID_TXN_STATE.
        """
        _check_group(request.group_id)
        return self._submit(request.group_id, c.CommitOffsetsInTransaction(request, caller), guard=guard)

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, caller: c.Caller, *, require_stable: bool
    ) -> "Future[OffsetFetchResponseGroup]":
        """The offsets of one group."""
        return self._submit(request.group_id, c.FetchOffsets(request, require_stable, caller))

    def delete_offsets(self, request: OffsetDeleteRequest) -> "Future[OffsetDeleteResponse]":
        """Forget offsets of a group."""
        _check_group(request.group_id)
        return self._submit(request.group_id, c.DeleteOffsets(request))

    def topics_deleted(self, topics: tuple[c.DeletedTopic, ...]) -> None:
        """Topics are gone: so are their offsets, in every shard."""
        for led in self._shards:
            submitted = led.engine.submit(c.TopicsDeleted(topics), timeout_ms=self._timeout_ms)
            submitted.add_done_callback(
                _ignore
            )  # as long as the log does not take it, the offsets stay until they expire

    # ---- administration ---------------------------------------------------------------------------------------------

    def describe(self, group_id: str, api_version: int) -> "Future[DescribedGroup]":
        """One group as a classic one."""
        return self._submit(group_id, c.DescribeClassic(group_id, api_version))

    def describe_consumer(self, group_id: str) -> "Future[DescribedConsumerGroup]":
        """One group of the consumer protocol."""
        _check_group(group_id)
        return self._submit(group_id, c.DescribeConsumer(group_id))

    def delete(self, group_id: str) -> "Future[None]":
        """A group without members, and its offsets."""
        return self._submit(group_id, c.DeleteGroup(group_id))

    async def list_groups(self, states: tuple[str, ...], types: tuple[str, ...]) -> list[ListedGroup]:
        """Every group coordinated here. Raises Refusal(COORDINATOR_LOAD_IN_PROGRESS) while any shard loads."""
        listed = await self._shards.submit_to_all(c.ListGroups(states, types), timeout_ms=self._timeout_ms)
        return [group for _, found in listed for group in found]

    # ---- transactions -----------------------------------------------------------------------------------------------

    def mark(self, partition: int, marker: Marker, write: Callable[[], int]) -> None:
        """As `odradek.broker.coordinators.marker_writer.MarkerListener`."""
        self._shards.find(partition).engine.mark(marker, write)

    # ---- shards and waiters -----------------------------------------------------------------------------------------

    @property
    def _timeout_ms(self) -> int:
        return self._configs.broker().offset_commit_timeout_ms

    def _submit(self, group_id: str, command: c.Command, *, guard: int = 0) -> "Future[Any]":
        engine = self._shards.find(self.partition_of(group_id)).engine
        return engine.submit(command, timeout_ms=self._timeout_ms, guard=guard)

    def _wait(self, group_id: str, command: Callable[[int], c.Command]) -> "Future[Any]":
        """The answer, which may come with a later decision."""
        shard = self.partition_of(group_id)
        engine = self._shards.find(shard).engine
        if self._waiting >= self._waiters_max:
            raise Refusal(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            )  # which makes it come again, to this broker, in a while
        response: Future[Any] = get_running_loop().create_future()
        self._last_waiter = waiter = self._last_waiter + 1
        self._waiters.setdefault(shard, {})[waiter] = response
        self._waiting += 1
        # A client that is gone does not wait: its future is cancelled.
        response.add_done_callback(lambda _: self._forget(shard, waiter))
        decided = engine.submit(command(waiter), timeout_ms=self._timeout_ms)
        if decided.done():
            self._decided(response, decided)
        else:
            decided.add_done_callback(partial(self._decided, response))
        return response

    @staticmethod
    def _decided(response: "Future[Any]", decided: "Future[Any]") -> None:
        if decided.cancelled():
            return
        refusal = decided.exception()
        if response.done():
            return
        if refusal is not None:
            response.set_exception(refusal)
        elif decided.result() is not c.WAITING:
            response.set_result(decided.result())

    def _forget(self, shard: int, waiter: int) -> None:
        waiters = self._waiters.get(shard)
        if waiters is not None and waiters.pop(waiter, None) is not None:
            self._waiting -= 1
            if not waiters:
                del self._waiters[shard]

    def _on_effect(self, led: Led[GroupShard], effect: Effect) -> None:
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


def _ignore(submitted: "Future[Any]") -> None:
    if not submitted.cancelled():
        submitted.exception()
