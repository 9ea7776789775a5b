from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from odradek.protocol.errors import ERRORS, ErrorCode, Malformed, Refusal, Unencodable


@pytest.mark.parametrize("theirs", list(KioErrorCode))
def test_names_and_retriability_are_those_of_an_independent_table(theirs: KioErrorCode) -> None:
    row = ERRORS[ErrorCode(theirs.value)]
    assert (row.code.name.lower(), row.retriable) == (theirs.name, theirs.retriable)


def test_the_table_has_every_code_without_a_gap() -> None:
    assert [int(error) for error in ErrorCode] == list(range(-1, 134))
    assert all(ERRORS[error].message for error in ErrorCode if error is not ErrorCode.NONE)


def test_refusals_say_what_and_why() -> None:
    assert str(Refusal(ErrorCode.INVALID_TXN_STATE)).startswith("INVALID_TXN_STATE: ")
    refusal = Refusal(ErrorCode.INVALID_RECORD, "no key on a compacted topic")
    assert (refusal.error, refusal.message) == (ErrorCode.INVALID_RECORD, "no key on a compacted topic")
    assert str(refusal) == "INVALID_RECORD: no key on a compacted topic"


def test_bad_bytes_and_bad_messages_are_told_apart() -> None:
    assert not issubclass(Malformed, Unencodable)
    assert not issubclass(Unencodable, Malformed)
