"""What is done to classic groups, and what must hold after every step: see test_classic_machine.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.classic.commands import InitialDelayTimeout, JoinTimeout, SessionTimeout, SyncTimeout
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.classic.transitions import ClassicState
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.join_group import JoinGroupResponse
from odradek.protocol.messages.sync_group import SyncGroupResponse
from tests.machines.classic_model import Model
from tests.machines.classic_model_phases import REFUSED
from tests.support.classic_rig import GROUP, NOW_MS, ClassicRig

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENTS = ["a", "b", "c"]
INSTANCES = [None, None, None, "i1", "i2"]
PROTOCOLS = [
    [("range", b"m")],
    [("range", b"m")],
    [("range", b"n")],
    [("range", b"m"), ("sticky", b"m")],
    [("sticky", b"m"), ("range", b"m")],
    [("range", b"m"), ("sticky", b"n")],
    [("sticky", b"m")],
    [],
]
SESSIONS_MS = [5_999, 6_000, *[10_000] * 4, *[30_000] * 8]
REBALANCES_MS = [*[6_000] * 4, 20_000, 400_000]
WAITS_MS = [0, 0, 0, 1, 1_000, 1_000, 3_000, 3_000, 3_000, 3_000, 6_000, 6_000, 10_000, 60_000, 300_000]
MEMBERS = [0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, -1]
"""Whose id: the n-th newest of all that were ever told, -1 one that nobody was told."""
JOINERS = [*[None] * 7, *MEMBERS]
COMMITTERS = [*[None] * 5, *MEMBERS]
PROTOCOL_TYPES = [*["consumer"] * 9, "connect"]

slots = st.sampled_from(MEMBERS)
instances = st.sampled_from(INSTANCES)
rarely = st.sampled_from([False] * 5 + [True])


def plain(reply: Any) -> Any:
    """A reply of the core in the words of the model."""
    if isinstance(reply, Refusal):
        return reply.error.name
    if isinstance(reply, SyncGroupResponse):
        return (ErrorCode(reply.error_code).name, bytes(reply.assignment))
    if not isinstance(reply, JoinGroupResponse):
        return reply
    if reply.error_code:
        return (ErrorCode(reply.error_code).name, reply.member_id)
    everybody = tuple(member.member_id for member in reply.members)
    return (
        "NONE",
        reply.member_id,
        reply.generation_id,
        reply.protocol_name,
        reply.leader,
        everybody,
        reply.skip_assignment,
    )


class ClassicMachine(RuleBasedStateMachine):
    """One group is enough: groups do not touch each other."""

    @initialize(delay_ms=st.sampled_from([0, 3_000]), size=st.sampled_from([2, 3, 100, 100]))
    def start(self, delay_ms: int, size: int) -> None:
        self.rig = ClassicRig(group_initial_rebalance_delay_ms=delay_ms, group_max_size=size)
        self.model = Model(delay_ms, size, NOW_MS)
        self.ids: list[str] = []

    def member(self, slot: int) -> str:
        """One of the ids that are in use or were."""
        if slot < 0 or not self.ids:
            return "nobody-99"
        return self.ids[-1 - min(slot, len(self.ids) - 1)]

    def instance_of(self, member_id: str, honest: bool, other: str | None) -> str | None:
        found = self.model.find(member_id)
        return found["instance"] if honest and found is not None else other

    def learn(self) -> None:
        current = [member["id"] for member in self.model.members] + self.model.pending
        self.ids = [one for one in self.ids if one not in current] + current

    # ---- requests ---------------------------------------------------------------------------------------------------

    @rule(
        client=st.sampled_from(CLIENTS),
        slot=st.sampled_from(JOINERS),
        instance=instances,
        honest=st.sampled_from([True, True, True, False]),
        protocols=st.sampled_from(PROTOCOLS),
        kind=st.sampled_from(PROTOCOL_TYPES),
        session_ms=st.sampled_from(SESSIONS_MS),
        rebalance_ms=st.sampled_from(REBALANCES_MS),
        version=st.sampled_from([3, 3, 4, 8, 9, 9]),
        as_before=st.booleans(),
    )
    def join(
        self,
        client: str,
        slot: int | None,
        instance: str | None,
        honest: bool,
        protocols: list[tuple[str, bytes]],
        kind: str,
        session_ms: int,
        rebalance_ms: int,
        version: int,
        as_before: bool,
    ) -> None:
        member_id = "" if slot is None else self.member(slot)
        instance = instance if slot is None else self.instance_of(member_id, honest, instance)
        found = self.model.find(member_id)
        if as_before and self.model.members:
            protocols, kind = (found or self.model.members[0])["protocols"], self.model.type
        ask = {
            "id": member_id,
            "instance": instance,
            "protocols": protocols,
            "type": kind,
            "session": session_ms,
            "rebalance": rebalance_ms,
            "version": version,
            "client": client,
        }
        got = self.rig.join(
            member_id,
            version=version,
            client=client,
            instance=instance,
            protocols=protocols,
            protocol_type=kind,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
        )
        self.compare(got, self.model.step("join", self.rig.waiters, ask))

    @rule(
        slot=slots,
        instance=instances,
        honest=st.sampled_from([True, True, True, False]),
        old=rarely,
        given=st.lists(slots, max_size=3),
        named=st.sampled_from([None, None, None, "range", "other"]),
    )
    def sync(
        self, slot: int, instance: str | None, honest: bool, old: bool, given: list[int], named: str | None
    ) -> None:
        member_id = self.member(slot)
        instance = self.instance_of(member_id, honest, instance)
        generation = self.model.generation - old
        assignments = {self.member(one): b"for %d" % one for one in given}
        got = self.rig.sync(member_id, generation, assignments, instance=instance, protocol_name=named)
        expected = self.model.step("sync", self.rig.waiters, member_id, instance, generation, assignments, named)
        if isinstance(got, str) and got != REFUSED:
            got = (got, b"")
        self.compare(got, expected)

    @rule(assigned=st.booleans())
    def the_leader_syncs(self, assigned: bool) -> None:
        leader = self.model.find(self.model.leader or "")
        if leader is not None:
            self.learn()
            self.ids = [one for one in self.ids if one != leader["id"]] + [leader["id"]]
            self.sync(0, None, True, False, [0, 1, 2] if assigned else [], None)

    @rule(how_far=st.sampled_from([0, 1, 2]))
    def everybody_comes(self, how_far: int) -> None:
        """The members do what clients do: all join, 1 the leader assigns, 2 the others ask for what it has assigned."""
        for member in list(self.model.members):
            if self.model.state == "PreparingRebalance" and member["joining"] is None:
                self.ids.append(member["id"])
                self.join("a", 0, None, True, [], "", 10_000, 20_000, 9, True)
        if self.model.state == "PreparingRebalance":
            self.time_passes(3_000)
        if how_far > 0:
            self.the_leader_syncs(assigned=True)
        for member in list(self.model.members) * (how_far > 1):
            self.ids.append(member["id"])
            self.sync(0, None, True, False, [], None)

    def compare(self, got: Any, expected: Any) -> None:
        """`expected` None: it waits, unless it was answered at once."""
        waiter = self.rig.waiters
        if expected is None:
            expected = self.model.told.get(waiter, waiter)
        assert plain(got) == expected
        self.learn()

    @rule(slot=slots, instance=instances, honest=st.sampled_from([True, True, False]), old=rarely)
    def heartbeat(self, slot: int, instance: str | None, honest: bool, old: bool) -> None:
        member_id = self.member(slot)
        instance = self.instance_of(member_id, honest, instance)
        generation = self.model.generation - old
        got = self.rig.heartbeat(member_id, generation, instance=instance)
        assert got == self.model.step("heartbeat", member_id, instance, generation)

    @rule(times=st.sampled_from([1, 1, 3]))
    def everybody_lives(self, times: int) -> None:
        for _ in range(times):
            for member in list(self.model.members):
                self.ids.append(member["id"])
                self.heartbeat(0, None, True, False)
            self.time_passes(3_000)

    @rule(who=st.lists(st.tuples(st.sampled_from([None, *MEMBERS]), instances), min_size=1, max_size=3))
    def leave(self, who: list[tuple[int | None, str | None]]) -> None:
        pairs = [("" if slot is None else self.member(slot), instance) for slot, instance in who]
        got = self.rig.leave(*pairs)
        assert got == self.model.step("leave", *pairs)

    @rule(
        slot=st.sampled_from([None, *MEMBERS]),
        instance=instances,
        old=st.sampled_from([0, 0, 1, None]),
        txn=st.booleans(),
    )
    def commit(self, slot: int | None, instance: str | None, old: int | None, txn: bool) -> None:
        if self.model.state == "Dead":
            return
        member_id = "" if slot is None else self.member(slot)
        generation = -1 if old is None else self.model.generation - old
        expected = self.model.commit(member_id, instance, generation, txn)
        assert (
            self.judged(
                lambda group: group.check_offset_commit(
                    member_id, instance, generation, in_transaction=txn, api_version=9
                )
            )
            == expected
        )
        if expected == "NONE":
            timers = self.rig.group.commit_timers(member_id)
            assert bool(timers) is (
                self.model.find(member_id) is not None and self.model.state != "CompletingRebalance"
            )

    def judged(self, judge: Callable[[ClassicGroup], None]) -> str:
        try:
            judge(self.rig.group)
        except Refusal as refusal:
            return refusal.error.name
        return "NONE"

    @rule(really=st.sampled_from([False, False, True]))
    def delete(self, really: bool) -> None:
        if self.model.state == "Dead":
            return
        empty = self.model.state == "Empty"
        assert self.judged(lambda group: group.check_delete()) == ("NONE" if empty else "NON_EMPTY_GROUP")
        known = self.model.type == "consumer" and not empty
        assert self.judged(lambda group: group.check_offset_delete()) == (
            "NONE" if known or empty else "NON_EMPTY_GROUP"
        )
        if really and empty and not self.model.refuses:
            self.rig.do(c.DeleteGroup(GROUP))
            self.model.forget()
            self.model.log = None

    # ---- what happens around ----------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from(WAITS_MS))
    def time_passes(self, ms: int) -> None:
        self.rig.wait(ms)
        self.model.wait(ms)

    @rule()
    def clocks_strike_too_late(self) -> None:
        """After the decision that has stopped them: nothing changes."""
        state, generation = self.model.state, self.model.generation
        if state != "PreparingRebalance":
            self.rig.do(JoinTimeout(GROUP))
            self.rig.do(InitialDelayTimeout(GROUP, 3_000, 3_000))
        if state not in {"CompletingRebalance", "Stable"}:
            self.rig.do(SyncTimeout(GROUP, generation))
        self.rig.do(SyncTimeout(GROUP, generation - 1))
        self.rig.do(SessionTimeout(GROUP, "nobody-99"))

    @rule(refuses=rarely)
    def the_log_refuses(self, refuses: bool) -> None:
        self.rig.refuse_appends = self.model.refuses = refuses

    @rule(size=st.sampled_from([1, 2, *[100] * 8]))
    def the_limit_changes(self, size: int) -> None:
        self.rig.configs.set(group_max_size=size)
        self.model.size = size

    @rule(really=rarely)
    def crash(self, really: bool) -> None:
        if really:
            self.rig.crash()
            self.model.crash()

    # ---- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def the_core_says_what_the_model_says(self) -> None:
        model, rig = self.model, self.rig
        assert {waiter: plain(answer) for waiter, answer in rig.answers.items()} == model.told
        assert rig.state == model.state
        if model.state == "Dead":
            return
        group = rig.group
        assert (group.generation, group.protocol_type, group.protocol_name, group.leader) == (
            model.generation,
            model.type,
            model.protocol,
            model.leader,
        )
        assert list(group.pending_ids) == model.pending
        assert list(group.pending_sync) == model.unsynced
        live = [
            {
                "id": member.member_id,
                "instance": member.instance_id,
                "protocols": list(member.protocols),
                "session": member.session_timeout_ms,
                "rebalance": member.rebalance_timeout_ms,
                "joining": member.join_waiter,
                "syncing": member.sync_waiter,
                "new": member.is_new,
                "assignment": member.assignment,
            }
            for member in group.members.values()
        ]
        assert live == model.members

    @invariant()
    def what_is_counted_is_what_is_there(self) -> None:
        if self.rig.state == "Dead":
            return
        group = self.rig.group
        everybody = group.members.values()
        assert group.joined_count == sum(member.join_waiter is not None for member in everybody)
        assert group.instances == {m.instance_id: m.member_id for m in everybody if m.instance_id is not None}
        counts: dict[str, int] = {}
        for member in everybody:
            for name, _ in member.protocols:
                counts[name] = counts.get(name, 0) + 1
        assert group.protocol_counts == counts
        assert bool(group.members) or group.state in {ClassicState.EMPTY, ClassicState.PREPARING}
        assert group.leader is None or group.leader in group.members

    @invariant()
    def replay_gives_what_was_written_last(self) -> None:
        found = self.rig.replica().state.groups.get(GROUP)
        if self.model.log is None:
            assert found is None
            return
        assert isinstance(found, ClassicGroup)
        log = self.model.log
        assert (found.generation, found.protocol_type, found.protocol_name, found.leader) == (
            log["generation"],
            log["type"],
            log["protocol"],
            log["leader"],
        )
        assert [(m.member_id, m.instance_id, m.assignment, list(m.protocols)) for m in found.members.values()] == [
            (m["id"], m["instance"], m["assignment"], m["protocols"]) for m in log["members"]
        ]
