"""Pages that stay up to date, in a browser: what an update keeps, and a console that stops and starts again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.support.browser import console
from tests.support.console_data import OPEN_ID, PAYMENTS
from tests.support.ports import free_port

if TYPE_CHECKING:
    from tests.support.browser import Browser

NOTICE: Final = "#connection"
LISTEN: Final = """(() => {
  window.arrived = 0;
  const source = new EventSource(location.pathname);
  source.addEventListener("state", () => { window.arrived += 1; if (window.arrived === 2) source.close(); });
})()"""
"""Counts two states that the stream of the page receives, too."""
RECORD: Final = """(() => {
  const notice = document.getElementById("connection");
  window.said = [];
  new MutationObserver(() => window.said.push(notice.textContent)).observe(notice, { childList: true });
})()"""
"""Records the notices, because one is shown for some seconds only."""


def update(browser: Browser) -> None:
    """Wait until the next state has replaced the content of the page."""
    browser.script("document.getElementById('live').setAttribute('data-before', '')")
    browser.press("r")
    browser.wait(lambda: browser.count("#live[data-before]") == 0 and browser.count("#live") == 1, "an update")


def test_update_keeps_the_focus_and_what_is_open(browser: Browser) -> None:
    browser.open("/transactions/id?id=payments-1")
    browser.click("details summary")
    browser.wait(lambda: browser.count("details[open]") == 1, "the records of a transaction")
    opened = browser.attribute("details[open]", "id")
    update(browser)
    assert browser.count("details[open]") == 1
    assert browser.attribute("details[open]", "id") == opened
    assert browser.script("document.activeElement.matches('details[open] > summary')")


@pytest.mark.full
def test_update_keeps_the_selected_row_and_waits_for_a_selection_of_text(browser: Browser) -> None:
    browser.open("/transactions")  # its durations change at each reading
    browser.row_with(OPEN_ID)
    browser.press("j", "j")
    selected = browser.script("document.activeElement.getAttribute('href')")
    update(browser)
    assert browser.script("document.activeElement.getAttribute('href')") == selected
    assert browser.script("document.activeElement.closest('tr.at') !== null")
    browser.script("document.getSelection().selectAllChildren(document.querySelector('#live thead'))")
    browser.script("document.getElementById('live').setAttribute('data-before', '')")
    browser.script(LISTEN)
    browser.wait(lambda: browser.script("window.arrived === 2"), "two further states")
    assert browser.count("#live[data-before]") == 1
    browser.script("document.getSelection().removeAllRanges()")
    browser.wait(lambda: browser.count("#live[data-before]") == 0, "the update that waited")


@pytest.mark.full
def test_page_says_that_the_console_is_lost_and_that_it_is_back(browser: Browser, bootstrap: str, address: str) -> None:
    listen = "--listen", f"127.0.0.1:{free_port()}"
    with console(bootstrap, *listen) as own:
        browser.use(own)
        browser.open("/topics")
        browser.row_with(PAYMENTS)
        browser.requested_hosts()  # those of the console of this test
    browser.wait_for_text("No connection to the console", NOTICE)
    browser.script(RECORD)
    with console(bootstrap, *listen):
        browser.wait(lambda: browser.script("window.said.includes('Connected again.')"), "the connection")
        browser.wait(lambda: browser.text(NOTICE) == "", "no notice")
    browser.use(address)  # forgets the requests that were refused in between


@pytest.mark.full
def test_charts_show_the_samples_of_the_stream(browser: Browser) -> None:
    browser.open("/metrics")
    browser.wait(lambda: browser.count("figure.chart canvas") > 0, "a chart")
    browser.wait_for_text("0", "figure[data-chart=transactions] .legend")
