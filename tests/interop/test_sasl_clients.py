"""Client libraries and Kafka's tools log in by SASL_SSL, with each mechanism."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import ssl
import time
import warnings
from typing import TYPE_CHECKING, Any

import aiokafka
import aiokafka.abc
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.interop.drivers.base import TIMEOUT_S
from tests.interop.drivers.login_programs import PROGRAMS, run
from tests.support.sasl_broker import MECHANISMS, PASSWORD, USER, SaslBroker, java_properties
from tests.support.tool_jvm import ToolJvm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.full, pytest.mark.timeout(300)]
PASSWORD_MECHANISMS = tuple(name for name in MECHANISMS if name != "OAUTHBEARER")
WRONG = "wr0ng"
BOOTSTRAP_TIMEOUT_MS = 10_000
"""Milliseconds for which kafka-python repeats a failed login."""


@pytest.fixture(autouse=True)
def unlogged() -> Iterator[None]:
    """Make kafka-python log nothing: its log records hold its sockets until the end of the test."""
    logger = logging.getLogger("kafka")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(level)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("sasl")) as running:
        yield running
    assert PASSWORD not in running.log()
    assert WRONG not in running.log()


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("token") / "token.jwt"


@pytest.fixture(scope="module")
def tools(token_file: Path) -> Iterator[ToolJvm]:
    """Start the tools in a JVM that may read the token from its file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token_file.as_uri()}")
        jvm = ToolJvm()
    yield jvm
    jvm.close()


def by_confluent(broker: SaslBroker, mechanism: str, topic: str, password: str) -> bytes | None:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.sasl_ssl,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "ssl.ca.location": str(broker.authority),
        "log_level": 0,
    }
    if mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (broker.token(), time.time() + 600)
    else:
        settings |= {"sasl.username": USER, "sasl.password": password}
    failed: list[KafkaError] = []
    producer = Producer(settings | {"error_cb": failed.append})
    producer.produce(topic, b"confluent")
    while producer.flush(0.1):
        if any(error.code() == KafkaError._AUTHENTICATION for error in failed):
            producer.purge()
            raise PermissionError(failed[0].str())
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(TIMEOUT_S)
        return None if message is None else message.value()
    finally:
        consumer.close()


def by_kafka_python(broker: SaslBroker, mechanism: str, topic: str, password: str) -> bytes | None:
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return broker.token()

    settings: dict[str, Any] = {
        "bootstrap_servers": broker.sasl_ssl,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "ssl_cafile": str(broker.authority),
        "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS,
    }
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens()
    else:
        settings |= {"sasl_plain_username": USER, "sasl_plain_password": password}
    reason = ""
    try:
        producer = kafka.KafkaProducer(**settings)
    except kafka.errors.KafkaError as error:
        reason = str(error)
    if reason:
        with warnings.catch_warnings():  # the library leaves the sockets of this producer to the garbage collector
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        raise PermissionError(reason)
    producer.send(topic, b"kafka-python").get(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1_000, **settings
    )
    try:
        return next((message.value for message in consumer), None)
    finally:
        consumer.close()


def by_aiokafka(broker: SaslBroker, mechanism: str, topic: str, password: str) -> bytes | None:
    class Tokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return broker.token()

    async def copied() -> bytes | None:
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.sasl_ssl,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": mechanism,
            "ssl_context": ssl.create_default_context(cafile=broker.authority),
        }
        if mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = Tokens()
        else:
            settings |= {"sasl_plain_username": USER, "sasl_plain_password": password}
        producer = aiokafka.AIOKafkaProducer(**settings)
        try:
            try:
                await producer.start()
            except aiokafka.errors.KafkaError as error:
                raise PermissionError(str(error)) from error
            await producer.send_and_wait(topic, b"aiokafka")
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
        await consumer.start()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                message = await consumer.getone()
            value: bytes | None = message.value
            return value
        finally:
            await consumer.stop()

    return asyncio.run(copied())


@functools.cache
def command_of(name: str) -> list[str]:
    return PROGRAMS[name]()


def by_program(name: str, broker: SaslBroker, mechanism: str, topic: str, password: str) -> bytes | None:
    order = {
        "bootstrap": broker.sasl_ssl,
        "authority": str(broker.authority),
        "mechanism": mechanism,
        "user": USER,
        "password": password,
        "token": broker.token(),
        "topic": topic,
        "value": name,
    }
    return run(command_of(name), order).encode()


CLIENTS: dict[str, Callable[[SaslBroker, str, str, str], bytes | None]] = {
    "confluent": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    **{name: functools.partial(by_program, name) for name in PROGRAMS},
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_client_library_writes_and_reads(broker: SaslBroker, client: str, mechanism: str) -> None:
    topic = f"{client}-{mechanism}"
    assert CLIENTS[client](broker, mechanism, topic, PASSWORD) == client.encode()


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_client_library_with_another_password_is_refused(broker: SaslBroker, client: str, mechanism: str) -> None:
    with pytest.raises(PermissionError):
        CLIENTS[client](broker, mechanism, "refused", WRONG)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_console_tools_write_and_read(
    broker: SaslBroker, tools: ToolJvm, token_file: Path, mechanism: str, tmp_path: Path
) -> None:
    properties, topic = tmp_path / "client.properties", f"console-{mechanism}"
    token_file.write_text(broker.token())
    rows = java_properties(mechanism, token_file=token_file, authority=broker.authority)
    properties.write_text("".join(f"{name}={value}\n" for name, value in rows.items()))
    common = ("--bootstrap-server", broker.sasl_ssl, "--topic", topic, "--command-config", str(properties))
    written = tools.run("kafka-console-producer", *common, stdin="one\ntwo\n")
    assert written.returncode == 0, written
    read = tools.run("kafka-console-consumer", *common, "--from-beginning", "--max-messages", "2")
    assert (read.returncode, read.stdout.split()) == (0, ["one", "two"]), read
    load = ("--topic", topic, "--num-records", "100", "--record-size", "10", "--throughput", "-1")
    transactions = ("--transactional-id", topic, "--transaction-duration-ms", "10")
    written = tools.run("kafka-producer-perf-test", *load, *transactions, *common[:2], *common[4:])
    assert written.returncode == 0, written
    assert "100 records sent" in written.stdout, written


def test_session_of_a_java_client_is_renewed(tools: ToolJvm, tmp_path: Path) -> None:
    """A producer writes for three sessions."""
    with SaslBroker(tmp_path / "broker", {"connections.max.reauth.ms": "2000"}) as broker:
        properties = tmp_path / "client.properties"
        rows = java_properties("SCRAM-SHA-512", authority=broker.authority)
        properties.write_text("".join(f"{name}={value}\n" for name, value in rows.items()))
        common = ("--bootstrap-server", broker.sasl_ssl, "--topic", "t", "--command-config", str(properties))
        load = ("--num-records", "60", "--throughput", "10", "--record-size", "10")
        written = tools.run("kafka-producer-perf-test", *common[2:4], *load, *common[:2], *common[4:])
        assert written.returncode == 0, written
        assert "session expired" not in broker.log()
        with contextlib.closing(Consumer({"bootstrap.servers": broker.plain, "group.id": "g"})) as consumer:
            metadata = consumer.list_topics("t", TIMEOUT_S)
        assert list(metadata.topics) == ["t"]
