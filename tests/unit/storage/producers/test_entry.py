"""State of one producer: sequences, epochs, markers, verification and expiry."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol.batch import SEQUENCE_MAX
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.producers.entry import (
    CACHED_BATCHES_MAX,
    PRODUCER_EPOCH_MAX,
    CachedBatch,
    EndMarker,
    Origin,
    ProducerEntry,
    ProducerUpdate,
    Verification,
)

PID = 7


def entry(
    epoch: int = 3, last_sequence: int | None = 9, opened: int | None = None, coordinator_epoch: int = -1
) -> ProducerEntry:
    batches = [] if last_sequence is None else [CachedBatch(last_sequence, 100, 0, 1000)]
    return ProducerEntry(PID, epoch, coordinator_epoch, 1000, opened, batches)


def data(
    current: ProducerEntry | None,
    *,
    epoch: int = 3,
    sequence: int = 10,
    offset: int = 200,
    origin: Origin = Origin.CLIENT,
    transactional: bool = False,
    verification: Verification | None = None,
) -> ProducerUpdate:
    update = ProducerUpdate(PID, current, origin, verification)
    update.data_batch(
        epoch=epoch,
        first_sequence=sequence,
        last_sequence=sequence,
        first_offset=offset,
        last_offset=offset,
        timestamp=2000,
        transactional=transactional,
    )
    return update


def refused(code: ErrorCode, *arguments: Any, **options: Any) -> None:
    with pytest.raises(Refusal) as caught:
        data(*arguments, **options)
    assert caught.value.error is code


def test_non_transactional_batch_of_a_transactional_producer_is_refused() -> None:
    """The epoch of such a batch is not verified. If it were accepted, it would fence the producer."""
    refused(ErrorCode.INVALID_TXN_STATE, entry(coordinator_epoch=0), epoch=PRODUCER_EPOCH_MAX, sequence=0)
    refused(ErrorCode.INVALID_TXN_STATE, entry(last_sequence=None, coordinator_epoch=2), sequence=0)
    assert data(entry(coordinator_epoch=0), transactional=True).entry.last_sequence == 10
    replicated = data(entry(coordinator_epoch=0), epoch=PRODUCER_EPOCH_MAX, sequence=0, origin=Origin.REPLICATION)
    assert replicated.entry.epoch == PRODUCER_EPOCH_MAX


TV2 = Verification(guard=1, lowest_sequence=0, epoch=3, supports_epoch_bump=True)
TV1 = Verification(guard=1, lowest_sequence=4, epoch=3, supports_epoch_bump=False)

SEQUENCES: list[tuple[str, ProducerEntry | None, dict[str, Any], ErrorCode]] = [
    ("TV2, no cached batch, not 0", None, {"sequence": 5, "verification": TV2}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (
        "TV2, only markers known, not 0",
        entry(last_sequence=None),
        {"sequence": 5, "epoch": 4, "verification": TV2},
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ),
    ("TV2, no cached batch, 0", None, {"sequence": 0, "verification": TV2}, ErrorCode.NONE),
    ("TV1, unknown producer, any", None, {"sequence": 4, "verification": TV1}, ErrorCode.NONE),
    (
        "above the lowest one verified",
        entry(last_sequence=4),
        {"sequence": 5, "verification": TV1},
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ),
    ("epoch changed, 0", entry(), {"epoch": 4, "sequence": 0}, ErrorCode.NONE),
    ("unknown producer, not 0", None, {"epoch": 4, "sequence": 77}, ErrorCode.NONE),
    ("epoch changed, not 0", entry(), {"epoch": 4, "sequence": 10}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ("same epoch, next", entry(), {"sequence": 10}, ErrorCode.NONE),
    ("same epoch, wrap", entry(last_sequence=SEQUENCE_MAX), {"sequence": 0}, ErrorCode.NONE),
    ("same epoch, gap", entry(), {"sequence": 11}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ("same epoch, old", entry(), {"sequence": 3}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ("same epoch, 0 without wrap", entry(), {"sequence": 0}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ("only markers seen, 0", entry(last_sequence=None), {"sequence": 0}, ErrorCode.NONE),
    ("only markers seen, not 0", entry(last_sequence=None), {"sequence": 1}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ("epoch below", entry(), {"epoch": 2, "sequence": 10}, ErrorCode.INVALID_PRODUCER_EPOCH),
    ("epoch below, coordinator", entry(), {"epoch": 2, "origin": Origin.COORDINATOR}, ErrorCode.INVALID_PRODUCER_EPOCH),
    (
        "sequences of coordinators are not checked",
        entry(),
        {"sequence": 99, "origin": Origin.COORDINATOR},
        ErrorCode.NONE,
    ),
    (
        "replicated batches are never refused",
        entry(),
        {"epoch": 1, "sequence": 99, "origin": Origin.REPLICATION},
        ErrorCode.NONE,
    ),
    ("outside of the open transaction", entry(opened=50), {}, ErrorCode.INVALID_TXN_STATE),
    ("inside of the open transaction", entry(opened=50), {"transactional": True}, ErrorCode.NONE),
]


@pytest.mark.parametrize(("rule", "current", "options", "expected"), SEQUENCES, ids=[row[0] for row in SEQUENCES])
def test_batch_is_accepted_or_refused_by_epoch_sequence_and_transaction(
    rule: str, current: ProducerEntry | None, options: dict[str, Any], expected: ErrorCode
) -> None:
    if expected is ErrorCode.NONE:
        data(current, **options)
    else:
        refused(expected, current, **options)


def test_update_changes_nothing_before_the_merge() -> None:
    current = entry()
    update = data(current, sequence=10, transactional=True)
    assert current == entry()
    current.merge(update.entry)
    assert (current.last_sequence, current.last_data_offset, current.transaction_first_offset) == (10, 200, 200)
    assert [batch.last_sequence for batch in current.batches] == [9, 10]


def test_change_of_epoch_drops_the_cached_batches() -> None:
    current = entry()
    current.merge(data(current, epoch=4, sequence=0).entry)
    assert [batch.last_sequence for batch in current.batches] == [0]


def test_five_batches_are_cached() -> None:
    current = entry(last_sequence=None)
    for sequence in range(8):
        current.merge(data(current, sequence=sequence, offset=200 + sequence).entry)
    assert [batch.last_sequence for batch in current.batches] == [3, 4, 5, 6, 7]
    assert len(current.batches) == CACHED_BATCHES_MAX
    assert current.duplicate_of(3, 3, 3) is not None
    assert current.duplicate_of(3, 2, 2) is None
    assert current.duplicate_of(4, 3, 3) is None
    assert current.duplicate_of(3, 3, 4) is None


def test_first_sequence_of_a_batch_is_computed_across_a_sequence_wrap() -> None:
    assert CachedBatch(last_sequence=1, last_offset=10, offset_delta=3, timestamp=0).first_sequence == SEQUENCE_MAX - 1


# rule, transaction version, marker epoch, entry epoch, transaction open, coordinator epoch, expected
MARKERS = [
    ("TV1, same epoch", 1, 3, 3, True, 5, ErrorCode.NONE),
    ("TV1, above", 1, 4, 3, True, 5, ErrorCode.NONE),
    ("TV1, below", 1, 2, 3, True, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
    ("unknown version, same epoch", -1, 3, 3, True, 5, ErrorCode.NONE),
    ("TV0, below", 0, 2, 3, False, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
    ("TV2, above", 2, 4, 3, True, 5, ErrorCode.NONE),
    ("TV2, same epoch, open", 2, 3, 3, True, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
    ("TV2, same epoch, nothing open: a retry (KAFKA-19999)", 2, 3, 3, False, 5, ErrorCode.NONE),
    ("TV2, last epoch", 2, PRODUCER_EPOCH_MAX, PRODUCER_EPOCH_MAX, True, 5, ErrorCode.NONE),
    ("TV2, below", 2, 2, 3, False, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
    ("older coordinator", 1, 3, 3, True, 4, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ("newer coordinator", 1, 3, 3, True, 6, ErrorCode.NONE),
]


@pytest.mark.parametrize("row", MARKERS, ids=[row[0] for row in MARKERS])
def test_marker_is_accepted_or_refused_by_epoch_and_coordinator_epoch(
    row: tuple[str, int, int, int, bool, int, ErrorCode],
) -> None:
    _, version, epoch, entry_epoch, is_open, coordinator_epoch, expected = row
    current = entry(epoch=entry_epoch, opened=50 if is_open else None, coordinator_epoch=5)
    update = ProducerUpdate(PID, current, Origin.COORDINATOR, None)
    content = EndMarker(abort=True, coordinator_epoch=coordinator_epoch, timestamp=3000)
    if expected is not ErrorCode.NONE:
        with pytest.raises(Refusal) as caught:
            update.marker(content, epoch=epoch, offset=60, transaction_version=version)
        assert caught.value.error is expected
        replicated = ProducerUpdate(PID, current, Origin.REPLICATION, None)
        replicated.marker(content, epoch=epoch, offset=60, transaction_version=version)
        return
    completed = update.marker(content, epoch=epoch, offset=60, transaction_version=version)
    assert (completed is not None) == is_open
    if completed is not None:
        assert (completed.first_offset, completed.marker_offset, completed.aborted) == (50, 60, True)
    current.merge(update.entry)
    assert (current.epoch, current.coordinator_epoch, current.last_timestamp) == (epoch, coordinator_epoch, 3000)
    assert current.transaction_first_offset is None
    assert bool(current.batches) == (epoch == entry_epoch), "a marker adds no batch; a new epoch drops the old ones"


def test_verification_keeps_the_lowest_sequence() -> None:
    verification = Verification(1, 10, 3, supports_epoch_bump=False)
    verification.note_attempt(12, 3)
    assert verification.lowest_sequence == 10
    verification.note_attempt(8, 3)
    assert verification.lowest_sequence == 8
    verification.note_attempt(0, 2)
    assert (verification.epoch, verification.lowest_sequence) == (3, 8)
    verification.note_attempt(20, 4)
    assert (verification.epoch, verification.lowest_sequence) == (4, 20)


def test_producer_with_an_open_transaction_does_not_expire() -> None:
    idle = entry()
    idle.seen_ms = 2000
    assert idle.expired(2000 + 50, 50)
    assert not idle.expired(2000 + 49, 50)
    assert not entry(opened=1).expired(10**12, 50)
