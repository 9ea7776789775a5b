"""Options that all tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=("odradek", "kafka"),
        default="odradek",
        help="what client tests talk to: Odradek, or Apache Kafka as the referee of the tests themselves",
    )
    parser.addoption(
        "--write-client-table", action="store_true", help="write docs/clients.md from the results of tests/interop"
    )
