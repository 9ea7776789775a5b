"""Each rule of `tests.support.prose` finds its violation, and accepts the corrected text."""

from __future__ import annotations

import pytest

from tests.support.prose import findings_of_document, findings_of_python, findings_of_transcript

LONG = " ".join(["word"] * 26)
VERY_LONG = " ".join(["word"] * 40)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Who leads."""\n', "'Who'"),
        ('"""Of either request."""\n', "begins with 'Of'"),
        (f'"""{LONG}."""\n', "26 words"),
        (f'"""Return x.\n\nNote: {VERY_LONG}."""\n', "41 words"),
        ("x = 1  # nobody reads this\n", "'nobody'"),
        ('MAX = 1\n"""What is allowed at most."""\n', "begins with 'What'"),
        ('_logger.info("a broker is told of its death")\n', "'is told'"),
        ('raise ValueError(f"{name} has no room left")\n', "'room'"),
        ('help("how a broker answers requests")\n', "'answers'"),
        ("def ask_leader(): ...\n", "identifier ask_leader"),
        ("class IsrWish: ...\n", "identifier IsrWish"),
        ("def cut(): ...\n", "identifier cut"),
    ],
)
def test_a_violation_in_python_is_found(source: str, expected: str) -> None:
    assert any(expected in finding.what for finding in findings_of_python("x.py", source))


@pytest.mark.parametrize(
    "source",
    [
        '"""Truncate the log to `offset`."""\n',
        '"""Return None if the topic does not exist."""\n',
        "x = 1  # noqa: S101  the value is checked above\n",
        '_logger.info("partition truncated", offset=1)\n',
        'raise ValueError("node.id: must be at least 0")\n',
        "def lifecycle(): ...\n",
        "x = 'who'\n",
    ],
)
def test_correct_text_in_python_is_accepted(source: str) -> None:
    assert list(findings_of_python("x.py", source)) == []


def test_code_blocks_of_a_document_are_not_checked() -> None:
    document = "# Title\n\n    who leads\n\n```\nnobody\n```\n\nThe leader truncates its log.\n"
    assert list(findings_of_document("x.md", document)) == []


def test_a_finding_in_a_document_names_its_line() -> None:
    (finding,) = findings_of_document("x.md", "# Title\n\n```\ncode\n```\n\nNobody leads.\n")
    assert finding.line == 7


def test_comments_of_a_transcript_are_checked_and_its_commands_and_output_are_not() -> None:
    transcript = "# The leader fails.\njoin nobody\n----\n#1 nobody waits\n\n# It fails, and\n# nobody leads.\n"
    (finding,) = findings_of_transcript("x.txt", transcript)
    assert (finding.line, "'nobody'" in finding.what) == (6, True)
