"""Operations on settings: SET, DELETE, and APPEND and SUBTRACT for lists (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cluster.controller.messages.settings import ConfigChange, ConfigOperation
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odradek.cluster.controller.ports import TopicConfigs


def resulting_settings(configs: TopicConfigs, resource: ConfigChange, before: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a resource after its changes. `before` are its present settings.

    Raise Refusal(INVALID_CONFIG) for APPEND or SUBTRACT on a property that is no list.
    """
    after = {} if resource.replaces else dict(before)
    for name, operation, value in resource.changes:
        _apply(configs, resource.kind, after, name, operation, value)
    return after


def _apply(
    configs: TopicConfigs,
    kind: int,
    texts: dict[str, str],
    name: str,
    operation: ConfigOperation,
    value: str | None,
) -> None:
    if operation is ConfigOperation.DELETE or value is None:
        texts.pop(name, None)
        return
    if operation is ConfigOperation.SET:
        texts[name] = value
        return
    default = configs.list_default(kind, name)
    if default is None:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"Can't {operation.name} to key {name} because its type is not LIST.")
    held = [item for item in texts[name].split(",") if item] if name in texts else list(default)
    given = [item.strip() for item in _split(value)]
    items = _with(held, given) if operation is ConfigOperation.APPEND else _without(held, given)
    texts[name] = ",".join(items)


def _with(held: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return `held`, and the items of `given` that it lacks."""
    known = dict.fromkeys(held)
    return [*held, *(item for item in given if item not in known)]


def _without(held: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return the items of `held` that are not in `given`."""
    removed = dict.fromkeys(given)
    return [item for item in held if item not in removed]


def _split(text: str) -> list[str]:
    """Split as Java's String.split does: without empty items at the end, except for an empty text."""
    items = text.split(",")
    while items and text and not items[-1]:
        items.pop()
    return items
