"""Names of the topics that brokers write themselves."""

from __future__ import annotations

from typing import Final

CLUSTER_METADATA: Final = "__cluster_metadata"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
SHARE_GROUP_STATE: Final = "__share_group_state"
TRANSACTION_STATE: Final = "__transaction_state"
