"""Text of configurations as Java reads it."""

from typing import Final

_BLANKS: Final = "".join(map(chr, range(33)))
"""The characters that Java's String.trim removes. Python's `int` and `str.strip` do not remove all of them."""


def trimmed(text: str) -> str:
    """Return `text` without the characters at both ends that String.trim removes."""
    return text.strip(_BLANKS)
