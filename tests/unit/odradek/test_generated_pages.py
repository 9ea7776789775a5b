"""Pages of the documentation that are generated from the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek import generated_pages

if TYPE_CHECKING:
    from pathlib import Path


def test_check_fails_until_all_pages_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing, stale = tmp_path / "missing.md", tmp_path / "stale.md"
    stale.write_text("old")
    pages = {missing: "first", stale: "new"}

    assert generated_pages.main(["--check"], pages, "odradek.x") == 1
    assert capsys.readouterr().err == "missing.md, stale.md: out of date; run python -m odradek.x --write\n"
    assert generated_pages.main(["--write"], pages, "odradek.x") == 0
    assert (missing.read_text(), stale.read_text()) == ("first", "new")
    assert generated_pages.main(["--check"], pages, "odradek.x") == 0
    assert generated_pages.main([], pages, "odradek.x") == 0
    assert capsys.readouterr() == ("first", "")


def test_text_without_marker_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"page.md has no marker lines for x.py"):
        generated_pages.with_generated(tmp_path / "page.md", "text", "x.py", "table")
