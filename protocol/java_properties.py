"""Text of Java's .properties format."""

import re
from collections.abc import Callable, Iterable
from typing import Final

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
"""The ends of lines in Java. str.splitlines has more, such as the form feed, which is a blank in this format."""


class MalformedEscape(ValueError):
    """A backslash and the letter u are not followed by four hexadecimal digits. Java refuses such a file, too.

    Attributes:
        problem: What is wrong, with the number of the line. `str()` gives the problem and the remedy.
        remedy: What to change in the file.
        name: Name of the property. Empty if the escape is in the name.
    """

    def __init__(self, number: int, name: str) -> None:
        self.problem = f"line {number}: four hexadecimal digits must follow \\u"
        self.remedy = "write a backslash as \\\\"
        self.name = name
        super().__init__(f"{self.problem}; {self.remedy}")


def _raise(error: MalformedEscape) -> None:
    raise error from None


def parse_properties(
    text: str, on_malformed: Callable[[MalformedEscape], None] = _raise
) -> Iterable[tuple[int, str, str]]:
    """Yield (line number, name, value) of each property in a text of Java's .properties format.

    The format has comments (# or !), continuation lines, and `=`, `:` or a blank after the name. If a name is repeated,
    Java uses its last value. A property with a malformed escape is not yielded, but passed to `on_malformed`. Without
    `on_malformed`, raise MalformedEscape after the properties before it.
    """
    for number, line in _logical_lines(text):
        name = ""
        try:
            name, rest = _name_of(line)
            value, _ = _until(rest, "")
        except _NoCode:
            on_malformed(MalformedEscape(number, name))
        else:
            yield number, name, value


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Yield each line without comments and continuations, with the number of its first line."""
    joined, start = "", 0
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(" \t\f")
        if not joined and (not line or line[0] in "#!"):
            continue
        start = start or number
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            joined += line[:-1]
            continue
        yield start, joined + line
        joined, start = "", 0
    if joined:
        yield start, joined


_CODE: Final = re.compile("[0-9A-Fa-f]{4}")
"""The code of a character after a backslash and the letter u."""
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class _NoCode(ValueError):
    """An escape has no code."""


def _name_of(line: str) -> tuple[str, str]:
    """Return the name of the property, and the text of its value."""
    name, position = _until(line, " \t\f=:")
    rest = line[position:].lstrip(" \t\f")
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(" \t\f")
    return name, rest


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
            if line[position - 1] == "u":
                code = _CODE.match(line, position)
                if code is None:
                    raise _NoCode
                char = chr(int(code[0], 16))
                position = code.end()
        out.append(char)
    # Java's strings are UTF-16: two escapes are one character above U+FFFF.
    return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"), position
