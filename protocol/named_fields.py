"""Fields of requests that name topics, groups and transactional ids. Fault injection selects requests by them."""

from importlib import import_module
from types import ModuleType
from typing import Final

from odradek.protocol.schema import Message, Struct

TOPICS, GROUPS, TRANSACTIONAL_IDS = "topics", "groups", "transactional_ids"
GROUP_FIELDS: Final = ("group", "group_id", "groups", "groups_names", "group_ids")
TRANSACTION_FIELDS: Final = ("transactional_id", "transactional_ids")
TOPIC_FIELDS: Final = ("topic", "topic_name", "topic_names", "topic_id")
FIND_COORDINATOR: Final = "FindCoordinatorRequest"
"""Request whose keys are groups or transactional ids, as its key type says."""


def kind_of_field(struct: type[Struct], field: str) -> str | None:
    """Return what a field of a struct names: TOPICS, GROUPS or TRANSACTIONAL_IDS. Return None for any other field."""
    if field in TOPIC_FIELDS or (field == "name" and "Topic" in struct.__name__):
        return TOPICS
    if field in GROUP_FIELDS:
        return GROUPS
    return TRANSACTIONAL_IDS if field in TRANSACTION_FIELDS else None


def kinds_in(request: type[Message]) -> frozenset[str]:
    """Return the kinds of names that a request can contain, in any version."""
    if request.NAME == FIND_COORDINATOR:
        return frozenset({GROUPS, TRANSACTIONAL_IDS})
    return frozenset(_kinds(request, import_module(request.__module__)))


def _kinds(struct: type[Struct], module: ModuleType) -> set[str]:
    found: set[str] = set()
    for line in struct.SCHEMA.splitlines():
        field, kind, *_ = line.split()
        named = kind_of_field(struct, field)
        if named is not None:
            found.add(named)
        nested = getattr(module, kind.removeprefix("[]"), None)
        if isinstance(nested, type) and issubclass(nested, Struct):
            found |= _kinds(nested, module)
    return found
