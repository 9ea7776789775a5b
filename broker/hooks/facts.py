"""Description of a request for the rules of fault injection: the names in it, and its fields as JSON values."""

from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID

from odradek.protocol.named_fields import FIND_COORDINATOR, GROUPS, TOPICS, TRANSACTIONAL_IDS, kind_of_field
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.schema import Message, Struct, field_values

PARTITION_FIELDS: Final = ("partition", "partition_index", "index")
"""Fields with the number of a partition, in the structs of a topic."""
PARTITION_LISTS: Final = ("partitions", "partition_indexes")
"""Lists with numbers of partitions, in the struct of a topic."""
GROUP_KEY: Final = 0
"""Key type of a group in FindCoordinator."""
TRANSACTION_KEY: Final = 1
"""Key type of a transactional id in FindCoordinator."""
UNKNOWN_FIELDS: Final = "unknown_tagged_fields"

NameOf = Callable[[UUID], str | None]
"""Return the name of the topic with an id, or None."""


def names_in(request: Message, name_of: NameOf) -> dict[str, list[str]]:
    """Return the topics, groups and transactional ids that a request names, without duplicates."""
    found: dict[str, dict[str, None]] = {TOPICS: {}, GROUPS: {}, TRANSACTIONAL_IDS: {}}
    for kind, name in _names(request, name_of):
        found[kind][name] = None
    if request.NAME == FIND_COORDINATOR:
        key_kind = {GROUP_KEY: GROUPS, TRANSACTION_KEY: TRANSACTIONAL_IDS}.get(getattr(request, "key_type", -1))
        keys = [getattr(request, "key", ""), *getattr(request, "coordinator_keys", [])]
        if key_kind is not None:
            found[key_kind].update((key, None) for key in keys if key)
    return {kind: list(names) for kind, names in found.items()}


def _names(struct: Struct, name_of: NameOf) -> Iterator[tuple[str, str]]:
    yield from _own_names(struct, name_of)
    for each in _nested(struct):
        yield from _names(each, name_of)


def _nested(struct: Struct) -> Iterator[Struct]:
    for _, value in field_values(struct):
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield each


def _own_names(struct: Struct, name_of: NameOf) -> Iterator[tuple[str, str]]:
    """Yield kind and name of each name in a struct, without those in nested structs."""
    for field, value in field_values(struct):
        kind = kind_of_field(type(struct), field)
        if kind is None:
            continue
        values: list[Any] = value if isinstance(value, list) else [value]
        if field == "topic_id":
            values = [None if value == ZERO_UUID else name_of(value)]
        yield from ((kind, each) for each in values if isinstance(each, str) and each)


def partitions_in(request: Message, name_of: NameOf) -> list[tuple[str, int]]:
    """Return topic and number of each partition that a request names, without duplicates."""
    return list(dict.fromkeys(_partitions(request, name_of, None)))


def _partitions(struct: Struct, name_of: NameOf, topic: str | None) -> Iterator[tuple[str, int]]:
    topic = next((name for kind, name in _own_names(struct, name_of) if kind == TOPICS), topic)
    if topic is not None:
        for field, value in field_values(struct):
            if field in PARTITION_FIELDS:
                yield topic, value
            elif field in PARTITION_LISTS:
                yield from ((topic, each) for each in value or () if isinstance(each, int))
    for each in _nested(struct):
        yield from _partitions(each, name_of, topic)


def as_json(value: Any) -> Any:
    """Return a field as a JSON value. Bytes, such as records, become their number: ``{"bytes": 42}``."""
    if isinstance(value, Struct):
        return {name: as_json(each) for name, each in field_values(value) if name != UNKNOWN_FIELDS}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": len(value)}
    return str(value) if isinstance(value, UUID) else value
