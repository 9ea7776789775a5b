"""Rules of templates and own scripts, which the Content-Security-Policy enforces in a browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from odradek.console.web.render import ENVIRONMENT, STATIC, TEMPLATES

if TYPE_CHECKING:
    from pathlib import Path

FILES = sorted([*TEMPLATES.glob("*.html"), *STATIC.glob("*.js"), *STATIC.glob("*.css")])
OTHER_HOST = re.compile(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", re.IGNORECASE)
UNESCAPED = re.compile(
    r"\|\s*safe\b|Markup\(|autoescape|innerHTML|outerHTML\s*=|insertAdjacentHTML|document\.write|\beval\("
)
INLINE = re.compile(r"<style|<script(?![^>]*\bsrc=)|\sstyle=|\son[a-z]+\s*=\s*[\"']|javascript:", re.IGNORECASE)


def test_all_values_are_escaped() -> None:
    assert ENVIRONMENT.autoescape is True
    assert ENVIRONMENT.from_string("{{ text }}").render(text="<a b=\"c\" d='e'>&") == (
        "&lt;a b=&#34;c&#34; d=&#39;e&#39;&gt;&amp;"
    )


def test_characters_that_change_the_order_of_text_are_shown_as_codes_on_all_pages() -> None:
    macro = "{% macro bold(text) %}<b>{{ text }}</b>{% endmacro %}{{ bold(text) }} {{ text }}"
    shown = "a\\u202eb\\u001b\\ud800&lt;"
    assert ENVIRONMENT.from_string(macro).render(text="a\u202eb\x1b\ud800<") == f"<b>{shown}</b> {shown}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_file_has_no_inline_code_and_no_other_host_and_escapes_values(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for rule in (OTHER_HOST, UNESCAPED, INLINE):
        assert rule.findall(text) == []


def test_vendored_files_have_their_licenses() -> None:
    vendored = {path.name.partition("-")[0] for path in (STATIC / "vendor").iterdir() if path.suffix != ".LICENSE"}
    assert vendored == {path.stem for path in (STATIC / "vendor").glob("*.LICENSE")}
