"""Compile regular expressions of clients with RE2. An expression must match the whole text.

RE2 matches in time linear in the length of the text (docs/decisions/0010). Some expressions take up to 2 µs per
character. Callers that match many texts therefore do so in slices of CHARACTERS_PER_SLICE characters.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import re2

from odradek.protocol.errors import ErrorCode, Refusal

PATTERN_MEMORY_BYTES_MAX: Final = 1 << 20
"""Maximum memory of RE2 for one compiled expression, in bytes. A larger expression is refused."""
CHARACTERS_PER_SLICE: Final = 8_000
"""Maximum characters that are matched per turn of the event loop, unless one text is longer: at most 16 ms."""
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
