"""Chromium starts again after a crash, whose errors the plugin recognizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from selenium.common.exceptions import WebDriverException

from tests.support.chromium_crash import is_crash

if TYPE_CHECKING:
    from tests.support.browser import Browser


@pytest.mark.parametrize("command", ["Page.crash", "Browser.crash"])
def test_starts_again_after_a_crash(browser: Browser, address: str, command: str) -> None:
    browser.open("/topics")
    with pytest.raises(WebDriverException) as at_the_crash:
        browser.driver.execute_cdp_cmd(command, {})
    with pytest.raises(WebDriverException) as after_the_crash:
        browser.open("/topics")
    assert is_crash(str(at_the_crash.value))
    assert is_crash(str(after_the_crash.value))

    browser.use(address)
    browser.open("/topics")

    assert browser.count("main") == 1
