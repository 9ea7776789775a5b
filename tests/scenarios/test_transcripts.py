"""Replay every golden transcript and compare its output. The commands of each kind are in tests/support/transcripts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.transcripts.classic_group import ClassicGroupInterpreter
from tests.support.transcripts.consumer_group import ConsumerGroupInterpreter
from tests.support.transcripts.harness import parse, render, replay
from tests.support.transcripts.membership import MembershipInterpreter
from tests.support.transcripts.raft import RaftInterpreter
from tests.support.transcripts.sasl import SaslInterpreter
from tests.support.transcripts.txn import TxnInterpreter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.transcripts.harness import Interpreter

HERE = Path(__file__).parent
KINDS: dict[str, Callable[[], Interpreter]] = {
    "classic_group": ClassicGroupInterpreter,
    "consumer_group": ConsumerGroupInterpreter,
    "membership": MembershipInterpreter,
    "raft": RaftInterpreter,
    "sasl": SaslInterpreter,
    "txn": TxnInterpreter,
}
FILES = sorted(HERE.rglob("*.txt"))
FILES_MIN = 13
"""Transcripts per kind. A wrong path would otherwise pass as a folder without transcripts."""


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_transcripts(kind: str) -> None:
    assert len([path for path in FILES if path.parent.name == kind]) >= FILES_MIN


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
async def test_transcript_produces_its_output(path: Path, pytestconfig: pytest.Config) -> None:
    text = path.read_text()
    recorded = parse(text)
    replayed = await replay(KINDS[path.parent.name](), recorded)
    if pytestconfig.getoption("--update-transcripts"):
        path.write_text(render(replayed))
        return
    for expected, actual in zip(recorded, replayed, strict=True):
        assert actual.output == expected.output, "\n".join(expected.head)
    assert render(replayed) == text
