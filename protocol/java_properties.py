"""Text of Java's .properties format."""

import re
from collections.abc import Iterable
from typing import Final


def parse_properties(text: str) -> Iterable[tuple[int, str, str]]:
    """Yield (line number, name, value) of each property in a text of Java's .properties format.

    The format has comments (# or !), continuation lines, and `=`, `:` or a blank after the name.
    """
    joined, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip(" \t\f")
        if not joined and (not line or line[0] in "#!"):
            continue
        start = start or number
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            joined += line[:-1]
            continue
        yield (start, *_split(joined + line))
        joined, start = "", 0
    if joined:
        yield (start, *_split(joined))


_CODE: Final = re.compile("[0-9A-Fa-f]{4}")
"""The code of a character after a backslash and the letter u."""
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _split(line: str) -> tuple[str, str]:
    name, position = _until(line, " \t\f=:")
    rest = line[position:].lstrip(" \t\f")
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(" \t\f")
    return name, _until(rest, "")[0]


def _until(line: str, stops: str) -> tuple[str, int]:
    """Return the unescaped text before the first of `stops`, and the position of that character."""
    out: list[str] = []
    position = 0
    while position < len(line) and line[position] not in stops:
        char = line[position]
        position += 1
        if char == "\\" and position < len(line):
            char = _ESCAPES.get(line[position], line[position])
            position += 1
            if char == "u" and (code := _CODE.match(line, position)) is not None:
                char = chr(int(code[0], 16))
                position = code.end()
        out.append(char)
    return "".join(out), position
