"""The follower's half of a fetch session (KIP-227): what the leader has been told, and what it is to be told next. No IO.

A request names the partitions that are new or have grown since the last one, and those that are not to be fetched any more. After
anything that leaves in doubt what the leader has heard, a new session begins with everything in it.
"""

from asyncio import TimerHandle
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from odradek.broker.fetch.sessions import EPOCH_MAX, INITIAL_EPOCH, NO_SESSION
from odradek.broker.partition.partition import NO_EPOCH, Partition
from odradek.cluster.replication.follower import PartitionFetchState, State
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState

Key = tuple[int, int]
"""Topic id and partition. As a number, since a UUID is hashed in Python."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The properties replica.fetch.*."""

    wait_max_ms: int
    min_bytes: int
    max_bytes: int
    response_max_bytes: int
    backoff_ms: int


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """This broker as a follower. Its epoch is known once it is registered."""

    node_id: int
    epoch: Callable[[], int]

    @property
    def broker_epoch(self) -> int:
        """Return the epoch of the current registration."""
        return self.epoch()


@dataclass(slots=True, eq=False)
class Followed:
    """One partition that is fetched from one leader."""

    partition: Partition
    fetch_state: PartitionFetchState
    named: bool = False
    """In the session, as far as the leader knows."""
    told_start: int = -1
    """Where the leader was last told that this log begins."""
    timer: TimerHandle | None = None

    @property
    def key(self) -> Key:
        return self.partition.topic_id.int, self.partition.index


@dataclass(slots=True)
class FollowerSession:
    """One session with one leader. `due`: to be named in the next request."""

    followed: dict[Key, Followed] = field(default_factory=dict)
    due: dict[Followed, None] = field(default_factory=dict)
    _forgotten: dict[Key, UUID] = field(default_factory=dict)
    _named: int = 0
    _id: int = NO_SESSION
    _epoch: int = INITIAL_EPOCH

    @property
    def idle(self) -> bool:
        """There is nothing to fetch."""
        return not self.due and not self._named

    def add(self, followed: Followed) -> None:
        self.followed[followed.key] = followed
        self._forgotten.pop(followed.key, None)

    def leave_out(self, followed: Followed) -> None:
        """Not to be fetched, for now or for good."""
        self.due.pop(followed, None)
        if followed.named:
            followed.named = False
            self._named -= 1
            self._forgotten[followed.key] = followed.partition.topic_id

    def answered(self, session_id: int) -> None:
        """Follow the numbering; where the leader keeps no session everything is asked for every time."""
        if session_id == NO_SESSION:
            self.lost()
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def lost(self) -> None:
        """The leader has no session any more, or may have none."""
        self._id = NO_SESSION
        self.begin_anew()

    def begin_anew(self) -> None:
        """The next request opens another session, which ends the old one."""
        self._epoch = INITIAL_EPOCH
        self._forgotten.clear()
        self._named = 0
        for followed in self.followed.values():
            followed.named = False
            followed.fetch_state.fetch_offset = NO_EPOCH
            if followed.fetch_state.state is State.FETCHING:
                self.due[followed] = None

    def question(self, identity: BrokerIdentity, settings: FetchSettings) -> FetchRequest:
        """The next request; nothing is due after it."""
        topics: dict[int, FetchTopic] = {}
        for followed in self.due:
            partition = followed.partition
            if not followed.named:
                followed.named = True
                self._named += 1
            topic_id = partition.topic_id
            topic = topics.get(topic_id.int)
            if topic is None:
                topic = topics[topic_id.int] = FetchTopic("", topic_id, [])
            topic.partitions.append(_asked(followed, settings.max_bytes))
        self.due.clear()
        forgotten: dict[int, ForgottenTopic] = {}
        for (number, index), topic_id in self._forgotten.items():
            forgotten.setdefault(number, ForgottenTopic("", topic_id, [])).partitions.append(index)
        self._forgotten.clear()
        return FetchRequest(
            replica_state=ReplicaState(identity.node_id, identity.broker_epoch),
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )


def _asked(followed: Followed, max_bytes: int) -> FetchPartition:
    log, fetch_state = followed.partition.log, followed.fetch_state
    fetch_state.fetch_offset = offset = log.log_end_offset
    followed.told_start = start = log.log_start_offset
    return FetchPartition(log.partition, fetch_state.leader_epoch, offset, log.epochs.latest, start, max_bytes)
