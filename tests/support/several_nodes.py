"""Nodes of one cluster in one process, over real sockets and directories."""

import random
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker.clock import SystemClock
from broker.commit_gate import LocalCommitGate
from broker.env import Env
from broker.node import Node
from runtime.tasks import Tasks
from storage.os_disk import OsDisk
from tests.support.broker_context import config
from tests.support.raw_client import RawClient

CLUSTER_ID = "kVp1Jq8tQ4mB2cW7xYz0Ag"


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Nodes:
    """`start` makes them talk; every exception that no handler should raise fails the test in `stop`."""

    def __init__(self, directory: Path, count: int, voters: int | None = None, **settings: object) -> None:
        self.directory = directory
        self.ports = free_ports(count)
        self.ids = list(range(1, count + 1))
        self.voters = ",".join(f"{each}@127.0.0.1:{self.port(each)}" for each in self.ids[: voters or count])
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.nodes: dict[int, Node] = {}
        self.unexpected: list[tuple[str, BaseException]] = []
        self._disks: list[OsDisk] = []

    def port(self, node_id: int) -> int:
        return self.ports[node_id - 1]

    def make(self, node_id: int, **settings: object) -> Node:
        disk = OsDisk()
        self._disks.append(disk)
        values = {
            "node.id": node_id,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port(node_id)}",
            "log.dirs": str(self.directory / f"node-{node_id}"),
            "controller.quorum.voters": self.voters,
            "odradek.cluster.id": CLUSTER_ID,
            **self.settings,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        env = Env(disk, SystemClock(), random.Random(node_id), LocalCommitGate)
        assignments = [f"{name}={value}" for name, value in values.items()]
        node = Node(
            config(*assignments), env, on_unexpected=lambda where, error: self.unexpected.append((where, error))
        )
        self.nodes[node_id] = node
        return node

    async def start(self, node_ids: Sequence[int] | None = None) -> None:
        tasks = Tasks(lambda *_: None)  # awaited below
        starting = [tasks.spawn(self.make(each).start(), f"start {each}") for each in node_ids or self.ids]
        for task in starting:
            await task

    async def stop(self) -> None:
        for node in reversed(list(self.nodes.values())):
            await node.stop()
        self.nodes.clear()
        for disk in self._disks:
            disk.close()
        assert not self.unexpected, self.unexpected

    async def client(self, node_id: int) -> RawClient:
        return await RawClient.connect("127.0.0.1", self.port(node_id))

    async def call(self, node_id: int, request: Any, version: int) -> Any:
        """One request on a connection of its own."""
        client = await self.client(node_id)
        try:
            return await client.call(request, version, timeout=10)
        finally:
            client.close()

    @property
    def controller(self) -> int:
        return next(each for each, node in self.nodes.items() if node.controller.is_active)
