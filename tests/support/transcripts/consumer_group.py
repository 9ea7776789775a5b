"""Commands of the golden transcripts of consumer groups (KIP-848). The output follows after `----`.

    new interval=0 policy=bidirectional size=2 classic-size=2 level=1 assignors=uniform,range refresh=600000
                           a coordinator on an empty log
    topic NAME n           create the topic, or set its number of partitions;   no-topic NAME: delete it
    join NAME t,u          heartbeat with epoch 0 and a subscription to t and u (`-`: to nothing)
        instance=i regex=e assignor=range v=0
    beat NAME [words]      heartbeat of a client that owns exactly its assignment
        epoch= topics=t,u regex= owned=t:0,1 (`owned=` nothing, `owned=-` no field) v= full
    leave NAME | away NAME epoch -1 | -2
    join-classic NAME t,u  JoinGroup with its member id: owned=t:0,1 instance=i protocols=range v= anew
    response NAME          the response to a JoinGroup that waited in a classic group
    sync-classic NAME | beat-classic NAME   with the last generation, or gen=; instance= type= name=
        gives=NAME:t:0,1;NAME:t:2  assignment by the leader of a classic group
    leave-classic NAME ...
    commit NAME epoch t-0 [txn] [v=]  check of OffsetCommit;    fetch NAME epoch: check of OffsetFetch
    describe | state
    wait ms                advance the time and fire due timers
    crash                  load the log into a new coordinator
    refuse-appends | accept-appends

Below `----`: `log` is a record decoded from its bytes (`gone`: a tombstone), `#n` the response to the n-th request.
After each command the rig checks that no partition has two owners and that the replay of the log gives the same state.

See harness.py for the format of a transcript, and for how to update one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odradek.coordinator.group import commands as c
from odradek.coordinator.group.modern.member import MemberState
from odradek.coordinator.group.records import from_record
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.sync_group import SyncGroupResponse
from odradek.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey as Current,
)
from odradek.protocol.records.consumer_group_member_metadata import ConsumerGroupMemberMetadataKey as MemberKey
from odradek.protocol.records.consumer_group_metadata import ConsumerGroupMetadataKey as GroupKey
from odradek.protocol.records.consumer_group_partition_metadata import (
    ConsumerGroupPartitionMetadataKey as PartitionsKey,
)
from odradek.protocol.records.consumer_group_regular_expression import ConsumerGroupRegularExpressionKey as RegexKey
from odradek.protocol.records.consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey as Target,
)
from odradek.protocol.records.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey as TargetEpoch,
)
from odradek.protocol.records.group_metadata import GroupMetadataKey
from tests.support.classic_rig import GROUP, REBALANCE_MS
from tests.support.modern_rig import Client, ModernRig, assignment, encode_assignment, metadata
from tests.support.transcripts.harness import Interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from odradek.runtime.shard import ShardRecord

CONFIGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "interval": ("consumer_assignment_interval_ms", int),
    "policy": ("consumer_migration_policy", str),
    "size": ("consumer_max_size", int),
    "classic-size": ("group_max_size", int),
    "assignors": ("consumer_assignors", lambda text: tuple(text.split(","))),
    "refresh": ("consumer_regex_refresh_interval_ms", int),
}


def options(words: Iterable[str]) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in words)


def split(text: str) -> tuple[str, ...]:
    return () if text in {"", "-"} else tuple(text.split(","))


def held(text: str) -> dict[str, tuple[int, ...]] | None:
    """`t:0,1/u:2`; `-` is None."""
    if text == "-":
        return None
    topics = (part.partition(":")[::2] for part in text.split("/") if part)
    return {name: tuple(int(number) for number in numbers.split(",")) for name, numbers in topics}


def shown(topics: Iterable[tuple[str, Iterable[object]]]) -> str:
    return " ".join(f"{name}:{','.join(map(str, numbers))}" for name, numbers in topics)


class ConsumerGroupInterpreter(Interpreter):
    """Execute commands on a group coordinator of consumer groups."""

    def __init__(self) -> None:
        self.rig = ModernRig()
        self.requests = 0
        self.logged = 0
        self.generations: dict[str, tuple[str, int]] = {}
        self.waiters: dict[str, int] = {}

    def collect(self, result: str | None) -> list[str]:
        output = self.log()
        if result is not None:
            self.requests += 1
            output.append(f"#{self.requests} {result}")
        self.rig.check()
        return output

    # ---- the coordinator --------------------------------------------------------------------------------------------

    def do_new(self, *words: str) -> None:
        said = options(words)
        self.rig = ModernRig(
            **{CONFIGS[key][0]: CONFIGS[key][1](value) for key, value in said.items() if key in CONFIGS}
        )
        self.rig.features.level = int(said.get("level", 1))
        self.logged, self.generations, self.requests = 0, {}, 0

    def do_topic(self, *words: str) -> None:
        self.rig.topics.make(words[0], int(words[1]))

    def do_no_topic(self, *words: str) -> None:
        self.rig.topics.delete(words[0])

    def do_wait(self, *words: str) -> None:
        self.rig.wait(int(words[0]))

    def do_crash(self, *words: str) -> None:
        self.rig.crash()

    def do_refuse_appends(self, *words: str) -> None:
        self.rig.refuse_appends = True

    def do_accept_appends(self, *words: str) -> None:
        self.rig.refuse_appends = False

    # ---- members of the consumer protocol ---------------------------------------------------------------------------

    def do_join(self, *words: str) -> str:
        name, topics, *rest = words
        said = options(rest)
        client = Client(name, split(topics), said.get("regex"), said.get("instance"))
        reply = self.rig.beat(
            "" if said.get("v") == "0" else name,
            0,
            owned={},
            version=int(said.get("v", 1)),
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=list(client.topics),
            subscribed_topic_regex=client.regex,
            instance_id=client.instance,
            server_assignor=said.get("assignor"),
        )
        if isinstance(reply, ConsumerGroupHeartbeatResponse):
            client.member_id = reply.member_id or ""
            self.rig.clients[name] = client
        return self.heartbeat_output(name, reply)

    def do_beat(self, *words: str) -> str:
        name, *rest = words
        said, client = options(rest), self.rig.clients[words[0]]
        if "owned" not in said:
            client.owned = dict(client.assigned)
        more: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS} if "full" in said else {}
        if "topics" in said or "full" in said:
            more["subscribed_topic_names"] = list(split(said["topics"]) if "topics" in said else client.topics)
        reply = self.rig.beat(
            client.member_id,
            int(said.get("epoch", client.epoch)),
            owned=held(said["owned"]) if "owned" in said else client.owned,
            version=int(said.get("v", 1)),
            client=said.get("client", "c"),
            instance_id=client.instance,
            subscribed_topic_regex=said.get("regex"),
            server_assignor=said.get("assignor"),
            **more,
        )
        return self.heartbeat_output(name, reply)

    def heartbeat_output(self, name: str, reply: ConsumerGroupHeartbeatResponse | str) -> str:
        if isinstance(reply, str):
            return f"{name} {reply}"
        client = self.rig.clients[name]
        client.epoch = reply.member_epoch
        if reply.assignment is None:
            return f"{name} epoch={reply.member_epoch}"
        client.assigned = self.rig.held(reply)
        member = name if client.member_id == name else f"{name}={client.member_id}"
        return f"{member} epoch={reply.member_epoch} [{shown(client.assigned.items())}]"

    def do_leave(self, *words: str) -> str:
        return self.leave_output(words[0], -1)

    def do_away(self, *words: str) -> str:
        return self.leave_output(words[0], -2)

    def leave_output(self, name: str, epoch: int) -> str:
        reply = self.rig.send_leave(name, epoch)
        return f"{name} {reply}" if isinstance(reply, str) else f"{name} epoch={reply.member_epoch}"

    # ---- members of the classic protocol ----------------------------------------------------------------------------

    def do_join_classic(self, *words: str) -> str:
        name, topics, *rest = words
        said = options(rest)
        owned = held(said.get("owned", "")) or {}
        protocols = {each: metadata(split(topics), owned) for each in split(said.get("protocols", "range"))}
        member_id = "" if "anew" in said else self.generations.get(name, ("", 0))[0]
        version = int(said.get("v", 9))
        request: dict[str, Any] = {"protocols": protocols, "instance": said.get("instance"), "version": version}
        reply = self.rig.join(member_id, **request)
        if not isinstance(reply, int | str) and reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            reply = self.rig.join(reply.member_id, **request)
        self.rig.fire_due_timers()
        if isinstance(reply, int):
            self.waiters[name] = reply
            reply = self.rig.responses.get(reply)
        return self.joined(name, reply)

    def do_response(self, *words: str) -> str:
        return self.joined(words[0], self.rig.responses.get(self.waiters[words[0]]))

    def joined(self, name: str, reply: Any) -> str:
        if reply is None or isinstance(reply, str):
            return f"{name} {reply or 'waits'}"
        if reply.error_code:
            return f"{name} {ErrorCode(reply.error_code).name}"
        self.generations[name] = (reply.member_id, reply.generation_id)
        return f"{name}={reply.member_id} gen={reply.generation_id} {reply.protocol_name} leader={reply.leader or '-'}"

    def do_sync_classic(self, *words: str) -> str:
        name, said = words[0], options(words[1:])
        member_id, generation = self.generations[name]
        gives = {}
        for part in said.get("gives", "").split(";"):
            member, _, topics = part.partition(":")
            if member:
                gives[self.generations[member][0]] = encode_assignment(held(topics) or {})
        reply = self.rig.sync(
            member_id,
            int(said.get("gen", generation)),
            gives,
            instance=said.get("instance"),
            protocol_type=said.get("type", "consumer"),
            protocol_name=said.get("name", "range"),
        )
        if not isinstance(reply, SyncGroupResponse):
            return f"{name} {reply}"
        if reply.error_code:
            return f"{name} {ErrorCode(reply.error_code).name}"
        return f"{name} [{shown(assignment(bytes(reply.assignment)).items())}]"

    def do_beat_classic(self, *words: str) -> str:
        name, said = words[0], options(words[1:])
        member_id, generation = self.generations[name]
        reply = self.rig.heartbeat(member_id, int(said.get("gen", generation)), instance=said.get("instance"))
        return f"{name} {reply}"

    def do_leave_classic(self, *words: str) -> str:
        return f"{' '.join(words)}: {' '.join(self.rig.leave(*(self._identity(word) for word in words)))}"

    def _identity(self, word: str) -> str | tuple[str, str | None]:
        name, slash, instance = word.partition("/")
        known = self.generations[name][0] if name in self.generations else name
        return (known, instance) if slash else known

    # ---- offsets and descriptions -----------------------------------------------------------------------------------

    def do_commit(self, *words: str) -> str:
        name, epoch, partition, *rest = words
        said = options(rest)
        topic, _, number = partition.partition("-")
        member_id = self.rig.clients[name].member_id if name in self.rig.clients else self.generations[name][0]
        group = self.rig.core.state.groups[GROUP]
        try:
            group.check_offset_commit(
                member_id, None, int(epoch), in_transaction="txn" in said, api_version=int(said.get("v", 9))
            )
            group.check_partition_commit(member_id, int(epoch), self.rig.topic_id(topic).bytes, topic, int(number))
        except Refusal as refusal:
            return f"{name} {refusal.error.name}"
        return f"{name} may commit"

    def do_fetch(self, *words: str) -> str:
        member_id = self.rig.clients[words[0]].member_id if words[0] in self.rig.clients else words[0]
        try:
            self.rig.core.state.groups[GROUP].check_offset_fetch(member_id, int(words[1]))
        except Refusal as refusal:
            return f"{words[0]} {refusal.error.name}"
        return f"{words[0]} may fetch"

    def do_describe(self, *words: str) -> str:
        found = self.rig.do(c.DescribeConsumer(GROUP))
        if found.error_code:
            return f"{ErrorCode(found.error_code).name}: {found.error_message}"
        members = [
            f"{member.member_id}@{member.member_epoch}{'' if member.member_type else ' classic'} "
            f"[{shown((topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions)}] -> "
            f"[{shown((topic.topic_name, topic.partitions) for topic in member.target_assignment.topic_partitions)}]"
            for member in found.members
        ]
        head = (
            f"{found.group_state} epoch={found.group_epoch} assignment={found.assignment_epoch} {found.assignor_name}"
        )
        return "; ".join([head, *members])

    def do_state(self, *words: str) -> str:
        group = self.rig.core.state.groups.get(GROUP)
        return "no group" if group is None else f"{group.kind.value} {group.state_name}"

    # ---- the log ----------------------------------------------------------------------------------------------------

    def log(self) -> list[str]:
        new, self.logged = self.rig.log[self.logged :], len(self.rig.log)
        return [f"log {self.record(record)}" for record in new]

    def record(self, record: ShardRecord) -> str:
        entry = from_record(replace(record, memo=None))
        assert entry is not None
        key, value = entry.key, entry.value
        what, show = RECORDS[type(key)]
        words = [what] + [getattr(key, name) for name in ("member_id", "regular_expression") if hasattr(key, name)]
        return " ".join([*words, "gone" if value is None else show(self, value)]).rstrip()

    def topics(self, topics: Iterable[Any]) -> str:
        return shown((self.name(topic.topic_id), topic.partitions) for topic in topics)

    def with_epochs(self, topics: Iterable[Any]) -> str:
        return shown(
            (self.name(t.topic_id), [f"{p}@{e}" for p, e in zip(t.partitions, t.assignment_epochs, strict=True)])
            for t in topics
        )

    def name(self, topic_id: UUID) -> str:
        return self.rig.topic_name(topic_id)

    def member(self, value: Any) -> str:
        words = {
            "topics": ",".join(value.subscribed_topic_names),
            "regex": value.subscribed_topic_regex,
            "instance": value.instance_id,
            "assignor": value.server_assignor,
        }
        found = [f"{name}={word}" for name, word in words.items() if word]
        classic = value.classic_member_metadata
        if classic is not None:
            found.append(f"classic={','.join(protocol.name for protocol in classic.supported_protocols)}")
        return " ".join(found)

    def current(self, value: Any) -> str:
        state = MemberState.of(value.state).name.removesuffix("_PARTITIONS")
        gives = self.with_epochs(value.partitions_pending_revocation)
        has = self.with_epochs(value.assigned_partitions)
        return f"{value.previous_member_epoch}>{value.member_epoch} {state} [{has}]" + (f" -[{gives}]" if gives else "")

    def classic(self, value: Any) -> str:
        members = "; ".join(f"{m.member_id} [{shown(assignment(bytes(m.assignment)).items())}]" for m in value.members)
        return f"gen={value.generation} {value.protocol or '-'} {members}"


RECORDS: Mapping[type, tuple[str, Any]] = {
    GroupKey: ("group", lambda _, value: f"epoch={value.epoch} topics={'some' if value.metadata_hash else 'none'}"),
    PartitionsKey: ("partition-metadata", lambda _, _value: "of an older broker"),
    MemberKey: ("member", ConsumerGroupInterpreter.member),
    TargetEpoch: ("target-epoch", lambda _, value: str(value.assignment_epoch)),
    Target: ("target", lambda self, value: f"[{self.topics(value.topic_partitions)}]"),
    Current: ("current", ConsumerGroupInterpreter.current),
    RegexKey: ("regex", lambda _, value: f"[{' '.join(value.topics)}]"),
    GroupMetadataKey: ("classic", ConsumerGroupInterpreter.classic),
}
