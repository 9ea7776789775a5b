"""Error codes of the protocol, and the exceptions that carry them."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from odradek.protocol.errors import ERRORS, ErrorCode, Malformed, Refusal, Unencodable


@pytest.mark.parametrize("kio_error", list(KioErrorCode))
def test_names_and_retriability_equal_those_of_kio(kio_error: KioErrorCode) -> None:
    row = ERRORS[ErrorCode(kio_error.value)]
    assert (row.code.name.lower(), row.retriable) == (kio_error.name, kio_error.retriable)


def test_the_table_has_every_code_without_a_gap() -> None:
    assert [int(error) for error in ErrorCode] == list(range(-1, 137))
    assert all(ERRORS[error].message for error in ErrorCode if error is not ErrorCode.NONE)


def test_refusal_has_code_and_message() -> None:
    assert str(Refusal(ErrorCode.INVALID_TXN_STATE)).startswith("INVALID_TXN_STATE: ")
    refusal = Refusal(ErrorCode.INVALID_RECORD, "no key on a compacted topic")
    assert (refusal.error, refusal.message) == (ErrorCode.INVALID_RECORD, "no key on a compacted topic")
    assert str(refusal) == "INVALID_RECORD: no key on a compacted topic"


def test_malformed_and_unencodable_are_separate_exceptions() -> None:
    assert not issubclass(Malformed, Unencodable)
    assert not issubclass(Unencodable, Malformed)
