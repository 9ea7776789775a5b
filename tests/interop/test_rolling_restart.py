"""Rolling restart under load: each record is written exactly once, and no client has an error."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.support.command_line import odradek
from tests.support.load import Load
from tests.support.local_clusters import detached, status

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.drivers.base import Driver

pytestmark = pytest.mark.interop

CLIENTS = ("confluent-kafka", "aiokafka", "Java 4.4")
PARTITIONS = 3
ROUNDS = 5
"""Rounds of each client before the restart, and again after it."""
TOPIC = "rolled"


def test_records_are_written_once_and_no_client_has_an_error(tmp_path: Path, drivers: Callable[[str], Driver]) -> None:
    with detached(tmp_path) as bootstrap:
        clients = odradek("topics", "create", TOPIC, "--partitions", str(PARTITIONS), "--bootstrap", bootstrap)
        assert clients.returncode == 0, clients.stderr
        before = {row["node_id"]: row["pid"] for row in status(tmp_path)["brokers"]}
        loads = [Load(drivers(name), bootstrap, TOPIC, PARTITIONS) for name in CLIENTS]
        for load in loads:
            load.await_rounds(ROUNDS)
        rolled = odradek("restart", "--rolling", "--dir", str(tmp_path))
        for load in loads:
            load.await_rounds(ROUNDS)
            load.stop()
        assert rolled.returncode == 0, rolled.stderr
        assert {load.name: load.failure for load in loads} == dict.fromkeys(CLIENTS)
        after = {row["node_id"]: row["pid"] for row in status(tmp_path)["brokers"]}
        assert [node_id for node_id in before if before[node_id] == after[node_id]] == []
        assert status(tmp_path)["under_replicated"] == []
        messages = drivers(CLIENTS[0]).consume(bootstrap, TOPIC, list(range(PARTITIONS)), "read_committed")
        assert Counter(message.value for message in messages) == Counter(
            value for load in loads for value in load.acknowledged
        )
