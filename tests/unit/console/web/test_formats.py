"""Formats of numbers, sizes and times, and values in addresses."""

from __future__ import annotations

from enum import Enum

import pytest

from odradek.console.web.queries import address, choice_of, number_of, optional_number_of
from odradek.console.web.render import NAME_CHARACTERS_MAX, UNKNOWN, count, duration, moment, percent, short, size


@pytest.mark.parametrize(
    ("number", "expected"),
    [(None, UNKNOWN), (0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (10_240, "10.0 KiB"), (2**30 * 300, "300 GiB")],
)
def test_size(number: int | None, expected: str) -> None:
    assert size(number) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, UNKNOWN),
        ("", UNKNOWN),
        ("a" * NAME_CHARACTERS_MAX, "a" * NAME_CHARACTERS_MAX),
        ("a" * 32_767, "a" * NAME_CHARACTERS_MAX + "… (32,767 characters)"),
    ],
)
def test_long_name_is_shortened(name: str | None, expected: str) -> None:
    assert short(name) == expected


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (None, UNKNOWN),
        (5, "5 ms"),
        (59_999, "59 s"),
        (61_000, "1 min 1 s"),
        (7_260_000, "2 h 1 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_duration(milliseconds: float | None, expected: str) -> None:
    assert duration(milliseconds) == expected


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (None, UNKNOWN),
        (-1, UNKNOWN),
        (0, "1970-01-01 00:00:00.000"),
        (1_999, "1970-01-01 00:00:01.999"),
        (2**62, f"{2**62} ms"),
    ],
)
def test_moment(milliseconds: int | None, expected: str) -> None:
    assert moment(milliseconds) == expected


def test_count_and_percent() -> None:
    assert (count(None), count(1_234_567)) == (UNKNOWN, "1,234,567")
    assert (percent(1, 0), percent(1, 3), percent(5, 4), percent(-1, 4)) == (0, 33, 100, 0)


def test_invalid_values_of_addresses_stand_for_the_default() -> None:
    class Order(Enum):
        NAME = "name"
        SIZE = "size"

    assert [number_of(text, 7) for text in ("12", " 3 ", "-1", "x", "", None, "9" * 19, "²")] == [12, 3] + [7] * 6
    assert (optional_number_of("0"), optional_number_of("")) == (0, None)
    assert [choice_of(Order, text, Order.NAME) for text in ("size", "x", None)] == [Order.SIZE, Order.NAME, Order.NAME]
    assert address("/topics", {"q": "a&b", "page": 2, "internal": False, "order": ""}) == "/topics?q=a%26b&page=2"


def test_address_has_the_offset_0() -> None:
    assert (
        address("/topics/t/records", {"partition": "0", "from": 0, "key": None})
        == "/topics/t/records?partition=0&from=0"
    )
