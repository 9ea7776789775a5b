"""The commands of README.md, of the tutorials and of the how-to pages, in the order of each page."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.page_commands import PageRun, blocks, missing_lines, missing_packages, reserve_block

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop

DOCS = Path(__file__).resolve().parents[2] / "docs"
ODRADEK = Path(sys.executable).with_name("odradek")
RUN_TIMEOUT_S = 1_800
PAGES = (
    pytest.param("../README.md", marks=pytest.mark.spark),
    "tutorial/first-transaction.md",
    "tutorial/first-test.md",
    pytest.param("tutorial/first-stream.md", marks=pytest.mark.spark),
    "how-to/upgrade.md",
    "how-to/backup.md",
    "how-to/replace.md",
    "how-to/alerts.md",
)
"""Pages with `sh` and `python` blocks. tests/test_how_to_examples.py validates the blocks of the other pages."""


@pytest.fixture
def page_run(tmp_path: Path) -> Iterator[PageRun]:
    with ExitStack() as stack:
        run = PageRun(tmp_path, reserve_block(stack))
        stack.callback(run.close)
        yield run
        for data in sorted({path.parent for path in tmp_path.rglob("cluster.json")}):
            subprocess.run([ODRADEK, "down", "--dir", data], capture_output=True, check=False)


@pytest.mark.full
@pytest.mark.timeout(RUN_TIMEOUT_S)
@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_succeed_in_their_order(page_run: PageRun, page: str) -> None:
    assert page_run.run((DOCS / page).read_text(encoding="utf-8")) > 0


def test_all_pages_with_commands_are_run() -> None:
    listed = {str(page.values[0]) if not isinstance(page, str) else page for page in PAGES} - {"../README.md"}
    pages = [path for folder in ("tutorial", "how-to") for path in sorted((DOCS / folder).glob("*.md"))]
    commands = [page for page in pages if {block.language for block in blocks(page.read_text())} & {"sh", "python"}]
    assert {str(page.relative_to(DOCS)) for page in commands} == listed


def test_pages_install_the_packages_that_their_programs_import() -> None:
    listed = [str(page if isinstance(page, str) else page.values[0]) for page in PAGES]
    texts = {page: (DOCS / page).read_text(encoding="utf-8") for page in listed}
    assert {page: missing for page, text in texts.items() if (missing := missing_packages(text))} == {}


@pytest.mark.parametrize(
    ("expected", "output", "missing"),
    [
        ("100", "batch 0\n100\n", []),
        ("100", "1000\n", ["100"]),
        ("... alice 42", "0  7  alice  42\n", []),
        ("... alice 42", "0  7  alice  421\n", ["... alice 42"]),
        ("1 passed", "11 passed in 2 s\n", ["1 passed"]),
        ("payments 0 50", "payments  0\n50\n", ["payments 0 50"]),
    ],
)
def test_shown_lines_are_whole_words_of_one_line_of_the_output(expected: str, output: str, missing: list[str]) -> None:
    assert missing_lines(expected, output) == missing
