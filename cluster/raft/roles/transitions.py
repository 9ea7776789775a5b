"""The roles of a raft replica, and the events that lead from one role to the next (KIP-595, KIP-996)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from odradek.cluster.raft.messages import NO_NODE
from odradek.frozen import frozen_dataclass
from odradek.runtime.machine import BUG, TransitionTable


class Role(Enum):
    """The role of a replica in its current epoch. An observer is a replica that is not a voter."""

    UNATTACHED = "Unattached"
    """No leader is known. A voter waits for one or for its election time-out; an observer searches for one."""
    PROSPECTIVE = "Prospective"
    """Sends pre-votes: would a majority vote for this replica? The epoch does not change."""
    CANDIDATE = "Candidate"
    """Requests votes, in an epoch that it has raised, and has voted for itself."""
    LEADER = "Leader"
    RESIGNED = "Resigned"
    """Led this epoch and does not lead it any more."""
    FOLLOWER = "Follower"
    """Fetches from the leader of this epoch."""


class Event(Enum):
    """A reason to leave a role."""

    ELECTION_TIMEOUT = "the election time-out is over"
    FETCH_TIMEOUT = "a voter received no response from its leader, or suspects it"
    OBSERVER_FETCH_TIMEOUT = "an observer received no response from its leader, or suspects it"
    PRE_VOTE_WON = "enough voters would grant their vote"
    PRE_VOTE_LOST = "enough voters refused, and no leader is known"
    ELECTION_WON = "enough voters granted their vote"
    QUORUM_LOST = "a majority of the voters does not fetch any more"
    RESIGNATION = "the node stops and gives up its leadership"
    HIGHER_EPOCH = "a message has a higher epoch, and its leader is not known"
    LEADER_DISCOVERED = "a message names the leader of this epoch or of a higher one"
    VOTE_GRANTED = "this replica votes for another one"


@frozen_dataclass(frozen=True, slots=True)
class Transition:
    """A role ends: the event, and the epoch, leader and vote of the next role where the event sets them."""

    event: Event
    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE


UN, PR, CA = Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE
LE, RE, FO = Role.LEADER, Role.RESIGNED, Role.FOLLOWER

# fmt: off
TRANSITIONS: Final = TransitionTable.of_rows(
    "raft roles",
    Role,
    Event,
    {
        #                               UN   PR   CA   LE   RE   FO
        Event.ELECTION_TIMEOUT:        (PR,  PR,  PR,  BUG, UN,  BUG),
        Event.FETCH_TIMEOUT:           (BUG, BUG, BUG, BUG, BUG, PR),
        Event.OBSERVER_FETCH_TIMEOUT:  (BUG, BUG, BUG, BUG, BUG, UN),
        Event.PRE_VOTE_WON:            (BUG, CA,  BUG, BUG, BUG, BUG),
        Event.PRE_VOTE_LOST:           (BUG, UN,  BUG, BUG, BUG, BUG),
        Event.ELECTION_WON:            (BUG, BUG, LE,  BUG, BUG, BUG),
        Event.QUORUM_LOST:             (BUG, BUG, BUG, RE,  BUG, BUG),
        Event.RESIGNATION:             (BUG, BUG, BUG, RE,  BUG, BUG),
        Event.HIGHER_EPOCH:            (UN,  UN,  UN,  UN,  UN,  UN),
        Event.LEADER_DISCOVERED:       (FO,  FO,  FO,  FO,  FO,  FO),
        Event.VOTE_GRANTED:            (UN,  UN,  BUG, BUG, BUG, BUG),
    },
    columns=(UN, PR, CA, LE, RE, FO),
)
# fmt: on
"""The next role. A candidate that loses stays a candidate until its back-off is over (ELECTION_TIMEOUT)."""
