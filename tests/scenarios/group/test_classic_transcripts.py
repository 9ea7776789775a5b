"""Every transcript of a classic group, block by block. See tests/support/classic_transcript.py for the commands."""

from pathlib import Path

import pytest

from tests.support.classic_transcript import replay

FOLDER = Path(__file__).parent
FILES = sorted(path.name for path in FOLDER.glob("classic_*.txt"))


def test_there_are_transcripts() -> None:
    assert len(FILES) >= 12


@pytest.mark.parametrize("name", FILES)
async def test_transcript(name: str) -> None:
    for commands, expected, out in await replay((FOLDER / name).read_text()):
        assert out == expected, "\n".join(commands)
