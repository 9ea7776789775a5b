"""Parameters of a cluster for tests: from the marker `kafka` of a test, and as the key of the pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from odradek.local.plan import BROKERS_MAX
from odradek.local.security import Security
from odradek.testing.numbers import is_whole

if TYPE_CHECKING:
    from odradek.testing.kafka_cluster import KafkaCluster

MARKER_ARGUMENTS = ("brokers", "topics", "settings", "security")
"""Names of the arguments of the marker `kafka`."""


class BadMarker(ValueError):
    """The arguments of a marker `kafka` are invalid."""


class KafkaClusterFactory(Protocol):
    """Type of the fixture `kafka_cluster`."""

    def __call__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, object] | None = None,
        security: Security | str | None = None,
    ) -> KafkaCluster:
        """Start a cluster that ends with the test."""
        ...


@dataclass(frozen=True)
class ClusterSpec:
    """Parameters of a cluster. Tests with equal parameters share a cluster.

    Attributes:
        brokers: Number of brokers.
        settings: Properties of all brokers, in ascending order of their names.
        security: As for `LocalCluster`.
    """

    brokers: int = 1
    settings: tuple[tuple[str, str], ...] = ()
    security: Security | str | None = None

    @classmethod
    def of(
        cls, brokers: int = 1, settings: Mapping[str, object] | None = None, security: Security | str | None = None
    ) -> ClusterSpec:
        """Return the parameters with the settings in a fixed order, so that equal clusters have equal parameters.

        Raise ValueError if the settings are no mapping, or the security has another type.
        """
        if settings is not None and not isinstance(settings, Mapping):
            raise ValueError(f"settings={settings!r} must be a dict from names to values")
        if not isinstance(security, Security | str | None):
            raise ValueError(f"security={security!r} must be a str or a Security")  # noqa: TRY004  the documented error
        return cls(brokers, tuple(sorted((name, str(value)) for name, value in (settings or {}).items())), security)


@dataclass(frozen=True)
class Requirements:
    """Requirements of one test: the parameters of its cluster, and the topics that exist when it begins."""

    spec: ClusterSpec = ClusterSpec()
    topics: Mapping[str, int] = field(default_factory=dict)


def requirements_of(arguments: Mapping[str, Any], positional: tuple[Any, ...] = ()) -> Requirements:
    """Return the requirements in the arguments of a marker `kafka`. Raise BadMarker if they are invalid."""
    unknown = sorted(set(arguments) - set(MARKER_ARGUMENTS))
    if positional or unknown:
        named = ", ".join([*map(repr, positional), *unknown])
        raise BadMarker(f"marker kafka: {named} is unknown; use keyword arguments of {', '.join(MARKER_ARGUMENTS)}")
    brokers = arguments.get("brokers", 1)
    if not is_whole(brokers, 1) or brokers > BROKERS_MAX:
        raise BadMarker(f"marker kafka: brokers={brokers!r} must be a number between 1 and {BROKERS_MAX}")
    topics = arguments.get("topics", {})
    if not isinstance(topics, dict) or not all(isinstance(name, str) and is_whole(topics[name], 1) for name in topics):
        raise BadMarker(f"marker kafka: topics={topics!r} must be a dict from names to numbers of partitions")
    try:
        spec = ClusterSpec.of(brokers, arguments.get("settings"), arguments.get("security"))
    except ValueError as error:
        raise BadMarker(f"marker kafka: {error}") from None
    return Requirements(spec, topics)
