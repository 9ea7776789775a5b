"""Requests and results for topics: create, delete, and add partitions."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode

NO_TOPIC_ID: Final = UUID(int=0)
USE_DEFAULT: Final = -1
"""The number of partitions or replicas that means the broker's default."""


@frozen_dataclass(frozen=True, slots=True)
class ConfigValue:
    """One effective setting of a topic, as CreateTopics v5 and later returns it.

    `source` is the number that DescribeConfigs uses: 1 topic, 4 static broker configuration, 5 default.
    """

    name: str
    value: str | None
    source: int
    read_only: bool = False
    is_sensitive: bool = False


@frozen_dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    `assignments`: (partition index, broker ids) of each partition. `num_partitions` and `replication_factor` must then
    be USE_DEFAULT.
    """

    name: str
    num_partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@frozen_dataclass(frozen=True, slots=True)
class CreatedTopic:
    """The result for one NewTopic.

    After an error, the fields below `message` have their defaults. With `validate_only`, `topic_id` is NO_TOPIC_ID.
    """

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: UUID = NO_TOPIC_ID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: tuple[ConfigValue, ...] = ()


@frozen_dataclass(frozen=True, slots=True)
class NewPartitions:
    """Partitions to add to a topic. `count` is the new total.

    `assignments`: the broker ids of each partition that is added. None: the controller places the replicas.
    """

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


@frozen_dataclass(frozen=True, slots=True)
class TopicName:
    """A topic to delete, by name (topic_id NO_TOPIC_ID) or by id (name None)."""

    name: str | None = None
    topic_id: UUID = NO_TOPIC_ID


@frozen_dataclass(frozen=True, slots=True)
class TopicResult:
    """The result for one topic. `name` is None if the request had an unknown topic id."""

    name: str | None
    topic_id: UUID = NO_TOPIC_ID
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
