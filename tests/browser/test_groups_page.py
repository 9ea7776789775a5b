"""The pages of groups in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.console_data import GROUP, PAYMENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.browser import Browser


def test_a_key_leads_to_the_groups_and_a_link_to_one_of_them(browser: Browser) -> None:
    browser.open("/")
    browser.press("g", browser.attribute('nav a[href="/groups"]', "data-key"))
    browser.wait(lambda: browser.path == "/groups", "the page of the groups")
    assert "Stable" in browser.row_with(GROUP)
    browser.click(f'main tbody a[href="/groups/id?id={GROUP}"]')
    browser.wait_for_text(GROUP, "main h1")
    assert PAYMENTS in browser.text("main")


def test_records_of_an_open_transaction_are_in_one_of_the_two_lags(browser: Browser) -> None:
    browser.open(f"/groups/id?id={GROUP}")
    browser.wait(lambda: figure(browser, "Held back by transactions") == "3", "three records held back")


def figure(browser: Browser, name: str) -> str:
    """Return the value of a figure at the top of a page."""
    lines = browser.text("dl.figures").splitlines()
    return lines[lines.index(name) + 1]


def test_picture_of_a_group(browser: Browser, picture: Callable[[str], None]) -> None:
    browser.open(f"/groups/id?id={GROUP}")
    browser.wait_for_text(PAYMENTS, "main")
    picture("group")
