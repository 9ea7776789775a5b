"""Patterns that clients send: RE2's syntax, and the whole text must match.

RE2 itself matches, in time linear in the text, so no pattern can hold up the broker (docs/decisions/0010).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import re2

from odradek.protocol.errors import ErrorCode, Refusal

PATTERN_MEMORY_BYTES_MAX: Final = 1 << 20
"""What RE2 may use for one compiled pattern; a larger one is refused."""
COMPILED_MAX: Final = 64
"""Patterns that are kept compiled."""


@lru_cache(maxsize=COMPILED_MAX)
def compiled(pattern: str) -> Callable[[str], bool]:
    """Does a text match? Raises Refusal(INVALID_REGULAR_EXPRESSION) with RE2's words."""
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        matcher = re2.compile(pattern, options)
    except re2.error as error:
        [words] = error.args  # bytes
        raise Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, words.decode(errors="replace")) from error
    return lambda text: matcher.fullmatch(text) is not None
