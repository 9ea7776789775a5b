"""The replicas of a partition as its leader counts them (kafka-facts 8.1, 8.2)."""

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


def led(
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    end: int = 10,
    min_isr: int = 2,
    epoch_start: int = 0,
    registered: tuple[int, ...] = (1, 2, 3),
) -> LeaderReplicas:
    """Broker 1 leads replicas 1, 2, 3, and has 10 records."""
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


# ---- what is committed


@pytest.mark.parametrize(
    ("isr", "ends", "registered", "min_isr", "committed"),
    [
        ((1, 2, 3), (9, 8), (1, 2, 3), 2, 8),  # the lowest of all that are in sync
        ((1, 2, 3), (10, 10), (1, 2, 3), 2, 10),  # never above the own copy
        ((1, 2, 3), (9, -1), (1, 2, 3), 2, -1),  # one that has not fetched yet may have nothing
        ((1, 2), (9, 3), (1, 2), 2, 9),  # who is not in sync and may not join does not count
        ((1,), (9, 9), (1,), 2, -1),  # too few in sync: nothing is committed (KIP-966)
        ((1,), (9, 9), (1,), 1, 10),
        ((1, 2), (9, 8), (1, 2, 3), 2, 8),  # 3 keeps up and may join: the watermark must not run away from it
        ((1, 2), (9, 8), (1, 2, 3), 3, -1),
    ],
)
def test_committed_is_what_all_have_who_might_be_in_sync(
    isr: tuple[int, ...], ends: tuple[int, int], registered: tuple[int, ...], min_isr: int, committed: int
) -> None:
    replicas = led(isr, registered=registered, min_isr=min_isr)
    fetched(replicas, 2, ends[0], end=ends[0])
    if ends[1] >= 0:
        fetched(replicas, 3, ends[1], end=ends[1])
    assert replicas.committed(10, now_ms=1) == committed


def test_one_that_lags_and_is_not_in_sync_is_waited_for_no_more() -> None:
    replicas = led((1, 2))
    fetched(replicas, 2, 10)
    fetched(replicas, 3, 4, end=4)
    assert replicas.committed(10, now_ms=LAG_MS) == 4
    assert replicas.committed(10, now_ms=LAG_MS + 1) == 10


def test_a_wish_to_grow_counts_before_it_is_granted_and_one_to_shrink_only_after() -> None:
    replicas = led((1, 2), registered=(1, 2, 3))
    fetched(replicas, 2, 10)
    joining = fetched(replicas, 3, 10)
    change = replicas.expansion(joining, 5)
    assert change == PendingIsrChange((1, 2, 3), EPOCH, 7)
    assert replicas.maximal_size == 3
    assert replicas.committed(12, now_ms=10 * LAG_MS) == 10
    replicas.own_end = 12
    fetched(replicas, 2, 12, end=12)
    assert replicas.committed(12, now_ms=10 * LAG_MS) == 10, "3 has 10, and may be elected"
    assert replicas.complete(replicas.pending_change, E.NONE) is IsrChangeResult.COMMITTED  # type: ignore[arg-type]  # it is there
    replicas.commit((1, 2, 3), (1, 2, 3), 8, now_ms=0)
    late = replicas.shrinkage(12, now_ms=10 * LAG_MS)
    assert late == PendingIsrChange((1, 2), EPOCH, 8)
    assert replicas.committed(12, now_ms=10 * LAG_MS) == 10, "still in the committed ISR"
    replicas.commit((1, 2, 3), (1, 2), 9, now_ms=0)
    assert replicas.committed(12, now_ms=10 * LAG_MS) == 12


# ---- keeping up


def test_caught_up_is_now_at_the_end_and_then_where_the_end_was_at_the_last_fetch() -> None:
    replica = Replica(2)
    replica.fetched(10, leader_end=10, now_ms=100)
    assert replica.caught_up_ms == 100
    replica.fetched(10, leader_end=20, now_ms=200)
    assert replica.caught_up_ms == 100
    replica.fetched(15, leader_end=30, now_ms=300)
    assert replica.caught_up_ms == 100
    replica.fetched(30, leader_end=40, now_ms=400)
    assert replica.caught_up_ms == 300, "it has all that there was then"


def test_a_follower_with_nothing_to_fetch_keeps_up_as_long_as_its_session_is_heard_of() -> None:
    replicas = led()
    replica = fetched(replicas, 2, 10)
    fetched(replicas, 3, 10)
    replica.activity = session = Session(last_fetch_ms=5 * LAG_MS)
    assert replicas.shrinkage(10, now_ms=9 * LAG_MS) is None, "it has everything"
    replica.leader_advanced()
    assert replica.caught_up_ms == session.last_fetch_ms
    late = replicas.shrinkage(11, now_ms=6 * LAG_MS)
    assert late is not None
    assert late.isr == (1, 2), "3 was never heard of again, 2 in time"


def test_in_sync_at_the_election_counts_as_caught_up_then() -> None:
    replicas = led((1, 2))
    assert replicas.shrinkage(10, now_ms=LAG_MS) is None
    late = replicas.shrinkage(10, now_ms=LAG_MS + 1)
    assert late is not None
    assert late.isr == (1,)


@pytest.mark.parametrize(
    ("log_end", "watermark", "epoch_start", "broker_epoch", "registered", "joins"),
    [
        (8, 8, 0, BROKER_EPOCH, True, True),
        (8, 8, 0, -1, True, True),  # an old version that knows no broker epochs
        (7, 8, 0, BROKER_EPOCH, True, False),  # below the watermark
        (8, 8, 9, BROKER_EPOCH, True, False),  # not yet in this leader's epoch
        (9, 8, 9, BROKER_EPOCH, True, True),
        (8, 8, 0, BROKER_EPOCH - 1, True, False),  # of an earlier life: what it had may be lost (KIP-903)
        (8, 8, 0, BROKER_EPOCH, False, False),  # fenced, shutting down or unknown
    ],
)
def test_who_may_join(
    log_end: int, watermark: int, epoch_start: int, broker_epoch: int, registered: bool, joins: bool
) -> None:
    replicas = led((1, 2), epoch_start=epoch_start, registered=(1, 2, 3) if registered else (1, 2))
    replica = fetched(replicas, 3, log_end)
    replica.broker_epoch = broker_epoch
    assert (replicas.expansion(replica, watermark) is not None) is joins


def test_who_is_refused_and_idle_is_asked_for_again_while_it_is_heard_of() -> None:
    replicas = led((1, 2))
    replica = fetched(replicas, 3, 10)
    assert replicas.out_of_sync(now_ms=0) == []
    replica.activity = Session(last_fetch_ms=5 * LAG_MS)
    assert replicas.out_of_sync(now_ms=6 * LAG_MS) == [replica]
    assert replicas.out_of_sync(now_ms=6 * LAG_MS + 1) == []


# ---- one change at a time, and what becomes of it


def test_there_is_one_wish_at_a_time() -> None:
    replicas = led((1,), min_isr=1)
    assert replicas.expansion(fetched(replicas, 2, 10), 0) is not None
    assert replicas.expansion(fetched(replicas, 3, 10), 0) is None
    assert replicas.shrinkage(99, now_ms=9 * LAG_MS) is None


@pytest.mark.parametrize("error", list(ErrorCode))
def test_outcomes(error: ErrorCode) -> None:
    replicas = led((1, 2))
    change = replicas.expansion(fetched(replicas, 3, 10), 0)
    assert change is not None
    settled = replicas.complete(change, error)
    assert settled is RESULTS.get(error, IsrChangeResult.RETRY)
    kept = settled in {IsrChangeResult.RETRY, IsrChangeResult.SUPERSEDED}
    assert (replicas.pending_change is change) is kept
    assert replicas.followers[3].maybe_in_sync is kept, "what may have been carried out still counts"
    assert replicas.complete(PendingIsrChange((1,), EPOCH, 7), E.NONE) is IsrChangeResult.SUPERSEDED


def test_newer_metadata_voids_a_wish_and_older_metadata_is_ignored() -> None:
    replicas = led((1, 2))
    replicas.expansion(fetched(replicas, 3, 10), 0)
    assert not replicas.commit((1, 2, 3), (1,), 6, now_ms=0)
    assert replicas.isr == (1, 2)
    assert replicas.commit((1, 2, 3), (1, 2), 7, now_ms=0)
    assert replicas.pending_change is not None, "the state it was formed on"
    assert replicas.commit((1, 2), (1, 2), 8, now_ms=0)
    assert not replicas.followers[2].maybe_in_sync or replicas.followers[2].in_sync
    assert replicas.maximal_size == 2, "the change is void"
    assert list(replicas.followers) == [2], "reassigned away"


def test_members_are_named_with_the_broker_epochs_they_fetched_with() -> None:
    replicas = led((1, 2))
    change = replicas.expansion(fetched(replicas, 3, 10), 0)
    assert change is not None
    assert replicas.isr_with_epochs(change, 77) == ((1, 77), (2, -1), (3, BROKER_EPOCH))
