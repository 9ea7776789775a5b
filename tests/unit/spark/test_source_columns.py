"""Conversion of record batches to Arrow, compared with the decoder of single records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.client import TopicPartition
from odradek.protocol.batch import Compression, build_batch, end_txn_marker, iter_records, read_header
from odradek.protocol.errors import Malformed
from odradek.spark.source_columns import ARROW_TYPES, TIMESTAMP_MS_MAX, Batch, Layout, Marker, Outcome, columns
from odradek.spark.source_records import CONTENT_BYTES_MAX, Body, body_of, find_records

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY = TopicPartition("t", 3)
EVERYTHING = 2**62
CONTENT = st.none() | st.binary(max_size=200)
RECORDS = st.lists(
    st.tuples(
        CONTENT,
        CONTENT,
        st.integers(0, 2**44),
        st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=80,
)
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SPARK_TYPES = {
    "binary": BinaryType(), "string": StringType(), "int": IntegerType(), "bigint": LongType(),
    "boolean": BooleanType(), "timestamp": TimestampType(),
    "array<struct<key:string,value:binary>>": ArrayType(HEADER),
}  # fmt: skip


def batch_of(data: bytes, outcome: Outcome = Outcome.NONE, marker: Marker | None = None) -> Batch:
    return Batch(body_of(read_header(data), data), outcome, marker)


def rows(batches: Sequence[Batch], layout: Layout, start: int = 0, end: int = EVERYTHING) -> list[dict[str, Any]]:
    converted = columns(batches, KEY, layout, start, end)
    if converted is None:
        return []
    converted.validate(full=True)
    found: list[dict[str, Any]] = converted.to_pylist()
    return found


def test_type_of_timestamp_does_not_depend_on_the_session() -> None:
    """With spark.sql.timestampType = TIMESTAMP_NTZ, SQL takes `timestamp` for a type without a time zone."""
    assert "timestamp timestamp_ltz" in Layout(headers=False, transactions=False).ddl


@pytest.mark.parametrize("transactions", [True, False])
def test_types_are_those_that_spark_expects(transactions: bool) -> None:
    """pyspark 4.3 refuses Arrow batches with other types."""
    layout = Layout(headers=True, transactions=transactions)
    schema = StructType([StructField(name, SPARK_TYPES[kind]) for name, kind in layout.fields.items()])
    found = columns([batch_of(build_batch([(b"k", b"v", 5, ())]))], KEY, layout, 0, EVERYTHING)
    assert found is not None
    assert found.schema.equals(to_arrow_schema(schema))
    assert list(ARROW_TYPES)[: len(found.schema)] == found.schema.names


@given(
    groups=st.lists(RECORDS, min_size=1, max_size=4),
    compression=st.sampled_from(Compression),
    log_append_time=st.booleans(),
    bounds=st.tuples(st.integers(0, 100), st.integers(0, 250)),
)
def test_rows_equal_the_decoded_records(
    groups: list[list[Any]], compression: Compression, log_append_time: bool, bounds: tuple[int, int]
) -> None:
    data: list[bytes] = []
    offset = 0
    for records in groups:
        data.append(
            build_batch(records, base_offset=offset, compression=compression, timestamp_type=int(log_append_time))
        )
        offset += len(records) + 1  # a gap, such as a marker leaves
    start, end = bounds
    expected = [
        (each.offset, each.timestamp, each.key, each.value, each.headers or None)
        for batch in data
        for each in iter_records(batch, max_decompressed_bytes=2**20)
        if start <= each.offset < end
    ]
    found = rows([batch_of(each) for each in data], Layout(headers=True, transactions=False), start, end)
    assert [
        (
            row["offset"], round(row["timestamp"].timestamp() * 1000), row["key"], row["value"],
            row["headers"] and tuple((each["key"], each["value"]) for each in row["headers"]),
        )
        for row in found
    ] == expected  # fmt: skip
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in found} <= {("t", 3, int(log_append_time))}


def test_columns_of_transactions() -> None:
    data = [
        build_batch([(None, b"plain", 1, ())], base_offset=0),
        build_batch(
            [(None, b"a", 1, ()), (None, b"b", 1, ())], base_offset=1, producer_id=7, producer_epoch=2,
            base_sequence=2_147_483_647, transactional=True,
        ),
        end_txn_marker(producer_id=7, producer_epoch=3, coordinator_epoch=9, commit=False, timestamp=5),
    ]  # fmt: skip
    found = rows(
        [
            batch_of(data[0]),
            batch_of(data[1], Outcome.ABORTED),
            batch_of(data[2], Outcome.ABORTED, Marker("ABORT", 9)),
        ],
        Layout(headers=False, transactions=True),
    )
    names = (
        "producerId", "producerEpoch", "sequence", "isTransactional", "isControl", "transactionOutcome", "controlType",
        "coordinatorEpoch",
    )  # fmt: skip
    assert [tuple(row[name] for name in names) for row in found] == [
        (None, None, None, False, False, "none", None, None),
        (7, 2, 2_147_483_647, True, False, "aborted", None, None),
        (7, 2, 0, True, False, "aborted", None, None),
        (7, 3, None, True, True, "aborted", "ABORT", 9),
    ]


def test_batch_that_compaction_emptied_has_no_rows() -> None:
    data = bytearray(build_batch([(b"k", b"v", 5, ())], base_offset=4))
    header = read_header(data)
    header.record_count = 0
    assert rows([Batch(body_of(header, data[:61]))], Layout(headers=False, transactions=False)) == []


@pytest.mark.parametrize("at", range(61, 61 + 12))
@pytest.mark.parametrize("byte", [0xFF, 0x80, 0x7F, 0x01])
def test_damaged_record_is_malformed_or_a_row(at: int, byte: int) -> None:
    """The checksum is valid, so that a producer made the batch. It must not lead to a crash or to a foreign byte."""
    data = bytearray(build_batch([(b"key", b"value", 5, ()), (b"k", b"v", 6, ())]))
    data[at] = byte
    try:
        found = rows([batch_of(bytes(data))], Layout(headers=True, transactions=False))
    except Malformed:
        return
    assert all(len(row["value"] or b"") <= len(data) for row in found)


def test_records_that_exceed_the_positions_of_arrow_are_malformed() -> None:
    header = read_header(build_batch([(b"k", b"v", 5, ())], base_offset=4))
    pages = memoryview(bytes(2**28))  # never written, so the bytes take no memory
    bodies = [Body(header, pages)] * (CONTENT_BYTES_MAX // 2**28 + 1)
    with pytest.raises(Malformed, match="batch at offset 4: the records have 2147483668 bytes, more than 2147483647"):
        find_records(bodies)


@pytest.mark.parametrize("timestamp", [TIMESTAMP_MS_MAX + 1, -TIMESTAMP_MS_MAX - 1, -(2**63)])
def test_timestamp_beyond_the_range_of_spark_is_malformed(timestamp: int) -> None:
    data = build_batch([(b"k", b"v", timestamp, ())])
    with pytest.raises(Malformed, match="a timestamp exceeds"):
        columns([batch_of(data)], KEY, Layout(headers=False, transactions=False), 0, EVERYTHING)
    assert isinstance(
        columns(
            [batch_of(build_batch([(b"k", b"v", TIMESTAMP_MS_MAX, ())]))],
            KEY,
            Layout(headers=False, transactions=False),
            0,
            EVERYTHING,
        ),
        pa.RecordBatch,
    )
