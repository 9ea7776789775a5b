"""Debian's Chromium, driven by Selenium, against a console that runs as a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.chromium_crash import is_crash
from tests.support.command_line import ODRADEK, TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CHROMIUM: Final = shutil.which("chromium")
CHROMEDRIVER: Final = shutil.which("chromedriver")
PAGE_S: Final = 60.0
"""Maximum seconds until a page shows what a test waits for. It only bounds a test that fails."""
WIDTH, HEIGHT = 1280, 860
"""Size of the window in pixels."""
HEIGHT_MIN: Final = 500
"""Minimum height of a screenshot in pixels: that of the navigation."""
SEVERE: Final = "SEVERE"


class Browser:
    """One window of Chromium on the pages of one console."""

    def __init__(self) -> None:
        self.driver = _start()
        self._address = ""
        self._resize(HEIGHT)

    def quit(self) -> None:
        """End Chromium and its driver."""
        self.driver.quit()

    def use(self, address: str) -> None:
        """Forget cookies, logs and pages of the test before, and take the address of a console.

        If Chromium has crashed meanwhile, start it again.
        """
        try:
            self.driver.get("about:blank")
        except WebDriverException as error:
            if not is_crash(str(error)):
                raise
            self.driver.quit()
            self.driver = _start()
            self._resize(HEIGHT)
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self.dark(on=False)
        self.requested_hosts()
        self._log("browser")
        self._address = address

    def open(self, path: str) -> None:
        """Load a page of the console."""
        self.driver.get(self._address + path)

    @property
    def path(self) -> str:
        """Return path and query of the page."""
        parts = urlsplit(self.driver.current_url)
        return f"{parts.path}?{parts.query}" if parts.query else parts.path

    def text(self, selector: str = "body") -> str:
        """Return the visible text of the first element that a selector finds."""
        return str(self.driver.find_element(By.CSS_SELECTOR, selector).text)

    def attribute(self, selector: str, name: str) -> str:
        """Return an attribute of the first element that a selector finds."""
        return str(self.driver.find_element(By.CSS_SELECTOR, selector).get_attribute(name))

    def row_with(self, text: str) -> str:
        """Wait for a row of a table that has this text, and return the text of the first one."""
        found: list[str] = []

        def find() -> bool:
            rows = self.driver.find_elements(By.CSS_SELECTOR, "main tbody tr")
            found[:] = [row for row in (str(row.text) for row in rows) if text in row]
            return bool(found)

        self.wait(find, f"a row with {text}")
        return found[0]

    def count(self, selector: str) -> int:
        """Return the number of elements that a selector finds."""
        return len(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def click(self, selector: str) -> None:
        """Wait for an element that a selector finds, and click the first one."""

        def click() -> bool:
            self.driver.find_element(By.CSS_SELECTOR, selector).click()
            return True

        self.wait(click, selector)

    def fill(self, selector: str, text: str) -> None:
        """Replace the text of an input."""
        field = self.driver.find_element(By.CSS_SELECTOR, selector)
        field.clear()
        field.send_keys(text)

    def press(self, *keys: str) -> None:
        """Press keys one after the other, on the element with the focus."""
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def script(self, source: str) -> Any:
        """Return the value of a JavaScript expression."""
        return self.driver.execute_script(f"return {source}")

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Assert that a condition becomes true: raise TimeoutException, which names `what`, if it does not.

        Elements that a refresh replaces meanwhile are looked up again.
        """
        replaced = (StaleElementReferenceException,)
        waiting = WebDriverWait(self.driver, PAGE_S, poll_frequency=0.05, ignored_exceptions=replaced)
        waiting.until(lambda _: condition(), f"not seen: {what}")

    def wait_for_text(self, text: str, selector: str = "body") -> None:
        """Wait until an element shows a text."""
        self.wait(lambda: text in self.text(selector), text)

    def dark(self, *, on: bool) -> None:
        """Prefer dark or light colors, as the settings of a system do."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def requested_hosts(self) -> set[str]:
        """Return the hosts and ports to which the window has sent requests since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        addresses = [
            each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"
        ]
        return {urlsplit(each).netloc for each in addresses if each.startswith(("http:", "https:", "ws:", "wss:"))}

    def errors(self) -> list[str]:
        """Return errors of scripts and of the content security policy since the last call."""
        return [entry["message"] for entry in self._log("browser") if entry["level"] == SEVERE]

    def _log(self, name: str) -> list[dict[str, Any]]:
        """Return and forget the entries of a log of Chromium."""
        entries: list[dict[str, Any]] = self.driver.execute("getLog", {"type": name})["value"]
        return entries

    def screenshot(self, path: Path) -> None:
        """Write the page as a PNG, which is as high as the content."""
        path.parent.mkdir(parents=True, exist_ok=True)
        bottom = self.script("Math.ceil(document.querySelector('main').getBoundingClientRect().bottom + scrollY)")
        self._resize(max(HEIGHT_MIN, int(bottom)))
        assert self.driver.save_screenshot(str(path))
        self._resize(HEIGHT)

    def _resize(self, height: int) -> None:
        size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run Chromium without a screen. Skip the test if it is not installed."""
    if CHROMIUM is None or CHROMEDRIVER is None:
        pytest.skip("needs Chromium: apt-get install chromium chromium-driver")
    browser = Browser()
    try:
        yield browser
    finally:
        browser.quit()


def _start() -> webdriver.Chrome:
    options = Options()
    options.binary_location = str(CHROMIUM)
    for argument in (
        "--headless=new",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--force-device-scale-factor=1",
        "--hide-scrollbars",
        f"--window-size={WIDTH},{HEIGHT}",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),  # Chromium refuses to run as root with a sandbox
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(CHROMEDRIVER))
    driver.set_page_load_timeout(PAGE_S)
    return driver


@contextmanager
def console(bootstrap: str, *options: str) -> Iterator[str]:
    """Run `odradek console` as a user does, and yield its address."""
    command = [str(ODRADEK), "console", "-b", bootstrap, "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            word, _, address = process.stdout.readline().strip().partition(" ")
            assert word == "console"
            yield address
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)
