"""Producer state of a partition: open transactions, the last stable offset, verifications, eviction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client_shares import Client
from odradek.protocol.batch import read_header
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.compaction.batch_filter import empty_batch
from odradek.storage.producers import state as producer_state
from odradek.storage.producers.entry import EndMarker, Origin
from odradek.storage.producers.state import EVICTION_IDLE_MS_MIN, VERIFICATIONS_MAX, AppendPlan, ProducerState
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, marker, open_log, produced
from tests.support.logs import append as append_to

if TYPE_CHECKING:
    from pathlib import Path


def data(state: ProducerState, producer_id: int, offset: int, sequence: int = 0) -> AppendPlan:
    plan = AppendPlan(Origin.REPLICATION)
    header = read_header(produced(producer_id, sequence, transactional=True))
    state.plan(plan, header, offset, marker=None)
    return plan


def end(state: ProducerState, producer_id: int, offset: int, *, abort: bool = True) -> AppendPlan:
    plan = AppendPlan(Origin.REPLICATION)
    header = read_header(marker(producer_id, commit=not abort))
    state.plan(plan, header, offset, marker=EndMarker(abort, 0, NOW_MS))
    return plan


def commit(state: ProducerState, plan: AppendPlan) -> list[int]:
    """Apply the plan. Return the last stable offset after each transaction that it completes."""
    state.commit(plan)
    stable = []
    for completed in plan.completed:
        stable.append(state.stable_offset_after(completed))
        state.complete(completed)
    return stable


def test_uncommitted_plan_changes_nothing() -> None:
    state = ProducerState()
    data(state, 1, 0)
    assert state.first_unstable_offset is None
    assert state.entries == {}


def test_stable_offset_after_an_abort_is_the_next_open_transaction_or_after_the_marker() -> None:
    state = ProducerState()
    for producer_id, offset in ((1, 10), (2, 20), (3, 30)):
        commit(state, data(state, producer_id, offset))
    assert commit(state, end(state, 1, 40)) == [20]
    assert commit(state, end(state, 3, 41)) == [20]
    assert commit(state, end(state, 2, 42)) == [43]


def test_completed_transactions_stay_unstable_until_their_marker_is_committed() -> None:
    state = ProducerState()
    commit(state, data(state, 1, 10))
    commit(state, data(state, 2, 20))
    commit(state, end(state, 1, 30))
    assert state.first_unstable_offset == 10
    assert not state.high_watermark_moved(30)
    assert state.first_unstable_offset == 10
    assert state.high_watermark_moved(31)
    assert state.first_unstable_offset == 20
    assert [transaction[:2] for transaction in state.ongoing_transactions()] == [(2, 20)]


def test_one_append_can_begin_and_end_transactions() -> None:
    state = ProducerState()
    plan = AppendPlan(Origin.REPLICATION)
    state.plan(plan, read_header(produced(1, 0, transactional=True)), 0, marker=None)
    state.plan(plan, read_header(marker(1, commit=True)), 1, marker=EndMarker(False, 0, NOW_MS))
    state.plan(plan, read_header(produced(1, 1, transactional=True)), 2, marker=None)
    assert commit(state, plan) == [2]
    assert [transaction[:2] for transaction in state.ongoing_transactions()] == [(1, 2)]


def test_emptied_marker_ends_an_open_transaction() -> None:
    state = ProducerState()
    commit(state, data(state, 1, 10))
    plan = AppendPlan(Origin.REPLICATION)
    whole = read_header(marker(1, commit=False, epoch=1))
    state.plan(plan, read_header(empty_batch(whole)), 30, marker=None)
    assert commit(state, plan) == [31]
    assert state.ongoing_transactions() == []
    assert (state.entries[1].epoch, state.entries[1].transaction_first_offset) == (1, None)


def test_oldest_verification_is_dropped_beyond_the_limit() -> None:
    state = ProducerState()
    for producer_id in range(VERIFICATIONS_MAX + 1):
        state.start_verification(producer_id, 0, 0, supports_epoch_bump=False)
    assert state.verification_guard(0) == 0
    assert state.verification_guard(1) != 0
    assert state.verification_guard(VERIFICATIONS_MAX) == VERIFICATIONS_MAX + 1


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["data", "end", "high watermark"])), max_size=40))
def test_first_unstable_offset_equals_a_model(steps: list[tuple[int, str]]) -> None:
    state = ProducerState()
    opened: dict[int, int] = {}
    ended: list[tuple[int, int]] = []  # first offset, marker offset
    offset = high_watermark = 0
    for producer_id, step in steps:
        if step == "data":
            commit(state, data(state, producer_id, offset))
            opened.setdefault(producer_id, offset)
        elif step == "end":
            commit(state, end(state, producer_id, offset))
            if producer_id in opened:
                ended.append((opened.pop(producer_id), offset))
        else:
            high_watermark = max(high_watermark, offset - producer_id)
            state.high_watermark_moved(high_watermark)
        offset += step != "high watermark"
        unstable = [*opened.values(), *(first for first, at in ended if at >= high_watermark)]
        assert state.first_unstable_offset == min(unstable, default=None)


# ---- floods of producers --------------------------------------------------------------------------------------------


def append(
    state: ProducerState,
    producer_id: int,
    *,
    sequence: int = 0,
    now_ms: int = 0,
    origin: Origin = Origin.CLIENT,
    transactional: bool = False,
    client: Client | None = None,
) -> None:
    plan = AppendPlan(origin, now_ms, client)
    batch = produced(producer_id, sequence, transactional=transactional)
    state.plan(plan, read_header(batch), state.end_offset, marker=None)
    state.commit(plan)
    state.end_offset += 1


def test_client_that_fills_the_partition_is_refused_while_other_clients_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 100)
    state = ProducerState()
    flood, other = Client("10.0.0.1", "flood"), Client("10.0.0.2", "payments")
    for producer_id in range(75):
        append(state, producer_id, client=flood)
    with pytest.raises(Refusal) as caught:
        append(state, 75, client=flood)
    assert caught.value.error is ErrorCode.NOT_ENOUGH_REPLICAS
    append(state, 3, sequence=1, client=flood)
    for producer_id in range(200, 210):
        append(state, producer_id, client=other)
    append(state, 300)
    assert len(state.entries) == 86, "appends of unknown clients have the capacity of the partition only"
    # The producers of the client leave when they are idle, and give it capacity for as many new ones.
    append(state, 400, client=flood, now_ms=EVICTION_IDLE_MS_MIN)
    assert len(state.entries) == 86
    assert state.shares.held(flood) == 75
    assert 0 not in state.entries


def test_shares_follow_expiration_truncation_and_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 100)
    state = ProducerState()
    client = Client("10.0.0.1", "c")
    for producer_id in range(5):
        append(state, producer_id, client=client, transactional=producer_id == 0)
    assert [row.client for row in state.active()] == [client] * 5
    assert state.remove_unused([(0, 0, 0), (1, 0, 0), (2, 0, 5), (3, 1, 0), (9, 0, 0)]) == 1
    assert list(state.entries) == [0, 2, 3, 4], "an open transaction and used producers stay"
    assert state.shares.held(client) == 4
    assert state.client_characters == 4 * len("10.0.0.1c")
    assert [row.producer_id for row in state.active([3, 1, 0])] == [3, 0], "unknown producers are left out"
    append(state, 1, origin=Origin.REPLICATION)
    assert state.entries[1].client is None
    state.expire(10**15, 1)
    assert state.shares.held(client) == 1
    assert state.client_characters == len("10.0.0.1c")
    state.clear(0)
    assert (state.shares.held(client), state.client_characters) == (0, 0)


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> ProducerState:
    """Return a full state with producers 1, 2 and 3. Producer 1 has an open transaction; 2 was active last."""
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 3)
    state = ProducerState()
    append(state, 1, transactional=True)
    append(state, 2)
    append(state, 3)
    append(state, 2, sequence=1, now_ms=1)
    return state


def test_new_producer_is_refused_while_known_ones_can_send_duplicates(three: ProducerState) -> None:
    with pytest.raises(Refusal) as caught:
        append(three, 4, now_ms=EVICTION_IDLE_MS_MIN - 1)
    assert caught.value.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert list(three.entries) == [1, 3, 2]
    append(three, 3, sequence=1, now_ms=EVICTION_IDLE_MS_MIN - 1)
    append(three, 1, sequence=1, now_ms=EVICTION_IDLE_MS_MIN - 1, transactional=True)
    assert len(three.entries) == 3, "known producers are accepted"


def test_longest_idle_producer_without_a_transaction_is_evicted(three: ProducerState) -> None:
    append(three, 4, now_ms=EVICTION_IDLE_MS_MIN)
    assert list(three.entries) == [1, 2, 4]
    assert three.duplicate_of(read_header(produced(2, 1))) is not None
    assert [transaction[:2] for transaction in three.ongoing_transactions()] == [(1, 0)]
    with pytest.raises(Refusal):
        append(three, 5, now_ms=EVICTION_IDLE_MS_MIN)
    append(three, 5, now_ms=EVICTION_IDLE_MS_MIN + 1)
    assert list(three.entries) == [1, 4, 5]


def test_no_producer_is_evicted_if_all_have_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 1)
    state = ProducerState()
    append(state, 1, transactional=True)
    with pytest.raises(Refusal):
        append(state, 2, now_ms=10 * EVICTION_IDLE_MS_MIN)
    append(state, 2, origin=Origin.REPLICATION)
    assert list(state.entries) == [1, 2], "a follower accepts each producer that the leader has accepted"


def test_search_moves_checked_open_transactions_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "EXAMINED_MAX", 2)
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 4)
    state = ProducerState()
    for producer_id in (1, 2, 3):
        append(state, producer_id, transactional=True)
    append(state, 4)
    with pytest.raises(Refusal):
        append(state, 5, now_ms=EVICTION_IDLE_MS_MIN)
    append(state, 5, now_ms=EVICTION_IDLE_MS_MIN)
    assert list(state.entries) == [3, 1, 2, 5]
    assert [transaction[:2] for transaction in state.ongoing_transactions()] == [(1, 0), (2, 1), (3, 2)]


def test_follower_evicts_in_the_order_of_the_leader_but_later(three: ProducerState) -> None:
    for producer_id in (4, 5, 6):
        append(three, producer_id, origin=Origin.REPLICATION)
    assert list(three.entries) == [1, 3, 2, 4, 5, 6], (
        "the leader may have fewer producers: it expires them at other times"
    )
    append(three, 7, origin=Origin.REPLICATION)
    assert list(three.entries) == [1, 2, 4, 5, 6, 7]


def test_batches_of_one_fetch_order_producers_by_their_last_batch(three: ProducerState) -> None:
    plan = AppendPlan(Origin.REPLICATION, 2)
    for number, batch in enumerate((produced(4, 0), produced(3, 1), produced(4, 1), produced(2, 2))):
        three.plan(plan, read_header(batch), three.end_offset + number, marker=None)
    three.commit(plan)
    assert list(three.entries) == [1, 3, 4, 2], "the last batch of producer 4 is after that of producer 3"


def test_duplicate_ends_the_idle_time_of_a_producer(three: ProducerState) -> None:
    append(three, 3, sequence=1, now_ms=1)
    three.touch(2, EVICTION_IDLE_MS_MIN)
    append(three, 4, now_ms=EVICTION_IDLE_MS_MIN + 1)
    assert list(three.entries) == [1, 2, 4]


def test_marker_of_an_unknown_producer_adds_no_entry(monkeypatch: pytest.MonkeyPatch, three: ProducerState) -> None:
    monkeypatch.setattr(producer_state, "FOLLOWER_FACTOR", 1)
    assert commit(three, end(three, 9, 10)) == []
    assert list(three.entries) == [1, 3, 2]
    assert commit(three, end(three, 1, 11)) == [12]
    assert list(three.entries) == [3, 2, 1], "the marker ends the idle time of producer 1"


def test_idle_time_begins_when_a_snapshot_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 1)
    before, state = ProducerState(), ProducerState()
    append(before, 1, now_ms=5)
    state.load(before.entries.values(), 1, monotonic_ms=NOW_MS)
    with pytest.raises(Refusal):
        append(state, 2, now_ms=NOW_MS + EVICTION_IDLE_MS_MIN - 1)
    append(state, 2, now_ms=NOW_MS + EVICTION_IDLE_MS_MIN)
    assert list(state.entries) == [2]


def test_producer_that_sends_duplicates_is_not_evicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 2)
    disk = FaultyDisk()
    later_ms = NOW_MS + EVICTION_IDLE_MS_MIN
    log = open_log(disk, str(tmp_path))
    append_to(log, produced(1, 0), now_ms=NOW_MS)
    append_to(log, produced(2, 0), now_ms=NOW_MS)
    assert append_to(log, produced(1, 0), now_ms=later_ms).duplicate
    append_to(log, produced(3, 0), now_ms=later_ms)
    assert append_to(log, produced(1, 0), now_ms=later_ms).duplicate
    disk.close()
