"""The log of a broker process."""

from odradek.broker.process.logging import printable_texts


def test_characters_in_fields_that_end_a_line_or_control_a_terminal_are_escaped() -> None:
    names = ["a\n"]
    event: dict[str, object] = {
        "event": "started\nready",
        "group": "\x1b[2Ja\u2028b\x85c\r\né d",
        "names": names,
        "count": 3,
    }
    expected = {"event": "started\nready", "group": r"\x1b[2Ja\u2028b\x85c\r\né d", "names": names, "count": 3}
    assert printable_texts(None, "info", event) == expected
