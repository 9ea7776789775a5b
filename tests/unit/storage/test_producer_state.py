"""All producers of a partition: the maps behind the last stable offset."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol.batch import read_header
from storage.producer_entry import EndMarker, Origin
from storage.producer_state import VERIFICATIONS_MAX, AppendPlan, ProducerState
from tests.support.logs import NOW_MS, marker, produced


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
    """Last stable offsets at the end of each transaction that the plan completes."""
    state.commit(plan)
    stable = []
    for completed in plan.completed:
        stable.append(state.stable_offset_after(completed))
        state.complete(completed)
    return stable


def test_a_plan_that_is_dropped_changes_nothing() -> None:
    state = ProducerState()
    data(state, 1, 0)
    assert state.first_unstable_offset is None
    assert state.producers == {}


def test_the_stable_offset_of_an_abort_is_the_next_open_transaction_or_past_the_marker() -> None:
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
    assert state.ongoing_transactions() == [(2, 20)]


def test_one_append_may_begin_and_end_transactions() -> None:
    state = ProducerState()
    plan = AppendPlan(Origin.REPLICATION)
    state.plan(plan, read_header(produced(1, 0, transactional=True)), 0, marker=None)
    state.plan(plan, read_header(marker(1, commit=True)), 1, marker=EndMarker(False, 0, NOW_MS))
    state.plan(plan, read_header(produced(1, 1, transactional=True)), 2, marker=None)
    assert commit(state, plan) == [2]
    assert state.ongoing_transactions() == [(1, 2)]


def test_verifications_are_limited() -> None:
    state = ProducerState()
    for producer_id in range(VERIFICATIONS_MAX + 1):
        state.start_verification(producer_id, 0, 0, supports_epoch_bump=False)
    assert state.verification_guard(0) == 0
    assert state.verification_guard(1) != 0
    assert state.verification_guard(VERIFICATIONS_MAX) == VERIFICATIONS_MAX + 1


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["data", "end", "high watermark"])), max_size=40))
def test_first_unstable_offset_against_a_list(steps: list[tuple[int, str]]) -> None:
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
