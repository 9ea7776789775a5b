"""The commands of the tutorials and of the how-to pages, in the order of each page."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.page_commands import PageRun, reserve_block

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

DOCS = Path(__file__).resolve().parents[2] / "docs"
ODRADEK = Path(sys.executable).with_name("odradek")
PAGES = ("tutorial/first-transaction.md",)


@pytest.fixture
def page_run(tmp_path: Path) -> Iterator[PageRun]:
    with ExitStack() as stack:
        yield PageRun(tmp_path, reserve_block(stack))
        for data in sorted({path.parent for path in tmp_path.rglob("cluster.json")}):
            subprocess.run([ODRADEK, "down", "--dir", data], capture_output=True, check=False)


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_succeed_in_their_order(page_run: PageRun, page: str) -> None:
    assert page_run.run((DOCS / page).read_text(encoding="utf-8")) > 0
