"""Compile regular expressions of clients with RE2. An expression must match the whole text.

RE2 matches in time linear in the length of the text, so no expression can block the event loop (docs/decisions/0010).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import re2

from odradek.protocol.errors import ErrorCode, Refusal

PATTERN_MEMORY_BYTES_MAX: Final = 1 << 20
"""Maximum memory of RE2 for one compiled expression, in bytes. A larger expression is refused."""
COMPILED_MAX: Final = 64
"""Maximum compiled expressions in the cache."""


@lru_cache(maxsize=COMPILED_MAX)
def compiled(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches a text. Raise Refusal(INVALID_REGULAR_EXPRESSION) with RE2's error message."""
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        matcher = re2.compile(pattern, options)
    except re2.error as error:
        [words] = error.args  # bytes
        raise Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, words.decode(errors="replace")) from error
    return lambda text: matcher.fullmatch(text) is not None
