"""Client libraries and Kafka's tools by TLS, with certificates in each format, and the clients that are refused."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from cryptography import x509
from cryptography.x509.name import _ASN1Type as Asn1
from cryptography.x509.oid import NameOID

from odradek.broker.config.property import ConfigError
from odradek.broker.tls.distinguished_name import rfc2253_name
from odradek.broker.tls.principal_mapping import PrincipalMapping
from odradek.local.processes import BrokerFailed
from tests.interop.drivers.base import ProducerOptions
from tests.interop.drivers.confluent import ConfluentDriver
from tests.support.certificates import Issued, issue
from tests.support.jars import REFERENCE, ROOT
from tests.support.tls_broker import TlsBroker
from tests.support.tool_jvm import tool_jvm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

PASSWORD = "of-the-store"
TIMEOUT_S = 60
RETRY_S = 0.2
"""Seconds between two failed handshakes whose reason the broker must log."""
AUTHORITY = issue("authority", ca=True)
ALICE = issue("alice", AUTHORITY)
VALUES = [b"%d" % number for number in range(20)]
RunningBroker = tuple[TlsBroker, "Path"]
"""A broker, and the folder of the certificates."""


def keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True, timeout=TIMEOUT_S)


def pem(folder: Path, password: str | None = None) -> dict[str, str]:
    node = issue("node", AUTHORITY, hosts=["127.0.0.1"])
    (folder / "node.pem").write_text(node.key_pem(password) + node.chain_pem)
    (folder / "trusted.pem").write_text(AUTHORITY.pem)
    stores = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "trusted.pem"),
    }
    return stores if password is None else {**stores, "ssl.key.password": password}


def encrypted_pem(folder: Path) -> dict[str, str]:
    return pem(folder, PASSWORD)


def keystores(folder: Path, kind: str) -> dict[str, str]:
    """Make stores with keytool. The certificate of the broker is its own authority."""
    node, trusted = folder / f"node.{kind}", folder / f"trusted.{kind}"
    store = ("-storetype", kind, "-storepass", PASSWORD)
    pair = ("-alias", "node", "-keyalg", "EC", "-dname", "CN=node", "-ext", "san=ip:127.0.0.1", "-keypass", PASSWORD)
    keytool("-genkeypair", *pair, "-keystore", str(node), *store)
    keytool(
        "-exportcert", "-rfc", "-alias", "node", "-keystore", str(node), *store, "-file", str(folder / "trusted.pem")
    )
    (folder / "authority.pem").write_text(AUTHORITY.pem)
    authority = ("-alias", "authority", "-file", str(folder / "authority.pem"))
    keytool("-importcert", "-noprompt", *authority, "-keystore", str(trusted), *store)
    return {
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(node),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(trusted),
        "ssl.truststore.password": PASSWORD,
    }


def pkcs12(folder: Path) -> dict[str, str]:
    return keystores(folder, "PKCS12")


FORMATS: dict[str, Callable[[Path], dict[str, str]]] = {"pem": pem, "encrypted-pem": encrypted_pem, "pkcs12": pkcs12}


class Clients:
    """Settings of clients: the authority that they trust, in `trusted`, and the file of a client certificate."""

    def __init__(self, folder: Path, certificate: Issued = ALICE) -> None:
        self.trusted = folder / "trusted.pem"
        self.own = folder / f"client-{certificate.certificate.serial_number}.pem"
        self.own.write_text(certificate.key_pem() + certificate.chain_pem)

    def confluent(self, own: Path | None) -> dict[str, Any]:
        settings: dict[str, Any] = {"security.protocol": "SSL", "ssl.ca.location": str(self.trusted), "log_level": 0}
        if own is not None:
            settings |= {"ssl.certificate.location": str(own), "ssl.key.location": str(own)}
        return settings

    def context(self, own: Path | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.trusted)
        if own is not None:
            context.load_cert_chain(own)
        return context

    def java(self, own: Path | None) -> str:
        rows = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.trusted)}
        if own is not None:
            rows |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(own)}
        path = self.trusted.with_name(f"java-{own is not None}.properties")
        path.write_text("".join(f"{name}={value}\n" for name, value in rows.items()))
        return str(path)


def with_confluent(clients: Clients, bootstrap: str, own: Path | None, topic: str) -> list[bytes]:
    driver = ConfluentDriver(clients.confluent(own))
    producer = driver.producer(bootstrap, ProducerOptions(idempotent=True))
    for value in VALUES:
        producer.send(topic, value)
    producer.flush()
    producer.close()
    return [message.value or b"" for message in driver.consume(bootstrap, topic, [0], "read_committed")]


def with_kafka_python(clients: Clients, bootstrap: str, own: Path | None, topic: str) -> list[bytes]:
    settings = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(clients.trusted),
        **({} if own is None else {"ssl_certfile": str(own), "ssl_keyfile": str(own)}),
    }
    producer = kafka.KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value, partition=0)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(**settings, consumer_timeout_ms=TIMEOUT_S * 1000)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    values = [next(consumer).value for _ in VALUES]
    consumer.close()
    return values


def with_aiokafka(clients: Clients, bootstrap: str, own: Path | None, topic: str) -> list[bytes]:
    async def main() -> list[bytes]:
        settings = {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SSL",
            "ssl_context": clients.context(own),
        }
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value, partition=0)
        async with AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest", group_id=topic) as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    return asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


def with_kafka_tools(clients: Clients, bootstrap: str, own: Path | None, topic: str) -> list[bytes]:
    common = ("--bootstrap-server", bootstrap, "--topic", topic, "--command-config", clients.java(own))
    lines = b"\n".join(VALUES).decode()
    written = tool_jvm().run("kafka-console-producer", *common, stdin=lines)
    assert not written.returncode, written
    read = tool_jvm().run(
        "kafka-console-consumer",
        *common,
        "--from-beginning",
        "--max-messages",
        str(len(VALUES)),
        "--timeout-ms",
        "30000",
    )
    assert not read.returncode, read
    return read.stdout.encode().split()


USES = {
    "confluent-kafka": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
    "Kafka's tools": with_kafka_tools,
}


@pytest.fixture(scope="module", params=FORMATS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp(request.param)
    with TlsBroker(folder / "cluster", FORMATS[request.param](folder)) as running:
        yield running, folder


def create(broker: TlsBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.plain})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)


@pytest.mark.full
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("mutual", [False, True], ids=["without certificate", "with certificate"])
def test_client_produces_and_consumes(broker: RunningBroker, use: str, mutual: bool, name: str) -> None:
    running, folder = broker
    clients = Clients(folder)
    create(running, name)
    bootstrap, own = (running.mutual, clients.own) if mutual else (running.tls, None)
    assert USES[use](clients, bootstrap, own, name) == VALUES


def await_reason(broker: TlsBroker, context: ssl.SSLContext | None, bootstrap: str, reason: str) -> None:
    """Attempt a handshake, or a request without TLS, until the broker has logged the reason of its failure.

    A broker logs a limited number of failed handshakes per second.
    """
    host, _, port = bootstrap.partition(":")
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        with socket.create_connection((host, int(port)), TIMEOUT_S) as connection, suppress(OSError):
            if context is None:
                connection.sendall(b"\0\0\0\x10\0\x12\0\3" + bytes(12))
                connection.recv(1)
            else:
                with context.wrap_socket(connection, server_hostname=host) as secured:
                    secured.recv(1)  # with TLS 1.3, the client finds out here that its certificate is refused
        failures = [line for line in broker.log().splitlines() if "TLS handshake failed" in line]
        if any(reason in line for line in failures):
            return
        assert time.monotonic() < deadline, failures
        time.sleep(RETRY_S)


def test_clients_with_and_without_accepted_certificates(tmp_path: Path, name: str) -> None:
    """The short form: one client library with PEM, an accepted certificate, and each refused one."""
    now = datetime.now(UTC)
    clients = Clients(tmp_path)
    with TlsBroker(tmp_path / "cluster", pem(tmp_path)) as broker:
        create(broker, name)
        assert with_confluent(clients, broker.mutual, clients.own, name) == VALUES
        assert "TLS handshake failed" not in broker.log()
        expired = Clients(tmp_path, issue("expired", AUTHORITY, now=now - timedelta(days=10)))
        foreign = Clients(tmp_path, issue("foreign", issue("another", ca=True)))
        for own, reason in (
            (None, "peer did not return a certificate"),
            (expired.own, "certificate has expired"),
            (foreign.own, "self-signed certificate in certificate chain"),
        ):
            await_reason(broker, clients.context(own), broker.mutual, reason)
        (tmp_path / "trusted.pem").write_text(issue("another", ca=True).pem)
        await_reason(broker, clients.context(None), broker.tls, "tlsv1 alert unknown ca")
        await_reason(broker, None, broker.tls, "does not use TLS")


@pytest.mark.full
def test_jks_is_refused_with_the_command_that_converts_it(tmp_path: Path, name: str) -> None:
    stores = keystores(tmp_path, "JKS")
    with pytest.raises(BrokerFailed) as failed, TlsBroker(tmp_path / "refused", stores):
        pass
    command = str(failed.value).partition("convert it with: ")[2].partition(" (listener")[0].split()
    keytool(*command[1:], "-srcstorepass", PASSWORD, "-deststorepass", PASSWORD)
    trusted = stores["ssl.truststore.location"]
    keytool(
        *("-importkeystore", "-srckeystore", trusted, "-destkeystore", f"{trusted}.p12", "-deststoretype", "PKCS12"),
        *("-srcstorepass", PASSWORD, "-deststorepass", PASSWORD),
    )
    converted = {
        **stores,
        "ssl.keystore.location": stores["ssl.keystore.location"] + ".p12",
        "ssl.truststore.location": f"{trusted}.p12",
    }
    clients = Clients(tmp_path)
    with TlsBroker(tmp_path / "cluster", converted) as broker:  # with the type JKS, as in Java
        create(broker, name)
        assert with_confluent(clients, broker.mutual, clients.own, name) == VALUES


@pytest.mark.full
def test_kafka_configs_replaces_a_certificate_and_hides_its_password(tmp_path: Path) -> None:
    with TlsBroker(tmp_path / "cluster", pem(tmp_path)) as broker:
        renewed = issue("node", AUTHORITY, hosts=["127.0.0.1"])
        (tmp_path / "renewed.pem").write_text(renewed.key_pem(PASSWORD) + renewed.chain_pem)
        entity = ("--bootstrap-server", broker.plain, "--entity-type", "brokers", "--entity-name", "1")
        prefix = "listener.name.ssl.ssl."
        location = f"{prefix}keystore.location={tmp_path / 'renewed.pem'}"
        refused = tool_jvm().run("kafka-configs", *entity, "--alter", "--add-config", location)
        assert refused.returncode
        assert "Invalid config value for this broker" in refused.stdout + refused.stderr
        both = f"{location},{prefix}key.password={PASSWORD}"
        altered = tool_jvm().run("kafka-configs", *entity, "--alter", "--add-config", both)
        assert not altered.returncode, altered
        described = tool_jvm().run("kafka-configs", *entity, "--describe")
        assert location in described.stdout
        assert f"{prefix}key.password=null sensitive=true" in described.stdout
        assert PASSWORD not in described.stdout + broker.log()
        host, _, port = broker.tls.partition(":")
        while True:
            served = ssl.get_server_certificate((host, int(port)))
            if x509.load_pem_x509_certificate(served.encode()) == renewed.certificate:
                break


TEXTS = ("alice", " a ", "a,b", "a+b", "a=b", '"', "\\", "<>;", "#x", "é", "日本", "\0", "x y", "", "/", "Kafka User")
OBJECT_IDS = (
    *(NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COUNTRY_NAME),
    *(NameOID.DOMAIN_COMPONENT, NameOID.USER_ID, NameOID.EMAIL_ADDRESS, NameOID.TITLE, NameOID.STREET_ADDRESS),
    *(NameOID.STATE_OR_PROVINCE_NAME, NameOID.LOCALITY_NAME, NameOID.SERIAL_NUMBER, NameOID.GIVEN_NAME),
)
RULES = (
    "DEFAULT",
    "RULE:^CN=(.*?),.*$/$1/",
    "RULE:^CN=([^,\\\\]+).*$/$1/L,DEFAULT",
    "RULE:(.*)/$1x/U",
    "RULE:.*CN=(\\w+)(?:,|$).*/$1@$2/,RULE:.*O=(.*?)(,.*)?/[$1]/",
    "RULE:^([A-Z]+)=([a-z]*)(.*)$/$2$1$0/",
    "RULE:x/y/",
)


def random_name(generator: random.Random) -> bytes:
    def attribute(object_id: Any) -> x509.NameAttribute[Any]:
        value = "".join(generator.choices(TEXTS, k=generator.randint(1, 2))) or "x"
        if object_id == NameOID.COUNTRY_NAME:
            return x509.NameAttribute(object_id, "DE")
        kind = generator.choice((Asn1.UTF8String, Asn1.UTF8String, Asn1.PrintableString))
        return x509.NameAttribute(object_id, value, kind)

    relative = []
    for _ in range(generator.randint(0, 5)):
        chosen = generator.sample(OBJECT_IDS, generator.choice((1, 1, 1, 2)))
        relative.append(x509.RelativeDistinguishedName(map(attribute, chosen)))
    return x509.Name(relative).public_bytes()


def our_name(rules: str, subject: str) -> str:
    try:
        name = PrincipalMapping(rules).name_of(subject)
    except ConfigError:
        return "refused"
    return "NoMatchingRule" if name is None else f"={name}"


@pytest.mark.full
def test_subjects_and_principals_equal_those_of_kafka() -> None:
    generator = random.Random(7)
    cases = [(generator.choice(RULES), random_name(generator)) for _ in range(5_000)]
    finished = subprocess.run(
        ["java", "-cp", f"{REFERENCE}/*", str(ROOT / "tests" / "interop" / "java" / "SubjectNames.java")],
        input="".join(f"{rules}\t{name.hex()}\n" for rules, name in cases).encode(),
        capture_output=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    expected = [tuple(line.split("\t")) for line in finished.stdout.decode().split("\n")[:-1]]
    found = [(subject, our_name(rules, subject)) for rules, subject in ((rules, rfc2253_name(n)) for rules, n in cases)]
    assert found == expected
