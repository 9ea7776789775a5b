"""Regular expressions that clients send (KIP-848)."""

import pytest

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.patterns import compiled


def test_pattern_matches_the_whole_text_only() -> None:
    matches = compiled("topic-[ab]")
    assert [matches(text) for text in ("topic-a", "topic-b", "topic-c", "a topic-a", "topic-ab")] == [
        True,
        True,
        *[False] * 3,
    ]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("(", "missing ): ("), ("é[", "missing ]: ["), ("*", "no argument for repetition operator: *")],
)
def test_invalid_pattern_is_refused_with_the_error_of_the_library(pattern: str, message: str) -> None:
    with pytest.raises(Refusal) as refusal:
        compiled(pattern)
    assert (refusal.value.error, refusal.value.message) == (ErrorCode.INVALID_REGULAR_EXPRESSION, message)
