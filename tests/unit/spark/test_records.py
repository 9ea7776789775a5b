from __future__ import annotations

import pytest

from odradek.client.producer.partitioner import partition_of
from odradek.spark.records import SinkRow, checksum_of, record_of, target_of


def row(**fields: object) -> SinkRow:
    return SinkRow(**{"topic": "t", **dict.fromkeys(SinkRow._fields[1:]), **fields})  # type: ignore[arg-type]


def test_key_determines_the_partition_as_in_kafkas_producers() -> None:
    assert [target_of(row(key=key), 7) for key in (b"", b"a", b"alice")] == [
        partition_of(key, 7) for key in (b"", b"a", b"alice")
    ]


def test_explicit_partition_has_precedence_over_the_key() -> None:
    assert target_of(row(key=b"alice", partition=3), 7) == 3


@pytest.mark.parametrize("partition", [-1, 7])
def test_partition_outside_of_the_topic_is_refused(partition: int) -> None:
    with pytest.raises(ValueError, match=f"topic t has no partition {partition}; it has 7"):
        target_of(row(partition=partition), 7)


def test_rows_without_a_key_are_distributed_by_their_value() -> None:
    targets = [target_of(row(value=str(number).encode()), 4) for number in range(100)]
    assert set(targets) == {0, 1, 2, 3}
    assert target_of(row(value=b"5"), 4) == targets[5]
    assert target_of(row(), 4) == 0


def test_checksum_distinguishes_all_columns() -> None:
    header = {"key": "h", "value": b"x"}
    rows = [
        row(value=b"ab"),
        row(key=b"a", value=b"b"),
        row(key=b"ab"),
        row(key=b"ab", value=b"ab"),
        row(value=b""),
        row(value=b"ab", topic="u"),
        row(value=b"ab", partition=0),
        row(value=b"ab", timestamp=0),
        row(value=b"ab", headers=[header]),
        row(value=b"ab", headers=[{**header, "value": None}]),
        row(value=b"ab", headers=[{**header, "value": b""}]),
        row(value=b"ab", headers=[header, header]),
    ]
    assert len({checksum_of(each) for each in rows}) == len(rows)


@pytest.mark.parametrize("header", [{"key": None, "value": b"x"}, None])
def test_header_without_a_key_is_refused(header: dict[str, object] | None) -> None:
    refused = row(headers=[{"key": "h", "value": b"x"}, header])
    checksum_of(refused)  # the driver calls it before the check
    with pytest.raises(ValueError, match="topic t: a header has no key"):
        target_of(refused, 7)


def test_timestamp_before_1970_is_refused_as_by_kafkas_producers() -> None:
    """Kafka's log has -1 for a record without a timestamp."""
    with pytest.raises(ValueError, match="the timestamp -1 ms is before 1970; use null for the time of the write"):
        target_of(row(timestamp=-1), 7)
    assert target_of(row(timestamp=0), 1) == 0


def test_record_has_headers_with_and_without_value() -> None:
    record = record_of(row(headers=[{"key": "h", "value": bytearray(b"x")}, {"key": "n", "value": None}]), 2)
    assert record.headers == (("h", b"x"), ("n", None))
    assert record.partition == 2
