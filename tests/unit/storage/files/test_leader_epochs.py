from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.files.leader_epochs import LeaderEpochs

ENTRIES = [(1, 0), (3, 10), (4, 10), (7, 25)]
LOG_END = 40


def test_epoch_without_records_is_replaced_by_its_successor() -> None:
    assert LeaderEpochs(ENTRIES).entries() == [(1, 0), (4, 10), (7, 25)]


def test_end_offsets() -> None:
    epochs = LeaderEpochs(ENTRIES)
    assert [epochs.end_offset_for(epoch, LOG_END) for epoch in (-1, 0, 1, 2, 3, 4, 6, 7, 8)] == [
        (-1, -1),
        (0, 0),
        (1, 10),
        (1, 10),
        (1, 10),
        (4, 25),
        (4, 25),
        (7, LOG_END),
        (-1, -1),
    ]
    assert LeaderEpochs().end_offset_for(0, LOG_END) == (-1, -1)


def test_contradicting_earlier_epochs_are_removed() -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.assign(7, 30)
    assert epochs.latest == 7
    assert epochs.entries()[-1] == (7, 25)
    epochs.assign(5, 12)
    assert epochs.entries() == [(1, 0), (4, 10), (5, 12)]
    epochs.assign(-1, 99)
    assert epochs.latest == 5


def test_truncation_sets_dirty_only_for_a_change() -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_from_end(30)
    epochs.truncate_from_start(0)
    unchanged = epochs.dirty
    epochs.truncate_from_end(25)
    assert (unchanged, epochs.dirty) == (False, True)
    assert epochs.entries() == [(1, 0), (4, 10)]
    epochs.truncate_from_start(15)
    assert epochs.entries() == [(4, 15)]
    assert [epochs.epoch_for(offset) for offset in (14, 15, 99)] == [-1, 4, 4]
    epochs.clear()
    assert epochs.latest == -1


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 40))
def test_leader_epochs_equal_a_list_of_records(steps: list[int], start: int) -> None:
    """A list with the epoch of each record is the model."""
    epochs, epoch = LeaderEpochs(), 0
    records: list[int] = []
    for step in steps:
        epoch += step
        epochs.assign(epoch, len(records))
        records.append(epoch)
    assert [epochs.epoch_for(offset) for offset in range(len(records))] == records
    for requested in range(epoch + 2):
        epoch_found, end = epochs.end_offset_for(requested, len(records))
        if not records or requested > records[-1]:
            assert (epoch_found, end) == (-1, -1)
        elif requested < records[0]:
            assert (epoch_found, end) == (requested, 0)
        else:
            assert epoch_found == max(record for record in records if record <= requested)
            assert end == sum(record <= requested for record in records)
    epochs.truncate_from_start(start)
    if start < len(records):
        assert [epochs.epoch_for(offset) for offset in range(start, len(records))] == records[start:]
