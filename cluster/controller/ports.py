"""The port through which the controller reads the broker's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.cluster.controller.messages.topics import ConfigValue


class TopicConfigs(Protocol):
    """The settings of the broker's configuration that apply to new topics, and the validation of settings."""

    @property
    def num_partitions(self) -> int:
        """`num.partitions`."""

    @property
    def default_replication_factor(self) -> int:
        """`default.replication.factor`."""

    @property
    def unclean_leader_election_enable(self) -> bool:
        """`unclean.leader.election.enable`."""

    @property
    def min_insync_replicas(self) -> int:
        """`min.insync.replicas`."""

    def validate(self, topic: str, configs: Mapping[str, str]) -> None:
        """Raise Refusal(INVALID_CONFIG) with Kafka's message for an unknown name or an invalid value."""

    def validate_broker(self, broker: str, configs: Mapping[str, str]) -> None:
        """Raise Refusal(INVALID_CONFIG, INVALID_REQUEST) for a setting that a running broker does not accept.

        An empty `broker` means all brokers.
        """

    def validate_group(self, configs: Mapping[str, str]) -> None:
        """Raise Refusal(INVALID_CONFIG) for a setting that a group does not accept."""

    def list_default(self, kind: int, name: str) -> tuple[str, ...] | None:
        """Return the default of the list setting `name` of a topic or broker. None: it is unknown, or not a list."""

    def effective(self, topic: str, configs: Mapping[str, str]) -> tuple[ConfigValue, ...]:
        """Return all effective settings of a topic on which `configs` are set, in the order of their names."""
