"""Patterns that clients send."""

import pytest

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.patterns import compiled


def test_the_whole_text_must_match() -> None:
    matches = compiled("topic-[ab]")
    assert [matches(text) for text in ("topic-a", "topic-b", "topic-c", "a topic-a", "topic-ab")] == [
        True,
        True,
        *[False] * 3,
    ]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("(", "missing ): ("), ("é[", "missing ]: ["), ("*", "no argument for repetition operator: *")],
)
def test_what_is_no_pattern_is_refused_in_words(pattern: str, words: str) -> None:
    with pytest.raises(Refusal) as refused:
        compiled(pattern)
    assert (refused.value.error, refused.value.message) == (ErrorCode.INVALID_REGULAR_EXPRESSION, words)
