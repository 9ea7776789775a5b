from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.client import ClientError, Fenced, NotFound, Refused, TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.spark.errors import Doubtful, InvalidInput
from odradek.spark.exactly_once import raise_failure
from odradek.spark.outcome import Failure, Kept, Outcome, ReadPartition, WrittenPartition, failure_of, inconsistencies

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def outcome() -> Outcome:
    written = [WrittenPartition(FIRST, 30, 5, 34, 300), WrittenPartition(SECOND, 12, 0, 11, 120)]
    return Outcome(written, [ReadPartition(0, 22, 220), ReadPartition(1, 20, 200)])


KEPT = {FIRST: Kept(5, 29), SECOND: Kept(0, 11)}


def test_complete_batch_is_committed() -> None:
    assert inconsistencies(outcome(), [FIRST, SECOND], KEPT) == []
    assert inconsistencies(Outcome(), [], {}) == []
    assert (outcome().rows, outcome().checksum) == (42, 420)


def test_partition_of_two_tasks_is_doubtful() -> None:
    twice = outcome()
    twice.written[1] = replace(twice.written[1], target=FIRST)
    assert "several tasks wrote t-0" in inconsistencies(twice, [FIRST], KEPT)


def test_topic_whose_name_kafka_does_not_allow_is_invalid_input() -> None:
    assert failure_of(Refused("topic a b", code=ErrorCode.INVALID_TOPIC_EXCEPTION)) is Failure.INVALID


def test_lost_and_repeated_rows_are_doubtful() -> None:
    lost = outcome()
    lost.read[0] = replace(lost.read[0], rows=23)
    assert inconsistencies(lost, [FIRST, SECOND], KEPT)[0].startswith("rows and checksum read (43, 420)")
    other = outcome()
    other.read[0] = replace(other.read[0], checksum=221)
    assert inconsistencies(other, [FIRST, SECOND], KEPT)[0].startswith("rows and checksum read (42, 421)")
    twice = outcome()
    twice.read.append(twice.read[1])
    assert inconsistencies(twice, [FIRST, SECOND], KEPT)[0] == "input partition 1 was read twice"


def test_partition_that_no_report_names_is_doubtful() -> None:
    assert inconsistencies(outcome(), [FIRST, SECOND, TopicPartition("t", 2)], KEPT) == [
        "an unknown task attempt added t-2 to the transaction"
    ]


@pytest.mark.parametrize("last", [-1, 28, 30])
def test_other_last_sequence_is_doubtful(last: int) -> None:
    assert inconsistencies(outcome(), [FIRST, SECOND], {**KEPT, FIRST: Kept(5, last)}) == [
        f"t-0 has last sequence {last} after 30 records"
    ]


@pytest.mark.parametrize("start", [None, 4, 6])
def test_transaction_that_does_not_begin_with_the_first_row_is_doubtful(start: int | None) -> None:
    assert inconsistencies(outcome(), [FIRST, SECOND], {**KEPT, FIRST: Kept(start, 29)}) == [
        f"the transaction begins at offset {start} in t-0, and its first reported record has offset 5"
    ]


def test_partition_without_the_producer_is_doubtful() -> None:
    assert len(inconsistencies(outcome(), [FIRST, SECOND], {SECOND: KEPT[SECOND]})) == 2


def test_failures_of_the_client_have_a_kind() -> None:
    assert failure_of(Fenced("x", code=ErrorCode.PRODUCER_FENCED)) is Failure.FENCED
    assert failure_of(NotFound("x")) is Failure.INVALID
    assert failure_of(Refused("x", code=ErrorCode.MESSAGE_TOO_LARGE)) is Failure.INVALID
    assert failure_of(Refused("x", code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)) is Failure.DOUBTFUL
    assert failure_of(ClientError("x")) is Failure.DOUBTFUL


def test_invalid_input_is_reported_before_its_consequences() -> None:
    failed = Outcome(failures=[(Failure.DOUBTFUL, "lost"), (Failure.FENCED, "old"), (Failure.INVALID, "too large")])
    with pytest.raises(InvalidInput, match="too large"):
        raise_failure(failed.failures)
    del failed.failures[2]
    with pytest.raises(Fenced, match="old"):
        raise_failure(failed.failures)
    del failed.failures[1]
    with pytest.raises(Doubtful, match="lost"):
        raise_failure(failed.failures)
