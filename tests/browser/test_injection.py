"""Markup in keys, values, headers, group ids, client ids and transactional ids stays text on each page."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.support.console_data import EVALUATED, HOSTILE, MARKUP

if TYPE_CHECKING:
    from tests.support.browser import Browser

SEARCH = quote(MARKUP, safe="")


@pytest.mark.parametrize(
    "path",
    [
        f"/topics/{HOSTILE}/records",
        f"/topics/{HOSTILE}/records/0/0",
        f"/topics/{HOSTILE}/records?partition=0&key={SEARCH}&as=text&from={SEARCH}&time={SEARCH}",
        f"/topics?q={SEARCH}",
        f"/topics/{SEARCH}",
        "/transactions",
        f"/transactions?q={SEARCH}&state={SEARCH}",
        f"/transactions/id?id={SEARCH}",
        f"/transactions/abort?id={SEARCH}",
        f"/transactions/log?q={SEARCH}",
        "/groups",
        f"/groups?q={SEARCH}&state={SEARCH}&type={SEARCH}",
        f"/groups/id?id={SEARCH}",
        "/topology",
        "/metrics",
        f"/{SEARCH}",
    ],
)
def test_markup_is_shown_as_text(browser: Browser, path: str) -> None:
    browser.open(path)
    assert browser.script("document.readyState") == "complete"
    assert browser.count("main") == 1
    assert browser.count("#injected") == 0
    assert browser.script("window.injected === undefined")
    assert EVALUATED not in browser.text("main")
    browser.errors()  # a page that says "not found" has a status that Chromium lists as an error
