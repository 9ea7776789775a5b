"""Regular expressions that members subscribe with: RE2's syntax, the whole name of a topic must match (KIP-848).

RE2 itself matches, in time linear in the name (docs/decisions/0010).
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import re2

from protocol.errors import ErrorCode, Refusal

PATTERN_MEMORY_BYTES_MAX: Final = 1 << 20
"""What RE2 may use for one compiled expression; a larger one is refused."""
COMPILED_MAX: Final = 256
"""Expressions that are kept compiled."""


@lru_cache(maxsize=COMPILED_MAX)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Does a name match? Raises Refusal(INVALID_REGULAR_EXPRESSION)."""
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise Refusal(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from error
    return lambda name: compiled.fullmatch(name) is not None
