"""Fetch state of a followed partition: the transition table, and the offset of a truncation."""

import pytest

from odradek.cluster.replication.follower import (
    TRANSITIONS,
    Event,
    PartitionFetchState,
    Remedy,
    State,
    event_of,
    pause_ms,
    remedy_for,
    truncation_for,
)
from odradek.protocol.errors import ErrorCode
from odradek.runtime.machine import BUG, TransitionBug
from odradek.storage.files.leader_epochs import LeaderEpochs

PATHS = [
    ("data", [Event.DATA, Event.DATA], State.FETCHING),
    ("divergence", [Event.DIVERGED, Event.TRUNCATED, Event.DATA], State.FETCHING),
    ("out of range", [Event.OUT_OF_RANGE, Event.LOCATED, Event.TRUNCATED], State.FETCHING),
    ("not located", [Event.OUT_OF_RANGE, Event.RETRIABLE_ERROR, Event.PAUSE_ENDED], State.FETCHING),
    ("a pause", [Event.RETRIABLE_ERROR, Event.PAUSE_ENDED], State.FETCHING),
    ("fenced", [Event.FENCED], State.WAITING),
    ("fenced while locating", [Event.OUT_OF_RANGE, Event.FENCED], State.WAITING),
    ("a broken disk", [Event.DISK_FAILED, Event.DISK_FAILED], State.BROKEN),
    ("a broken disk while truncating", [Event.DIVERGED, Event.DISK_FAILED], State.BROKEN),
]


@pytest.mark.parametrize(("events", "ends"), [row[1:] for row in PATHS], ids=[row[0] for row in PATHS])
def test_events_lead_to_the_expected_state(events: list[Event], ends: State) -> None:
    fetch_state = PartitionFetchState(2, 7)
    for event in events:
        fetch_state.step(event)
    assert fetch_state.state is ends


def test_every_state_is_reachable_and_impossible_events_are_bugs() -> None:
    assert {new for new in TRANSITIONS.cells.values() if new is not BUG} == set(State)
    for (state, event), new in TRANSITIONS.cells.items():
        fetch_state = PartitionFetchState(2, 7)
        fetch_state.state = state
        if new is BUG:
            with pytest.raises(TransitionBug):
                fetch_state.step(event)
            assert fetch_state.state is state
        else:
            assert fetch_state.step(event) is new


def test_fetch_offset_is_kept_with_data_and_reset_by_truncation() -> None:
    fetch_state = PartitionFetchState(2, 7)
    fetch_state.fetch_offset = 10
    fetch_state.step(Event.DATA)
    assert fetch_state.fetch_offset == 10
    fetch_state.step(Event.DIVERGED)
    fetch_state.step(Event.TRUNCATED)
    assert fetch_state.fetch_offset == -1


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, Event.OUT_OF_RANGE),
        (ErrorCode.FENCED_LEADER_EPOCH, Event.FENCED),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, Event.RETRIABLE_ERROR),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Event.RETRIABLE_ERROR),
        (ErrorCode.UNKNOWN_TOPIC_ID, Event.RETRIABLE_ERROR),
        (ErrorCode.KAFKA_STORAGE_ERROR, Event.RETRIABLE_ERROR),
    ],
)
def test_error_code_is_mapped_to_an_event(error: ErrorCode, event: Event) -> None:
    assert event_of(error) is event


def test_pauses_double_up_to_the_maximum_and_end_with_data() -> None:
    assert [pause_ms(failures, 20, 1_000) for failures in (1, 2, 3, 6, 7, 99)] == [20, 40, 80, 640, 1_000, 1_000]
    fetch_state = PartitionFetchState(2, 7)
    fetch_state.step(Event.RETRIABLE_ERROR)
    fetch_state.step(Event.PAUSE_ENDED)
    assert fetch_state.failures == 1
    fetch_state.step(Event.DATA)
    assert fetch_state.failures == 0


@pytest.mark.parametrize(
    ("own", "own_end", "leader_end", "truncate_to"),
    [
        ([(0, 0)], 10, (0, 7), 7),  # same epoch: the leader has fewer records of it
        ([(0, 0), (2, 6)], 10, (1, 8), 6),  # the leader lacks epoch 2: truncate it, then compare the epoch before
        ([(0, 0), (2, 6)], 10, (0, 5), 5),
        ([(3, 0)], 10, (1, 4), 0),  # all records are of a later epoch than any that the leader knows
        ([(0, 0)], 3, (0, 7), 3),  # the log became shorter meanwhile
        ([(0, 0), (1, 10)], 10, (0, 10), 10),  # an epoch without records: only its entry is removed
        ([], 10, (0, 4), 4),
    ],
)
def test_truncation_offset_follows_from_the_epochs_of_both_logs(
    own: list[tuple[int, int]], own_end: int, leader_end: tuple[int, int], truncate_to: int
) -> None:
    epochs = LeaderEpochs(own)
    truncation = truncation_for(*leader_end, lambda epoch: epochs.end_offset_for(epoch, own_end), own_end)
    assert truncation.offset == truncate_to


@pytest.mark.parametrize(
    ("log_end", "leader_start", "leader_end", "remedy", "offset"),
    [
        (10, 0, 5, Remedy.TRUNCATE, 5),
        (10, 20, 30, Remedy.START_AT, 20),
        (10, 5, 30, Remedy.FETCH_AGAIN, 10),
        (10, 10, 10, Remedy.FETCH_AGAIN, 10),
    ],
)
def test_offset_out_of_range_has_a_remedy(
    log_end: int, leader_start: int, leader_end: int, remedy: Remedy, offset: int
) -> None:
    assert remedy_for(log_end, leader_start, leader_end) == (remedy, offset)
