"""Every transcript of a consumer group, block by block. See tests/support/modern_transcript.py for the commands."""

from pathlib import Path

import pytest

from tests.support.modern_transcript import replay

FOLDER = Path(__file__).parent
FILES = sorted(path.name for path in FOLDER.glob("modern_*.txt"))


def test_there_are_transcripts() -> None:
    assert len(FILES) >= 14


@pytest.mark.parametrize("name", FILES)
def test_transcript(name: str) -> None:
    for commands, expected, out in replay((FOLDER / name).read_text()):
        assert out == expected, "\n".join(commands)
