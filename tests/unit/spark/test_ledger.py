from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from odradek.client import CommittedOffset, PreparedTransaction
from odradek.spark.errors import CheckpointMismatch, SinkError
from odradek.spark.ledger import (
    FINGERPRINT_DIGITS,
    NO_BATCH,
    TASKS_MAX,
    LedgerEntry,
    decoded,
    encoded,
    fingerprint,
    is_written,
)
from odradek.spark.records import CHECKSUM_MODULUS

ENTRY = LedgerEntry(6, "query-a", "run-1", 500, 2**62)


def test_committed_offset_is_the_batch_id_plus_one() -> None:
    assert encoded(ENTRY).offset == 7
    assert decoded(encoded(ENTRY)) == ENTRY


def test_entry_without_tasks_has_no_fields_for_them() -> None:
    assert "tasks" not in encoded(ENTRY).metadata
    assert "decision" not in encoded(ENTRY).metadata


def test_largest_decision_fits_into_the_metadata_of_an_offset() -> None:
    decision = {task: PreparedTransaction(2**63 - 1 - task, 2**15 - 1) for task in range(TASKS_MAX)}
    run = f"process-{uuid.uuid4()}"
    entry = LedgerEntry(
        2**62, str(uuid.uuid4()), run, 10**12, CHECKSUM_MODULUS - 1, TASKS_MAX, "f" * FINGERPRINT_DIGITS, decision
    )
    assert decoded(encoded(entry)) == entry
    assert len(encoded(entry).metadata) <= 4096


@pytest.mark.parametrize(
    "metadata", ["", "{", "[]", '{"rows": 1}', "5", '{"decision": "AA=="}', '{"decision": "?"}', '{"decision": 1}']
)
def test_offset_that_no_sink_committed_is_refused(metadata: str) -> None:
    with pytest.raises(SinkError, match="which no sink wrote"):
        decoded(CommittedOffset(7, metadata))


@pytest.mark.parametrize(("batch_id", "written"), [(6, True), (7, False), (9, False)])
def test_last_batch_is_written(batch_id: int, written: bool) -> None:
    assert is_written(ENTRY, batch_id, "query-a") is written


def test_first_batch_of_a_sink_is_not_written() -> None:
    assert not is_written(None, 0, "query-a")


def test_sink_without_a_batch_belongs_to_no_query() -> None:
    assert not is_written(replace(ENTRY, batch_id=NO_BATCH), 0, "query-b")


def test_query_with_another_checkpoint_is_refused() -> None:
    with pytest.raises(CheckpointMismatch, match="query-a up to batch 6, and not by query query-b"):
        is_written(ENTRY, 0, "query-b")


def test_restored_checkpoint_is_refused() -> None:
    with pytest.raises(CheckpointMismatch, match="up to batch 6, and the checkpoint continues with batch 5"):
        is_written(ENTRY, 5, "query-a")


def test_batch_outside_of_a_query_is_refused_in_the_sink_of_a_query() -> None:
    with pytest.raises(CheckpointMismatch, match="query-a up to batch 6, and not by no streaming query"):
        is_written(ENTRY, 7, None)


@pytest.mark.parametrize(("batch_id", "written"), [(5, True), (6, True), (7, False)])
def test_ids_outside_of_a_query_increase(batch_id: int, written: bool) -> None:
    assert is_written(replace(ENTRY, query_id=None), batch_id, None) is written


OFFSETS = """v1
{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{}}
{"flights":{"0":%d}}"""


def test_fingerprint_depends_on_the_source_offsets_alone() -> None:
    assert fingerprint(OFFSETS % (1, 23)) == fingerprint(OFFSETS % (2, 23))
    assert fingerprint(OFFSETS % (1, 23)) != fingerprint(OFFSETS % (1, 24))
    assert fingerprint("v1\n{}") is None


@pytest.mark.parametrize(("stored", "planned"), [("a", "a"), (None, "a"), ("a", None)])
def test_repeated_batch_with_the_same_or_an_unknown_plan_is_written(stored: str | None, planned: str | None) -> None:
    entry = replace(ENTRY, plan=stored)
    assert decoded(encoded(entry)) == entry
    assert is_written(entry, 6, "query-a", planned)


def test_repeated_batch_with_another_plan_is_refused() -> None:
    with pytest.raises(CheckpointMismatch, match="batch 6 of the sink has other source offsets"):
        is_written(replace(ENTRY, plan="a"), 6, "query-a", "b")
    assert not is_written(replace(ENTRY, plan="a"), 7, "query-a", "b")
