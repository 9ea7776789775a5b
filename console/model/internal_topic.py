"""The internal topics of the coordinators, which a user may not be allowed to describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.client import Cluster
    from odradek.client.network.metadata import Topic


async def read_internal_topic(cluster: Cluster, name: str) -> Topic | None:
    """Return an internal topic, or None if the cluster does not have it. It is not created.

    Raise Refused with TOPIC_AUTHORIZATION_FAILED if the user may not describe it, whether it exists or not.
    """
    topic = (await cluster.fetch_metadata([name])).topics[name]
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    topic.check()
    return topic
