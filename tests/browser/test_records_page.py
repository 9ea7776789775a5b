"""The page of the records of a topic in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from selenium.webdriver.common.keys import Keys

from tests.support.console_data import ABORTED, COMMITTED, OPEN, PAYMENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.browser import Browser


@pytest.mark.parametrize(
    ("partition", "state"),
    [(COMMITTED, "committed"), (ABORTED, "aborted"), (OPEN, "open")],
    ids=str,
)
def test_each_record_has_the_state_of_its_transaction(browser: Browser, partition: int, state: str) -> None:
    browser.open(f"/topics/{PAYMENTS}/records?partition={partition}")
    assert state in browser.text("table.records")
    states = {"committed", "aborted", "open"} - {"committed", state}
    assert not any(other in browser.text("table.records tbody") for other in states)


def test_a_search_by_key_finds_its_records_alone(browser: Browser) -> None:
    browser.open(f"/topics/{PAYMENTS}/records?partition={COMMITTED}")
    browser.press("/")
    browser.press("account-3", Keys.ENTER)
    browser.wait(lambda: "key=account-3" in browser.path, "the result of the search")
    rows = browser.count("table.records tbody tr")
    assert rows == 1
    assert "account-3" in browser.text("table.records tbody tr")


def test_a_record_opens_with_its_headers(browser: Browser) -> None:
    browser.open(f"/topics/{PAYMENTS}/records?partition={COMMITTED}")
    browser.click("table.records tbody a")
    browser.wait(lambda: browser.count("table.records") == 0, "one record")
    assert "source" in browser.text("main")
    assert "shop" in browser.text("main")


def test_the_key_r_loads_the_records_again(browser: Browser) -> None:
    browser.open(f"/topics/{PAYMENTS}/records?partition={COMMITTED}")
    browser.script("document.querySelector('table.records').setAttribute('data-before', '')")
    browser.press("r")
    browser.wait(
        lambda: browser.count("table.records") == 1 and browser.count("table.records[data-before]") == 0,
        "the page again",
    )


def test_picture_of_records(browser: Browser, picture: Callable[[str], None]) -> None:
    browser.open(f"/topics/{PAYMENTS}/records?key=account-3")  # has all three states
    picture("records")
