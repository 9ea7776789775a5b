"""Text of Java's .properties format."""

from __future__ import annotations

import pytest

from odradek.protocol.java_properties import parse_properties


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
        ("a=\\u00e9\\u12", [(1, "a", "éu12")]),
    ],
)
def test_properties_files_are_parsed_as_in_java(text: str, expected: list[tuple[int, str, str]]) -> None:
    assert list(parse_properties(text)) == expected
