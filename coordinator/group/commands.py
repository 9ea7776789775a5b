"""Commands of the group coordinator: client requests with the client that sent them.

Commands that only timers submit are defined beside the core that sets the timer.
"""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Final

from odradek.frozen import frozen_dataclass
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

DescribableTopics = Callable[[Sequence[str]], Sequence[str]]


@frozen_dataclass(frozen=True, slots=True)
class Caller:
    """The client that sent a request."""

    client_id: str
    client_host: str
    api_version: int
    describable: DescribableTopics | None = field(default=None, compare=False)
    """Function that returns the topics, among those given, that the client may describe. None: all of them."""


class _Waiting:
    """Type of WAITING."""


WAITING: Final = _Waiting()
"""Reply without a response: a later decision responds with the effect `Respond` and the command's `waiter`."""


@frozen_dataclass(frozen=True, slots=True)
class Respond:
    """Effect: complete the request that was submitted with `waiter`, by this decision or an earlier one.

    The effect is ignored if the request has its response already, or if its client has disconnected.
    """

    waiter: int
    response: Message | Refusal


@frozen_dataclass(frozen=True, slots=True)
class Notice:
    """Effect: write a warning to the log of the broker, when the records of the decision are committed."""

    event: str
    fields: tuple[tuple[str, object], ...] = ()


@frozen_dataclass(frozen=True, slots=True)
class JoinGroup:
    """JoinGroup request. Reply: JoinGroupResponse, or WAITING until the join phase ends."""

    request: JoinGroupRequest
    caller: Caller
    waiter: int


@frozen_dataclass(frozen=True, slots=True)
class SyncGroup:
    """SyncGroup request. Reply: SyncGroupResponse, or WAITING until the leader sends the assignment."""

    request: SyncGroupRequest
    caller: Caller
    waiter: int


@frozen_dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat request. Reply: HeartbeatResponse."""

    request: HeartbeatRequest
    caller: Caller


@frozen_dataclass(frozen=True, slots=True)
class LeaveGroup:
    """LeaveGroup request. Reply: LeaveGroupResponse."""

    request: LeaveGroupRequest
    caller: Caller


@frozen_dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeat:
    """ConsumerGroupHeartbeat request. Reply: ConsumerGroupHeartbeatResponse."""

    request: ConsumerGroupHeartbeatRequest
    caller: Caller


@frozen_dataclass(frozen=True, slots=True)
class CommitOffsets:
    """OffsetCommit request, without the topics that do not exist. Reply: OffsetCommitResponse."""

    request: OffsetCommitRequest
    caller: Caller


@frozen_dataclass(frozen=True, slots=True)
class CommitOffsetsInTransaction:
    """TxnOffsetCommit request of a verified transaction. Reply: TxnOffsetCommitResponse."""

    request: TxnOffsetCommitRequest
    caller: Caller


@frozen_dataclass(frozen=True, slots=True)
class FetchOffsets:
    """OffsetFetch request for one group. `request.topics` None requests all topics. Reply: OffsetFetchResponseGroup."""

    request: OffsetFetchRequestGroup
    require_stable: bool
    caller: Caller


@frozen_dataclass(frozen=True, slots=True)
class DeleteOffsets:
    """OffsetDelete request. Reply: OffsetDeleteResponse."""

    request: OffsetDeleteRequest


@frozen_dataclass(frozen=True, slots=True)
class DeleteGroup:
    """DeleteGroups request for one group. Reply: None, or a Refusal (GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP ...)."""

    group_id: str


@frozen_dataclass(frozen=True, slots=True)
class ListGroups:
    """ListGroups request.

    The filters are in lower case. An empty one matches all groups. Reply: list of
    protocol.messages.list_groups.ListedGroup.
    """

    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()


@frozen_dataclass(frozen=True, slots=True)
class DescribeClassic:
    """DescribeGroups request for one group.

    Reply: protocol.messages.describe_groups.DescribedGroup; Dead if unknown.
    """

    group_id: str
    api_version: int


@frozen_dataclass(frozen=True, slots=True)
class DescribeConsumer:
    """ConsumerGroupDescribe request for one group. Reply: protocol.messages.consumer_group_describe.DescribedGroup."""

    group_id: str


@frozen_dataclass(frozen=True, slots=True)
class DeletedTopic:
    topic_id: bytes
    name: str


@frozen_dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Deletion of topics: write tombstones for their offsets, but not for those of a newer topic with the same name."""

    topics: tuple[DeletedTopic, ...]


Command = Any
"""A command of this module, or a timer command of a core."""
