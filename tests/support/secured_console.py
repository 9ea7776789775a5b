"""A broker whose listener needs a login, for tests of the console."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from odradek.client import Security
from odradek.client.security.credentials import PLAIN, UserPassword
from odradek.console.settings import Settings
from odradek.protocol.sasl.cluster_secret import parse_secret
from odradek.protocol.security_protocol import SecurityProtocol
from tests.support.console_client import SMALL
from tests.support.node_cluster import NodeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ALICE = UserPassword(PLAIN, "alice", "s3cret")
BOB = UserPassword(PLAIN, "bob", "p2")
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="s3cret" user_bob="p2";'


@asynccontextmanager
async def secured(path: Path, *properties: str, allow_actions: bool = False) -> AsyncIterator[Settings]:
    """Run a broker with the users ALICE and BOB, and yield the settings of a console of it."""
    nodes = NodeCluster(path, 1)
    nodes.settings |= dict(line.split("=", 1) for line in (*SMALL, *properties)) | {
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": JAAS,
    }
    secret = parse_secret(b"x" * 32, "secret", random.Random(5).getrandbits)
    node = nodes.make(1, secret=secret, listeners=f"CLIENTS://127.0.0.1:{nodes.port(1)}")
    await nodes.start_made({1: node}, ())
    try:
        security = Security(SecurityProtocol.SASL_PLAINTEXT)
        yield Settings(f"127.0.0.1:{nodes.port(1)}", security, PLAIN, allow_actions=allow_actions)
    finally:
        await nodes.stop()
