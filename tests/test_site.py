"""The documentation site: builds without a warning, has the structure of the pages, contacts no other host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from markdown_it import MarkdownIt

from tests.support.browser import chromium

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TIMEOUT_S = 240.0
STRUCTURE = ("li", "ul", "ol", "table", "tr", "pre", "h2", "h3", "h4")
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*?\bsrc=[\"']?([^\"'\s>]+)"
    r"|<link\b(?=[^>]*rel=[\"']?(?:stylesheet|icon|preconnect|preload|dns-prefetch))[^>]*?href=[\"']?([^\"'\s>]+)"
)
LOADED_BY_STYLES = re.compile(r"url\([\"']?([^)\"']+)|@import [\"']([^\"']+)")
EXTERNAL_LINK = re.compile(r"\]\((https?:[^)\s]*)\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


def rendered(site: Path, page: Path) -> str:
    """Return the article of a page in the site."""
    path = (site / page.relative_to(DOCS)).with_suffix(".html")
    text = (path.with_name("index.html") if page.name == "README.md" else path).read_text(encoding="utf-8")
    return text.partition("<article")[2].partition("</article")[0]


def structure(html: str) -> dict[str, int]:
    return {tag: len(re.findall(rf"<{tag}[ >]", html)) for tag in STRUCTURE}


def hosts(urls: list[str]) -> set[str]:
    return {urlsplit(url).netloc for url in urls} - {""}


def test_pages_have_the_lists_tables_and_blocks_of_their_markdown(site: Path) -> None:
    """GitHub follows CommonMark, and MkDocs does not: both must show the same structure."""
    markdown = MarkdownIt("commonmark").enable("table")
    expected = {str(page): structure(markdown.render(page.read_text(encoding="utf-8"))) for page in PAGES}
    assert {str(page): structure(rendered(site, page)) for page in PAGES} == expected


def test_pages_and_styles_load_nothing_from_other_hosts(site: Path) -> None:
    pages = [path.read_text(encoding="utf-8") for path in sorted(site.rglob("*.html"))]
    loaded = [first or second for page in pages for first, second in LOADED.findall(page)]
    assert any(url.endswith("assets/iframe-worker.js") for url in loaded)
    styles = [path.read_text(encoding="utf-8") for path in sorted(site.rglob("*.css"))]
    loaded += [first or second for style in styles for first, second in LOADED_BY_STYLES.findall(style)]
    assert hosts([url for url in loaded if not url.startswith("data:")]) == set()
    # The theme loads its program for diagrams from another host, if a page has such a block.
    assert [page for page in pages if 'class="mermaid' in page] == []


def test_search_index_is_local_and_has_each_page(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert [page for page in PAGES if f'"{rendered_name(page)}"' not in index] == []


@pytest.mark.full
def test_search_finds_a_page_in_a_browser_without_a_network(site: Path) -> None:
    with chromium() as browser:
        browser.use(site.as_uri())
        browser.open("/how-to/backup.html")
        browser.script("document.querySelector('#__search').click()")
        browser.fill("input.md-search__input", "rolling")
        browser.wait(lambda: browser.count(".md-search-result__item"), "a result of the search")
        assert browser.requested_hosts() == set()
        assert browser.errors() == []


def rendered_name(page: Path) -> str:
    name = page.relative_to(DOCS).with_suffix(".html")
    return str(name.with_name("index.html") if page.name == "README.md" else name)


def test_links_to_files_of_the_tree_become_their_paths(site: Path) -> None:
    hacking = rendered(site, DOCS / "HACKING.md")
    assert "CONTRIBUTING.md" in hacking
    assert 'href="../CONTRIBUTING.md"' not in hacking
    invariants = rendered(site, DOCS / "invariants.md")
    assert not re.findall(r'href="[^"]*\.\./(?:tests|storage|broker)/', invariants)


def test_external_links_have_a_host_and_use_https() -> None:
    links = [link for page in PAGES for link in EXTERNAL_LINK.findall(page.read_text(encoding="utf-8"))]
    local = {"127.0.0.1", "localhost"}
    assert [link for link in links if not valid(link, local)] == []


def valid(link: str, local: set[str]) -> bool:
    parts = urlsplit(link)
    return bool(parts.hostname) and (parts.scheme == "https" or parts.hostname in local)
