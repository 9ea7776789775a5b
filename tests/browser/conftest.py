"""A browser, a cluster with transactions in all states, and a console of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek import LocalCluster
from tests.support.browser import chromium, console
from tests.support.console_data import transactions
from tests.support.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.browser import Browser

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "assets" / "console"
"""Screenshots for the documentation. `pytest tests/browser --write-screenshots` replaces them."""
BROKERS = 3
ODRADEK = "odradek"


@pytest.fixture(scope="session")
def chrome() -> Iterator[Browser]:
    """One browser for all tests of a process."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session", params=[ODRADEK, pytest.param("kafka", marks=pytest.mark.full)])
def system(request: pytest.FixtureRequest) -> str:
    """Name of the system under test."""
    return str(request.param)


@pytest.fixture(scope="session")
def bootstrap(chrome: Browser, system: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Addresses of three brokers, or of one of Apache Kafka. They are not started if there is no browser."""
    directory = tmp_path_factory.mktemp("cluster")
    running = LocalCluster(BROKERS, directory=directory) if system == ODRADEK else KafkaBroker(directory)
    with running, transactions(running.bootstrap):
        yield running.bootstrap


@pytest.fixture(scope="session")
def address(bootstrap: str) -> Iterator[str]:
    """Address of a console that may change the cluster."""
    with console(bootstrap, "--allow-actions") as running:
        yield running


@pytest.fixture
def browser(chrome: Browser, address: str) -> Iterator[Browser]:
    """The browser, without traces of the test before. No page may cause an error, or contact another host."""
    chrome.use(address)
    yield chrome
    assert chrome.errors() == []
    assert chrome.requested_hosts() <= {address.removeprefix("http://")}


@pytest.fixture
def picture(request: pytest.FixtureRequest, tmp_path: Path, browser: Browser) -> Callable[[str], None]:
    """Return a function that takes a screenshot of the page, for the documentation if the option says so."""
    directory = IMAGES if request.config.getoption("--write-screenshots") else tmp_path

    def take(name: str) -> None:
        browser.wait(lambda: browser.count("main .failed") == 0, "a page without an error")
        browser.screenshot(directory / f"{name}.png")
        assert (directory / f"{name}.png").stat().st_size > 0

    return take
