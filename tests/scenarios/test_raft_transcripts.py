"""Golden transcripts of the raft core: each file tells one story; the core must tell it again word for word.

`ODRADEK_WRITE_TRANSCRIPTS=1 pytest tests/scenarios/test_raft_transcripts.py` writes what the core does now; the difference is
then read by a person before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.raft_env import RaftEnv

FOLDER = Path(__file__).parent / "raft"
FILES = sorted(FOLDER.glob("*.txt"))
REWRITE = os.environ.get("ODRADEK_WRITE_TRANSCRIPTS") == "1"


def blocks(text: str) -> list[str]:
    return text.strip("\n").split("\n\n")


def replay(text: str) -> str:
    """Every block again, with the outputs of now. Comment blocks (# ...) stay as they are."""
    env = RaftEnv()
    out = []
    for block in blocks(text):
        command = block.split("\n----", 1)[0]
        comments = [line for line in command.split("\n") if line.startswith("#")]
        orders = [line for line in command.split("\n") if line and not line.startswith("#")]
        results = [env.run(order) for order in orders]
        result = "\n".join(line for text in results for line in text.split("\n") if line != "ok") or "ok"
        out.append("\n".join([*comments, *orders, *(["----", result] if orders else [])]))
    return "\n\n".join(out) + "\n"


def test_there_are_transcripts() -> None:
    assert len(FILES) >= 8


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    expected = path.read_text()
    actual = replay(expected)
    if REWRITE:
        path.write_text(actual)
    assert actual == path.read_text()
