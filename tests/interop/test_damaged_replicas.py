"""A damaged log of one replica, found by the start after all processes were killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek import LocalCluster
from tests.support.local_clusters import read

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

TOPIC = "t"
RECORDS = 10
WAIT_S = 60


def test_complete_replica_leads_after_the_log_of_the_leader_was_damaged(tmp_path: Path) -> None:
    """The damaged leader would register as complete, lead with a shorter log, and make the other one truncate."""
    expected = [b"%d" % number for number in range(RECORDS)]
    with LocalCluster(brokers=2, directory=tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, 1, replication_factor=2, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(WAIT_S)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for value in expected:  # one batch each
            producer.produce(TOPIC, value, partition=0)
            assert producer.flush(WAIT_S) == 0
        leader = admin.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC].partitions[0].leader
        for node_id in cluster.node_ids:
            cluster.kill(node_id)
        segment = cluster.directory.data(leader) / f"{TOPIC}-0" / f"{0:020d}.log"
        content = bytearray(segment.read_bytes())
        content[len(content) // 2] ^= 0x01
        segment.write_bytes(content)
        cluster.start()
        assert read(cluster.bootstrap, TOPIC, RECORDS) == expected
        assert "log has lost records" in cluster.log(leader)
