"""`Kafka`: the value of the fixture `kafka`, a cluster as one test sees it."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek import client
    from odradek.testing.faults import Faults
    from odradek.testing.kafka_cluster import KafkaCluster

UNIQUE_BYTES = 4
"""Random bytes in a name. Names of one cluster are not repeated in practice."""
NAME_CHARACTERS_MAX = 60
"""Characters of the test's name in a unique name. Kafka limits the names of topics to 249."""
FORBIDDEN = re.compile(r"[^a-zA-Z0-9._-]+")


class Kafka:
    """Cluster of one test. After the test, the topics and groups of the cluster are deleted.

    Attributes:
        cluster: The cluster, for faults that concern brokers: `kafka.cluster.kill(1)`.
    """

    def __init__(self, cluster: KafkaCluster, test: str) -> None:
        self.cluster = cluster
        self._test = FORBIDDEN.sub("-", test).strip("-.")[:NAME_CHARACTERS_MAX]

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers: `host:port,...`."""
        return self.cluster.bootstrap

    @property
    def faults(self) -> Faults:
        """Faults in the handling of requests. They end with the test."""
        return self.cluster.faults

    def client_config(self, kind: str, user: str | None = None) -> dict[str, Any]:
        """Return the settings of a client library by its own names.

        Args:
            kind: `confluent-kafka`, `aiokafka`, `kafka-python`, `java` or `spark`.
            user: Name of a user of a cluster with security; None: the administrator.
        """
        return self.cluster.client_config(kind, user)

    def topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic with a unique name, and return the name. It begins with `name`, or with that of the test."""
        unique = self._unique(name)
        self.cluster.create_topic(unique, partitions, replication_factor=replication_factor, configs=configs)
        return unique

    def group(self, name: str | None = None) -> str:
        """Return a unique group id."""
        return self._unique(name)

    def transactional_id(self, name: str | None = None) -> str:
        """Return a unique transactional id."""
        return self._unique(name)

    def records(self, topic: str, *, committed: bool = True) -> list[client.ConsumerRecord]:
        """Return the records of a topic (`KafkaCluster.records`)."""
        return self.cluster.records(topic, committed=committed)

    def values(self, topic: str, *, committed: bool = True) -> list[bytes | None]:
        """Return the values of the records of a topic (`KafkaCluster.records`)."""
        return self.cluster.values(topic, committed=committed)

    def _unique(self, name: str | None) -> str:
        return f"{name or self._test}-{secrets.token_hex(UNIQUE_BYTES)}"
