"""Rows that a task of `format("odradek")` stages, as pyspark passes them to the writer."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import Row

from odradek.spark.datasource import staged
from odradek.spark.options import sink_options

if TYPE_CHECKING:
    from collections.abc import Iterator

SINK = sink_options({"kafka.bootstrap.servers": "127.0.0.1:1", "sink": "s", "topic": "t"})
SECONDS_IN_HOUR = 3600
REPEATED_AT_S = 1_761_436_800
"""2025-10-26 00:00 UTC: the begin of the hour from 02:00 to 03:00 in Berlin, which repeats."""


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python workers inherit the time zone of their machine."""
    with monkeypatch.context() as context:
        context.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_timestamps_in_an_hour_that_repeats_are_not_changed() -> None:
    moments = [REPEATED_AT_S, REPEATED_AT_S + SECONDS_IN_HOUR, REPEATED_AT_S + 2 * SECONDS_IN_HOUR]

    def rows() -> Iterator[Row]:
        for moment in moments:
            local = datetime.fromtimestamp(moment, UTC).astimezone().replace(tzinfo=None)  # as pyspark converts it
            yield Row(value=b"x", timestamp=local)

    assert [row.timestamp for row in staged(rows(), SINK).rows] == [1000 * moment for moment in moments]
    assert time.strftime("%Z") in {"CET", "CEST"}, "the time zone of the process is restored"
