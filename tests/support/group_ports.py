"""Fake ports of the group core: configuration, metadata, features and ids."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odradek.coordinator.group.ports import GroupConfig, TopicInfo

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class FakeConfigs:
    """`config` of the broker; `of_groups` has what is set for single ones."""

    config: GroupConfig = field(default_factory=GroupConfig)
    of_groups: dict[str, GroupConfig] = field(default_factory=dict)

    def set(self, **values: Any) -> None:
        self.config = replace(self.config, **values)

    def broker(self) -> GroupConfig:
        return self.config

    def session_timeout_ms(self, group_id: str) -> int:
        return self.of_groups.get(group_id, self.config).consumer_session_timeout_ms

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self.of_groups.get(group_id, self.config).consumer_heartbeat_interval_ms

    def assignment_interval_ms(self, group_id: str) -> int:
        return self.of_groups.get(group_id, self.config).consumer_assignment_interval_ms


@dataclass
class FakeTopics:
    """Topics by name; the id of one is its name, filled up to 16 bytes."""

    topics: dict[str, TopicInfo] = field(default_factory=dict)
    changes: int = 0

    def make(self, name: str, partitions: int = 1, racks: tuple[tuple[str, ...], ...] = ()) -> TopicInfo:
        self.topics[name] = TopicInfo(name.encode().ljust(16, b"\0")[:16], name, partitions, racks)
        self.changes += 1
        return self.topics[name]

    def delete(self, name: str) -> None:
        del self.topics[name]
        self.changes += 1

    def version(self) -> int:
        return self.changes

    def by_name(self, name: str) -> TopicInfo | None:
        return self.topics.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def names(self) -> Sequence[str]:
        return list(self.topics)


@dataclass
class FakeFeatures:
    level: int = 1

    def group_version(self) -> int:
        return self.level


class NewIds:
    """1, 2, 3 ... where a broker draws uuids."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> str:
        self.made += 1
        return str(self.made)
