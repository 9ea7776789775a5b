"""Arguments of ``odradek groups reset``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from odradek.client import InvalidArgument, TopicPartition
from odradek.commands.offset_targets import parse_duration_ms, parse_moment_ms, parse_scope, read_offsets

if TYPE_CHECKING:
    from pathlib import Path


def test_topics_with_and_without_partitions_are_parsed() -> None:
    assert parse_scope(["a", "b:0,2", "c:1", "c"]) == {"a": [], "b": [0, 2], "c": []}


@pytest.mark.parametrize("text", ["a:1,", "a:,1", "a:1,,2"])
def test_an_empty_item_of_a_list_of_partitions_is_an_invalid_argument(text: str) -> None:
    with pytest.raises(InvalidArgument, match="partition"):
        parse_scope([text])


def test_a_partition_that_is_not_a_number_is_an_invalid_argument() -> None:
    with pytest.raises(InvalidArgument, match="partition x: expected a number"):
        parse_scope(["a:x"])


@pytest.mark.parametrize("text", ["a:", "a:,"])
def test_a_colon_without_a_partition_does_not_select_all_partitions(text: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{text}: no partition after the colon"):
        parse_scope([text])


def test_a_time_without_an_offset_is_utc() -> None:
    assert parse_moment_ms("1970-01-01T00:00:01.5") == parse_moment_ms("1970-01-01T01:00:01.500+01:00") == 1_500


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999", "1969-12-31T23:59:59.998", "0001-01-01"])
def test_a_time_before_1970_selects_the_first_record(text: str) -> None:
    assert parse_moment_ms(text) == 0


def test_a_duration_that_begins_before_1970_selects_the_first_record() -> None:
    assert parse_duration_ms("P36500D") == 0


@pytest.mark.parametrize("index", ["-1", "2147483648", "99999999999999999999"])
def test_a_partition_that_no_request_can_hold_is_an_invalid_argument(index: str) -> None:
    with pytest.raises(InvalidArgument, match=f"partition {index}: expected a number from 0 to 2147483647"):
        parse_scope([f"a:{index}"])


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01"])
def test_a_malformed_time_is_an_invalid_argument(text: str) -> None:
    with pytest.raises(InvalidArgument, match="expected a time such as"):
        parse_moment_ms(text)


def test_a_duration_counts_back_from_now() -> None:
    start_ms = parse_duration_ms("P1DT1H1M1.5S")
    ago = int(time.time() * 1000) - start_ms
    assert 90_061_500 <= ago < 90_071_500


@pytest.mark.parametrize("duration", ["P", "PT", "1H", "P1M"])
def test_a_malformed_duration_is_an_invalid_argument(duration: str) -> None:
    with pytest.raises(InvalidArgument, match="expected a duration such as"):
        parse_duration_ms(duration)


@pytest.mark.parametrize("duration", ["P999999999999D", "P900000D", "PT99999999999999H"])
def test_a_duration_that_begins_before_the_first_year_is_an_invalid_argument(duration: str) -> None:
    with pytest.raises(InvalidArgument, match="the start is before the year 1"):
        parse_duration_ms(duration)


def test_a_file_of_offsets_is_read(tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("a,0,2\n\nb, 1 ,7\n")
    assert read_offsets(str(plan)) == {TopicPartition("a", 0): 2, TopicPartition("b", 1): 7}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,0\n", "line 1: expected topic,partition,offset"),
        (b"a,0,x\n", "line 1: offset x: expected a number"),
        (b"a,2147483648,0\n", "line 1: partition 2147483648: expected a number from 0 to 2147483647"),
        (b"\xff", "utf-8"),
    ],
)
def test_a_malformed_file_is_an_invalid_argument(tmp_path: Path, content: bytes, message: str) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_bytes(content)
    with pytest.raises(InvalidArgument, match=message):
        read_offsets(str(plan))
    with pytest.raises(InvalidArgument, match="No such file"):
        read_offsets(str(tmp_path / "none"))
