"""Golden transcripts of the failure detector: each file tells one story; the cores must tell it again word for word.

`ODRADEK_WRITE_TRANSCRIPTS=1 pytest tests/scenarios/test_membership_transcripts.py` writes what they do now; the difference is
then read by a person before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.membership_transcript import MembershipTranscript

FOLDER = Path(__file__).parent / "membership"
FILES = sorted(FOLDER.glob("*.txt"))
REWRITE = os.environ.get("ODRADEK_WRITE_TRANSCRIPTS") == "1"


def replay(text: str) -> str:
    """Every block again, with the outputs of now. Comment blocks (# ...) stay as they are."""
    env = MembershipTranscript()
    out = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n----", 1)[0].split("\n")
        orders = [line for line in lines if line and not line.startswith("#")]
        result = [told for order in orders for told in env.run(order)] or ["ok"]
        out.append("\n".join([*lines, *(["----", *result] if orders else [])]))
    return "\n\n".join(out) + "\n"


def test_there_are_transcripts() -> None:
    assert len(FILES) >= 8


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    actual = replay(path.read_text())
    if REWRITE:
        path.write_text(actual)
    assert actual == path.read_text()
