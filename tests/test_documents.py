"""Checks of docs/ against the repository: links, the index of decision records, and quoted messages."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PRODUCT = (
    "broker", "client", "cluster", "coordinator", "odradek", "pipeline", "protocol", "runtime", "spark", "storage",
)  # fmt: skip
LINK = re.compile(r"\]\(([^):#\s]*)(?:#([^)\s]+))?\)")
CODE_PATH = re.compile(rf"`((?:{'|'.join((*PRODUCT, 'tests', 'benchmarks'))})/[\w/.-]*)`")
BUILD_RESULTS = frozenset({"odradek/COMMIT"})
PLACEHOLDER = re.compile(r"DIR/meta\.properties:|quorum-state:|host:port|\b[NMXY]\b|\bNAME\b|\[\.\.\.\]|\.\.\.")
MESSAGES_OF_THE_SYSTEM = frozenset({"address already in use", "no space left on device"})
COMPARED_WORDS = 6
"""Words of each literal part of a message that are searched in the code. A message may continue differently there."""


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    for path, anchor in LINK.findall(page.read_text()):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_of_a_page_resolve(page: Path) -> None:
    assert list(broken_links(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_paths_of_a_page_exist(page: Path) -> None:
    """A path may be relative to the repository or to tests/."""
    paths = set(CODE_PATH.findall(page.read_text())) - BUILD_RESULTS
    assert [path for path in sorted(paths) if not any((base / path).exists() for base in (ROOT, ROOT / "tests"))] == []


def test_index_of_decision_records_lists_each_record_with_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    titles = [(path.name, path.read_text().partition("\n")[0]) for path in sorted(folder.glob("0*.md"))]
    index = re.findall(r"^- \[(\d{4})\]\((\S+)\): (.*)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert [(name, f"# {number}: {title}") for number, name, title in index] == titles


def quoted_messages() -> Iterator[str]:
    """Yield the messages in the first column of the table "Messages and what to do" of docs/operations.md."""
    section = (
        (ROOT / "docs" / "operations.md").read_text().partition("## Messages and what to do")[2].partition("\n## ")[0]
    )
    for line in section.splitlines():
        first = line.split(" | ")[0]
        if first.startswith("| `"):
            yield from (quoted for quoted in re.findall(r"`([^`]+)`", first) if " " in quoted)


def strings_of_the_product() -> str:
    """Return the string literals of the product code without docstrings. A part of an f-string counts as a literal."""
    literals = []
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            nodes = list(ast.walk(ast.parse(path.read_text())))
            documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            constants = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in documentation)
            literals += [constant.value for constant in constants if isinstance(constant.value, str)]
    return "\n".join(literals)


def test_messages_of_the_operations_page_exist_in_the_code() -> None:
    literals = strings_of_the_product()
    missing = []
    for message in quoted_messages():
        parts = [part.strip(" :;,().") for part in PLACEHOLDER.split(message)]
        parts = [part for part in parts if " " in part and part not in MESSAGES_OF_THE_SYSTEM]
        wanted = [" ".join(part.split()[:COMPARED_WORDS]) for part in parts]
        missing += [f"{message}: {part}" for part in wanted if part not in literals]
    assert missing == [], "change docs/operations.md together with the message"
