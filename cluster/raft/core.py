"""Agreement on one log, KRaft's way: a value machine without clock, disk, network or randomness of its own.

    step(message, now_ms)   a message has arrived          propose(data, count)   the leader appends a batch
    tick(now_ms)            time has passed                 take_ready() -> Ready, then advance() when it is done

Differences from the Raft paper are Kafka's: followers fetch, and a fetch acknowledges; the leader's answer to a log that
diverged names the epoch and offset to cut to (KIP-595); before raising its epoch a node asks whether it would win (KIP-996);
the first entry of an epoch is a LEADER_CHANGE, and nothing counts as committed before an entry of the leader's own epoch is.

A node that is not a voter observes: it fetches and never votes. A quorum of one walks the same path and needs no messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from odradek.cluster.raft import follower, leader, voting
from odradek.cluster.raft.election import Election, RaftConfig, Role
from odradek.cluster.raft.messages import (
    NOBODY,
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    Entry,
    EpochEnd,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    HardState,
    LeaderChange,
    Leadership,
    Message,
    Ready,
    SnapshotPart,
    Standing,
    VoteReply,
    VoteRequest,
)
from odradek.cluster.raft.progress import Progress, successors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from odradek.cluster.raft.log_view import LogView

DEFAULT_CONFIG = RaftConfig()
DOUBLINGS_MAX: Final = 10
REQUEST_IDS_FROM_MAX: Final = 2**48


class Randomness(Protocol):
    """The part of random.Random that is needed."""

    def randrange(self, stop: int, /) -> int: ...


class NotLeader(Exception):
    """Only a leader can append."""


class RaftCore:
    """One replica of the log. Attributes without underscore may be read by anybody, and written by this package's rules only."""

    def __init__(
        self,
        node_id: int,
        voters: Iterable[int],
        log: LogView,
        hard_state: HardState,
        *,
        rng: Randomness,
        config: RaftConfig = DEFAULT_CONFIG,
    ) -> None:
        """State as read from disk. Call `start` once before anything else.

        A voter without a stored state is NEW; one that misses a part of its log is LOST.
        """
        self.node_id = node_id
        self.voters = tuple(sorted(dict.fromkeys(voters)))
        self.log = log
        self.config = config
        self.rng = rng
        self.role = Role.UNATTACHED
        self.epoch = max(hard_state.epoch, log.last_epoch)
        self.leader_id = NOBODY if self.epoch > hard_state.epoch else hard_state.leader_id
        self.voted_id = NOBODY if self.epoch > hard_state.epoch else hard_state.voted_id
        self.standing = hard_state.standing
        if not self.is_voter or self.is_only_voter:
            self.standing = Standing.ORDINARY
        elif self.standing is Standing.ORDINARY and log.end_offset == 0:
            self.standing = Standing.LOST  # no ordinary voter was ever without an entry
        newest = log.latest_snapshot
        self.high_watermark = newest.end_offset if newest is not None else 0
        # deadlines are monotonic milliseconds; what they mean depends on the role
        self.deadline_ms = 0
        self.election: Election | None = None
        self.backing_off = False
        self.hurried = False  # there is no leader, or it is said to be dead: do not wait as long as for a silent one
        self.rounds = 0
        # leader
        self.epoch_start_offset = 0
        self.progress: dict[int, Progress] = {}
        self.granting_voters: tuple[int, ...] = ()
        self.preferred_successors: tuple[int, ...] = ()
        # follower and observer
        self.has_fetched = False
        self.leader_high_watermark = 0
        self.fetching: FetchRequest | FetchSnapshotRequest | None = None
        self.installing: SnapshotPart | None = None  # the last part of a snapshot that has come
        self.snapshot_part: SnapshotPart | None = None
        self.fetch_deadline_ms = 0
        self.next_fetch_ms = 0

        self._persisted = hard_state
        self._told_leadership: Leadership | None = None
        self._told_high_watermark = self.high_watermark
        self._early: list[Message] = []
        self._messages: list[Message] = []
        self._taken: Ready | None = None
        # Not from 0: an answer to an earlier life of this node must not fit a question of this one.
        self._request_id = rng.randrange(REQUEST_IDS_FROM_MAX)

    # ---- input ------------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Take the role that the stored state allows (KafkaRaftClient's rules).

        Whoever starts asks soon, though not before it has looked for the leader that it knows: asking deposes nobody.
        """
        self.hurried = True
        if self.is_only_voter:
            # Nobody can vote otherwise, and whoever led this epoch is gone with its memory: a new epoch at once.
            self.become_candidate(now_ms)
        elif self.leader_id == self.node_id:
            # It cannot lead the same epoch twice: entries of it may have been lost with what was not synced.
            self.become_resigned(now_ms)
        elif self.leader_id != NOBODY:
            self.become_follower(self.epoch, self.leader_id, now_ms)
            self.hurried = True
            self.deadline_ms = min(self.deadline_ms, now_ms + self.election_wait_ms())
        else:
            self.become_unattached(self.epoch, now_ms, voted_id=self.voted_id)

    def step(self, message: Message, now_ms: int) -> None:
        """Take one message addressed to this node."""
        assert message.target == self.node_id, message
        HANDLERS[type(message)](self, message, now_ms)

    def tick(self, now_ms: int) -> None:
        """Act on every deadline that has passed."""
        TICKS[self.role](self, now_ms)

    def propose(self, data: bytes, count: int) -> Entry:
        """Append a batch of `count` offsets to the leader's log. Raises NotLeader."""
        if self.role is not Role.LEADER:
            raise NotLeader
        end = self.log.end_offset
        entry = Entry(end, end + count - 1, self.epoch, data)
        self.log.append(entry)
        leader.answer_parked(self)
        return entry

    def suspect(self, leader_id: int, now_ms: int) -> None:
        """Node `leader_id` is said to be dead (a verdict of the failure detector, a lost connection).

        Nothing happens unless this node follows it. If it is alive after all, it or the majority that hears it refuses the
        pre-vote that follows, and nothing has changed.
        """
        if self.role is Role.FOLLOWER and leader_id == self.leader_id and not self.hurried:
            follower.suspect(self, now_ms)

    def add_snapshot(self, snapshot: EpochEnd) -> None:
        """A snapshot of everything committed below its end has been stored. Later `log.start_offset` says what it replaces."""
        self.log.add_snapshot(snapshot)

    def resign(self, now_ms: int) -> None:
        """Give the leadership up (clean shutdown): the others are told at once instead of finding out."""
        if self.role is Role.LEADER and not self.is_only_voter:
            self.become_resigned(now_ms)

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.voters

    @property
    def is_only_voter(self) -> bool:
        return self.voters == (self.node_id,)

    @property
    def announced_leader_id(self) -> int:
        """Whom others are told to follow: not a node that has resigned."""
        return NOBODY if self.role is Role.RESIGNED else self.leader_id

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` has to be called next; None: not before something arrives."""
        if self.role is Role.LEADER:
            return leader.next_deadline_ms(self)
        if self.role is Role.FOLLOWER or not self.is_voter:
            return follower.next_deadline_ms(self)
        return voting.next_deadline_ms(self)

    # ---- output -----------------------------------------------------------------------------------------------------

    def take_ready(self) -> Ready | None:
        """What has to be done now, or None. The next one can be taken after `advance`."""
        assert self._taken is None, "advance first"
        hard_state = HardState(self.epoch, self.leader_id, self.voted_id, self.standing)
        leadership = Leadership(self.epoch, self.leader_id, self.role is Role.LEADER)
        truncate_to, entries = self.log.take()
        ready = Ready(
            hard_state if hard_state != self._persisted else None,
            truncate_to,
            entries,
            tuple(self._early),
            tuple(self._messages),
            leadership if leadership != self._told_leadership else None,
            self.high_watermark if self.high_watermark != self._told_high_watermark else None,
            self.log.end_offset,
            self.snapshot_part,
        )
        news = (ready.hard_state, truncate_to, ready.leadership, ready.high_watermark, self.snapshot_part)
        if not (entries or self._early or self._messages or any(item is not None for item in news)):
            return None
        self._early, self._messages = [], []
        self.snapshot_part = None
        self._persisted = hard_state
        self._told_leadership = leadership
        self._told_high_watermark = self.high_watermark
        self._taken = ready
        return ready

    def advance(self, now_ms: int) -> None:
        """The `Ready` taken last is done, durably."""
        taken, self._taken = self._taken, None
        assert taken is not None, "take_ready first"
        self.log.stable_to(taken.log_end_offset)
        if self.role is Role.LEADER:
            leader.advance_high_watermark(self)
        elif self.role is Role.FOLLOWER:
            follower.fetch_if_due(self, now_ms)

    def send(self, message: Message) -> None:
        """To go out when everything appended and voted so far is durable."""
        self._messages.append(message)

    def send_early(self, message: Message) -> None:
        """To go out when everything appended so far is written; for what does not acknowledge anything."""
        self._early.append(message)

    def new_request_id(self) -> int:
        self._request_id += 1
        return self._request_id

    # ---- roles ------------------------------------------------------------------------------------------------------

    def become_unattached(self, epoch: int, now_ms: int, *, voted_id: int = NOBODY) -> None:
        """No leader is known. A voter waits for one, or for its time to ask for votes itself."""
        self._leave(epoch)
        self.role = Role.UNATTACHED
        self.leader_id, self.voted_id = NOBODY, voted_id
        self.deadline_ms = now_ms + self.election_wait_ms()
        self.next_fetch_ms = now_ms

    def become_prospective(self, now_ms: int) -> None:
        """Ask whether the others would vote for it, in the same epoch; leader and vote stay what they are."""
        assert self.is_voter
        self._leave(self.epoch)
        self.role = Role.PROSPECTIVE
        voting.open_round(self, now_ms, pre_vote=True)

    def become_candidate(self, now_ms: int) -> None:
        """Raise the epoch and ask for votes; the own one is persisted before anybody hears of it."""
        assert self.is_voter
        self._leave(self.epoch + 1)
        self.role = Role.CANDIDATE
        self.leader_id, self.voted_id = NOBODY, self.node_id
        voting.open_round(self, now_ms, pre_vote=False)

    def become_leader(self, now_ms: int) -> None:
        assert self.role is Role.CANDIDATE
        assert self.election is not None
        granting = tuple(sorted(self.election.granted))
        self._leave(self.epoch)
        self.role = Role.LEADER
        self._settle()
        self.leader_id, self.voted_id = self.node_id, NOBODY
        self.granting_voters = granting
        self.epoch_start_offset = self.log.end_offset
        self.progress = {
            voter: Progress(last_fetch_ms=now_ms, knows_leader=voter == self.node_id) for voter in self.voters
        }
        start = self.epoch_start_offset
        self.log.append(Entry(start, start, self.epoch, LeaderChange(self.node_id, self.voters, granting)))
        leader.tell_voters(self, now_ms)

    def become_resigned(self, now_ms: int) -> None:
        """Led this epoch and may not lead it again; voters are told until the next election is due."""
        others = {voter: progress for voter, progress in self.progress.items() if voter != self.node_id}
        self.preferred_successors = successors(others)
        self._leave(self.epoch)
        self.role = Role.RESIGNED
        self.leader_id = self.node_id
        self.deadline_ms = now_ms + self.election_wait_ms()
        voting.tell_resigned(self)

    def become_follower(self, epoch: int, leader_id: int, now_ms: int) -> None:
        assert leader_id not in {NOBODY, self.node_id}
        self._leave(epoch)
        self.role = Role.FOLLOWER
        self._settle()
        self.leader_id, self.voted_id = leader_id, NOBODY
        self.has_fetched = False
        self.leader_high_watermark = 0
        self.deadline_ms = now_ms + self.config.fetch_timeout_ms
        self.next_fetch_ms = now_ms
        follower.fetch_if_due(self, now_ms)

    def _leave(self, epoch: int) -> None:
        """Whatever the node was, it is not any more; the epoch never goes back."""
        assert epoch >= self.epoch, (epoch, self.epoch)
        leader.refuse_parked(self, epoch)
        if epoch > self.epoch:
            self.leader_id = self.voted_id = NOBODY
        self.epoch = epoch
        self.progress = {}
        self.granting_voters = ()
        self.election = None
        self.backing_off = False
        self.fetching = None
        self.installing = None

    def note_committed(self, high_watermark: int) -> None:
        """The leader of this epoch has committed everything below `high_watermark`: is there anything that it can have lost?

        A leader that has committed an entry of its own epoch knows all that is committed; before, it does not. Whoever has
        that durably has everything that it can ever have acknowledged.
        """
        known = 0 < high_watermark <= self.log.stable_end and self.log.epoch_of(high_watermark - 1) == self.epoch
        if known:
            self.standing = Standing.ORDINARY

    def _settle(self) -> None:
        """There is a leader."""
        self.hurried = False
        self.rounds = 0

    def follow_newer(self, epoch: int, leader_id: int, now_ms: int) -> None:
        """Somebody is in a later epoch, or knows the leader of this one. Raises DifferentVoters."""
        if epoch < self.epoch:
            return
        follower.refuse_stranger(self, leader_id)
        known = leader_id not in {NOBODY, self.node_id}
        if epoch > self.epoch:
            if known:
                self.become_follower(epoch, leader_id, now_ms)
            else:
                self.become_unattached(epoch, now_ms)
        elif known and self.leader_id == NOBODY:
            self.become_follower(epoch, leader_id, now_ms)

    def election_wait_ms(self) -> int:
        """How long to wait before asking (again), at random; in a hurry it begins short and doubles with every round."""
        base = self.config.election_timeout_ms
        if self.hurried:
            base = min(base, self.config.hurried_round_ms << min(self.rounds, DOUBLINGS_MAX))
        return base + self.rng.randrange(base)

    def backoff_ms_max(self) -> int:
        """The bound of the wait after a split vote, which doubles with every round."""
        wait_ms = self.config.hurried_round_ms << min(self.rounds, DOUBLINGS_MAX)
        return min(self.config.election_backoff_max_ms, wait_ms)


HANDLERS: dict[type[Message], Callable[[RaftCore, Any, int], None]] = {
    VoteRequest: voting.on_vote_request,
    VoteReply: voting.on_vote_reply,
    BeginQuorumEpochRequest: follower.on_begin_quorum_epoch,
    BeginQuorumEpochReply: leader.on_begin_quorum_epoch_reply,
    EndQuorumEpochRequest: follower.on_end_quorum_epoch,
    EndQuorumEpochReply: voting.on_end_quorum_epoch_reply,
    FetchRequest: leader.on_fetch,
    FetchReply: follower.on_fetch_reply,
    FetchSnapshotRequest: leader.on_fetch_snapshot,
    FetchSnapshotReply: follower.on_fetch_snapshot_reply,
}
TICKS: dict[Role, Callable[[RaftCore, int], None]] = {
    Role.UNATTACHED: voting.tick_unattached,
    Role.PROSPECTIVE: voting.tick_prospective,
    Role.CANDIDATE: voting.tick_candidate,
    Role.LEADER: leader.tick,
    Role.RESIGNED: voting.tick_resigned,
    Role.FOLLOWER: follower.tick,
}
