"""kafka-configs sets, lists and removes SCRAM credentials, with equal output on both brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.tool_comparison import ToolComparison

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.mark.feature("kafka-configs: SCRAM credentials of users", client="Kafka's tools 4.3")
def test_credentials_are_set_listed_and_removed(pair: ToolComparison, name: str) -> None:
    user = ("kafka-configs", "--entity-type", "users", "--entity-name", name)
    add = "SCRAM-SHA-256=[iterations=8192,password=one],SCRAM-SHA-512=[password=two]"
    for change in (add, "SCRAM-SHA-256=[iterations=8192,password=one]", "SCRAM-SHA-512=[password=two]"):
        pair.same(*user, "--alter", "--add-config", change)
    pair.until(lambda lines: any("SCRAM-SHA-512" in line for line in lines), *user, "--describe")
    listed = {broker: credentials(lines) for broker, lines in pair.both(*user, "--describe").items()}
    assert listed["odradek"] == listed["kafka"]
    assert "SCRAM-SHA-256=iterations=8192" in listed["odradek"][-1]
    for change in ("SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-512"):
        pair.same(*user, "--alter", "--delete-config", change)


def credentials(lines: list[str]) -> list[list[str]]:
    """Return the lines of a description. The credentials in a line are ordered: Kafka has them in no fixed order."""
    return [sorted(line.replace(" are ", ", ").split(", ")) for line in lines]


@pytest.mark.full
def test_invalid_credentials_are_refused_alike(pair: ToolComparison, name: str) -> None:
    user = ("kafka-configs", "--entity-type", "users", "--entity-name", name)
    for change in (
        "SCRAM-SHA-256=[iterations=4095,password=one]",
        "SCRAM-SHA-256=[iterations=16385,password=one]",
        "SCRAM-SHA-1=[password=one]",
        "SCRAM-SHA-256=[iterations=5000]",
    ):
        pair.same(*user, "--alter", "--add-config", change)
    pair.same(*user, "--describe")
