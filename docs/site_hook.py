"""Adapt the pages to MkDocs, which runs this module (mkdocs.yml).

A link to a file of the source tree becomes its path, because the site has no copy of the file. Lines that continue an
item of a list get the indentation that Python-Markdown needs. GitHub and editors show the pages without a change.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"\[(?P<text>[^\]\n]*)\]\((?P<target>[^):#\s]+)(?:#[^)\s]+)?\)")
MARKER = re.compile(r"(?:-|\d+\.) +(?=\S)")
LIST_INDENTATION = 4
"""Columns of a nested block in Python-Markdown."""

log = logging.getLogger("mkdocs.hooks.source_links")


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """Return the adapted text of a page."""
    return indented(without_source_links(markdown, page))


def indented(markdown: str) -> str:
    """Return the text with the indentation and the empty lines that Python-Markdown needs in lists."""
    lines: list[str] = []
    added = 0
    fence = paragraphs = False
    for line in markdown.splitlines():
        marker = None if fence else MARKER.match(line)
        fence ^= line.startswith("```")
        if fence or (line and not line.startswith(" ")):
            lines += [""] * (paragraphs and marker is not None)
            added = LIST_INDENTATION - len(marker[0]) if marker else 0
            paragraphs = False
            lines.append(line)
        else:
            paragraphs |= not line and added > 0
            lines.append(" " * added + line if line else line)
    return "\n".join(lines)


def without_source_links(markdown: str, page: Any) -> str:
    """Return the text with the path of a file in place of a link to it. A missing file is a warning."""
    folder = (DOCS / page.file.src_uri).parent

    def replaced(link: re.Match[str]) -> str:
        path = (folder / link["target"]).resolve()
        if path.is_relative_to(DOCS):
            return link[0]
        if not path.exists():
            log.warning("%s: the file %s does not exist", page.file.src_uri, link["target"])
        name = str(PurePosixPath(path.relative_to(ROOT)))
        return link["text"] if link["text"].strip("`") in name else f"{link['text']} (`{name}`)"

    return LINK.sub(replaced, markdown)
