"""Encoding of all messages in all versions, compared with Kafka's generated classes.

Kafka's class decodes each encoded message completely, and encodes it to the same bytes. The test includes the internal
records, which kio does not have.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from odradek.protocol.codec import encode
from tests.support.effort import effort
from tests.support.jars import REFERENCE
from tests.support.messages import ALL_CASES, ALL_MESSAGES, struct_values

if TYPE_CHECKING:
    from odradek.protocol.schema import Message

REFEREE = Path(__file__).with_name("Referee.java")
TIMEOUT_S = 120.0
EXAMPLES_PER_CASE = 5

pytestmark = pytest.mark.interop


def recode_with_kafka(lines: list[str]) -> list[str]:
    command = ["java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{REFERENCE}/*", str(REFEREE)]
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    return done.stdout.splitlines()


def generated_lines(name: str, version: int) -> list[str]:
    """Return lines "name version hex" of generated messages."""
    lines: list[str] = []

    @settings(
        max_examples=effort(EXAMPLES_PER_CASE),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(struct_values(ALL_MESSAGES[name], version))
    def collect(message: Message) -> None:
        lines.append(f"{name} {version} {encode(message, version).hex()}")

    collect()
    return lines


def test_kafka_decodes_each_message_and_encodes_it_to_the_same_bytes() -> None:
    lines = [line for name, version in ALL_CASES for line in generated_lines(name, version)]
    assert len(lines) >= len(ALL_CASES)
    results = recode_with_kafka(lines)
    assert len(results) == len(lines)
    different = [(line, result) for line, result in zip(lines, results, strict=True) if line.split(" ")[2] != result]
    assert different == []
