"""Text of Java's .properties format."""

from __future__ import annotations

import pytest

from odradek.protocol.java_properties import MalformedEscape, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [(1, "a", "b")]),
        ("a = b c ", [(1, "a", "b c ")]),
        ("a:b", [(1, "a", "b")]),
        ("a b", [(1, "a", "b")]),
        ("a", [(1, "a", "")]),
        ("# x\n! y\n\n  a=1", [(4, "a", "1")]),
        ("a=1,\\\n   2\nb=3", [(1, "a", "1,2"), (3, "b", "3")]),
        ("a=C:\\\\x", [(1, "a", "C:\\x")]),
        ("a\\=b=c", [(1, "a=b", "c")]),
        ("a=x\\\\\nb=y", [(1, "a", "x\\"), (2, "b", "y")]),
        ("a=1\\", [(1, "a", "1")]),
        ("a=\\u00e9\\ud83d\\ude00", [(1, "a", "é\U0001f600")]),
        ("a=\\ud83d", [(1, "a", "\ufffd")]),
        ("a=1\\\n\nb=2", [(1, "a", "1"), (3, "b", "2")]),
        ("a=1\r\nb=2\rc=3\n", [(1, "a", "1"), (2, "b", "2"), (3, "c", "3")]),
        ("a=x\fy\x1cz\u2028w", [(1, "a", "x\fy\x1cz\u2028w")]),
        ("\f a\f=\fb", [(1, "a", "b")]),
        ("a=1\\\n# 2", [(1, "a", "1# 2")]),
        ("a == b", [(1, "a", "= b")]),
        ("\\#a\\ b=c", [(1, "#a b", "c")]),
        ("a=1\na=2", [(1, "a", "1"), (2, "a", "2")]),
    ],
)
def test_properties_files_are_parsed_as_in_java(text: str, expected: list[tuple[int, str, str]]) -> None:
    assert list(parse_properties(text)) == expected


@pytest.mark.parametrize("value", ["\\u12", "C:\\users", "\\u00g1"])
def test_malformed_escape_is_refused_with_its_line_as_in_java(value: str) -> None:
    parsed = parse_properties(f"a=1\nb={value}")
    assert next(iter(parsed)) == (1, "a", "1")
    with pytest.raises(MalformedEscape, match=r"^line 2: four hexadecimal digits must follow "):
        list(parsed)
