"""Features of a cluster and their levels: list, upgrade, downgrade. Registered brokers: unregister."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from odradek.client.admin.status import describe_brokers
from odradek.client.errors import ClientError, check
from odradek.client.network.connection import SOFTWARE_NAME, SOFTWARE_VERSION
from odradek.client.network.settings import BROKER_TIMEOUT_MS
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest
from odradek.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

if TYPE_CHECKING:
    from odradek.client.network.cluster import Cluster


class UpgradeType(IntEnum):
    """Direction of a change of a feature. An unsafe downgrade may lose metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureLevel:
    """A feature: the levels that a broker supports, and the finalized level of the cluster. 0: it is not used."""

    feature: str
    min_version: int
    max_version: int
    finalized: int


async def list_features(cluster: Cluster) -> list[FeatureLevel]:
    """Return the features that one of the brokers supports, by name, with their finalized levels."""
    response = await cluster.request_any(ApiVersionsRequest(SOFTWARE_NAME, SOFTWARE_VERSION))
    check(response.error_code, "the features were not listed")
    finalized = {row.name: row.max_version_level for row in response.finalized_features}
    rows = sorted(response.supported_features, key=lambda row: row.name)
    return [FeatureLevel(row.name, row.min_version, row.max_version, finalized.get(row.name, 0)) for row in rows]


async def update_feature(
    cluster: Cluster, feature: str, level: int, kind: UpgradeType, *, validate_only: bool = False
) -> None:
    """Change the finalized level of a feature. 0 stops its use. Raise Refused."""
    update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(timeout_ms=BROKER_TIMEOUT_MS, feature_updates=[update], validate_only=validate_only)
    response = await cluster.request_any(request)
    what = f"feature {feature} was not changed"
    for result in response.results:
        check(result.error_code, what, result.error_message)
    check(response.error_code, what, response.error_message)


async def unregister_broker(cluster: Cluster, node_id: int) -> None:
    """Remove the registration of a fenced broker.

    A controller accepts the request for a running broker, too. A running broker of Odradek registers again immediately.
    One of Apache Kafka sends heartbeats that fail, and does not serve its partitions until its restart.

    Raises:
        ClientError: The broker is not fenced. Nothing was changed.
        Refused: The controller refused the request.
    """
    _, brokers = await describe_brokers(cluster)
    if any(broker.node_id == node_id and not broker.fenced for broker in brokers):
        problem = f"broker {node_id} is not fenced, so it was not unregistered"
        raise ClientError(problem, "stop it, wait until odradek status shows it as fenced, and repeat the command")
    response = await cluster.request_any(UnregisterBrokerRequest(broker_id=node_id))
    check(response.error_code, f"broker {node_id} was not unregistered", response.error_message)
