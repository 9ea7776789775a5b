"""Leaders after a stop and a start of all brokers: preferred leaders are elected long before the periodic check."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek import LocalCluster

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

TIMEOUT_S = 60.0
BALANCED_S_MAX = 60.0
"""Maximum seconds from the end of the start until preferred leaders lead. The periodic check takes five minutes."""
PAUSE_S = 0.1
ASSIGNMENTS = {
    "one": [[1, 2, 3], [2, 3, 1], [3, 1, 2]],
    "two": [[2, 1, 3], [3, 2, 1], [1, 3, 2]],
    "three": [[3, 2, 1], [2, 1, 3], [1, 2, 3]],
}
PREFERRED = {
    (topic, index): replicas[0]
    for topic, partitions in ASSIGNMENTS.items()
    for index, replicas in enumerate(partitions)
}
SETTINGS = {"leader.imbalance.per.broker.percentage": 0}
"""Each single partition counts as an imbalance."""


def leaders(admin: AdminClient) -> dict[tuple[str, int], int]:
    """Return the leaders of all partitions, from the first response of a broker that knows the topics."""
    deadline = time.monotonic() + TIMEOUT_S
    while not ASSIGNMENTS.keys() <= (topics := admin.list_topics(timeout=TIMEOUT_S).topics).keys():
        assert time.monotonic() < deadline, topics
        time.sleep(PAUSE_S)  # a broker that did not create the topics applies their records later
    return {(name, index): row.leader for name in ASSIGNMENTS for index, row in topics[name].partitions.items()}


def test_preferred_leaders_lead_soon_after_down_and_up(tmp_path: Path) -> None:
    """The broker that registers first leads every partition after the start (decision 0095)."""
    with LocalCluster(3, directory=tmp_path, settings=SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        new = [NewTopic(name, len(replicas), replica_assignment=replicas) for name, replicas in ASSIGNMENTS.items()]
        for created in admin.create_topics(new).values():
            created.result(TIMEOUT_S)
        assert leaders(admin) == PREFERRED
    with LocalCluster(3, directory=tmp_path, settings=SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        deadline = time.monotonic() + BALANCED_S_MAX
        while (found := leaders(admin)) != PREFERRED:
            assert time.monotonic() < deadline, found
            time.sleep(PAUSE_S)  # brokers do not notify clients of elections
