"""GroupShard on an in-memory log, with requests of classic members: bare (ClassicRig), and in an Engine (EngineRig)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.core import GroupShard
from odradek.coordinator.group.modern.state import ConsumerGroup
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.runtime.engine import TIMER_RETRY_MS, Engine
from odradek.runtime.shard import Decision, EngineLimits, ShardRecord, Timer
from tests.support.fake_shard_log import FakeClock, FakeShardLog
from tests.support.group_ports import FakeConfigs, FakeFeatures, FakeTopics, NewIds
from tests.support.pure_decisions import PureDecisions, PureShard

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

NOW_MS = 1_700_000_000_000
GROUP = "g"
LATEST_JOIN, LATEST_SYNC, LATEST_HEARTBEAT, LATEST_LEAVE = 9, 5, 4, 5
SESSION_MS = 10_000
REBALANCE_MS = 60_000
WAITS = "waits"
REFUSED = "refused by the log"


def join_request(
    member_id: str = "",
    *,
    group: str = GROUP,
    instance: str | None = None,
    protocols: Mapping[str, bytes] | Sequence[tuple[str, bytes]] = (("range", b"topics"),),
    protocol_type: str = "consumer",
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
) -> JoinGroupRequest:
    pairs = protocols.items() if hasattr(protocols, "items") else protocols
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in pairs],
    )


def sync_request(
    member_id: str,
    generation: int,
    assignments: Mapping[str, bytes] | None = None,
    *,
    group: str = GROUP,
    instance: str | None = None,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=[SyncGroupRequestAssignment(name, assignment) for name, assignment in (assignments or {}).items()],
    )


def caller(version: int, client: str = "c") -> c.Caller:
    return c.Caller(client, "/127.0.0.1", version)


class ClassicRig:
    """A bare GroupShard.

    Its records are committed immediately, its responses are kept in `responses`, and `wait` moves the time.
    """

    def __init__(self, **config: Any) -> None:
        self.configs = FakeConfigs()
        self.configs.set(**config)
        self.topics = FakeTopics()
        self.features = FakeFeatures()
        self.new_id = NewIds()
        self.now_ms = NOW_MS
        self.log: list[ShardRecord] = []
        self.refuse_appends = False
        self.waiters = 0
        self.responses: dict[int, Any] = {}
        self.timers: dict[Any, tuple[int, Any]] = {}
        self.pure = PureDecisions()
        self.core = self._replayed_core()
        self._replica, self._replicated = self._replayed_core(), 0

    def _replayed_core(self) -> GroupShard:
        core = GroupShard(self.configs, self.topics, self.features, self.new_id)
        for offset, record in enumerate(self.log):
            core.apply(offset, replace(record, memo=None), 7)
        core.on_committed(len(self.log))
        return core

    def replica(self) -> GroupShard:
        """Return a core that replayed the whole log without memos.

        A call replays only the records appended since the last call.
        """
        for offset in range(self._replicated, len(self.log)):
            self._replica.apply(offset, replace(self.log[offset], memo=None), 7)
        self._replicated = len(self.log)
        self._replica.on_committed(self._replicated)
        return self._replica

    # ---- decisions --------------------------------------------------------------------------------------------------

    def do(self, command: Any) -> Any:
        """Return the reply of a decision, or the name of its error."""
        try:
            decision = self.pure.decide(self.core, command, self.now_ms)
        except Refusal as refusal:
            return refusal.error.name
        assert isinstance(decision, Decision), decision
        refused = decision.records and self.refuse_appends
        for change in decision.soft if not refused or decision.soft_survives else ():
            change()
        if refused:
            return REFUSED
        for record in decision.records:
            self.log.append(record)
            self.core.apply(len(self.log) - 1, record, 7)
        if decision.records:
            self.core.on_committed(len(self.log))
        for timer in decision.timers:
            self._set(timer)
        self._store_responses(decision.effects)
        return decision.reply.error.name if isinstance(decision.reply, Refusal) else decision.reply

    def _store_responses(self, effects: Sequence[Any]) -> None:
        for effect in effects:
            if isinstance(effect, c.Respond):
                assert effect.waiter not in self.responses, f"second response to one request: {effect}"
                self.responses[effect.waiter] = effect.response

    def _set(self, timer: Timer) -> None:
        if timer.delay_ms is None:
            assert timer.deadline_ms is None, timer
            self.timers.pop(timer.key, None)
        else:
            self.timers[timer.key] = (self.now_ms + timer.delay_ms, timer.command)

    def wait(self, ms: int) -> None:
        """Advance the time and fire due timers in order of their due time, then of their key."""
        until = self.now_ms + ms
        while True:
            due, key = min(((when, key) for key, (when, _) in self.timers.items()), default=(until + 1, None))
            if due > until:
                break
            self.now_ms = max(self.now_ms, due)
            command = self.timers.pop(key)[1]
            if self.do(command) == REFUSED:
                self.timers.setdefault(key, (self.now_ms + TIMER_RETRY_MS, command))
        self.now_ms = until

    def crash(self) -> None:
        """Replace the core by one that loads the log. Pending requests get no response."""
        self.core = self._replayed_core()
        self.timers.clear()
        loaded = self.core.on_loaded(7, self.now_ms)
        for timer in loaded.timers:
            if isinstance(timer.key, tuple) and timer.key[0].startswith("classic"):
                self._set(timer)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def join(self, member_id: str = "", *, version: int = LATEST_JOIN, client: str = "c", **fields: Any) -> Any:
        """Return the response, or the number of the waiter if the response comes later."""
        return self._submit(
            lambda waiter: c.JoinGroup(join_request(member_id, **fields), caller(version, client), waiter)
        )

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        version: int = LATEST_SYNC,
        **fields: Any,
    ) -> Any:
        request = sync_request(member_id, generation, assignments, **fields)
        return self._submit(lambda waiter: c.SyncGroup(request, caller(version), waiter))

    def _submit(self, command: Any) -> Any:
        self.waiters += 1
        waiter = self.waiters
        reply = self.do(command(waiter))
        if reply is not c.WAITING:
            assert waiter not in self.responses, "both a reply and a response effect"
            return reply
        return self.responses.get(waiter, waiter)

    def heartbeat(self, member_id: str, generation: int, *, instance: str | None = None, group: str = GROUP) -> str:
        reply = self.do(c.Heartbeat(HeartbeatRequest(group, generation, member_id, instance), caller(LATEST_HEARTBEAT)))
        return reply if isinstance(reply, str) else ErrorCode(reply.error_code).name

    def leave(self, *members: str | tuple[str, str | None], group: str = GROUP, version: int = LATEST_LEAVE) -> Any:
        """Remove members, each an id or (id, instance). Return one error name per member."""
        pairs = [member if isinstance(member, tuple) else (member, None) for member in members]
        identities = [MemberIdentity(member_id, instance) for member_id, instance in pairs]
        reply = self.do(c.LeaveGroup(LeaveGroupRequest(group_id=group, members=identities), caller(version)))
        return reply if isinstance(reply, str) else [ErrorCode(member.error_code).name for member in reply.members]

    def describe(self, group: str = GROUP, version: int = 6) -> Any:
        return self.do(c.DescribeClassic(group, version))

    # ---- state ------------------------------------------------------------------------------------------------------

    @property
    def group(self) -> ClassicGroup:
        group = self.core.state.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def state(self) -> str:
        group = self.core.state.groups.get(GROUP)
        return "Dead" if group is None else group.state_name

    # ---- set-up -----------------------------------------------------------------------------------------------------

    def stable(self, *instances: str | None, version: int = LATEST_JOIN, **fields: Any) -> list[str]:
        """Make a stable group with one member per instance id (None: a dynamic member). The first member leads."""
        first = [
            self.join(instance=instance, version=3 if instance is None else version, **fields) for instance in instances
        ]
        self.wait(self.configs.config.group_initial_rebalance_delay_ms * 20)
        members = [self.responses[waiter].member_id for waiter in first]
        generation = self.group.generation
        self.sync(members[0], generation, {member: member.encode() for member in members})
        for member in members[1:]:
            self.sync(member, generation)
        assert self.state == "Stable"
        return members


class EngineRig:
    """A GroupShard in an Engine. With `lag`, the high watermark of its log moves only on request."""

    def __init__(self, log: FakeShardLog | None = None, *, lag: bool = False, **config: Any) -> None:
        self.log = log or FakeShardLog(lag=lag)
        self.configs = FakeConfigs()
        self.configs.set(**config)
        self.clock = FakeClock(NOW_MS)
        self.responses: dict[int, Any] = {}
        self.notices: list[c.Notice] = []
        self.failures: list[BaseException] = []
        self.core = GroupShard(self.configs, FakeTopics(), FakeFeatures(), NewIds())
        self.engine: Engine[Any, Any] = Engine(
            PureShard(self.core),
            self.log,
            clock=self.clock,
            on_effect=self._on_effect,
            on_failure=lambda _name, failure: self.failures.append(failure),
            name="__consumer_offsets-0",
            limits=EngineLimits(),
        )
        self.engine._timers._arm = lambda: None  # type: ignore[method-assign]  # only `wait` moves the time

    def _on_effect(self, effect: Any) -> None:
        if isinstance(effect, c.Notice):
            self.notices.append(effect)
            return
        assert isinstance(effect, c.Respond), effect
        assert effect.waiter not in self.responses, f"second response to one request: {effect}"
        self.responses[effect.waiter] = effect.response

    @property
    def topics(self) -> FakeTopics:
        topics = self.core.state.topics
        assert isinstance(topics, FakeTopics)
        return topics

    def consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self.core.state.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    async def loaded(self) -> EngineRig:
        await self.engine.load(self.log.leader_epoch)
        return self

    def submit(self, command: Any) -> asyncio.Future[Any]:
        return self.engine.submit(command, timeout_ms=60_000)

    def wait(self, ms: int) -> None:
        """Advance the time and fire due timers in order."""
        timers, until = self.engine._timers, self.clock.now_ms + ms
        while True:
            due = min((entry[0] for entry in timers._monotonic if timers._is_live(entry)), default=until + 1)
            if due > until:
                break
            self.clock.now_ms = max(self.clock.now_ms, due)
            timers._expire()
        self.clock.now_ms = until

    async def successor(self) -> EngineRig:
        """Unload this engine and load another one from the same log. Pending requests get no response."""
        self.engine.unload()
        rig = EngineRig(self.log.successor(lag=False))
        rig.configs.config, rig.clock.now_ms = self.configs.config, self.clock.now_ms
        rig.core.state.new_id = self.core.state.new_id
        return await rig.loaded()


def outcome(future: asyncio.Future[Any]) -> Any:
    """Return WAITS if the future is pending, else the reply or the name of the error."""
    if not future.done():
        return WAITS
    refusal = future.exception()
    if refusal is not None:
        assert isinstance(refusal, Refusal)
        return refusal.error.name
    return future.result()
