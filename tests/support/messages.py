"""Every generated message, and Hypothesis strategies for the values that a version of it can carry."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any
from uuid import UUID

from hypothesis import strategies as st

import odradek.protocol.messages
import odradek.protocol.records
from odradek.protocol.schema import FieldRow, Message, Struct, field_rows

if TYPE_CHECKING:
    from collections.abc import Callable

ELEMENTS_MAX = 2

# what a referee can represent of a field: strategy of our values, or None for "anything"
Limits = dict[str, Any]


def all_messages() -> dict[str, type[Message]]:
    """Class name -> class, of `odradek.protocol.messages` and `odradek.protocol.records`."""
    found: dict[str, type[Message]] = {}
    for package in (odradek.protocol.messages, odradek.protocol.records):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.name:
                    found[value.__name__] = value
    return found


def versions(cls: type[Message]) -> range:
    return range(cls.MIN_VERSION, cls.MAX_VERSION + 1)


ALL_MESSAGES = all_messages()
ALL_CASES = [(name, version) for name, cls in sorted(ALL_MESSAGES.items()) for version in versions(cls)]


def integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    if not signed:
        return st.integers(0, 2**bits - 1)
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": integers(8),
    "int16": integers(16),
    "int32": integers(32),
    "int64": integers(64),
    "uint16": integers(16, signed=False),
    "uint32": integers(32, signed=False),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "uuid": st.integers(0, 2**128 - 1).map(lambda value: UUID(int=value)),
    "string": st.text(max_size=8) | st.just("é" * 70),
    "bytes": st.binary(max_size=8),
    "records": st.binary(max_size=8),
}


def struct_values(
    cls: type[Struct],
    version: int,
    limits: Callable[[type[Struct], FieldRow], st.SearchStrategy[Any] | None] | None = None,
) -> st.SearchStrategy[Any]:
    """Generate instances with a value in each field of the version. `limits` may restrict the values of a field."""
    strategies: dict[str, st.SearchStrategy[Any]] = {}
    for row in field_rows(cls):
        if row.in_version(version):
            limit = limits(cls, row) if limits is not None else None
            strategies[row.name] = limit if limit is not None else field_values(row, version, limits)
    return st.builds(cls, **strategies)


def field_values(
    row: FieldRow,
    version: int,
    limits: Callable[[type[Struct], FieldRow], st.SearchStrategy[Any] | None] | None,
) -> st.SearchStrategy[Any]:
    value = struct_values(row.struct, version, limits) if row.struct is not None else VALUES[row.kind]
    if row.is_array:
        value = st.lists(value, max_size=ELEMENTS_MAX)
    return st.none() | value if row.nullable_in(version) else value
