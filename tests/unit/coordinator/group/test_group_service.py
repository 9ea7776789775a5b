"""The driver of groups: shards, waiting requests, and markers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.service import GroupCoordinator
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.runtime.shard import Marker
from odradek.runtime.tasks import Tasks
from tests.support.classic_rig import caller, join_request, sync_request
from tests.support.fake_shard_log import FakeClock, FakeShardLog
from tests.support.group_ports import FakeConfigs, FakeFeatures, FakeTopics, NewIds

if TYPE_CHECKING:
    from collections.abc import Callable

E = ErrorCode
SHARD = 3  # of "g"
SAME_SHARD = "5"
"""Another group of the same shard."""
OTHER_SHARD = 4  # of "h"


class Groups:
    """A group coordinator on fake logs that leads the shard of "g"."""

    def __init__(self, *, waiters_max: int = 100) -> None:
        self.failures: list[BaseException] = []
        self.awaited: list[int] = []
        self.tasks = Tasks(self._failed)
        self.configs = FakeConfigs()
        self.configs.set(group_initial_rebalance_delay_ms=60_000)
        self.topics = FakeTopics()
        self.topics.make("t", 2)
        self.coordinator = GroupCoordinator(
            clock=FakeClock(),
            configs=self.configs,
            topics=self.topics,
            features=FakeFeatures(),
            new_id=NewIds(),
            shard_count=lambda: 50,
            is_assigned=self.awaited.__contains__,
            spawn=self.tasks.spawn,
            on_failure=self._failed,
            waiters_max=waiters_max,
        )
        self.log = FakeShardLog()

    def _failed(self, _name: str, failure: BaseException) -> None:
        self.failures.append(failure)

    async def ready(self) -> Groups:
        await self.coordinator.on_leadership(SHARD, 0, self.log)
        return self

    def join(self, member_id: str = "", group: str = "g") -> asyncio.Future[Any]:
        return self.coordinator.join(join_request(member_id, group=group), caller(3))

    def commit(self, offset: int, group: str = "g") -> asyncio.Future[Any]:
        topic_id = UUID(bytes=self.topics.topics["t"].topic_id)
        topic = OffsetCommitRequestTopic("t", topic_id, [OffsetCommitRequestPartition(0, offset)])
        return self.coordinator.commit_offsets(OffsetCommitRequest(group, topics=[topic]), caller(8))

    def commit_in_transaction(self, offset: int, guard: int = 5, group: str = "g") -> asyncio.Future[Any]:
        topic = TxnOffsetCommitRequestTopic("t", partitions=[TxnOffsetCommitRequestPartition(0, offset)])
        request = TxnOffsetCommitRequest("tx", group, 7, 0, topics=[topic])
        return self.coordinator.commit_offsets_in_transaction(request, caller(5), guard)

    def fetch(self, group: str = "g", *, stable: bool = False) -> asyncio.Future[Any]:
        request = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics("t", partition_indexes=[0])])
        return self.coordinator.fetch_offsets(request, caller(8), require_stable=stable)

    def offset(self, *, stable: bool = False) -> int | ErrorCode:
        (found,) = self.fetch(stable=stable).result().topics[0].partitions
        offset: int = found.committed_offset
        return ErrorCode(found.error_code) if found.error_code else offset


def refusal_of(call: Callable[[], asyncio.Future[Any]]) -> ErrorCode:
    with pytest.raises(Refusal) as refusal:
        call().result()
    return refusal.value.error


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_member_joins_syncs_sends_heartbeat_and_leaves() -> None:
    groups = await Groups().ready()
    groups.configs.set(group_initial_rebalance_delay_ms=0)
    joined = groups.join()
    async with asyncio.timeout(5):
        response = await joined
    assert (response.error_code, response.leader) == (E.NONE, response.member_id)
    sync = sync_request(response.member_id, response.generation_id, {response.member_id: b"all"})
    assert (await groups.coordinator.sync(sync, caller(3))).assignment == b"all"
    beat = HeartbeatRequest("g", response.generation_id, response.member_id)
    assert (await groups.coordinator.heartbeat(beat, caller(3))).error_code == E.NONE
    leave = LeaveGroupRequest("g", "", [MemberIdentity(response.member_id)])
    assert groups.coordinator.leave(leave, caller(3)).result().error_code == E.NONE
    await settle()
    assert (groups.coordinator.waiting, groups.failures) == (0, [])


async def test_empty_group_id_is_refused_without_a_shard() -> None:
    groups = await Groups().ready()
    for call in (
        lambda: groups.join(group=""),
        lambda: groups.coordinator.sync(sync_request("m", 1, group=""), caller(3)),
        lambda: groups.coordinator.leave(LeaveGroupRequest(""), caller(3)),
        lambda: groups.commit_in_transaction(1, group=""),
        lambda: groups.coordinator.describe_consumer(""),
    ):
        assert refusal_of(call) is E.INVALID_GROUP_ID
    with pytest.raises(Refusal) as refusal:
        await groups.coordinator.heartbeat(HeartbeatRequest(""), caller(3))
    assert refusal.value.error is E.INVALID_GROUP_ID
    assert refusal_of(lambda: groups.fetch("h")) is E.NOT_COORDINATOR


async def test_empty_group_id_can_commit_offsets() -> None:
    groups = await Groups().ready()
    await groups.coordinator.on_leadership(0, 0, FakeShardLog())
    assert groups.commit(1, "").result().topics[0].partitions[0].error_code == E.NONE


async def test_waiting_requests_receive_not_coordinator_when_the_shard_is_lost() -> None:
    groups = await Groups().ready()
    waiting = [groups.join(), groups.join()]
    assert groups.coordinator.waiting == 2
    groups.coordinator.on_resignation(SHARD, 1)
    assert [refusal_of(lambda one=one: one) for one in waiting] == [E.NOT_COORDINATOR] * 2  # type: ignore[misc]
    await settle()
    assert groups.coordinator.waiting == 0
    assert refusal_of(groups.join) is E.NOT_COORDINATOR


async def test_waiting_requests_receive_not_coordinator_when_the_log_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.runtime.shards.RELOAD_BACKOFF_S", 0.001)
    groups = await Groups().ready()
    waiting = groups.join()
    groups.log.broken = True
    assert refusal_of(lambda: groups.commit(1, SAME_SHARD)) is E.NOT_COORDINATOR
    assert refusal_of(lambda: waiting) is E.NOT_COORDINATOR
    groups.log.broken = False
    async with asyncio.timeout(5):
        while groups.coordinator.shards[SHARD].state.value != "active":
            await asyncio.sleep(0.001)
    assert groups.commit(2, SAME_SHARD).result().topics[0].partitions[0].error_code == E.NONE
    assert len(groups.failures) == 1


async def test_waiting_requests_per_broker_are_limited() -> None:
    groups = await Groups(waiters_max=2).ready()
    first, second = groups.join(), groups.join()
    assert refusal_of(groups.join) is E.COORDINATOR_LOAD_IN_PROGRESS
    first.cancel()  # the client has disconnected
    await settle()
    third = groups.join()
    assert not third.done()
    assert not second.done()
    groups.coordinator.stop()
    assert refusal_of(lambda: third) is E.NOT_COORDINATOR


async def test_refused_join_does_not_wait() -> None:
    groups = await Groups().ready()
    response = groups.coordinator.join(join_request(session_ms=1), caller(3)).result()
    assert response.error_code == E.INVALID_SESSION_TIMEOUT
    await settle()
    assert groups.coordinator.waiting == 0


async def test_requests_for_a_loading_shard_are_refused_or_wait() -> None:
    groups = Groups()
    groups.awaited.append(OTHER_SHARD)
    replay_allowed = asyncio.Event()

    class Slow(FakeShardLog):
        async def replay(self, visit: Any) -> None:
            await replay_allowed.wait()

    loading = groups.tasks.spawn(groups.coordinator.on_leadership(SHARD, 0, Slow()), "load")
    await settle()
    with pytest.raises(Refusal) as refusal:
        await groups.coordinator.list_groups(frozenset(), frozenset(), groups.coordinator.all_shards())
    assert refusal.value.error is E.COORDINATOR_LOAD_IN_PROGRESS
    marker = Marker(7, 0, 0, commit=True)
    for shard in (SHARD, OTHER_SHARD):
        with pytest.raises(Refusal) as refusal:
            groups.coordinator.mark(shard, marker, lambda: pytest.fail("written"))
        assert refusal.value.error is E.COORDINATOR_LOAD_IN_PROGRESS
    fetched = groups.fetch()
    assert not fetched.done()  # the response waits, since most loads are short
    # The member may exist in a shard that is loading or will be loaded, so the heartbeat succeeds, as in Kafka.
    assert await groups.coordinator.heartbeat(HeartbeatRequest("h", 1, "m"), caller(3)) == HeartbeatResponse()
    replay_allowed.set()
    await loading
    assert (await fetched).topics[0].partitions[0].committed_offset == -1
    assert await groups.coordinator.list_groups(frozenset(), frozenset(), groups.coordinator.all_shards()) == []


async def test_list_groups_includes_all_shards() -> None:
    groups = await Groups().ready()
    await groups.coordinator.on_leadership(OTHER_SHARD, 0, FakeShardLog())
    for group in ("g", "h"):
        groups.commit(1, group).result()
    assert [
        listed.group_id
        for listed in await groups.coordinator.list_groups(frozenset(), frozenset(), groups.coordinator.all_shards())
    ] == ["g", "h"]
    groups.coordinator.stop()
    with pytest.raises(Refusal) as refusal:
        await groups.coordinator.list_groups(frozenset(), frozenset(), groups.coordinator.all_shards())
    assert refusal.value.error is E.COORDINATOR_NOT_AVAILABLE


async def test_timers_of_all_shards_share_one_bound_of_time() -> None:
    groups = await Groups().ready()
    await groups.coordinator.on_leadership(OTHER_SHARD, 0, FakeShardLog())
    bounds = {engine._timers._turns for engine in groups.coordinator.shards.values()}
    assert (len(groups.coordinator.shards), len(bounds)) == (2, 1)


async def test_notice_of_a_decision_is_logged() -> None:
    groups = await Groups().ready()
    (engine,) = groups.coordinator.shards.values()
    with capture_logs() as logs:
        engine._on_effect(c.Notice("regular expression not resolved", (("group", "g"),)))
    event = {"event": "regular expression not resolved", "group": "g", "shard": engine.name, "log_level": "warning"}
    assert logs == [event]


async def test_transactional_offsets_are_committed_by_the_marker() -> None:
    groups = await Groups().ready()
    groups.commit(1).result()
    groups.commit_in_transaction(7).result()
    assert groups.log.guards == [0, 5]
    assert (groups.offset(), groups.offset(stable=True)) == (1, E.UNSTABLE_OFFSET_COMMIT)
    marker = Marker(7, 0, 0, commit=True)
    groups.coordinator.mark(SHARD, marker, lambda: groups.log.append_marker(marker))
    assert groups.offset(stable=True) == 7


async def test_fetch_of_transactional_offsets_waits_for_the_commit_of_the_marker() -> None:
    groups = await Groups().ready()
    groups.commit_in_transaction(7).result()
    groups.log.lag = True
    marker = Marker(7, 0, 0, commit=True)
    groups.coordinator.mark(SHARD, marker, lambda: groups.log.append_marker(marker))
    fetched = groups.fetch(stable=True)
    assert not fetched.done()
    groups.log.commit()
    assert fetched.result().topics[0].partitions[0].committed_offset == 7


async def test_commit_in_an_ended_transaction_is_refused_by_the_log() -> None:
    groups = await Groups().ready()
    groups.log.refuse = E.INVALID_TXN_STATE
    assert refusal_of(lambda: groups.commit_in_transaction(7)) is E.INVALID_TXN_STATE
    groups.log.refuse = None
    assert groups.offset(stable=True) == -1


async def test_offsets_of_a_deleted_topic_are_deleted_in_every_shard() -> None:
    groups = await Groups().ready()
    groups.commit(1).result()
    deleted = groups.topics.topics["t"]
    groups.topics.delete("t")
    groups.coordinator.topics_deleted((c.DeletedTopic(deleted.topic_id, "t"),))
    async with asyncio.timeout(5):
        while groups.offset() != -1:  # they are deleted in slices
            await asyncio.sleep(0.001)
    groups.coordinator.on_resignation(SHARD, 1)
    groups.coordinator.topics_deleted((c.DeletedTopic(deleted.topic_id, "t"),))
    assert groups.failures == []
