"""Settings of resources: what a topic may be created with, and the records that say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.image import RESOURCE_BROKER, RESOURCE_TOPIC
from cluster.records import ConfigRecord
from protocol.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cluster.controller.state import ControllerState

UNCLEAN_LEADER_ELECTION: Final = "unclean.leader.election.enable"


def checked_configs(state: ControllerState, topic: str, configs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """The settings of a new topic. Raises Refusal(INVALID_CONFIG)."""
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
    """Topic, then the cluster's dynamic default, then the broker's own configuration."""
    for resource in ((RESOURCE_TOPIC, topic), (RESOURCE_BROKER, "")):
        value = state.image.config(*resource).get(UNCLEAN_LEADER_ELECTION)
        if value is not None:
            return value == "true"
    return state.configs.unclean_leader_election_enable
