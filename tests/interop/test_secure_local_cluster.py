"""Local clusters with security: all client libraries with the settings of the cluster, restarts, and the commands."""

from __future__ import annotations

import asyncio
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaConsumer, KafkaProducer

from odradek import LocalCluster
from odradek.client import (
    AuthenticationFailed,
    Cluster,
    Producer,
    ProducerRecord,
    Refused,
    Security,
    Settings,
    create_topic,
)
from odradek.client.network.retry import RetryPolicy
from odradek.commands import users
from tests.support.command_line import odradek, shorter_path
from tests.support.jars import PREVIOUS
from tests.support.kafka_tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
TIMEOUT_S = 60.0
TOPIC = "alice-orders"
OTHER_TOPIC = "aliceorders"
"""A topic for which alice has no ACL: its name does not begin with alice and a dash."""


def settings_of(cluster: LocalCluster, user: str | None = None, **changed: str) -> Settings:
    security = Security.of(cluster.client_config("java", user) | changed)
    return Settings(security=security, retry=RetryPolicy(deadline_s=20.0))


async def write(cluster: LocalCluster, user: str | None, topic: str = TOPIC) -> int:
    """Write one record by the client library, and return its offset."""
    async with Cluster(cluster.bootstrap, settings_of(cluster, user)) as connected:
        [written] = await Producer(connected).send(topic, [ProducerRecord(b"k", b"v")])
        return written.base_offset


def test_users_log_in_by_password_and_stay_after_a_restart(tmp_path: Path) -> None:
    with LocalCluster(directory=tmp_path, security="sasl_ssl") as cluster:

        async def create() -> None:
            async with Cluster(cluster.bootstrap, settings_of(cluster)) as connected:
                await create_topic(connected, TOPIC)
                await create_topic(connected, OTHER_TOPIC)

        asyncio.run(create())
        assert asyncio.run(write(cluster, "alice")) == 0
        with pytest.raises(Refused, match="AUTHORIZATION_FAILED"):
            asyncio.run(write(cluster, "alice", OTHER_TOPIC))
        config = cluster.client_config("confluent", "alice")
    with LocalCluster(directory=tmp_path) as cluster:
        assert cluster.client_config("confluent", "alice") == config
        assert asyncio.run(write(cluster, "alice")) == 1
        text = cluster.client_config("java")["sasl.jaas.config"].replace(config["sasl.password"], "x")
        wrong = settings_of(cluster, **{"sasl.jaas.config": text.replace('password="', 'password="x')})

        async def refused() -> None:
            async with Cluster(cluster.bootstrap, wrong):
                pass

        with pytest.raises(AuthenticationFailed):
            asyncio.run(refused())


def by_confluent(cluster: LocalCluster, user: str | None) -> bytes | None:
    config = cluster.client_config("confluent", user)
    producer = ConfluentProducer(config | {"transactional.id": "alice-1"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"confluent")
    producer.commit_transaction(TIMEOUT_S)
    consumer = ConfluentConsumer(config | {"group.id": "alice-confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    message = consumer.poll(TIMEOUT_S)
    consumer.close()
    return None if message is None else message.value()


def by_kafka_python(cluster: LocalCluster, user: str | None) -> bytes | None:
    config = cluster.client_config("kafka-python", user)
    producer = KafkaProducer(**config)
    producer.send(TOPIC, b"kafka-python").get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(TOPIC, **config, group_id="alice-kafka-python", auto_offset_reset="earliest")
    value: bytes | None = next(consumer).value
    consumer.close()
    return value


def by_aiokafka(cluster: LocalCluster, user: str | None) -> bytes | None:
    config = cluster.client_config("aiokafka", user)

    async def exchange() -> bytes | None:
        async with AIOKafkaProducer(**config) as producer:
            await producer.send_and_wait(TOPIC, b"aiokafka")
        reading = AIOKafkaConsumer(TOPIC, **config, group_id="alice-aiokafka", auto_offset_reset="earliest")
        async with reading as consumer:
            value: bytes | None = (await consumer.getone()).value
            return value

    return asyncio.run(exchange())


def by_java(cluster: LocalCluster, user: str | None) -> bytes | None:
    """Exchange a record by Kafka's console tools, with the file of client properties."""
    file = str(cluster.directory.security_files.client(user))

    def run(tool: str, *arguments: str, stdin: str = "") -> str:
        command = ["java", "-cp", f"{PREVIOUS}/*", TOOLS[tool], "--bootstrap-server", cluster.bootstrap]
        done = subprocess.run(
            [*command, *arguments], input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S * 2, check=True
        )
        return done.stdout

    run("kafka-console-producer", "--topic", TOPIC, "--command-config", file, stdin="java\n")
    reading = ("--topic", TOPIC, "--command-config", file, "--group", "alice-java", "--from-beginning")
    return run("kafka-console-consumer", *reading, "--max-messages", "1").strip().encode()


@pytest.mark.full
@pytest.mark.parametrize("mode", ["ssl", "mtls", "sasl_ssl"])
def test_each_client_library_connects_with_the_settings_of_the_cluster(mode: str) -> None:
    user = None if mode == "ssl" else "alice"
    libraries: list[Callable[[LocalCluster, str | None], Any]] = [
        by_confluent, by_kafka_python, by_aiokafka, by_java,
    ]  # fmt: skip
    with LocalCluster(3, security=mode) as cluster:
        values = [exchange(cluster, user) for exchange in libraries]
        cluster.restart(2)
        assert by_confluent(cluster, user) is not None
    assert values == [b"confluent"] * len(libraries)


def add_user(cluster: Path, user: str, config: tuple[str, ...]) -> Path:
    """Add a user by the command with its defaults, and return a file with the client properties of the user."""
    passwords, properties = cluster.with_name("password"), cluster.with_name(f"{user}.properties")
    passwords.write_text("bob-secret\n")
    added = odradek("users", "add", user, "--password-file", str(passwords), *config)
    assert added.stdout == f"added: {user} ({users.MECHANISM})\n", added.stderr
    text = (cluster / "client-admin.properties").read_text().replace("SCRAM-SHA-256", users.MECHANISM)
    properties.write_text(re.sub("username=.*", f'username="{user}" password="bob-secret";', text))
    return properties


@pytest.mark.full
def test_commands_of_a_secured_directory_use_its_administrator(tmp_path: Path) -> None:
    directory = ("--dir", str(tmp_path / "cluster"))
    started = odradek("up", "--secure", "--port", "0", "--detach", *directory)
    try:
        assert started.returncode == 0, started.stderr
        ready, *lines = started.stdout.splitlines()
        assert lines[0].startswith("security sasl_ssl")
        assert [line for line in lines if len(line.replace(shorter_path(tmp_path), "")) > 80] == []
        bootstrap = ready.removeprefix("ready ")
        config = ("--bootstrap", bootstrap, "--command-config", str(tmp_path / "cluster" / "client-admin.properties"))
        assert odradek("topics", "create", TOPIC, *config).returncode == 0
        bob = add_user(tmp_path / "cluster", "bob", config)
        listed = odradek("topics", "list", "--bootstrap", bootstrap, "--command-config", str(bob))
        assert (listed.returncode, listed.stdout) == (0, "no topics\n"), listed.stderr
        assert odradek("tokens", "create", "--command-config", str(bob), "--bootstrap", bootstrap).returncode == 0
        status = odradek("status", "--once", *directory)
        assert status.returncode == 0, status.stderr
        assert TOPIC in status.stdout
        plain = odradek("topics", "list", "--bootstrap", bootstrap)
        assert plain.returncode == 1
        assert "set security.protocol" in plain.stderr
        rolled = odradek("restart", "--rolling", *directory)
        assert rolled.returncode == 0, rolled.stderr
        assert odradek("down", *directory).returncode == 0
        assert odradek("up", "--detach", *directory).returncode == 0
        assert TOPIC in odradek("topics", "list", *config).stdout
    finally:
        odradek("down", *directory)
