"""Keep all transitions of a cluster that will be audited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.client import ConfigChange, ConfigKind, ConfigOperation, CoordinatorType, alter_configs
from odradek.protocol.internal_topics import TRANSACTION_STATE
from odradek.spark.blocking import run

if TYPE_CHECKING:
    from odradek.pipeline.cluster.access import Access

CONFIGS: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Configurations of a topic that neither compaction nor retention removes records from."""
ANY_ID: Final = "audit"
"""Transactional id whose coordinator is requested, so that `__transaction_state` is created."""


def keep_transitions(access: Access) -> None:
    """Switch compaction and retention of `__transaction_state` off. The topic then grows without a limit.

    The topic is created if it does not exist. Raise ClientError if the cluster refuses or does not respond.
    """
    run(_keep_transitions(access))


async def _keep_transitions(access: Access) -> None:
    changes = [ConfigChange(ConfigOperation.SET, name, value) for name, value in CONFIGS.items()]
    async with access.cluster() as cluster:
        await cluster.coordinator(CoordinatorType.TRANSACTION, ANY_ID)
        await alter_configs(cluster, ConfigKind.TOPIC, TRANSACTION_STATE, changes)
