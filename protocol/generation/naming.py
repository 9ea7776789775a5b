"""Convert names of Kafka's schemas to Python names."""

from __future__ import annotations

import keyword
import re
from typing import Final

WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def snake(name: str) -> str:
    """Convert 'LogStartOffset' to 'log_start_offset'. KRaft is one word."""
    text = WORD_START.sub("_", name.replace("KRaft", "Kraft")).lower()
    return f"{text}_" if keyword.iskeyword(text) else text


def module_name(schema_name: str) -> str:
    """Return the module name of a schema.

    Request and response of an API share a module; so do key and value of a record.
    """
    for suffix in ("Request", "Response", "Key", "Value"):
        if schema_name.endswith(suffix) and schema_name not in {"RequestHeader", "ResponseHeader"}:
            return snake(schema_name.removesuffix(suffix))
    return snake(schema_name)


def shared_names(*struct_names: set[str]) -> set[str]:
    """Return the struct names that more than one schema of a module defines. These names get a prefix."""
    seen: set[str] = set()
    twice: set[str] = set()
    for names in struct_names:
        twice |= seen & names
        seen |= names
    return twice


def role(schema_name: str) -> str:
    """Return the prefix of the schema's shared struct names: 'Request', 'Response', 'Key' or 'Value'."""
    for suffix in ("Request", "Response", "Key", "Value"):
        if schema_name.endswith(suffix):
            return suffix
    return schema_name
