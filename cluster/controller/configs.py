"""Settings that decisions of the controller depend on, and the records of settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.cluster.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from odradek.cluster.metadata.records import ConfigRecord
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.java_text import trimmed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from odradek.cluster.controller.state import ControllerState
    from odradek.cluster.metadata.records import MetadataRecord

UNCLEAN_LEADER_ELECTION: Final = "unclean.leader.election.enable"
MIN_IN_SYNC: Final = "min.insync.replicas"


def checked_configs(state: ControllerState, topic: str, configs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Return the settings of a new topic. Raise Refusal(INVALID_CONFIG)."""
    rows = list(configs)
    nulls = [name for name, value in rows if value is None]
    if nulls:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    chosen = {name: value for name, value in rows if value is not None}
    state.configs.validate(topic, chosen)
    return chosen


def topic_config_records(topic: str, configs: Mapping[str, str]) -> list[ConfigRecord]:
    return [
        ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=topic, name=name, value=value)
        for name, value in configs.items()
    ]


def allows_unclean_election(state: ControllerState, topic: str) -> bool:
    value = _dynamic(state, topic, UNCLEAN_LEADER_ELECTION)
    return state.configs.unclean_leader_election_enable if value is None else trimmed(value).lower() == "true"


def min_in_sync(state: ControllerState, topic: str) -> int:
    """Return `min.insync.replicas` of a topic.

    It may exceed the number of replicas; all replicas must then be in sync.
    """
    value = _dynamic(state, topic, MIN_IN_SYNC)
    return state.configs.min_insync_replicas if value is None else in_sync_number(value)


def in_sync_number(text: str) -> int:
    """Return the value of a valid `min.insync.replicas`."""
    return int(trimmed(text))


def cluster_min_in_sync(state: ControllerState) -> list[MetadataRecord]:
    """Return the records that ELR requires: one `min.insync.replicas` for all brokers, and none of a single broker.

    If a leader acknowledged with fewer replicas than the controller assumes, the controller could elect a replica that
    lacks records.
    """
    records: list[MetadataRecord] = []
    if MIN_IN_SYNC not in state.image.config(RESOURCE_BROKER, ""):
        value = str(state.configs.min_insync_replicas)
        records.append(ConfigRecord(resource_type=RESOURCE_BROKER, resource_name="", name=MIN_IN_SYNC, value=value))
    records += [
        ConfigRecord(resource_type=kind, resource_name=name, name=MIN_IN_SYNC, value=None)
        for (kind, name), values in state.image.configs.items()
        if kind == RESOURCE_BROKER and name and MIN_IN_SYNC in values
    ]
    return records


def _dynamic(state: ControllerState, topic: str, name: str) -> str | None:
    """Return the setting of the topic, or else of all brokers. None: the node's own configuration applies."""
    value = state.image.topic_config(topic).get(name)
    return state.image.config(RESOURCE_BROKER, "").get(name) if value is None else value
