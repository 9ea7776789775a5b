"""Visible records of batches: aborted transactions, markers, and damage."""

from __future__ import annotations

import pytest

from odradek.client.consumer.decode import visible_batches
from odradek.protocol.errors import Malformed
from tests.support.batches import batch, marker

ONE_RECORD, TWO = 1, 2


def visible(data: bytes, aborted: list[tuple[int, int]]) -> list[tuple[int, list[bytes | None]]]:
    """Return the last offset and the visible values of each batch."""
    return [(last, [record.value for record in records]) for records, last in visible_batches(data, aborted)]


def test_markers_are_not_visible_and_records_of_aborted_transactions_are_not() -> None:
    data = b"".join(
        [
            batch(0, b"plain"),
            batch(1, b"aborted", b"too", producer_id=ONE_RECORD),
            batch(3, b"committed", producer_id=TWO),
            marker(4, ONE_RECORD, commit=False),
            batch(5, b"later", producer_id=ONE_RECORD),
            marker(6, TWO, commit=True),
            marker(7, ONE_RECORD, commit=True),
        ]
    )
    assert visible(data, [(1, ONE_RECORD)]) == [
        (0, [b"plain"]), (2, []), (3, [b"committed"]), (4, []), (5, [b"later"]), (6, []), (7, []),
    ]  # fmt: skip
    assert [values for _, values in visible(data, []) if values] == [
        [b"plain"], [b"aborted", b"too"], [b"committed"], [b"later"],
    ]  # fmt: skip


def test_two_aborted_transactions_of_a_producer_are_omitted() -> None:
    data = b"".join(
        [
            batch(0, b"first", producer_id=ONE_RECORD),
            marker(1, ONE_RECORD, commit=False),
            batch(2, b"kept", producer_id=ONE_RECORD),
            marker(3, ONE_RECORD, commit=True),
            batch(4, b"second", producer_id=ONE_RECORD),
            marker(5, ONE_RECORD, commit=False),
        ]
    )
    assert [values for _, values in visible(data, [(4, ONE_RECORD), (0, ONE_RECORD)]) if values] == [[b"kept"]]


def test_a_batch_that_is_incomplete_at_the_end_is_left_for_the_next_fetch() -> None:
    data = batch(0, b"whole") + batch(1, b"half")[:-1]
    assert visible(data, []) == [(0, [b"whole"])]


def test_a_damaged_batch_is_malformed() -> None:
    data = bytearray(batch(0, b"whole") + batch(1, b"damaged"))
    data[-2] ^= 1
    with pytest.raises(Malformed, match="batch at offset 1: the checksum does not match"):
        visible(bytes(data), [])
