"""`odradek dump`: its exit code and its error for files that are damaged or that cannot be read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from odradek.commands.application import app
from odradek.protocol.batch import build_batch
from tests.support.logs import NOW_MS

if TYPE_CHECKING:
    from pathlib import Path

BATCH = build_batch([(b"k", b"value", NOW_MS, ())])


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.parent.mkdir()
    return path


@pytest.mark.parametrize("options", [[], ["--json"], ["--records"]], ids=str)
def test_intact_segment_is_printed_with_exit_code_0(segment: Path, options: list[str]) -> None:
    segment.write_bytes(BATCH * 2)
    dumped = CliRunner().invoke(app, ["dump", str(segment), *options])
    assert (dumped.exit_code, dumped.stderr) == (0, "")


@pytest.mark.parametrize(
    ("content", "defect"),
    [
        (BATCH[:-1] + b"?", "the checksum of the batch at byte 0 does not match"),
        (BATCH + BATCH[:-1], f"{len(BATCH) - 1} bytes from byte {len(BATCH)} on"),
        (BATCH[:-1] + b"?" + BATCH[:-1] + b"?", "batch at byte 0 does not match, and 1 other defect;"),
    ],
    ids=["checksum", "truncated", "two defects"],
)
def test_damaged_segment_is_printed_with_exit_code_1_and_its_defect(segment: Path, content: bytes, defect: str) -> None:
    segment.write_bytes(content)
    dumped = CliRunner().invoke(app, ["dump", str(segment), "--json"])
    assert dumped.exit_code == 1
    assert json.loads(dumped.stdout)[0]["entries"]
    assert f"{segment} is damaged: " in dumped.stderr
    assert defect in dumped.stderr


def test_damaged_index_beside_an_intact_segment_has_exit_code_1(segment: Path) -> None:
    segment.write_bytes(BATCH)
    index = segment.with_suffix(".index")
    index.write_bytes(b"?" * 7)
    dumped = CliRunner().invoke(app, ["dump", str(segment), str(index)])
    assert dumped.exit_code == 1
    assert str(segment) in dumped.stdout
    assert f"{index} is damaged: " in dumped.stderr
    assert f"{segment} is damaged" not in dumped.stderr
