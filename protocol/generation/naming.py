"""Kafka's names as Python's."""

from __future__ import annotations

import keyword
import re
from typing import Final

WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def snake(name: str) -> str:
    """'LogStartOffset' -> 'log_start_offset'; KRaft is one word."""
    text = WORD_START.sub("_", name.replace("KRaft", "Kraft")).lower()
    return f"{text}_" if keyword.iskeyword(text) else text


def module_name(schema_name: str) -> str:
    """Request and response of one API, key and value of one record, share a module."""
    for suffix in ("Request", "Response", "Key", "Value"):
        if schema_name.endswith(suffix) and schema_name not in {"RequestHeader", "ResponseHeader"}:
            return snake(schema_name.removesuffix(suffix))
    return snake(schema_name)


def shared_names(*struct_names: set[str]) -> set[str]:
    """Names that more than one schema of a module uses: these get a prefix."""
    seen: set[str] = set()
    twice: set[str] = set()
    for names in struct_names:
        twice |= seen & names
        seen |= names
    return twice


def role(schema_name: str) -> str:
    """The prefix for a struct whose name stands in both halves of a module: 'Request', 'Response', 'Key' or 'Value'."""
    for suffix in ("Request", "Response", "Key", "Value"):
        if schema_name.endswith(suffix):
            return suffix
    return schema_name
