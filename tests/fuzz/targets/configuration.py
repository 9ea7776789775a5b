"""Fuzz target of the configuration of a broker: the text of a .properties file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.config.properties import PROPERTIES
from odradek.broker.config.property import ConfigError
from odradek.broker.config.sources import load
from tests.fuzz.mutations import damaged
from tests.fuzz.target import KIB, Bound, Target

if TYPE_CHECKING:
    from random import Random

REQUIRED = "node.id=1\nlog.dirs=/data\nlisteners=CLIENT://127.0.0.1:9092\ncontroller.quorum.voters=1@127.0.0.1:9092\n"
VALUES = ("", "0", "-1", "1", "true", "9" * 400, "1e999", "nan", "a,b", "PLAINTEXT://:9092", "[::1]:1", "gzip",
          "\\u0041", "1@h:1,2@h:2", "A:B", "é", "²", "0x10", " 7 ", "99999999999999999999")  # fmt: skip


def run(data: bytes) -> int:
    """Load the configuration. A file that is not UTF-8 cannot be read as text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return 0
    load(properties=text, environment={})
    return 0


def seeds() -> list[bytes]:
    return [REQUIRED.encode(), (REQUIRED + "# comment\nnum.partitions : 6\nlog.segment.\\\n  bytes 2000000\n").encode()]


def mutate(data: bytes, rng: Random) -> bytes:
    """Set properties to unusual values, or damage the text."""
    if rng.random() < 0.4:
        return damaged(data, rng)
    lines = [f"{rng.choice(NAMES)}={rng.choice(VALUES)}" for _ in range(rng.randint(1, 3))]
    return (REQUIRED + "\n".join(lines)).encode()


NAMES = sorted(PROPERTIES)
# The suggestion for an unknown name compares it with all names.
PROPERTIES_FILE = Target(
    "properties", run, seeds, typed=(ConfigError,), memory=Bound(1024 * KIB, 256), steps=Bound(2_000_000, 5_000),
    bytes_max=2 * KIB, mutate=mutate,
)  # fmt: skip
