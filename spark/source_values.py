"""Parsers of option values: JSON of partitions, flags, numbers and durations. They raise InvalidInput."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from odradek.client import TopicPartition
from odradek.spark.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SECONDS_PER_UNIT: Final = {
    "": 1e-3, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0,
}  # fmt: skip
"""Units of Spark's durations. A number without a unit is in milliseconds."""
TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Names of topics that Kafka allows, except `.` and `..`."""
LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1


def per_partition(given: Mapping[str, str], name: str, example: str, lowest: int) -> dict[TopicPartition, int]:
    """Return a number per partition, from JSON such as {"topic": {"0": 23}}."""

    def is_valid(value: object) -> bool:
        return isinstance(value, dict) and all(
            index.isascii() and index.isdigit() and int(index) <= INT_MAX and _is_number(each, lowest)
            for index, each in value.items()
        )

    return {
        TopicPartition(topic, int(index)): each
        for topic, numbers in _per_topic(given, name, example, is_valid)
        for index, each in numbers.items()
    }


def partitions(given: Mapping[str, str], name: str, example: str) -> tuple[TopicPartition, ...]:
    """Return partitions, from JSON such as {"topic": [0, 1]}."""

    def is_valid(value: object) -> bool:
        return isinstance(value, list) and all(_is_number(each, 0) for each in value)

    found = _per_topic(given, name, example, is_valid)
    return tuple(TopicPartition(topic, index) for topic, indexes in found for index in dict.fromkeys(indexes))


def topic_name(option: str, name: str) -> str:
    """Return the name of a topic. Raise InvalidInput if Kafka does not allow it."""
    if not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise InvalidInput(
            f"option {option}: {name!r} is no name of a topic; use 1 to 249 letters, digits, '.', '_' or '-'"
        )
    return name


def _per_topic(
    given: Mapping[str, str], name: str, example: str, is_valid: Callable[[object], bool]
) -> list[tuple[str, Any]]:
    try:
        value = json.loads(given[name])
    except ValueError:
        value = None
    if not isinstance(value, dict) or not all(map(is_valid, value.values())):
        raise InvalidInput(f"option {name}: {given[name]!r} is invalid; give for example {example}")
    return list(value.items())


def _is_number(value: object, lowest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= LONG_MAX


def flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return true or false."""
    return default if name not in given else choice(given, name, ("true", "false")) == "true"


def choice(given: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    """Return a value in lower case. The default is the first one."""
    value = given.get(name, values[0]).lower()
    if value not in values:
        raise InvalidInput(f"option {name}: {given[name]!r} is invalid; give {' or '.join(values)}")
    return value


def number(given: Mapping[str, str], name: str, highest: int) -> int | None:
    """Return a positive number. Return None if the option is missing."""
    if name not in given:
        return None
    text = given[name]
    if not re.fullmatch(r"[0-9]{1,19}", text) or not 0 < int(text) <= highest:
        raise InvalidInput(f"option {name}: {text!r} is no positive number up to {highest}")
    return int(text)


def timestamp(given: Mapping[str, str], name: str) -> int:
    """Return a time in milliseconds since 1970."""
    text = given[name]
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > LONG_MAX:
        raise InvalidInput(f"option {name}: {text!r} is no time in milliseconds")
    return int(text)


def duration_s(given: Mapping[str, str], name: str, default: str) -> float:
    """Return a duration in seconds, from a number with a unit of Spark."""
    text = given.get(name, default).lower()
    found = re.fullmatch(r"([0-9]{1,12})\s*([a-z]*)", text)
    if found is None or found[2] not in SECONDS_PER_UNIT:
        raise InvalidInput(f"option {name}: {text!r} is no duration; give for example 15m, 30s or 500ms")
    return int(found[1]) * SECONDS_PER_UNIT[found[2]]
