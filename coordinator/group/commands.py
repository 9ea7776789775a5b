"""What a group coordinator is asked for: the clients' requests as they came, and who sent them.

Commands that only a timer sends stand with the core that sets the timer.
"""

from dataclasses import dataclass
from typing import Any, Final

from odradek.protocol.errors import Refusal
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequest
from odradek.protocol.messages.leave_group import LeaveGroupRequest
from odradek.protocol.messages.offset_commit import OffsetCommitRequest
from odradek.protocol.messages.offset_delete import OffsetDeleteRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from odradek.protocol.messages.sync_group import SyncGroupRequest
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from odradek.protocol.schema import Message


@dataclass(frozen=True, slots=True)
class Caller:
    """The client behind a request."""

    client_id: str
    client_host: str
    api_version: int


class _Waiting:
    """See WAITING."""


WAITING: Final = _Waiting()
"""A reply: the answer comes later, as the effect `Answer` with the command's `waiter`."""


@dataclass(frozen=True, slots=True)
class Respond:
    """Effect: the answer of the command that came with `waiter`, however many decisions ago.

    A waiter that has been answered, or whose client is gone, is unknown: the effect is ignored then.
    """

    waiter: int
    response: Message | Refusal


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Reply: JoinGroupResponse or WAITING."""

    request: JoinGroupRequest
    caller: Caller
    waiter: int


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """Reply: SyncGroupResponse or WAITING."""

    request: SyncGroupRequest
    caller: Caller
    waiter: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Reply: HeartbeatResponse."""

    request: HeartbeatRequest
    caller: Caller


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Reply: LeaveGroupResponse."""

    request: LeaveGroupRequest
    caller: Caller


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeat:
    """Reply: ConsumerGroupHeartbeatResponse."""

    request: ConsumerGroupHeartbeatRequest
    caller: Caller


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Reply: OffsetCommitResponse. Topics that do not exist were answered before."""

    request: OffsetCommitRequest
    caller: Caller


@dataclass(frozen=True, slots=True)
class CommitOffsetsInTransaction:
    """Reply: TxnOffsetCommitResponse. The transaction has been verified."""

    request: TxnOffsetCommitRequest
    caller: Caller


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """Reply: OffsetFetchResponseGroup. `request.topics` None asks for all."""

    request: OffsetFetchRequestGroup
    require_stable: bool
    caller: Caller


@dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """Reply: OffsetDeleteResponse."""

    request: OffsetDeleteRequest


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Reply: None, or a Refusal (GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP ...)."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Reply: list of ListedGroup (protocol.messages.list_groups). Empty filters let everything pass."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeClassic:
    """Reply: DescribedGroup (protocol.messages.describe_groups), of unknown groups too (Dead)."""

    group_id: str
    api_version: int


@dataclass(frozen=True, slots=True)
class DescribeConsumer:
    """Reply: DescribedGroup (protocol.messages.consumer_group_describe)."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    topic_id: bytes
    name: str


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Reply: None. Their offsets are dropped, as tombstones; those of another topic of that name are kept."""

    topics: tuple[DeletedTopic, ...]


Command = Any
"""One of the above, or a timer's own."""
