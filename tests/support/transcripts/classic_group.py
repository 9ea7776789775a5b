"""Commands of the golden transcripts of classic groups. The output follows after `----`.

    * new delay=3000 size=2  a coordinator on an empty log (group.initial.rebalance.delay.ms, group.max.size)
    * join NAME [words]      JoinGroup of client NAME with its member id (`anew`: without one); omitted words keep their
                           last value
        v=9 instance=i protocols=range,sticky type=consumer meta=x session=10000 rebalance=60000 id=...
    * sync NAME [NAME:assignment ...]    SyncGroup with the last generation; v= instance= gen= type= name=
    * heartbeat NAME [gen= instance=]
    * leave NAME ... [v=]    NAME, NAME/instance or /instance
    * commit NAME [gen= txn instance=]   check of OffsetCommit; `no-member` sends no member id
    * delete                 checks of DeleteGroups and OffsetDelete
    * describe [v=6]
    * wait ms                advance the time and fire due timers
    * lag | catch-up         the high watermark stops | reaches the log end
    * refuse ERROR | accept  the log refuses appends | accepts them
    * crash                  load the log into a new coordinator
    * state                  show the state of the group

Below `----`: `log` is a record decoded from its bytes, `#n` the response to the n-th request.

See harness.py for the format of a transcript, and for how to update one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.group.records import from_record
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupResponse
from odradek.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.protocol.messages.sync_group import SyncGroupResponse
from tests.support.classic_rig import GROUP, WAITS, EngineRig, caller, join_request, outcome, sync_request
from tests.support.transcripts.harness import Interpreter
from tests.support.transcripts.txn import named

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from odradek.runtime.shard import ShardRecord


def shown_record(record: ShardRecord) -> str:
    entry = from_record(replace(record, memo=None))
    assert entry is not None
    value = entry.value
    if value is None:
        return f"log {entry.key.group} gone"
    members = " ".join(
        f"{member.member_id}{'/' + member.group_instance_id if member.group_instance_id else ''}"
        f":{bytes(member.assignment).decode()}"
        for member in value.members
    )
    leader = f" led by {value.leader}" if value.leader else ""
    protocol = f"{value.protocol_type or '-'}/{value.protocol or '-'}"
    return f"log {entry.key.group} {protocol} gen={value.generation}{leader} [{members}]"


def shown_reply(reply: Any) -> str:
    if isinstance(reply, str):
        return reply
    if isinstance(reply, Refusal):
        return reply.error.name
    if isinstance(reply, LeaveGroupResponse):
        top = [ErrorCode(reply.error_code).name] if reply.error_code or not reply.members else []
        names = [
            f"{entry.member_id}/{entry.group_instance_id}" if entry.group_instance_id else entry.member_id
            for entry in reply.members
        ]
        each = [f"{name}:{ErrorCode(entry.error_code).name}" for name, entry in zip(names, reply.members, strict=True)]
        return " ".join(top + each)
    if reply.error_code:
        name = ErrorCode(reply.error_code).name
        return f"{name} {reply.member_id}".rstrip() if isinstance(reply, JoinGroupResponse) else name
    if isinstance(reply, HeartbeatResponse):
        return "NONE"
    if isinstance(reply, SyncGroupResponse):
        return (
            f"assigned {bytes(reply.assignment).decode() or 'nothing'} by {reply.protocol_type}/{reply.protocol_name}"
        )
    assert isinstance(reply, JoinGroupResponse), reply
    members = " [" + " ".join(member.member_id for member in reply.members) + "]" if reply.members else ""
    skip = " skip" if reply.skip_assignment else ""
    return f"{reply.member_id} gen={reply.generation_id} {reply.protocol_name} led by {reply.leader}{members}{skip}"


class ClassicGroupInterpreter(Interpreter):
    """Execute commands on a group coordinator of classic groups."""

    def __init__(self) -> None:
        self.rig = EngineRig()
        self.requests: list[tuple[int, str, asyncio.Future[Any], bool]] = []
        self.waiting: dict[int, str] = {}
        self.numbered = 0
        self.records_shown = 0
        self.ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.fields: dict[str, dict[str, str]] = {}

    def collect(self, result: list[str] | str | None) -> list[str]:
        return [*self.new_output(), *([result] if isinstance(result, str) else result or [])]

    def new_output(self) -> list[str]:
        out = []
        batches = self.rig.log.batches
        for batch in batches[self.records_shown :]:
            out += [shown_record(record) for record in batch]
        self.records_shown = len(batches)
        pending: list[tuple[int, str, asyncio.Future[Any], bool]] = []
        for number, name, future, is_shown in self.requests:
            reply = outcome(future)
            if reply is c.WAITING:
                if number in self.rig.responses:
                    out.append(f"#{number} {self._show(name, self.rig.responses[number])}")
                    continue
                reply = WAITS
            if reply == WAITS:
                if not is_shown:
                    out.append(f"#{number} waits")
                pending.append((number, name, future, True))
            else:
                out.append(f"#{number} {self._show(name, reply)}")
        self.requests = pending
        return out

    def _show(self, name: str, reply: Any) -> str:
        if isinstance(reply, JoinGroupResponse) and reply.error_code in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            self.ids[name] = reply.member_id
            self.generations[name] = reply.generation_id
        return shown_reply(reply)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def _submit(self, name: str, command: Callable[[int], Any]) -> None:
        self.numbered += 1
        self.requests.append((self.numbered, name, self.rig.submit(command(self.numbered)), False))

    def do_join(self, *words: str) -> None:
        name = words[0]
        fields = self.fields[name] = self.fields.get(name, {}) | named(words)
        member_id = fields.pop("id", "" if "anew" in words else self.ids.get(name, ""))
        protocols = tuple(
            (entry, fields.get("meta", "m").encode()) for entry in fields.get("protocols", "range").split(",")
        )
        request = join_request(
            member_id,
            instance=fields.get("instance") or None,
            protocols=protocols,
            protocol_type=fields.get("type", "consumer"),
            session_ms=int(fields.get("session", "10000")),
            rebalance_ms=int(fields.get("rebalance", "60000")),
        )
        version = int(fields.get("v", "9"))
        self._submit(name, lambda waiter: c.JoinGroup(request, caller(version, name), waiter))

    def do_sync(self, *words: str) -> None:
        name, fields = words[0], named(words)
        assignments = dict(word.split(":", 1) for word in words[1:] if ":" in word)
        request = sync_request(
            fields.get("id", self.ids.get(name, name)),
            int(fields.get("gen", self.generations.get(name, -1))),
            {self.ids.get(member, member): assignment.encode() for member, assignment in assignments.items()},
            instance=fields.get("instance"),
            protocol_type=fields.get("type"),
            protocol_name=fields.get("name"),
        )
        self._submit(name, lambda waiter: c.SyncGroup(request, caller(int(fields.get("v", "5"))), waiter))

    def do_heartbeat(self, *words: str) -> None:
        name, fields = words[0], named(words)
        request = HeartbeatRequest(
            GROUP,
            int(fields.get("gen", self.generations.get(name, -1))),
            fields.get("id", self.ids.get(name, name)),
            fields.get("instance"),
        )
        self._submit(name, lambda _: c.Heartbeat(request, caller(4)))

    def do_leave(self, *words: str) -> None:
        version = int(named(words).get("v", "5"))
        members = []
        for word in words:
            if "=" not in word:
                name, _, instance = word.partition("/")
                members.append(MemberIdentity(self.ids.get(name, name), instance or None))
        request = LeaveGroupRequest(group_id=GROUP, members=members)
        if version < 3:
            request = LeaveGroupRequest(group_id=GROUP, member_id=members[0].member_id)
        self._submit("", lambda _: c.LeaveGroup(request, caller(version)))

    def do_commit(self, *words: str) -> str:
        name, fields = words[0], named(words)
        member_id = "" if name == "no-member" else self.ids.get(name, name)
        generation = int(fields.get("gen", self.generations.get(name, -1)))
        in_transaction = "txn" in words
        return self._judged(
            lambda group: group.check_offset_commit(
                member_id, fields.get("instance"), generation, in_transaction=in_transaction, api_version=9
            )
        )

    def do_delete(self, *words: str) -> str:
        group = self._judged(lambda group: group.check_delete())
        return f"group {group}, offsets {self._judged(lambda group: group.check_offset_delete())}"

    def _judged(self, judge: Callable[[ClassicGroup], None]) -> str:
        group = self.rig.core.state.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        try:
            judge(group)
        except Refusal as refusal:
            return refusal.error.name
        return "accepted"

    async def do_describe(self, *words: str) -> list[str]:
        described = await self.rig.submit(c.DescribeClassic(GROUP, int(named(words).get("v", "6"))))
        error = f" {ErrorCode(described.error_code).name}: {described.error_message}" if described.error_code else ""
        return [
            f"{described.group_state} {described.protocol_type or '-'}/{described.protocol_data or '-'}{error}",
            *(
                f"  {member.member_id} {member.group_instance_id or '-'} {member.client_id}{member.client_host}"
                f" {bytes(member.member_metadata).decode() or '-'} {bytes(member.member_assignment).decode() or '-'}"
                for member in described.members
            ),
        ]

    # ---- environment of the coordinator -----------------------------------------------------------------------------

    async def do_new(self, *words: str) -> None:
        fields = named(words)
        config: dict[str, Any] = {"group_initial_rebalance_delay_ms": int(fields.get("delay", "3000"))}
        if "size" in fields:
            config["group_max_size"] = int(fields["size"])
        self.rig = await EngineRig(**config).loaded()
        self.records_shown = 0
        self.requests, self.ids, self.generations, self.fields = [], {}, {}, {}

    def do_size(self, *words: str) -> None:
        self.rig.configs.set(group_max_size=int(words[0]))

    def do_wait(self, *words: str) -> None:
        self.rig.wait(int(words[0]))

    def do_lag(self, *words: str) -> None:
        self.rig.log.lag = True

    def do_catch_up(self, *words: str) -> None:
        self.rig.log.lag = False
        self.rig.log.commit()

    def do_refuse(self, *words: str) -> None:
        self.rig.log.refuse = ErrorCode[words[0]]

    def do_accept(self, *words: str) -> None:
        self.rig.log.refuse = None

    async def do_crash(self, *words: str) -> None:
        self.requests.clear()
        self.rig = await self.rig.successor()
        self.records_shown = 0

    def do_state(self, *words: str) -> str:
        group = self.rig.core.state.groups.get(GROUP)
        if not isinstance(group, ClassicGroup):
            return "Dead"
        counted = {
            "members": list(group.members),
            "pending": list(group.pending_ids),
            "unsynced": list(group.pending_sync),
            "joined": group.joined_count,
        }
        extra = "".join(
            f" {name}={' '.join(assignment) if isinstance(assignment, list) else assignment}"
            for name, assignment in counted.items()
            if assignment
        )
        return f"{group.state_name} gen={group.generation}{extra}"
