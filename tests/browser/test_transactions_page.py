"""The pages of transactions in a browser: find a transaction that holds back a partition, and abort it."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from tests.support.console_data import HANGING, MARKUP, OPEN, OPEN_ID, PAYMENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.browser import Browser

KILLED_ID: Final = "orders-killed"
PRODUCER: Final = """
import sys
from confluent_kafka import Producer
bootstrap, transactional_id, topic = sys.argv[1:]
producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0})
producer.init_transactions(120)
producer.begin_transaction()
producer.produce(topic, b"never committed", partition=0)
assert producer.flush(120) == 0
print("open", flush=True)
sys.stdin.read()
"""
"""Leaves a transaction open until it is killed."""


def test_an_open_transaction_is_shown_with_the_partition_that_it_holds_back(browser: Browser, system: str) -> None:
    browser.open("/transactions")
    row = browser.row_with(f"{PAYMENTS}-{OPEN}")
    assert OPEN_ID in row
    assert (f"{OPEN_ID}-client" in row) == (system == "odradek")  # Apache Kafka does not return the client


def test_the_timeline_of_an_id_has_its_transactions(browser: Browser) -> None:
    browser.open("/transactions/id?id=payments-1")
    for outcome in ("committed", "aborted"):
        browser.wait_for_text(outcome, "main")
    assert browser.count("figure.timeline rect.aborted") == 1


def test_the_transaction_of_a_killed_producer_is_aborted_by_the_page(browser: Browser, bootstrap: str) -> None:
    command = [sys.executable, "-c", PRODUCER, bootstrap, KILLED_ID, HANGING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdout is not None
        assert producer.stdout.readline() == "open\n"
        producer.send_signal(signal.SIGKILL)
    browser.open("/transactions")
    browser.wait_for_text(f"{HANGING}-0", "main")
    browser.open(f"/transactions/id?id={KILLED_ID}")
    browser.click("main .tools a")
    browser.wait(lambda: browser.count("form.confirm") == 1, "the confirmation")
    assert KILLED_ID in browser.text("form.confirm")
    browser.click("form.confirm button")
    browser.wait_for_text("Transaction aborted", "main h1")
    browser.open("/transactions")
    browser.wait(lambda: f"{HANGING}-0" not in browser.text("main"), "the partition is free")
    browser.open(f"/topics/{HANGING}/records?partition=0")
    assert "aborted" in browser.text("table.records tbody")


def test_the_decoded_log_shows_ids_as_text(browser: Browser) -> None:
    browser.open("/transactions/log")
    browser.wait_for_text(MARKUP, "main")
    assert browser.count("#injected") == 0


def test_pictures_of_transactions(browser: Browser, picture: Callable[[str], None]) -> None:
    browser.open("/transactions")
    picture("transactions")
    browser.open("/transactions/id?id=payments-1")
    picture("timeline")
