"""Replicas of a partition at its leader: committed offset, ISR membership and pending ISR changes."""

from dataclasses import dataclass

import pytest

from odradek.cluster.replication.leader import RESULTS, IsrChangeResult, LeaderReplicas, PendingIsrChange, Replica
from odradek.protocol.errors import ErrorCode

E = ErrorCode
LAG_MS = 30_000
EPOCH = 5
BROKER_EPOCH = 100


@dataclass
class Session:
    last_fetch_ms: int = 0


def leader_replicas(
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    end: int = 10,
    min_isr: int = 2,
    epoch_start: int = 0,
    registered: tuple[int, ...] = (1, 2, 3),
) -> LeaderReplicas:
    """Make the state of broker 1, which leads the replicas 1, 2 and 3 and has 10 records."""
    replicas = LeaderReplicas(1, EPOCH, epoch_start, lag_max_ms=LAG_MS)
    replicas.commit((1, 2, 3), isr, 7, now_ms=0)
    replicas.register(lambda broker_id: BROKER_EPOCH if broker_id in registered else None)
    replicas.min_isr = min_isr
    replicas.own_end = end
    return replicas


def fetched(replicas: LeaderReplicas, broker_id: int, offset: int, now_ms: int = 0, *, end: int = 10) -> Replica:
    replica = replicas.followers[broker_id]
    replica.broker_epoch = BROKER_EPOCH
    replica.fetched(offset, leader_end=end, now_ms=now_ms)
    return replica


@pytest.mark.parametrize(
    ("isr", "fetches_ms", "confirmed"),
    [
        ((1, 2, 3), {2: 4_000, 3: 5_000}, True),
        ((1, 2, 3), {2: 3_999, 3: 5_000}, False),
        ((1, 2, 3), {3: 5_000}, False),  # Broker 2 fetches from another leader.
        ((1, 3), {3: 4_500}, True),
        ((1,), {}, True),
    ],
)
def test_leader_is_confirmed_while_each_follower_in_the_isr_fetches(
    isr: tuple[int, ...], fetches_ms: dict[int, int], confirmed: bool
) -> None:
    replicas = leader_replicas(isr)
    for broker_id, last_ms in fetches_ms.items():
        replicas.followers[broker_id].activity = Session(last_ms)
    assert replicas.is_confirmed(5_000, 1_000) is confirmed


# ---- committed offset -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("isr", "ends", "registered", "min_isr", "committed"),
    [
        ((1, 2, 3), (9, 8), (1, 2, 3), 2, 8),  # The lowest end of the ISR.
        ((1, 2, 3), (10, 10), (1, 2, 3), 2, 10),  # Never above the end of the leader.
        ((1, 2, 3), (9, -1), (1, 2, 3), 2, -1),  # A replica without a fetch may have no records.
        ((1, 2), (9, 3), (1, 2), 2, 9),  # A replica outside the ISR that may not join does not count.
        ((1,), (9, 9), (1,), 2, -1),  # Below min ISR no record is committed (KIP-966).
        ((1,), (9, 9), (1,), 1, 10),
        ((1, 2), (9, 8), (1, 2, 3), 2, 8),  # Broker 3 may join: the high watermark waits for it.
        ((1, 2), (9, 8), (1, 2, 3), 3, -1),
    ],
)
def test_committed_offset_is_the_lowest_end_of_the_isr_and_possible_members(
    isr: tuple[int, ...], ends: tuple[int, int], registered: tuple[int, ...], min_isr: int, committed: int
) -> None:
    replicas = leader_replicas(isr, registered=registered, min_isr=min_isr)
    fetched(replicas, 2, ends[0], end=ends[0])
    if ends[1] >= 0:
        fetched(replicas, 3, ends[1], end=ends[1])
    assert replicas.committed(10, now_ms=1) == committed


def test_lagging_replica_outside_the_isr_does_not_hold_the_high_watermark() -> None:
    replicas = leader_replicas((1, 2))
    fetched(replicas, 2, 10)
    fetched(replicas, 3, 4, end=4)
    assert replicas.committed(10, now_ms=LAG_MS) == 4
    assert replicas.committed(10, now_ms=LAG_MS + 1) == 10


def test_replica_that_was_removed_is_not_proposed_for_the_isr() -> None:
    """A fetch session can still have the replica: the follower fetches before it applies the cancelled reassignment."""
    replicas = leader_replicas((1, 2))
    removed = fetched(replicas, 3, 10)
    assert replicas.expansion(removed, 5) is not None
    replicas.commit((1, 2), (1, 2), 8, now_ms=0)
    assert replicas.expansion(removed, 5) is None
    assert replicas.pending_change is None


def test_replica_of_an_earlier_term_is_not_proposed_for_the_isr() -> None:
    """The session has the replica of the earlier term until it resolves its slot again."""
    earlier = fetched(leader_replicas((1, 2)), 3, 10)
    replicas = leader_replicas((1, 2, 3), epoch_start=10)
    assert replicas.expansion(earlier, 10) is None


def test_pending_expansion_counts_before_and_pending_shrink_only_after_the_commit() -> None:
    replicas = leader_replicas((1, 2), registered=(1, 2, 3))
    fetched(replicas, 2, 10)
    joining = fetched(replicas, 3, 10)
    change = replicas.expansion(joining, 5)
    assert change == PendingIsrChange((1, 2, 3), EPOCH, 7)
    assert replicas.maximal_size == 3
    assert replicas.committed(12, now_ms=10 * LAG_MS) == 10
    replicas.own_end = 12
    fetched(replicas, 2, 12, end=12)
    assert replicas.committed(12, now_ms=10 * LAG_MS) == 10, "broker 3 has 10 records, and may be elected"
    assert replicas.pending_change is not None
    assert replicas.complete(replicas.pending_change, E.NONE) is IsrChangeResult.COMMITTED
    replicas.commit((1, 2, 3), (1, 2, 3), 8, now_ms=0)
    late = replicas.shrinkage(12, now_ms=10 * LAG_MS)
    assert late == PendingIsrChange((1, 2), EPOCH, 8)
    assert replicas.committed(12, now_ms=10 * LAG_MS) == 10, "broker 3 is in the committed ISR"
    replicas.commit((1, 2, 3), (1, 2), 9, now_ms=0)
    assert replicas.committed(12, now_ms=10 * LAG_MS) == 12


# ---- caught-up time -------------------------------------------------------------------------------------------------


def test_caught_up_time_is_that_of_the_last_fetch_that_reached_the_end() -> None:
    replica = Replica(2)
    replica.fetched(10, leader_end=10, now_ms=100)
    assert replica.caught_up_ms == 100
    replica.fetched(10, leader_end=20, now_ms=200)
    assert replica.caught_up_ms == 100
    replica.fetched(15, leader_end=30, now_ms=300)
    assert replica.caught_up_ms == 100
    replica.fetched(30, leader_end=40, now_ms=400)
    assert replica.caught_up_ms == 300, "it has all records of the time of its last fetch"


def test_idle_follower_is_caught_up_while_its_session_fetches() -> None:
    replicas = leader_replicas()
    replica = fetched(replicas, 2, 10)
    fetched(replicas, 3, 10)
    replica.activity = session = Session(last_fetch_ms=5 * LAG_MS)
    assert replicas.shrinkage(10, now_ms=9 * LAG_MS) is None, "it has all records"
    replica.leader_advanced()
    assert replica.caught_up_ms == session.last_fetch_ms
    late = replicas.shrinkage(11, now_ms=6 * LAG_MS)
    assert late is not None
    assert late.isr == (1, 2), "broker 3 has not fetched since, broker 2 has"


def test_isr_member_at_the_election_counts_as_caught_up_then() -> None:
    replicas = leader_replicas((1, 2))
    assert replicas.shrinkage(10, now_ms=LAG_MS) is None
    late = replicas.shrinkage(10, now_ms=LAG_MS + 1)
    assert late is not None
    assert late.isr == (1,)


@pytest.mark.parametrize(
    ("log_end", "watermark", "epoch_start", "broker_epoch", "registered", "joins"),
    [
        (8, 8, 0, BROKER_EPOCH, True, True),
        (8, 8, 0, -1, True, True),  # an old version without broker epochs in fetches
        (7, 8, 0, BROKER_EPOCH, True, False),  # below the high watermark
        (8, 8, 9, BROKER_EPOCH, True, False),  # below the start of the leader epoch
        (9, 8, 9, BROKER_EPOCH, True, True),
        (8, 8, 0, BROKER_EPOCH - 1, True, False),  # an earlier incarnation, which may have lost records (KIP-903)
        (8, 8, 0, BROKER_EPOCH, False, False),  # fenced, shutting down or unknown
    ],
)
def test_caught_up_active_replica_joins_the_isr(
    log_end: int, watermark: int, epoch_start: int, broker_epoch: int, registered: bool, joins: bool
) -> None:
    replicas = leader_replicas((1, 2), epoch_start=epoch_start, registered=(1, 2, 3) if registered else (1, 2))
    replica = fetched(replicas, 3, log_end)
    replica.broker_epoch = broker_epoch
    assert (replicas.expansion(replica, watermark) is not None) is joins


def test_idle_replica_outside_the_isr_is_proposed_again_while_it_fetches() -> None:
    replicas = leader_replicas((1, 2))
    replica = fetched(replicas, 3, 10)
    assert replicas.out_of_sync(now_ms=0) == []
    replica.activity = Session(last_fetch_ms=5 * LAG_MS)
    assert replicas.out_of_sync(now_ms=6 * LAG_MS) == [replica]
    assert replicas.out_of_sync(now_ms=6 * LAG_MS + 1) == []


def test_removed_replica_is_proposed_again_only_after_its_next_fetch() -> None:
    """The controller removes a failed broker from thousands of ISRs before it fences the broker."""
    replicas = leader_replicas((1, 2, 3))
    replica = fetched(replicas, 3, 10)
    replica.activity = Session(last_fetch_ms=1_000)
    replicas.commit((1, 2, 3), (1, 2), 8, now_ms=1_010)
    assert replicas.out_of_sync(now_ms=1_010) == []
    replicas.commit((1, 2, 3), (1, 2), 9, now_ms=1_020)
    assert replicas.out_of_sync(now_ms=1_020) == []
    replica.activity.last_fetch_ms = 1_015
    assert replicas.out_of_sync(now_ms=1_020) == [replica]


# ---- pending ISR changes --------------------------------------------------------------------------------------------


def test_one_isr_change_is_pending_at_a_time() -> None:
    replicas = leader_replicas((1,), min_isr=1)
    assert replicas.expansion(fetched(replicas, 2, 10), 0) is not None
    assert replicas.expansion(fetched(replicas, 3, 10), 0) is None
    assert replicas.shrinkage(99, now_ms=9 * LAG_MS) is None


@pytest.mark.parametrize("error", list(ErrorCode))
def test_error_code_determines_the_result_of_an_isr_change(error: ErrorCode) -> None:
    replicas = leader_replicas((1, 2))
    change = replicas.expansion(fetched(replicas, 3, 10), 0)
    assert change is not None
    result = replicas.complete(change, error)
    assert result is RESULTS.get(error, IsrChangeResult.RETRY)
    kept = result in {IsrChangeResult.RETRY, IsrChangeResult.SUPERSEDED}
    assert (replicas.pending_change is change) is kept
    assert replicas.followers[3].maybe_in_sync is kept, "a change that may be committed still counts"
    assert replicas.complete(PendingIsrChange((1,), EPOCH, 7), E.NONE) is IsrChangeResult.SUPERSEDED


def test_newer_metadata_voids_a_pending_change_and_older_metadata_is_ignored() -> None:
    replicas = leader_replicas((1, 2))
    replicas.expansion(fetched(replicas, 3, 10), 0)
    assert not replicas.commit((1, 2, 3), (1,), 6, now_ms=0)
    assert replicas.isr == (1, 2)
    assert replicas.commit((1, 2, 3), (1, 2), 7, now_ms=0)
    assert replicas.pending_change is not None, "metadata of the epoch that the change was based on"
    assert replicas.commit((1, 2), (1, 2), 8, now_ms=0)
    assert not replicas.followers[2].maybe_in_sync or replicas.followers[2].in_sync
    assert replicas.maximal_size == 2, "the change is void"
    assert list(replicas.followers) == [2], "a reassignment removed broker 3"


def test_isr_members_are_sent_with_the_broker_epochs_of_their_fetches() -> None:
    replicas = leader_replicas((1, 2))
    change = replicas.expansion(fetched(replicas, 3, 10), 0)
    assert change is not None
    assert replicas.isr_with_epochs(change, 77) == ((1, 77), (2, -1), (3, BROKER_EPOCH))
