"""Fetch session of a follower with one leader (KIP-227): a core without I/O that creates the next Fetch request.

A request contains the partitions that are new or have grown since the last request, and the removed partitions. If a
request fails, the follower does not know if the leader received it; then the next request opens a new session with all
partitions.
"""

from asyncio import TimerHandle
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final
from uuid import UUID

from odradek.broker.fetch.sessions import INITIAL_EPOCH, NO_SESSION, SESSION_EPOCH_MAX
from odradek.broker.partition.partition import Partition
from odradek.cluster.replication.follower import PartitionFetchState, State
from odradek.frozen import frozen_dataclass
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from odradek.protocol.special_values import UNKNOWN_OFFSET

PARTITIONS_PER_REQUEST_MAX: Final = 256
"""Maximum partitions per Fetch request: the leader resolves all partitions of a request in one step. The next request
has the other partitions."""
Key = tuple[int, int]
"""Topic id, as an integer because hashing a UUID is slow, and partition index."""


@frozen_dataclass(frozen=True, slots=True)
class FetchSettings:
    """Values of the properties replica.fetch.*; times are in milliseconds."""

    wait_max_ms: int
    min_bytes: int
    max_bytes: int
    response_max_bytes: int
    backoff_ms: int


@frozen_dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Identity of this broker in its fetches. The broker epoch exists after the registration."""

    node_id: int
    epoch: Callable[[], int]

    @property
    def broker_epoch(self) -> int:
        """Return the epoch of the current registration."""
        return self.epoch()


@dataclass(slots=True, eq=False)
class Followed:
    """State of one partition that this broker fetches from one leader, in one leader epoch."""

    partition: Partition
    fetch_state: PartitionFetchState
    in_session: bool = False
    """True if the session at the leader contains the partition."""
    sent_log_start: int = -1
    """Log start offset in the last request with this partition; -1 before the first."""
    timer: TimerHandle | None = None
    """Timer that ends a pause of the partition."""

    @property
    def key(self) -> Key:
        return self.partition.topic_id.int, self.partition.index


@dataclass(slots=True)
class FollowerSession:
    """Fetch session of this broker with one leader."""

    followed: dict[Key, Followed] = field(default_factory=dict)
    """All partitions that this broker follows at the leader, including paused ones."""
    due: dict[Followed, None] = field(default_factory=dict)
    """Partitions for the next request."""
    _forgotten: dict[Key, UUID] = field(default_factory=dict)
    _in_session: int = 0
    _id: int = NO_SESSION
    _epoch: int = INITIAL_EPOCH

    @property
    def idle(self) -> bool:
        """True if the session has no partition to fetch."""
        return not self.due and not self._in_session

    def add(self, followed: Followed) -> None:
        """Add a partition. It is fetched once it is in `due`."""
        self.followed[followed.key] = followed
        self._forgotten.pop(followed.key, None)

    def exclude(self, followed: Followed) -> None:
        """Stop fetching a partition: the next request removes it from the leader's session."""
        self.due.pop(followed, None)
        if followed.in_session:
            followed.in_session = False
            self._in_session -= 1
            self._forgotten[followed.key] = followed.partition.topic_id

    def completed(self, session_id: int) -> None:
        """Apply the session id of a response. If it is NO_SESSION, the next request contains all partitions again."""
        if session_id == NO_SESSION:
            self.lost()
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == SESSION_EPOCH_MAX else self._epoch + 1

    def lost(self) -> None:
        """Forget the session: the leader has none, or may have none."""
        self._id = NO_SESSION
        self.restart()

    def restart(self) -> None:
        """Let the next request open a new session with all partitions; it also closes the old session."""
        self._epoch = INITIAL_EPOCH
        self._forgotten.clear()
        self._in_session = 0
        for followed in self.followed.values():
            followed.in_session = False
            followed.fetch_state.fetch_offset = UNKNOWN_OFFSET
            if followed.fetch_state.state is State.FETCHING:
                self.due[followed] = None

    def next_request(self, identity: BrokerIdentity, settings: FetchSettings) -> FetchRequest:
        """Return the next request, and remove its partitions from `due`.

        If some remain, the leader must respond immediately, so that the next request follows.
        """
        topics: dict[int, FetchTopic] = {}
        requested = list(islice(self.due, PARTITIONS_PER_REQUEST_MAX))
        for followed in requested:
            del self.due[followed]
            partition = followed.partition
            if not followed.in_session:
                followed.in_session = True
                self._in_session += 1
            topic_id = partition.topic_id
            topic = topics.get(topic_id.int)
            if topic is None:
                topic = topics[topic_id.int] = FetchTopic("", topic_id, [])
            topic.partitions.append(_fetch_partition(followed, settings.max_bytes))
        forgotten: dict[int, ForgottenTopic] = {}
        for (topic_number, index), topic_id in self._forgotten.items():
            forgotten.setdefault(topic_number, ForgottenTopic("", topic_id, [])).partitions.append(index)
        self._forgotten.clear()
        return FetchRequest(
            replica_state=ReplicaState(identity.node_id, identity.broker_epoch),
            max_wait_ms=settings.wait_max_ms,
            min_bytes=0 if self.due else settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )


def _fetch_partition(followed: Followed, max_bytes: int) -> FetchPartition:
    log, fetch_state = followed.partition.log, followed.fetch_state
    fetch_state.fetch_offset = offset = log.log_end_offset
    followed.sent_log_start = start = log.log_start_offset
    return FetchPartition(log.partition, fetch_state.leader_epoch, offset, log.epochs.latest, start, max_bytes)
