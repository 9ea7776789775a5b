"""The page of the cluster, its navigation and its colors in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.browser import Browser

BACKGROUND: Final = "getComputedStyle(document.documentElement).backgroundColor"


def test_the_first_page_shows_all_brokers(browser: Browser, bootstrap: str) -> None:
    browser.open("/")
    assert browser.path == "/cluster"
    for broker in bootstrap.split(","):
        assert "running" in browser.row_with(broker)


def test_a_key_leads_to_a_page_and_another_shows_the_keys(browser: Browser) -> None:
    browser.open("/")
    browser.press("g", "t")
    browser.wait(lambda: browser.path == "/topics", "the page of the topics")
    browser.press("?")
    browser.wait(lambda: browser.count("dialog[open]") == 1, "the list of keys")


def test_colors_follow_the_system_until_they_are_switched(browser: Browser) -> None:
    browser.open("/cluster")
    light = browser.script(BACKGROUND)
    browser.dark(on=True)
    dark = browser.script(BACKGROUND)
    assert dark != light
    browser.press("t")
    browser.wait(lambda: browser.script(BACKGROUND) == light, "light colors")
    browser.open("/cluster")
    assert browser.script(BACKGROUND) == light


def test_pictures_of_the_cluster(browser: Browser, picture: Callable[[str], None]) -> None:
    browser.open("/cluster")
    picture("cluster")
    browser.dark(on=True)
    browser.open("/topology")
    picture("topology-dark")
