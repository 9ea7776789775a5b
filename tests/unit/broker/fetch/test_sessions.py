import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.fetch import sessions as fetch_sessions
from odradek.broker.fetch.sessions import (
    EPOCH_MAX,
    EVICTION_MS,
    FINAL_EPOCH,
    NO_SESSION,
    FetchPlan,
    FetchSessions,
    FetchSlot,
)
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import EpochEndOffset, PartitionData


def slots(*indexes: int, topic: str = "t", offset: int = 0) -> list[FetchSlot]:
    return [FetchSlot(topic, index, offset, 1_000) for index in indexes]


def answer(
    index: int = 0, *, watermark: int = 5, records: bytes = b"", error: int = 0, start: int = 0
) -> PartitionData:
    return PartitionData(index, error, watermark, last_stable_offset=watermark, log_start_offset=start, records=records)


def cache(slots_max: int = 10) -> FetchSessions:
    return FetchSessions(slots_max, random.Random(7))


def ask(
    sessions: FetchSessions,
    asked: list[FetchSlot],
    session_id: int = 0,
    epoch: int = 0,
    *,
    forgotten: tuple[tuple[str, int], ...] = (),
    uses_ids: bool = False,
    now_ms: int = 0,
) -> FetchPlan:
    return sessions.plan(
        asked,
        list(forgotten),
        session_id=session_id,
        session_epoch=epoch,
        uses_ids=uses_ids,
        now_ms=now_ms,
    )


def opened(sessions: FetchSessions, *indexes: int, now_ms: int = 0) -> int:
    plan = ask(sessions, slots(*indexes), now_ms=now_ms)
    error, session_id, told = plan.finish([answer(index) for index in indexes], now_ms)
    assert error is ErrorCode.NONE
    assert len(told) == len(indexes)
    return session_id


def test_a_full_fetch_opens_a_session_and_is_answered_in_full() -> None:
    sessions = cache()
    assert opened(sessions, 0, 1) > 0
    assert len(sessions) == 1


def test_a_final_epoch_opens_none_and_closes_the_named_one() -> None:
    sessions = cache()
    session_id = opened(sessions, 0)
    plan = ask(sessions, slots(0, 1), session_id, FINAL_EPOCH)
    error, told_id, told = plan.finish([answer(0), answer(1)], 0)
    assert (error, told_id, len(told)) == (ErrorCode.NONE, NO_SESSION, 2)
    assert len(sessions) == 0


def test_epoch_zero_with_an_id_replaces_that_session() -> None:
    sessions = cache()
    first = opened(sessions, 0)
    plan = ask(sessions, slots(1), first, 0)
    _, second, _ = plan.finish([answer(1)], 0)
    assert second not in {NO_SESSION, first}
    assert len(sessions) == 1


def test_a_full_fetch_of_nothing_opens_nothing() -> None:
    sessions = cache()
    assert ask(sessions, []).finish([], 0) == (ErrorCode.NONE, NO_SESSION, [])
    assert len(sessions) == 0


@pytest.mark.parametrize(
    ("change", "answered"),
    [
        ({}, False),
        ({"records": b"x"}, True),
        ({"watermark": 6}, True),
        ({"start": 1}, True),
        ({"error": int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}, True),
    ],
)
def test_an_incremental_answer_carries_only_news(change: dict[str, object], answered: bool) -> None:
    sessions = cache()
    session_id = opened(sessions, 0, 1)
    plan = ask(sessions, [], session_id, 1)
    error, told_id, told = plan.finish([answer(0), answer(1, **change)], 0)  # type: ignore[arg-type]  # a table of keywords
    assert (error, told_id) == (ErrorCode.NONE, session_id)
    assert [slot.index for slot, _ in told] == ([1] if answered else [])


def test_a_last_stable_offset_that_moves_alone_is_no_news() -> None:
    sessions = cache()
    session_id = opened(sessions, 0)
    moved = replace(answer(0), last_stable_offset=3)
    assert ask(sessions, [], session_id, 1).finish([moved], 0)[2] == []


def test_a_divergence_and_a_preferred_replica_are_news() -> None:
    sessions = cache()
    session_id = opened(sessions, 0, 1)
    diverging = replace(answer(0), diverging_epoch=EpochEndOffset(3, 7))
    preferred = replace(answer(1), preferred_read_replica=2)
    _, _, told = ask(sessions, [], session_id, 1).finish([diverging, preferred], 0)
    assert [slot.index for slot, _ in told] == [0, 1]


@pytest.mark.parametrize("known", [-1, 0])
def test_the_first_good_answer_after_an_error_is_sent(known: int) -> None:
    """Also where the error told the same watermarks, so that nothing but the error has changed."""
    sessions = cache()
    session_id = opened(sessions, 0)
    watermark, start = (5, 0) if known == 0 else (-1, -1)
    failed = answer(0, watermark=watermark, start=start, error=int(ErrorCode.KAFKA_STORAGE_ERROR))
    assert len(ask(sessions, [], session_id, 1).finish([failed], 0)[2]) == 1
    assert len(ask(sessions, [], session_id, 2).finish([answer(0)], 0)[2]) == 1
    assert ask(sessions, [], session_id, 3).finish([answer(0)], 0)[2] == []


def test_served_partitions_go_to_the_end_of_the_line() -> None:
    sessions = cache()
    session_id = opened(sessions, 0, 1, 2)
    ask(sessions, [], session_id, 1).finish([answer(0, records=b"x"), answer(1), answer(2)], 0)
    assert [slot.index for slot in ask(sessions, [], session_id, 2).slots] == [1, 2, 0]


def test_partitions_are_added_changed_and_forgotten() -> None:
    sessions = cache()
    session_id = opened(sessions, 0, 1)
    plan = ask(sessions, slots(1, offset=9) + slots(2), session_id, 1, forgotten=(("t", 0),))
    assert [(slot.index, slot.fetch_offset) for slot in plan.slots] == [(1, 9), (2, 0)]


def test_a_session_without_partitions_is_closed() -> None:
    sessions = cache()
    session_id = opened(sessions, 0)
    plan = ask(sessions, [], session_id, 1, forgotten=(("t", 0),))
    assert plan.finish([], 0) == (ErrorCode.NONE, NO_SESSION, [])
    assert len(sessions) == 0


@pytest.mark.parametrize(
    ("session_offset", "epoch", "uses_ids", "error"),
    [
        (1, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_top_level_errors(session_offset: int, epoch: int, uses_ids: bool, error: ErrorCode) -> None:
    sessions = cache()
    session_id = opened(sessions, 0)
    with pytest.raises(Refusal) as refused:
        ask(sessions, [], session_id + session_offset, epoch, uses_ids=uses_ids)
    assert refused.value.error is error
    assert len(sessions) == 1


def test_epochs_wrap_to_one() -> None:
    sessions = cache()
    session_id = opened(sessions, 0)
    sessions._by_use[session_id].epoch = EPOCH_MAX
    assert ask(sessions, [], session_id, EPOCH_MAX).finish([answer(0, watermark=9)], 0)[0] is ErrorCode.NONE
    assert sessions._by_use[session_id].epoch == 1
    with pytest.raises(Refusal) as refused:
        ask(sessions, [], session_id, EPOCH_MAX)
    assert refused.value.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_only_the_latest_of_two_requests_in_flight_is_answered() -> None:
    sessions = cache()
    session_id = opened(sessions, 0)
    parked = ask(sessions, [], session_id, 1)
    latest = ask(sessions, [], session_id, 2)
    assert parked.finish([answer(0)], 0) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, NO_SESSION, [])
    assert latest.finish([answer(0, watermark=9)], 0)[1] == session_id


@pytest.mark.parametrize(
    ("idle_ms", "age_ms", "size", "evicts"),
    [
        (EVICTION_MS + 1, EVICTION_MS + 1, 1, True),  # idle for too long: anyone may take its place
        (EVICTION_MS, EVICTION_MS, 3, False),  # young, and not idle enough: nobody's
        (0, EVICTION_MS + 1, 3, True),  # old, in use, smaller
        (0, EVICTION_MS + 1, 2, False),  # of the same size: no gain
    ],
)
def test_eviction(idle_ms: int, age_ms: int, size: int, evicts: bool) -> None:
    sessions = cache(slots_max=1)
    old = opened(sessions, 0, 1, now_ms=0)
    ask(sessions, [], old, 1, now_ms=age_ms - idle_ms)
    new = opened(sessions, *range(size), now_ms=age_ms)
    assert (new != NO_SESSION) is evicts
    assert len(sessions) == 1


def test_no_slots_no_sessions() -> None:
    assert opened(cache(slots_max=0), 0) == NO_SESSION


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 4), st.tuples(st.integers(0, 3), st.booleans()), max_size=5),
            st.lists(st.integers(0, 4), max_size=2),
        ),
        max_size=12,
    )
)
def test_a_reader_that_applies_every_answer_knows_every_watermark(
    steps: list[tuple[dict[int, tuple[int, bool]], list[int]]],
) -> None:
    """However partitions come and go, what the session leaves out is what the reader has already been told."""
    sessions = cache()
    session_id, epoch = opened(sessions, 0), 1
    known: dict[int, int] = {0: 5}
    held = [0]
    for truth, forgotten in steps:
        added = [index for index in truth if index not in held]
        gone = [index for index in forgotten if index in held]
        plan = ask(sessions, slots(*added), session_id, epoch, forgotten=tuple(("t", index) for index in gone))
        held = [index for index in [*held, *added] if index not in gone]
        if not held:
            assert len(sessions) == 0
            return
        epoch += 1
        assert sorted(slot.index for slot in plan.slots) == sorted(held)
        answers = [
            answer(
                slot.index,
                watermark=truth.get(slot.index, (9, False))[0],
                records=b"r" * truth.get(slot.index, (0, False))[1],
            )
            for slot in plan.slots
        ]
        _, told_id, told = plan.finish(answers, 0)
        assert told_id == session_id
        for index in gone:
            known.pop(index, None)
        for slot, said in told:
            known[slot.index] = said.high_watermark
        assert {index: known[index] for index in held} == {a.partition_index: a.high_watermark for a in answers}


# ---- floods ----------------------------------------------------------------------------------------------------------


def test_a_session_of_too_many_partitions_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_PER_SESSION_MAX", 3)
    sessions = cache()
    assert opened(sessions, 0, 1, 2) != NO_SESSION
    assert opened(sessions, 0, 1, 2, 3) == NO_SESSION
    assert sessions.partitions == 3


def test_a_session_that_grows_too_large_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_PER_SESSION_MAX", 3)
    sessions = cache()
    session_id = opened(sessions, 0, 1, 2)
    ask(sessions, slots(3), session_id, 1, forgotten=(("t", 0),))
    with pytest.raises(Refusal) as caught:
        ask(sessions, slots(4), session_id, 2)
    assert caught.value.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_all_sessions_together_hold_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 5)
    sessions = cache()
    first, second = opened(sessions, 0, 1), opened(sessions, 0, 1, now_ms=1)
    assert NO_SESSION not in {first, second}
    assert opened(sessions, 0, 1, now_ms=EVICTION_MS) == NO_SESSION, "nobody is idle for long enough"
    assert opened(sessions, 0, now_ms=EVICTION_MS) != NO_SESSION, "a small one still fits"
    third = opened(sessions, 2, 3, now_ms=EVICTION_MS + 1)
    assert third != NO_SESSION
    with pytest.raises(Refusal):
        ask(sessions, slots(0), first, 1)
    with pytest.raises(Refusal):
        ask(sessions, slots(7), second, 1)
    assert sessions.partitions == 3
    ask(sessions, [], third, 1, forgotten=(("t", 2),))
    ask(sessions, slots(3), third, FINAL_EPOCH)
    assert sessions.partitions == 1


@pytest.mark.parametrize("idle", [True, False])
def test_no_session_is_closed_for_one_that_finds_no_room_all_the_same(
    monkeypatch: pytest.MonkeyPatch, idle: bool
) -> None:
    """The eldest is idle, or small and old; the other, without which it is not enough, is neither."""
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 8)
    sessions = cache(slots_max=2)
    first = opened(sessions, 0)
    if not idle:
        ask(sessions, [], first, 1, now_ms=EVICTION_MS)
    second = opened(sessions, *range(5), now_ms=EVICTION_MS)
    assert opened(sessions, *range(4), now_ms=EVICTION_MS + 1) == NO_SESSION
    assert sessions.partitions == 6
    ask(sessions, [], first, 1 if idle else 2, now_ms=EVICTION_MS + 1)
    ask(sessions, [], second, 1, now_ms=EVICTION_MS + 1)
    assert opened(sessions, *range(3), now_ms=EVICTION_MS + 2) != NO_SESSION, "where it is enough, it goes"
    assert len(sessions) == 2


@pytest.mark.parametrize(("later", "forgotten"), [((2, 3), ()), ((), (("t", 0), ("t", 1)))])
def test_a_request_in_flight_is_not_answered_from_a_session_that_has_ended(
    monkeypatch: pytest.MonkeyPatch, later: tuple[int, ...], forgotten: tuple[tuple[str, int], ...]
) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_PER_SESSION_MAX", 2)
    sessions = cache()
    session_id = opened(sessions, 0, 1)
    earlier = ask(sessions, [], session_id, 1)
    if later:
        with pytest.raises(Refusal):
            ask(sessions, slots(*later), session_id, 2, forgotten=(("t", 0),))
    else:
        ask(sessions, [], session_id, 2, forgotten=forgotten)
    error, _, told = earlier.finish([answer(0, records=b"x"), answer(1, records=b"y")], 0)
    assert (error, told) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
