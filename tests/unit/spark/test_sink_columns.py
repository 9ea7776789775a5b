"""Columns of a DataFrame that the sink writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import StructType

from odradek.spark.columns import check_columns, normalized
from odradek.spark.datasource import OdradekDataSource, sink_row
from odradek.spark.errors import InvalidInput
from odradek.spark.records import target_of

NAMES_IN_JSON = {"int": "integer", "bigint": "long"}


def schema(text: str) -> StructType:
    """Return a schema without a session of Spark: `name type, name type`."""
    found = StructType()
    for field in text.split(", "):
        name, _, kind = field.partition(" ")
        found.add(name, NAMES_IN_JSON.get(kind, kind))
    return found


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ("key string", "t", "column value is missing; the columns are key"),
        ("Value string", "t", "column value is missing; the columns are Value"),
        ("value string", None, "no topic is given; use the option topic or a column topic"),
        ("value string, topic binary", None, "column topic has type binary; the sink writes string"),
        ("value int", "t", "column value has type int; the sink writes string or binary"),
        ("value string, key bigint", "t", "column key has type bigint; the sink writes string or binary"),
        ("value string, partition bigint", "t", "column partition has type bigint; the sink writes int"),
        ("value string, timestamp bigint", "t", "column timestamp has type bigint; the sink writes timestamp"),
    ],
)
def test_column_that_is_missing_or_has_a_wrong_type_is_refused(columns: str, topic: str | None, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_columns(schema(columns), topic)


def test_column_topic_is_not_used_and_may_have_any_type_with_the_option_topic() -> None:
    check_columns(schema("value string, topic int, other double"), "t")


def test_stream_outside_of_foreach_batch_is_refused() -> None:
    df: Any = SimpleNamespace(isStreaming=True)
    with pytest.raises(InvalidInput, match="the DataFrame is a stream; call write_batch in the function"):
        normalized(df, "t")


def test_staged_row_with_a_null_header_or_without_a_topic_is_refused() -> None:
    staged = sink_row(Row(value="v", headers=[Row(key="h", value=None), None]), "t")
    with pytest.raises(ValueError, match="topic t: a header has no key"):
        target_of(staged, 1)
    with pytest.raises(InvalidInput, match="column topic: a row has no topic"):
        sink_row(Row(value="v", topic=None), None)


@pytest.mark.parametrize("batch_id", ["-1", "first", "\N{SUPERSCRIPT TWO}"])
def test_batch_id_that_is_no_number_is_refused(batch_id: str) -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:9092", "sink": "s", "topic": "t", "batchid": batch_id}
    with pytest.raises(InvalidInput, match=r"option batchId: .* is no number"):
        OdradekDataSource(given).writer(schema("value string"), overwrite=False)
