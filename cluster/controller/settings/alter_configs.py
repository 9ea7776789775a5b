"""Changes of settings (KIP-133, KIP-339), and the effect of another `min.insync.replicas` on the ELR."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from odradek.cluster.controller.configs import MIN_IN_SYNC, in_sync_number
from odradek.cluster.controller.election import next_change
from odradek.cluster.controller.leaders import new_partition_epoch, rules_for, topic_rules
from odradek.cluster.controller.messages.settings import ConfigChange, ConfigOperation, ConfigResult
from odradek.cluster.controller.settings.operations import resulting_settings
from odradek.cluster.controller.state import ControllerResult, ControllerState
from odradek.cluster.metadata.image import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from odradek.cluster.metadata.records import ConfigRecord
from odradek.protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from odradek.cluster.controller.commands import AlterConfigs
    from odradek.cluster.metadata.image import TopicImage
    from odradek.cluster.metadata.records import MetadataRecord

VALUE_BYTES_MAX: Final = 32_767
"""Maximum bytes of a value in a record of the metadata log. APPEND can make a value that is larger than a request's."""
NODE_ID_DIGITS_MAX: Final = 10
"""Digits of the largest int32. Python refuses to convert thousands of digits."""


def alter_configs(state: ControllerState, command: AlterConfigs) -> ControllerResult[tuple[ConfigResult, ...]]:
    """Return one result per resource. An invalid resource does not affect the valid ones."""
    results: list[ConfigResult] = []
    records: list[MetadataRecord] = []
    times = Counter((resource.kind, resource.name) for resource in command.resources)
    for resource in command.resources:
        try:
            if times[resource.kind, resource.name] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            records += _alter(state, resource)
        except Refusal as refusal:
            results.append(ConfigResult(resource.kind, resource.name, refusal.error, refusal.message))
        else:
            results.append(ConfigResult(resource.kind, resource.name))
    return ControllerResult(tuple(results), () if command.validate_only else tuple(records))


def _alter(state: ControllerState, resource: ConfigChange) -> list[MetadataRecord]:
    _check_resource(state, resource)
    before = state.image.config(resource.kind, resource.name)
    after = resulting_settings(state.configs, resource, before)
    _check_values(state, resource, after)
    named = dict.fromkeys((*(name for name, _, _ in resource.changes), *before))
    changed = [name for name in named if before.get(name) != after.get(name)]
    records: list[MetadataRecord] = [
        ConfigRecord(resource_type=resource.kind, resource_name=resource.name, name=name, value=after.get(name))
        for name in changed
    ]
    if MIN_IN_SYNC in changed and state.elr_enabled:
        records += _min_in_sync_changes(state, resource, after)
    return records


def _check_values(state: ControllerState, resource: ConfigChange, after: Mapping[str, str]) -> None:
    if any(len(value.encode()) > VALUE_BYTES_MAX for value in after.values()):
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of"
            f" {VALUE_BYTES_MAX} bytes.",
        )
    if resource.kind == RESOURCE_TOPIC:
        state.configs.validate(resource.name, after)
    elif resource.kind == RESOURCE_GROUP:
        state.configs.validate_group(after)
    else:
        state.configs.validate_broker(resource.name, after)


def _check_resource(state: ControllerState, resource: ConfigChange) -> None:
    name = resource.name
    if resource.kind == RESOURCE_TOPIC:
        if not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if state.image.topic(name) is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif resource.kind == RESOURCE_GROUP:
        if not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    elif resource.kind != RESOURCE_BROKER:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.kind}")
    elif name and not (name.isascii() and name.isdecimal() and len(name) <= NODE_ID_DIGITS_MAX):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name[:100]}")
    elif name and int(name) not in state.image.brokers and int(name) not in state.image.controllers:
        raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} is registered.")
    names = [each for each, _, _ in resource.changes]
    if len(dict.fromkeys(names)) != len(names):
        raise Refusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [
        each for each, operation, value in resource.changes if value is None and operation != ConfigOperation.DELETE
    ]
    if nulls:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def _min_in_sync_changes(
    state: ControllerState, resource: ConfigChange, after: Mapping[str, str]
) -> list[MetadataRecord]:
    """Return the changes of partitions that follow from another `min.insync.replicas`.

    With a lower value, the ISR may be large enough: the high watermark advances, and replicas of the ELR may lack
    records. They leave the ELR.

    With a higher value, each partition gets a new partition epoch. Without it:
    1. The value is raised to 2.
    2. The leader, which has not applied that yet, requests an ISR of itself only.
    3. The controller commits it. The removed replica joins the ELR by the new value, while the leader acknowledges
       records alone by the old value. With the new partition epoch, the request fails with INVALID_UPDATE_VERSION, and
       the leader applies the value first.
    """
    image = state.image
    if resource.kind == RESOURCE_TOPIC:
        topics = [image.topics[resource.name]]
    elif resource.name:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_IN_SYNC} cannot be altered while ELR is enabled.")
    elif MIN_IN_SYNC not in after:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_IN_SYNC} cannot be removed while ELR is enabled.")
    else:
        topics = [topic for topic in image.topics.values() if MIN_IN_SYNC not in image.topic_config(topic.name)]
    text = after.get(MIN_IN_SYNC) or image.config(RESOURCE_BROKER, "").get(MIN_IN_SYNC)
    min_isr = state.configs.min_insync_replicas if text is None else in_sync_number(text)
    return [record for topic in topics for record in _partition_changes(state, topic, min_isr)]


def _partition_changes(state: ControllerState, topic: TopicImage, min_isr: int) -> Iterator[MetadataRecord]:
    shared = topic_rules(state, topic.name)
    rises = min_isr > shared.min_isr
    for partition in topic.partitions.values():
        rules = replace(rules_for(state, shared, partition), min_isr=min_isr)
        record = next_change(topic.topic_id, partition, partition, rules) if partition.elr else None
        if record is None and rises:
            record = new_partition_epoch(topic, partition)
        if record is not None:
            yield record
