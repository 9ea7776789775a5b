"""State machine of one classic group: operations on the core and on the model, and the invariants."""

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
"""Index of a member id, counted from the newest; -1 is an id that the coordinator never assigned."""
JOINERS = [*[None] * 7, *MEMBERS]
COMMITTERS = [*[None] * 5, *MEMBERS]
PROTOCOL_TYPES = [*["consumer"] * 9, "connect"]

slots = st.sampled_from(MEMBERS)
instances = st.sampled_from(INSTANCES)
rarely = st.sampled_from([False] * 5 + [True])


def plain(reply: Any) -> Any:
    """Convert a reply of the core to the model's tuple."""
    if isinstance(reply, Refusal):
        return reply.error.name
    if isinstance(reply, SyncGroupResponse):
        return (ErrorCode(reply.error_code).name, bytes(reply.assignment))
    if not isinstance(reply, JoinGroupResponse):
        return reply
    if reply.error_code:
        return (ErrorCode(reply.error_code).name, reply.member_id)
    member_ids = tuple(member.member_id for member in reply.members)
    return (
        "NONE",
        reply.member_id,
        reply.generation_id,
        reply.protocol_name,
        reply.leader,
        member_ids,
        reply.skip_assignment,
    )


class ClassicMachine(RuleBasedStateMachine):
    """Operations on one group. Groups share no state, so that one is sufficient."""

    @initialize(delay_ms=st.sampled_from([0, 3_000]), size=st.sampled_from([2, 3, 100, 100]))
    def start(self, delay_ms: int, size: int) -> None:
        self.rig = ClassicRig(group_initial_rebalance_delay_ms=delay_ms, group_max_size=size)
        self.model = Model(delay_ms, size, NOW_MS)
        self.ids: list[str] = []

    def member(self, slot: int) -> str:
        """Return a member id that is or was in use, or an unknown one."""
        if slot < 0 or not self.ids:
            return "unknown-99"
        return self.ids[-1 - min(slot, len(self.ids) - 1)]

    def instance_of(self, member_id: str, own_instance: bool, other: str | None) -> str | None:
        member = self.model.find(member_id)
        return member["instance"] if own_instance and member is not None else other

    def update_ids(self) -> None:
        current = [member["id"] for member in self.model.members] + self.model.pending
        self.ids = [member_id for member_id in self.ids if member_id not in current] + current

    # ---- requests ---------------------------------------------------------------------------------------------------

    @rule(
        client=st.sampled_from(CLIENTS),
        slot=st.sampled_from(JOINERS),
        instance=instances,
        own_instance=st.sampled_from([True, True, True, False]),
        protocols=st.sampled_from(PROTOCOLS),
        protocol_type=st.sampled_from(PROTOCOL_TYPES),
        session_ms=st.sampled_from(SESSIONS_MS),
        rebalance_ms=st.sampled_from(REBALANCES_MS),
        version=st.sampled_from([3, 3, 4, 8, 9, 9]),
        same_protocols=st.booleans(),
    )
    def join(
        self,
        client: str,
        slot: int | None,
        instance: str | None,
        own_instance: bool,
        protocols: list[tuple[str, bytes]],
        protocol_type: str,
        session_ms: int,
        rebalance_ms: int,
        version: int,
        same_protocols: bool,
    ) -> None:
        member_id = "" if slot is None else self.member(slot)
        instance = instance if slot is None else self.instance_of(member_id, own_instance, instance)
        member = self.model.find(member_id)
        if same_protocols and self.model.members:
            protocols, protocol_type = (member or self.model.members[0])["protocols"], self.model.type
        request = {
            "id": member_id,
            "instance": instance,
            "protocols": protocols,
            "type": protocol_type,
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
            protocol_type=protocol_type,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
        )
        self.compare(got, self.model.step("join", self.rig.waiters, request))

    @rule(
        slot=slots,
        instance=instances,
        own_instance=st.sampled_from([True, True, True, False]),
        stale=rarely,
        assigned_slots=st.lists(slots, max_size=3),
        protocol_name=st.sampled_from([None, None, None, "range", "other"]),
    )
    def sync(
        self,
        slot: int,
        instance: str | None,
        own_instance: bool,
        stale: bool,
        assigned_slots: list[int],
        protocol_name: str | None,
    ) -> None:
        member_id = self.member(slot)
        instance = self.instance_of(member_id, own_instance, instance)
        generation = self.model.generation - stale
        assignments = {self.member(index): b"for %d" % index for index in assigned_slots}
        got = self.rig.sync(member_id, generation, assignments, instance=instance, protocol_name=protocol_name)
        expected = self.model.step(
            "sync", self.rig.waiters, member_id, instance, generation, assignments, protocol_name
        )
        if isinstance(got, str) and got != REFUSED:
            got = (got, b"")
        self.compare(got, expected)

    @rule(assigned=st.booleans())
    def the_leader_syncs(self, assigned: bool) -> None:
        leader = self.model.find(self.model.leader or "")
        if leader is not None:
            self.update_ids()
            self.ids = [member_id for member_id in self.ids if member_id != leader["id"]] + [leader["id"]]
            self.sync(0, None, True, False, [0, 1, 2] if assigned else [], None)

    @rule(phase=st.sampled_from([0, 1, 2]))
    def members_rejoin(self, phase: int) -> None:
        """Join all members. With `phase` 1 the leader also sends SyncGroup, with 2 all members do."""
        for member in list(self.model.members):
            if self.model.state == "PreparingRebalance" and member["joining"] is None:
                self.ids.append(member["id"])
                self.join("a", 0, None, True, [], "", 10_000, 20_000, 9, True)
        if self.model.state == "PreparingRebalance":
            self.time_passes(3_000)
        if phase > 0:
            self.the_leader_syncs(assigned=True)
        for member in list(self.model.members) * (phase > 1):
            self.ids.append(member["id"])
            self.sync(0, None, True, False, [], None)

    def compare(self, got: Any, expected: Any) -> None:
        """Compare a reply. If `expected` is None, the request waits, or the model responded to it in the same step."""
        waiter = self.rig.waiters
        if expected is None:
            expected = self.model.responses.get(waiter, waiter)
        assert plain(got) == expected
        self.update_ids()

    @rule(slot=slots, instance=instances, own_instance=st.sampled_from([True, True, False]), stale=rarely)
    def heartbeat(self, slot: int, instance: str | None, own_instance: bool, stale: bool) -> None:
        member_id = self.member(slot)
        instance = self.instance_of(member_id, own_instance, instance)
        generation = self.model.generation - stale
        got = self.rig.heartbeat(member_id, generation, instance=instance)
        assert got == self.model.step("heartbeat", member_id, instance, generation)

    @rule(times=st.sampled_from([1, 1, 3]))
    def members_heartbeat(self, times: int) -> None:
        for _ in range(times):
            for member in list(self.model.members):
                self.ids.append(member["id"])
                self.heartbeat(0, None, True, False)
            self.time_passes(3_000)

    @rule(leaving=st.lists(st.tuples(st.sampled_from([None, *MEMBERS]), instances), min_size=1, max_size=3))
    def leave(self, leaving: list[tuple[int | None, str | None]]) -> None:
        pairs = [("" if slot is None else self.member(slot), instance) for slot, instance in leaving]
        got = self.rig.leave(*pairs)
        assert got == self.model.step("leave", *pairs)

    @rule(
        slot=st.sampled_from([None, *MEMBERS]),
        instance=instances,
        stale=st.sampled_from([0, 0, 1, None]),
        txn=st.booleans(),
    )
    def commit(self, slot: int | None, instance: str | None, stale: int | None, txn: bool) -> None:
        if self.model.state == "Dead":
            return
        member_id = "" if slot is None else self.member(slot)
        generation = -1 if stale is None else self.model.generation - stale
        expected = self.model.commit(member_id, instance, generation, txn)
        assert (
            self.error_of(
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

    def error_of(self, check: Callable[[ClassicGroup], None]) -> str:
        try:
            check(self.rig.group)
        except Refusal as refusal:
            return refusal.error.name
        return "NONE"

    @rule(really=st.sampled_from([False, False, True]))
    def delete(self, really: bool) -> None:
        if self.model.state == "Dead":
            return
        empty = self.model.state == "Empty"
        assert self.error_of(lambda group: group.check_delete()) == ("NONE" if empty else "NON_EMPTY_GROUP")
        known = self.model.type == "consumer" and not empty
        assert self.error_of(lambda group: group.check_offset_delete()) == (
            "NONE" if known or empty else "NON_EMPTY_GROUP"
        )
        if really and empty and not self.model.refuses:
            self.rig.do(c.DeleteGroup(GROUP))
            self.model.forget()
            self.model.log = None

    # ---- time, log and limits ---------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from(WAITS_MS))
    def time_passes(self, ms: int) -> None:
        self.rig.wait(ms)
        self.model.wait(ms)

    @rule()
    def stale_timers_fire(self) -> None:
        """Timers that fire after the decision that stopped them change nothing."""
        state, generation = self.model.state, self.model.generation
        if state != "PreparingRebalance":
            self.rig.do(JoinTimeout(GROUP))
            self.rig.do(InitialDelayTimeout(GROUP, 3_000, 3_000))
        if state not in {"CompletingRebalance", "Stable"}:
            self.rig.do(SyncTimeout(GROUP, generation))
        self.rig.do(SyncTimeout(GROUP, generation - 1))
        self.rig.do(SessionTimeout(GROUP, "unknown-99"))

    @rule(refuses=rarely)
    def log_refuses_appends(self, refuses: bool) -> None:
        self.rig.refuse_appends = self.model.refuses = refuses

    @rule(size=st.sampled_from([1, 2, *[100] * 8]))
    def group_max_size_changes(self, size: int) -> None:
        self.rig.configs.set(group_max_size=size)
        self.model.size = size

    @rule(really=rarely)
    def crash(self, really: bool) -> None:
        if really:
            self.rig.crash()
            self.model.crash()

    # ---- invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def core_matches_model(self) -> None:
        model, rig = self.model, self.rig
        assert {waiter: plain(response) for waiter, response in rig.responses.items()} == model.responses
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
        core_members = [
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
        assert core_members == model.members

    @invariant()
    def counters_match_members(self) -> None:
        if self.rig.state == "Dead":
            return
        group = self.rig.group
        members = group.members.values()
        assert group.joined_count == sum(member.join_waiter is not None for member in members)
        assert group.instances == {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        counts: dict[str, int] = {}
        for member in members:
            for name, _ in member.protocols:
                counts[name] = counts.get(name, 0) + 1
        assert group.protocol_counts == counts
        assert bool(group.members) or group.state in {ClassicState.EMPTY, ClassicState.PREPARING}
        assert group.leader is None or group.leader in group.members

    @invariant()
    def replayed_log_matches_last_record(self) -> None:
        group = self.rig.replica().state.groups.get(GROUP)
        if self.model.log is None:
            assert group is None
            return
        assert isinstance(group, ClassicGroup)
        log = self.model.log
        assert (group.generation, group.protocol_type, group.protocol_name, group.leader) == (
            log["generation"],
            log["type"],
            log["protocol"],
            log["leader"],
        )
        assert [(m.member_id, m.instance_id, m.assignment, list(m.protocols)) for m in group.members.values()] == [
            (m["id"], m["instance"], m["assignment"], m["protocols"]) for m in log["members"]
        ]
