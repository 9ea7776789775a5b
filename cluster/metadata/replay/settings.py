"""Replay of the records of configurations, client quotas, feature levels and producer ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cluster.metadata.errors import InconsistentMetadata
from odradek.cluster.metadata.image import quota_entity

if TYPE_CHECKING:
    from odradek.cluster.metadata import records as r
    from odradek.cluster.metadata.changes import Changes


def replay_config(changes: Changes, record: r.ConfigRecord) -> None:
    configs = changes.configs_of((record.resource_type, record.resource_name))
    if record.value is None:
        configs.remove(record.name)
    else:
        configs.put(record.name, record.value)


def replay_client_quota(changes: Changes, record: r.ClientQuotaRecord) -> None:
    entity = quota_entity((each.entity_type, each.entity_name) for each in record.entity)
    quotas = changes.quotas_of(entity)
    if record.remove:
        quotas.remove(record.key)
    else:
        quotas.put(record.key, record.value)


def replay_feature_level(changes: Changes, record: r.FeatureLevelRecord) -> None:
    if record.feature_level == 0:
        changes.features.remove(record.name)
    else:
        changes.features.put(record.name, record.feature_level)


def replay_producer_ids(changes: Changes, record: r.ProducerIdsRecord) -> None:
    if record.next_producer_id <= changes.next_producer_id:
        raise InconsistentMetadata(
            f"next producer id {record.next_producer_id} is not above {changes.next_producer_id}"
        )
    changes.next_producer_id = record.next_producer_id
