"""Values of the client as text of tables and lines."""

from __future__ import annotations

import pytest

from odradek.client import ConsumerRecord
from odradek.commands.records import text_line
from odradek.commands.rows import moment


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01 00:00:00.000+00:00"),
        (-1, "1969-12-31 23:59:59.999+00:00"),
        (1_764_412_345_678_123, "1764412345678123"),
        (2**63 - 1, "9223372036854775807"),
        (-(2**63), "-9223372036854775808"),
    ],
)
def test_timestamp_without_a_date_of_python_is_shown_as_its_number(timestamp_ms: int, text: str) -> None:
    assert moment(timestamp_ms) == text


def test_record_with_a_timestamp_in_microseconds_is_printed() -> None:
    record = ConsumerRecord("t", 0, 7, 1_764_412_345_678_123, None, b"v", ())
    assert text_line(record) == "0@7\t1764412345678123\tnull\tv"
