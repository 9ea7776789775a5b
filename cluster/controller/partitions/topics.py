"""Creation and deletion of topics. Error messages are Kafka's, because tools print them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from odradek.cluster.controller.configs import checked_configs, topic_config_records
from odradek.cluster.controller.messages.topics import (
    NO_TOPIC_ID,
    USE_DEFAULT,
    CreatedTopic,
    NewTopic,
    TopicName,
    TopicResult,
)
from odradek.cluster.controller.partitions import placement
from odradek.cluster.controller.partitions.creation import new_partitions
from odradek.cluster.controller.state import ControllerResult, ControllerState
from odradek.cluster.metadata.records import MetadataRecord, RemoveTopicRecord, TopicRecord
from odradek.cluster.metadata.topic_names import NAME_LENGTH_MAX, collision_key, is_valid
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.internal_topics import CLUSTER_METADATA

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from odradek.cluster.controller.commands import CreateTopics, DeleteTopics

NO_SUCH_TOPIC: Final = "This server does not host this topic-partition."
NO_SUCH_TOPIC_ID: Final = "This server does not host this topic ID."


def create_topics(state: ControllerState, command: CreateTopics) -> ControllerResult[tuple[CreatedTopic, ...]]:
    """Create all valid topics of the command in one atomic batch. An invalid topic does not affect the valid ones."""
    requested = Counter(topic.name for topic in command.topics)
    taken: dict[str, str] = {}
    results: list[CreatedTopic] = []
    records: list[MetadataRecord] = []
    for topic in {topic.name: topic for topic in command.topics}.values():
        try:
            if requested[topic.name] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _check_name(state, topic.name, taken)
            created, new = _create_topic(state, topic)
        except Refusal as refusal:
            results.append(CreatedTopic(topic.name, refusal.error, refusal.message))
            continue
        taken.setdefault(collision_key(topic.name), topic.name)
        if command.validate_only:
            created = replace(created, topic_id=NO_TOPIC_ID)
        results.append(created)
        records += new
    return ControllerResult(tuple(results), () if command.validate_only else tuple(records))


def requested_partitions(state: ControllerState, topics: Sequence[NewTopic]) -> int:
    """Return the number of partitions that CreateTopics requests, whether the topics are valid or not."""
    default = state.configs.num_partitions
    return sum(
        len(topic.assignments) or (default if topic.num_partitions == USE_DEFAULT else max(topic.num_partitions, 0))
        for topic in topics
    )


def _check_name(state: ControllerState, name: str, taken: dict[str, str]) -> None:
    if name == CLUSTER_METADATA:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {CLUSTER_METADATA} is prohibited.")
    reason = invalid_name(name)
    if reason is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    if state.image.topic(name) is not None:
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    key = collision_key(name)
    other = state.collision_keys.get(key) or taken.get(key)
    if other is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def invalid_name(name: str) -> str | None:
    """Return Kafka's reason why a topic name is invalid. None: the name is valid."""
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not is_valid(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def _create_topic(state: ControllerState, topic: NewTopic) -> tuple[CreatedTopic, list[MetadataRecord]]:
    configs = checked_configs(state, topic.name, topic.configs)
    placements = _manual(state, topic) if topic.assignments else _automatic(state, topic)
    topic_id = state.new_uuid()
    records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += topic_config_records(topic.name, configs)
    records += new_partitions(state, topic_id, 0, placements)
    created = CreatedTopic(
        topic.name,
        topic_id=topic_id,
        num_partitions=len(placements),
        replication_factor=len(placements[0]),
        configs=state.configs.effective(topic.name, configs),
    )
    return created, records


def _manual(state: ControllerState, topic: NewTopic) -> list[tuple[int, ...]]:
    both = "A manual partition assignment was specified, but"
    if topic.replication_factor != USE_DEFAULT:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{both} replication factor was not set to -1.")
    if topic.num_partitions != USE_DEFAULT:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{both} numPartitions was not set to -1.")
    chosen: dict[int, tuple[int, ...]] = {}
    replication_factor = None
    for index, replicas in topic.assignments:
        if index in chosen:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        placement.check_manual(state.image, replicas, replication_factor)
        replication_factor = len(replicas)
        chosen[index] = replicas
    if sorted(chosen) != list(range(len(chosen))):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [chosen[index] for index in range(len(chosen))]


def _automatic(state: ControllerState, topic: NewTopic) -> list[tuple[int, ...]]:
    if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < USE_DEFAULT or topic.num_partitions == 0:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    partitions, replication_factor = topic.num_partitions, topic.replication_factor
    return placement.place(
        state.image,
        state.rng,
        first_partition=0,
        partitions=state.configs.num_partitions if partitions == USE_DEFAULT else partitions,
        replication_factor=(
            state.configs.default_replication_factor if replication_factor == USE_DEFAULT else replication_factor
        ),
        draining=state.draining,
    )


# ---- deletion -------------------------------------------------------------------------------------------------------


def delete_topics(state: ControllerState, command: DeleteTopics) -> ControllerResult[tuple[TopicResult, ...]]:
    """Delete topics. The name is free immediately; brokers delete their replicas when they receive the record."""
    results: list[TopicResult] = []
    records: list[MetadataRecord] = []
    names = Counter(item.name for item in command.topics if item.name is not None)
    ids = Counter(item.topic_id for item in command.topics if item.topic_id != NO_TOPIC_ID)
    done: dict[UUID, None] = {}
    for item in dict.fromkeys(command.topics):
        try:
            name, topic_id = _topic_to_delete(state, item, names, ids)
        except Refusal as refusal:
            results.append(TopicResult(item.name, item.topic_id, refusal.error, refusal.message))
            continue
        results.append(TopicResult(name, topic_id))
        if topic_id not in done:
            done[topic_id] = None
            records.append(RemoveTopicRecord(topic_id=topic_id))
    return ControllerResult(tuple(results), tuple(records))


def _topic_to_delete(
    state: ControllerState, item: TopicName, names: Counter[str], ids: Counter[UUID]
) -> tuple[str, UUID]:
    by_id = item.topic_id != NO_TOPIC_ID
    if item.name is not None and by_id:
        raise Refusal(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if item.name is None and not by_id:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if item.name is not None:
        if names[item.name] > 1:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        topic = state.image.topic(item.name)
        if topic is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_TOPIC)
        if topic.topic_id in ids:
            raise Refusal(ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")
        return topic.name, topic.topic_id
    if ids[item.topic_id] > 1:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    topic = state.image.topic_by_id(item.topic_id)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, NO_SUCH_TOPIC_ID)
    return topic.name, topic.topic_id
