"""Outcomes of transactions: by the list of aborted ones, and by later markers."""

from __future__ import annotations

import pytest

from odradek.client import checked_batches
from odradek.protocol.batch import ControlType, build_batch, control_key, read_header
from odradek.protocol.errors import Malformed
from odradek.spark.source_columns import Marker, Outcome
from odradek.spark.source_outcomes import Markers, marker_of, visible, with_outcome
from tests.support.batches import batch, marker

LOG = b"".join(
    [
        batch(0, b"plain"),
        batch(1, b"aborted", producer_id=1),
        batch(2, b"committed", producer_id=2),
        marker(3, 1, commit=False),
        marker(4, 2, commit=True),
        batch(5, b"second", producer_id=1),
        marker(6, 1, commit=True),
    ]
)


def test_visible_batches_are_those_of_read_committed() -> None:
    selected = [visible(*each) for each in checked_batches(LOG, [(1, 1)])]
    assert [each.header.base_offset for each in selected if each] == [0, 2, 5]


def test_outcomes_before_the_last_stable_offset_follow_the_list_of_aborted_transactions() -> None:
    selected = [with_outcome(*each) for each in checked_batches(LOG, [(1, 1)])]
    assert [each.outcome for each in selected] == [
        Outcome.NONE, Outcome.ABORTED, Outcome.COMMITTED, Outcome.ABORTED, Outcome.COMMITTED, Outcome.COMMITTED,
        Outcome.COMMITTED,
    ]  # fmt: skip
    assert [each.marker and each.marker.kind for each in selected] == [
        None, None, None, "ABORT", "COMMIT", None, "COMMIT",
    ]  # fmt: skip


def test_outcomes_after_the_last_stable_offset_are_those_of_the_next_marker_of_the_producer() -> None:
    log = LOG + batch(7, b"open", producer_id=2) + batch(8, b"new", producer_id=9)
    markers = Markers()
    for header, data, _ in checked_batches(log):
        found = marker_of(header, data)
        if found is not None:
            markers.add(header, found)
    assert [markers.select(*each).outcome for each in checked_batches(log)] == [
        Outcome.NONE, Outcome.ABORTED, Outcome.COMMITTED, Outcome.ABORTED, Outcome.COMMITTED, Outcome.COMMITTED,
        Outcome.COMMITTED, Outcome.OPEN, Outcome.OPEN,
    ]  # fmt: skip


def test_control_batches_of_other_kinds_decide_no_transaction() -> None:
    data = build_batch([(control_key(ControlType.LEADER_CHANGE), b"", 5, ())], control=True)
    selected = with_outcome(read_header(data), memoryview(data), False)
    assert (selected.marker, selected.outcome) == (Marker("LEADER_CHANGE", None), Outcome.NONE)


def test_damaged_control_batch_is_malformed() -> None:
    data = build_batch([(control_key(ControlType.COMMIT), b"\x00", 5, ())], control=True, transactional=True)
    with pytest.raises(Malformed, match="fewer than six bytes"):
        marker_of(read_header(data), memoryview(data))
