"""Three controllers and three brokers as processes of their own, with a cluster secret, and failures of both."""

from __future__ import annotations

import base64
import random
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.configured_nodes import ConfiguredNodes
from tests.support.ledger import LONGEST_WAIT_S, PARTITIONS, TOPIC, Load, check, final_read
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.full, pytest.mark.timeout(600)]

CLUSTER_ID = "kVp1Jq8tQ4mB2cW7xYz0Ag"
CONTROLLERS = (1, 2, 3)
BROKERS = (4, 5, 6)
PRODUCERS = 2
SEED = 20_261_128
TRANSACTIONS = 20


class Cluster:
    def __init__(self, nodes: ConfiguredNodes, directory: Path) -> None:
        self.nodes = nodes
        self._directory = directory
        self._secret = directory / "secret"
        self._secret.write_bytes(base64.b64encode(random.Random(SEED).randbytes(32)))
        self._secret.chmod(0o600)
        self.ports = {node_id: free_port() for node_id in (*CONTROLLERS, *BROKERS)}
        self.bootstrap = ",".join(f"127.0.0.1:{self.ports[node_id]}" for node_id in BROKERS)

    def text(self, node_id: int) -> str:
        voters = ",".join(f"{voter}@127.0.0.1:{self.ports[voter]}" for voter in CONTROLLERS)
        is_controller = node_id in CONTROLLERS
        listener = "CONTROLLER" if is_controller else "PLAINTEXT"
        rows = {
            "process.roles": "controller" if is_controller else "broker",
            "node.id": node_id,
            "log.dirs": self._directory / f"data-{node_id}",
            "listeners": f"{listener}://127.0.0.1:{self.ports[node_id]}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "odradek.cluster.id": CLUSTER_ID,
            "cluster.secret.file": self._secret,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
        }
        return "".join(f"{name}={value}\n" for name, value in rows.items())

    def start(self) -> None:
        for node_id in (*BROKERS, *CONTROLLERS):
            self.nodes.launch(str(node_id), self.text(node_id))
        self.nodes.wait_ready(map(str, self.ports))

    def active_controller(self) -> str:
        """Return the controller that was activated last."""
        times = {}
        for node_id in map(str, CONTROLLERS):
            for line in self.nodes.log(node_id).read_text().splitlines():
                if "controller activated" in line:
                    times[node_id] = line.split()[0]
        return max(times, key=lambda node_id: times[node_id])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ConfiguredNodes(tmp_path) as nodes:
        started = Cluster(nodes, tmp_path)
        started.start()
        yield started


def test_transactions_stay_atomic_while_controllers_and_brokers_are_killed(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert {node.id for node in admin.describe_cluster().result(LONGEST_WAIT_S).nodes} == {*BROKERS}
    config = {"min.insync.replicas": "2"}
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, config=config)])[TOPIC].result(LONGEST_WAIT_S)
    loads = [Load(cluster.bootstrap, f"p{number}", SEED + number) for number in range(PRODUCERS)]
    activated = []
    for victim in (cluster.active_controller, lambda: str(BROKERS[0]), cluster.active_controller):
        for load in loads:
            load.go_on(TRANSACTIONS)
        name = victim()
        activated.append(name)
        cluster.nodes.kill(name)
        for load in loads:
            load.go_on(TRANSACTIONS)
        cluster.nodes.restart(name)
    assert activated[0] != activated[2]
    histories = [load.finish() for load in loads]
    check(histories, final_read(cluster.bootstrap, [history.tag for history in histories]), at_least=4 * TRANSACTIONS)
