"""Columns of a DataFrame: their check, and their conversion to those of the sink's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  Spark's documentation uses this name
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructField, StructType, TimestampType

from odradek.spark.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

HEADERS: Final = "array<struct<key:string,value:binary>>"
TYPES: Final = {
    "topic": ("string",),
    "partition": ("int",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS,),
    "timestamp": ("timestamp",),
}
"""Columns of the sink with their types. Those of Spark's own sink, and `timestamp`. Other columns are ignored."""
ROW: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField(
            "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
        ),
        StructField("timestamp", TimestampType()),
    ]
)
"""Schema of a row with all columns."""
ROW_SCHEMA: Final = f"topic string, partition int, key binary, value binary, headers {HEADERS}, timestamp bigint"


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise InvalidInput if a column has a wrong type, or if `value`, or a topic, is missing."""
    found: dict[str, DataType] = {each.name: each.dataType for each in schema.fields}
    if "value" not in found:
        raise InvalidInput(f"column value is missing; the columns are {', '.join(found) or 'none'}")
    if topic is None and "topic" not in found:
        raise InvalidInput("no topic is given; use the option topic or a column topic")
    for name, allowed in TYPES.items():
        if name == "topic" and topic is not None:
            continue  # the column is not used
        if name in found and found[name].simpleString() not in allowed:
            actual = found[name].simpleString()
            raise InvalidInput(f"column {name} has type {actual}; the sink writes {' or '.join(allowed)}")


def normalized(df: DataFrame, topic: str | None) -> DataFrame:
    """Return the rows with the columns ROW_SCHEMA.

    The option `topic` has precedence over the column, as in Spark's own sink.

    Raises:
        InvalidInput: The columns do not fit.
    """
    if df.isStreaming:
        raise InvalidInput("the DataFrame is a stream; call write_batch in the function of foreachBatch")
    check_columns(df.schema, topic)
    columns = []
    for name in TYPES:
        kind = ROW[name].dataType
        column = F.col(name) if name in df.columns else F.lit(None)
        if name == "topic" and topic is not None:
            column = F.lit(topic)
        column = column.cast(kind)
        columns.append((F.unix_millis(column) if name == "timestamp" else column).alias(name))
    return df.select(*columns)
