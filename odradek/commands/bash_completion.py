"""Completion in bash, which passes `127.0.0.1:9092` as three words, because it also breaks words at `:` and `=`.

Without this module, the words after such an option would be completed as if they stood one position later.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

# Typer's copy of click, and the completion that this module extends, have no public names.
from typer._click.shell_completion import add_completion_class, split_arg_string
from typer._completion_classes import BashComplete

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer._click.shell_completion import CompletionItem

BREAKS = ":="
"""Characters of bash's COMP_WORDBREAKS that occur in options and names."""


class JoinedBashComplete(BashComplete):
    """Completion of the words that the user typed. Bash replaces only the part of the last word after a break."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, cursor = split_arg_string(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
        if cursor >= len(words):
            return joined(words)[1:], ""
        *before, incomplete = joined(words[: cursor + 1])
        return before[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        _, incomplete = self.get_completion_args()
        kept = re.split(f"[{BREAKS}]", incomplete)[-1]
        return str(item.value)[len(incomplete) - len(kept) :]


def joined(words: Sequence[str]) -> list[str]:
    """Return the words of a command line from the words of bash."""
    result: list[str] = []
    after_break = False
    for word in words:
        is_break = not word.strip(BREAKS)
        if result and (is_break or after_break):
            result[-1] += word
        else:
            result.append(word)
        after_break = is_break
    return result


def register() -> None:
    """Use this completion for bash."""
    add_completion_class(JoinedBashComplete, "bash")
