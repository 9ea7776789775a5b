import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.fetch import sessions as fetch_sessions
from odradek.broker.fetch.sessions import (
    EVICTION_MS,
    FINAL_EPOCH,
    NO_SESSION,
    SESSION_EPOCH_MAX,
    FetchPlan,
    FetchSessions,
    FetchSlot,
)
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import EpochEndOffset, PartitionData
from odradek.protocol.schema import replace_fields


def slots(*indexes: int, topic: str = "t", offset: int = 0) -> list[FetchSlot]:
    return [FetchSlot(topic, index, offset, 1_000) for index in indexes]


def partition_data(
    index: int = 0, *, watermark: int = 5, records: bytes = b"", error: int = 0, start: int = 0
) -> PartitionData:
    return PartitionData(index, error, watermark, last_stable_offset=watermark, log_start_offset=start, records=records)


def make_sessions(slots_max: int = 10) -> FetchSessions:
    return FetchSessions(slots_max, random.Random(7))


def plan_fetch(
    sessions: FetchSessions,
    slots_in_request: list[FetchSlot],
    session_id: int = 0,
    epoch: int = 0,
    *,
    forgotten: tuple[tuple[str, int], ...] = (),
    uses_ids: bool = False,
    now_ms: int = 0,
) -> FetchPlan:
    return sessions.plan(
        slots_in_request,
        list(forgotten),
        session_id=session_id,
        session_epoch=epoch,
        uses_ids=uses_ids,
        now_ms=now_ms,
    )


def open_session(sessions: FetchSessions, *indexes: int, now_ms: int = 0) -> int:
    plan = plan_fetch(sessions, slots(*indexes), now_ms=now_ms)
    error, session_id, returned = plan.finish([partition_data(index) for index in indexes], now_ms)
    assert error is ErrorCode.NONE
    assert len(returned) == len(indexes)
    return session_id


def test_full_fetch_opens_a_session_and_returns_all_partitions() -> None:
    sessions = make_sessions()
    assert open_session(sessions, 0, 1) > 0
    assert len(sessions) == 1


def test_final_epoch_closes_the_session_and_opens_none() -> None:
    sessions = make_sessions()
    session_id = open_session(sessions, 0)
    plan = plan_fetch(sessions, slots(0, 1), session_id, FINAL_EPOCH)
    error, response_id, returned = plan.finish([partition_data(0), partition_data(1)], 0)
    assert (error, response_id, len(returned)) == (ErrorCode.NONE, NO_SESSION, 2)
    assert len(sessions) == 0


def test_epoch_zero_with_a_session_id_replaces_that_session() -> None:
    sessions = make_sessions()
    first = open_session(sessions, 0)
    plan = plan_fetch(sessions, slots(1), first, 0)
    _, second, _ = plan.finish([partition_data(1)], 0)
    assert second not in {NO_SESSION, first}
    assert len(sessions) == 1


def test_full_fetch_without_partitions_opens_no_session() -> None:
    sessions = make_sessions()
    assert plan_fetch(sessions, []).finish([], 0) == (ErrorCode.NONE, NO_SESSION, [])
    assert len(sessions) == 0


@pytest.mark.parametrize(
    ("change", "included"),
    [
        ({}, False),
        ({"records": b"x"}, True),
        ({"watermark": 6}, True),
        ({"start": 1}, True),
        ({"error": int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}, True),
    ],
)
def test_incremental_response_has_changed_partitions_only(change: dict[str, object], included: bool) -> None:
    sessions = make_sessions()
    session_id = open_session(sessions, 0, 1)
    plan = plan_fetch(sessions, [], session_id, 1)
    error, response_id, returned = plan.finish([partition_data(0), partition_data(1, **change)], 0)  # type: ignore[arg-type]  # a table of keywords
    assert (error, response_id) == (ErrorCode.NONE, session_id)
    assert [slot.index for slot, _ in returned] == ([1] if included else [])


def test_change_of_the_last_stable_offset_alone_is_not_returned() -> None:
    sessions = make_sessions()
    session_id = open_session(sessions, 0)
    moved = replace_fields(partition_data(0), last_stable_offset=3)
    assert plan_fetch(sessions, [], session_id, 1).finish([moved], 0)[2] == []


def test_diverging_epoch_and_preferred_replica_are_returned() -> None:
    sessions = make_sessions()
    session_id = open_session(sessions, 0, 1)
    diverging = replace_fields(partition_data(0), diverging_epoch=EpochEndOffset(3, 7))
    preferred = replace_fields(partition_data(1), preferred_read_replica=2)
    _, _, returned = plan_fetch(sessions, [], session_id, 1).finish([diverging, preferred], 0)
    assert [slot.index for slot, _ in returned] == [0, 1]


@pytest.mark.parametrize("known", [-1, 0])
def test_first_success_after_an_error_is_returned(known: int) -> None:
    """The partition is returned although only the error code changed: the error response had the same watermarks."""
    sessions = make_sessions()
    session_id = open_session(sessions, 0)
    watermark, start = (5, 0) if known == 0 else (-1, -1)
    failed = partition_data(0, watermark=watermark, start=start, error=int(ErrorCode.KAFKA_STORAGE_ERROR))
    assert len(plan_fetch(sessions, [], session_id, 1).finish([failed], 0)[2]) == 1
    assert len(plan_fetch(sessions, [], session_id, 2).finish([partition_data(0)], 0)[2]) == 1
    assert plan_fetch(sessions, [], session_id, 3).finish([partition_data(0)], 0)[2] == []


def test_partitions_with_records_move_to_the_end_of_the_order() -> None:
    sessions = make_sessions()
    session_id = open_session(sessions, 0, 1, 2)
    plan_fetch(sessions, [], session_id, 1).finish(
        [partition_data(0, records=b"x"), partition_data(1), partition_data(2)], 0
    )
    assert [slot.index for slot in plan_fetch(sessions, [], session_id, 2).slots] == [1, 2, 0]


def test_partitions_are_added_changed_and_forgotten() -> None:
    sessions = make_sessions()
    session_id = open_session(sessions, 0, 1)
    plan = plan_fetch(sessions, slots(1, offset=9) + slots(2), session_id, 1, forgotten=(("t", 0),))
    assert [(slot.index, slot.fetch_offset) for slot in plan.slots] == [(1, 9), (2, 0)]


def test_session_without_partitions_is_closed() -> None:
    sessions = make_sessions()
    session_id = open_session(sessions, 0)
    plan = plan_fetch(sessions, [], session_id, 1, forgotten=(("t", 0),))
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
def test_invalid_session_id_epoch_or_topic_ids_are_refused(
    session_offset: int, epoch: int, uses_ids: bool, error: ErrorCode
) -> None:
    sessions = make_sessions()
    session_id = open_session(sessions, 0)
    with pytest.raises(Refusal) as caught:
        plan_fetch(sessions, [], session_id + session_offset, epoch, uses_ids=uses_ids)
    assert caught.value.error is error
    assert len(sessions) == 1


def test_session_epoch_wraps_to_one() -> None:
    sessions = make_sessions()
    session_id = open_session(sessions, 0)
    sessions._by_use[session_id].epoch = SESSION_EPOCH_MAX
    assert (
        plan_fetch(sessions, [], session_id, SESSION_EPOCH_MAX).finish([partition_data(0, watermark=9)], 0)[0]
        is ErrorCode.NONE
    )
    assert sessions._by_use[session_id].epoch == 1
    with pytest.raises(Refusal) as caught:
        plan_fetch(sessions, [], session_id, SESSION_EPOCH_MAX)
    assert caught.value.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_earlier_of_two_fetches_in_flight_gets_invalid_session_epoch() -> None:
    sessions = make_sessions()
    session_id = open_session(sessions, 0)
    parked = plan_fetch(sessions, [], session_id, 1)
    latest = plan_fetch(sessions, [], session_id, 2)
    assert parked.finish([partition_data(0)], 0) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, NO_SESSION, [])
    assert latest.finish([partition_data(0, watermark=9)], 0)[1] == session_id


@pytest.mark.parametrize(
    ("idle_ms", "age_ms", "size", "evicts"),
    [
        (EVICTION_MS + 1, EVICTION_MS + 1, 1, True),  # idle for longer than EVICTION_MS: evictable for any session
        (EVICTION_MS, EVICTION_MS, 3, False),  # not older than EVICTION_MS, and not idle for longer: kept
        (0, EVICTION_MS + 1, 3, True),  # old, in use, and smaller: evictable
        (0, EVICTION_MS + 1, 2, False),  # old, in use, of the same size: kept
    ],
)
def test_session_is_evicted_by_idle_time_age_and_size(idle_ms: int, age_ms: int, size: int, evicts: bool) -> None:
    sessions = make_sessions(slots_max=1)
    old = open_session(sessions, 0, 1, now_ms=0)
    plan_fetch(sessions, [], old, 1, now_ms=age_ms - idle_ms)
    new = open_session(sessions, *range(size), now_ms=age_ms)
    assert (new != NO_SESSION) is evicts
    assert len(sessions) == 1


def test_without_slots_no_session_opens() -> None:
    assert open_session(make_sessions(slots_max=0), 0) == NO_SESSION


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
def test_client_that_applies_each_incremental_response_has_every_watermark(
    steps: list[tuple[dict[int, tuple[int, bool]], list[int]]],
) -> None:
    """A session omits a partition only if the client has its current watermark, however partitions are added and
    forgotten.
    """
    sessions = make_sessions()
    session_id, epoch = open_session(sessions, 0), 1
    known: dict[int, int] = {0: 5}
    held = [0]
    for watermarks, forgotten in steps:
        added = [index for index in watermarks if index not in held]
        gone = [index for index in forgotten if index in held]
        plan = plan_fetch(sessions, slots(*added), session_id, epoch, forgotten=tuple(("t", index) for index in gone))
        held = [index for index in [*held, *added] if index not in gone]
        if not held:
            assert len(sessions) == 0
            return
        epoch += 1
        assert sorted(slot.index for slot in plan.slots) == sorted(held)
        current = [
            partition_data(
                slot.index,
                watermark=watermarks.get(slot.index, (9, False))[0],
                records=b"r" * watermarks.get(slot.index, (0, False))[1],
            )
            for slot in plan.slots
        ]
        _, response_id, returned = plan.finish(current, 0)
        assert response_id == session_id
        for index in gone:
            known.pop(index, None)
        for slot, data in returned:
            known[slot.index] = data.high_watermark
        assert {index: known[index] for index in held} == {row.partition_index: row.high_watermark for row in current}


# ---- limits ---------------------------------------------------------------------------------------------------------


def test_session_with_too_many_partitions_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_PER_SESSION_MAX", 3)
    sessions = make_sessions()
    assert open_session(sessions, 0, 1, 2) != NO_SESSION
    assert open_session(sessions, 0, 1, 2, 3) == NO_SESSION
    assert sessions.partitions == 3


def test_session_that_exceeds_the_partition_limit_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_PER_SESSION_MAX", 3)
    sessions = make_sessions()
    session_id = open_session(sessions, 0, 1, 2)
    plan_fetch(sessions, slots(3), session_id, 1, forgotten=(("t", 0),))
    with pytest.raises(Refusal) as caught:
        plan_fetch(sessions, slots(4), session_id, 2)
    assert caught.value.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.partitions) == (0, 0)


def test_partitions_of_all_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 5)
    sessions = make_sessions()
    first, second = open_session(sessions, 0, 1), open_session(sessions, 0, 1, now_ms=1)
    assert NO_SESSION not in {first, second}
    assert open_session(sessions, 0, 1, now_ms=EVICTION_MS) == NO_SESSION, "no session is idle for long enough"
    assert open_session(sessions, 0, now_ms=EVICTION_MS) != NO_SESSION, "a small session is within the limit"
    third = open_session(sessions, 2, 3, now_ms=EVICTION_MS + 1)
    assert third != NO_SESSION
    with pytest.raises(Refusal):
        plan_fetch(sessions, slots(0), first, 1)
    with pytest.raises(Refusal):
        plan_fetch(sessions, slots(7), second, 1)
    assert sessions.partitions == 3
    plan_fetch(sessions, [], third, 1, forgotten=(("t", 2),))
    plan_fetch(sessions, slots(3), third, FINAL_EPOCH)
    assert sessions.partitions == 1


@pytest.mark.parametrize("idle", [True, False])
def test_no_session_is_evicted_if_eviction_does_not_free_enough_slots(
    monkeypatch: pytest.MonkeyPatch, idle: bool
) -> None:
    """The oldest session is evictable (idle, or small and old).

    Its slots alone do not suffice, and the other is not evictable.
    """
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 8)
    sessions = make_sessions(slots_max=2)
    first = open_session(sessions, 0)
    if not idle:
        plan_fetch(sessions, [], first, 1, now_ms=EVICTION_MS)
    second = open_session(sessions, *range(5), now_ms=EVICTION_MS)
    assert open_session(sessions, *range(4), now_ms=EVICTION_MS + 1) == NO_SESSION
    assert sessions.partitions == 6
    plan_fetch(sessions, [], first, 1 if idle else 2, now_ms=EVICTION_MS + 1)
    plan_fetch(sessions, [], second, 1, now_ms=EVICTION_MS + 1)
    assert open_session(sessions, *range(3), now_ms=EVICTION_MS + 2) != NO_SESSION, "eviction of one session suffices"
    assert len(sessions) == 2


@pytest.mark.parametrize(("later", "forgotten"), [((2, 3), ()), ((), (("t", 0), ("t", 1)))])
def test_fetch_in_flight_of_a_closed_session_gets_invalid_session_epoch(
    monkeypatch: pytest.MonkeyPatch, later: tuple[int, ...], forgotten: tuple[tuple[str, int], ...]
) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_PER_SESSION_MAX", 2)
    sessions = make_sessions()
    session_id = open_session(sessions, 0, 1)
    earlier = plan_fetch(sessions, [], session_id, 1)
    if later:
        with pytest.raises(Refusal):
            plan_fetch(sessions, slots(*later), session_id, 2, forgotten=(("t", 0),))
    else:
        plan_fetch(sessions, [], session_id, 2, forgotten=forgotten)
    error, _, returned = earlier.finish([partition_data(0, records=b"x"), partition_data(1, records=b"y")], 0)
    assert (error, returned) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
