"""Parse the file of the first SCRAM credentials of a cluster (`odradek.bootstrap.scram.file`).

A line has the syntax of `kafka-storage format --add-scram`: `SCRAM-SHA-256=[name=alice,password=secret]`, with an
optional `iterations`. A value with a comma is in double quotes.
"""

import re
from collections.abc import Callable
from typing import Final

from odradek.broker.config.property import ConfigError
from odradek.cluster.metadata.image import ScramKey
from odradek.protocol.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BITS,
    SCRAM_MECHANISMS,
    Credential,
    salt_text,
)

_NAME: Final = "odradek.bootstrap.scram.file"
_LINE: Final = re.compile(r"(?P<mechanism>[A-Z0-9-]+)=\[(?P<items>.*)\]")
_ITEM: Final = re.compile(r'\s*(?P<key>[a-z]+)\s*=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,"]*))\s*(?:,|$)')
_KEYS: Final = frozenset({"name", "password", "iterations"})


def parse_bootstrap_scram(text: str, random_bits: Callable[[int], int]) -> dict[ScramKey, Credential]:
    """Return the credentials of a file. Raise ConfigError, which contains no value of the file."""
    credentials: dict[ScramKey, Credential] = {}
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        key, credential = _credential(content, f"{_NAME}: line {number}", random_bits)
        if key in credentials:
            raise ConfigError(f"{_NAME}: line {number}: the user has this mechanism twice")
        credentials[key] = credential
    return credentials


def _credential(line: str, label: str, random_bits: Callable[[int], int]) -> tuple[ScramKey, Credential]:
    matched = _LINE.fullmatch(line)
    mechanism = None if matched is None else SCRAM_MECHANISMS.get(matched["mechanism"])
    if matched is None or mechanism is None:
        raise ConfigError(f"{label} is not of the form SCRAM-SHA-256=[name=NAME,password=PASSWORD]")
    values = _items(matched["items"], label)
    name, password, iterations = (values.get(key, "") for key in ("name", "password", "iterations"))
    if not name or not password:
        raise ConfigError(f"{label} has no name or no password")
    count = int(iterations or ITERATIONS_MIN) if (iterations or "0").isdecimal() else 0
    if not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
        raise ConfigError(f"{label}: the iterations are not from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    salt = salt_text(random_bits(SALT_BITS)).encode()
    return (name, mechanism.code), Credential.of_password(mechanism, password.encode(), salt, count)


def _items(text: str, label: str) -> dict[str, str]:
    values: dict[str, str] = {}
    at = 0
    while at < len(text):
        item = _ITEM.match(text, at)
        if item is None or item["key"] not in _KEYS or item["key"] in values:
            raise ConfigError(f"{label} has another item than name, password and iterations, or has one twice")
        values[item["key"]] = item["plain"].strip() if item["quoted"] is None else item["quoted"]
        at = item.end()
    return values
