"""Odradek's client library by SSL and by SASL_SSL with each mechanism, against Apache Kafka and against Odradek."""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING

import jwt
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from odradek import LocalCluster
from odradek.client import AuthenticationFailed, Cluster, ConnectionLost, Security, Settings, list_topics
from odradek.client.network.retry import RetryPolicy
from tests.support.certificates import Issued, issue
from tests.support.kafka_broker import KafkaBroker
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.full, pytest.mark.timeout(300)]
MODULES = "org.apache.kafka.common.security"
PASSWORD = "alice-secret"
ISSUER, AUDIENCE = "https://login.example", "kafka"
REAUTHENTICATION_MS = 2_000
LISTENERS = {"SSL": "SSL", "MTLS": "SSL", "SASL": "SASL_SSL", "CLEAR": "SASL_PLAINTEXT"}


class Secured(ABC):
    """Properties of a broker with the listeners of LISTENERS, and of its clients."""

    bootstrap: str
    """Address of a listener without security."""
    ports: Mapping[str, int]
    """Ports of the listeners of LISTENERS."""

    def __init__(self, directory: Path) -> None:
        self.authority = issue("authority", ca=True)
        server = issue("broker", self.authority, hosts=["127.0.0.1", "localhost"])
        (directory / "broker.p12").write_bytes(server.pkcs12(PASSWORD))
        (directory / "authority.pem").write_text(self.authority.pem)
        self.token = directory / "token.jwt"
        self.key = rsa.generate_private_key(65_537, 2_048)
        jwk = RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True) | {"kid": "one", "alg": "RS256", "use": "sig"}
        self.jwks = directory / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [jwk]}))

    @abstractmethod
    def start(self) -> AbstractContextManager[object]:
        """Start the broker."""

    def overrides(self, directory: Path) -> dict[str, str]:
        sasl = {
            "plain": f'{MODULES}.plain.PlainLoginModule required user_alice="{PASSWORD}";',
            "scram-sha-256": f"{MODULES}.scram.ScramLoginModule required;",
            "scram-sha-512": f"{MODULES}.scram.ScramLoginModule required;",
            "oauthbearer": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        }
        overrides = {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(directory / "broker.p12"),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(directory / "authority.pem"),
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": self.jwks.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }
        for name in ("sasl", "clear"):
            for mechanism, module in sasl.items():
                overrides[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = module
                overrides[f"listener.name.{name}.{mechanism}.connections.max.reauth.ms"] = str(REAUTHENTICATION_MS)
        return overrides

    def trusting(self, protocol: str) -> dict[str, str]:
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.authority.pem}
        return {"security.protocol": protocol} | trusted

    def by_password(self, protocol: str, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        text = f'{MODULES}.{module} required username="alice" password="{password}";'
        return self.trusting(protocol) | {"sasl.mechanism": mechanism, "sasl.jaas.config": text}

    def by_token(self, protocol: str, *, expires_in_s: int = 600, audience: str = AUDIENCE) -> dict[str, str]:
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": audience, "sub": "alice", "iat": now, "exp": now + expires_in_s}
        self.token.write_text(jwt.encode(claims, self.key, "RS256", headers={"kid": "one"}))
        return self.trusting(protocol) | {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.oauthbearer.token.endpoint.url": self.token.as_uri(),
        }

    def topics(self, listener: str, properties: dict[str, str], pause_s: float = 0.0) -> list[str]:
        """Return the names of all topics, after a pause between two requests of one connection."""
        retry = RetryPolicy(deadline_s=0)
        settings = Settings(security=Security.of(properties), retry=retry)

        async def names() -> list[str]:
            async with Cluster(f"127.0.0.1:{self.ports[listener]}", settings) as cluster:
                await asyncio.sleep(pause_s)
                return [topic.name for topic in await list_topics(cluster)]

        return asyncio.run(names())


class SecuredKafka(Secured):
    """A broker of Apache Kafka."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        handler = f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        handlers = {
            f"listener.name.{name}.oauthbearer.sasl.server.callback.handler.class": handler
            for name in ("sasl", "clear")
        }
        overrides = self.overrides(directory) | handlers
        self._broker = KafkaBroker(directory / "kafka", overrides=overrides, listeners=LISTENERS)
        self.bootstrap, self.ports = self._broker.bootstrap, self._broker.ports

    @contextmanager
    def start(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.jwks.as_uri()}"
            files = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={self.jwks}"
            patch.setenv("JAVA_TOOL_OPTIONS", f"{allowed} {files}")
            with self._broker:
                yield


class SecuredOdradek(Secured):
    """A broker of Odradek with the same properties."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.ports = {name: free_port() for name in LISTENERS}
        port = free_port()
        self.bootstrap = f"127.0.0.1:{port}"
        listeners = {"PLAINTEXT": port, "INTERNAL": free_port(), **self.ports}
        protocols = {"PLAINTEXT": "PLAINTEXT", "INTERNAL": "PLAINTEXT", **LISTENERS}
        self._settings = self.overrides(directory) | {
            "listeners": ",".join(f"{name}://127.0.0.1:{number}" for name, number in listeners.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{value}" for name, value in protocols.items()),
            "inter.broker.listener.name": "INTERNAL",
        }
        self._directory = directory / "odradek"

    def start(self) -> LocalCluster:
        port = int(self.bootstrap.rpartition(":")[2])
        return LocalCluster(directory=self._directory, port=port, settings=self._settings)


@pytest.fixture(scope="module", params=[SecuredKafka, SecuredOdradek], ids=["kafka", "odradek"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured: Secured = request.param(tmp_path_factory.mktemp("secured"))
    with secured.start():
        admin = AdminClient({"bootstrap.servers": secured.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = ScramCredentialInfo(mechanism, 4_096)
            upsertion = UserScramCredentialUpsertion("alice", credential, PASSWORD.encode())
            admin.alter_user_scram_credentials([upsertion])["alice"].result(30)
        yield secured


def with_certificate(properties: dict[str, str], client: Issued) -> dict[str, str]:
    return properties | {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": client.chain_pem,
        "ssl.keystore.key": client.key_pem("key-secret"),
        "ssl.key.password": "key-secret",
    }


def test_ssl_with_and_without_a_client_certificate(kafka: Secured) -> None:
    assert kafka.topics("SSL", kafka.trusting("SSL")) == []
    client = issue("alice", kafka.authority)
    assert kafka.topics("MTLS", with_certificate(kafka.trusting("SSL"), client)) == []


def test_missing_and_unknown_client_certificates_are_refused(kafka: Secured) -> None:
    with pytest.raises((AuthenticationFailed, ConnectionLost)) as failed:
        kafka.topics("MTLS", kafka.trusting("SSL"))
    assert "ssl.keystore" in failed.value.remedy
    with pytest.raises(AuthenticationFailed, match="refused the TLS handshake"):
        kafka.topics("MTLS", with_certificate(kafka.trusting("SSL"), issue("alice", issue("other", ca=True))))


@pytest.mark.parametrize("listener", ["SASL", "CLEAR"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_password_is_accepted_and_the_session_is_renewed(kafka: Secured, listener: str, mechanism: str) -> None:
    properties = kafka.by_password(LISTENERS[listener], mechanism)
    assert kafka.topics(listener, properties, pause_s=REAUTHENTICATION_MS / 1_000 * 1.2) == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_wrong_password_is_refused(kafka: Secured, mechanism: str) -> None:
    with pytest.raises(AuthenticationFailed, match="failed: Authentication failed") as failed:
        kafka.topics("SASL", kafka.by_password("SASL_SSL", mechanism, "wrong-secret"))
    assert failed.value.remedy == "check the user 'alice' and its password in sasl.jaas.config"
    assert "wrong-secret" not in str(failed.value)


def test_token_is_accepted_and_the_session_is_renewed(kafka: Secured) -> None:
    assert kafka.topics("SASL", kafka.by_token("SASL_SSL"), pause_s=REAUTHENTICATION_MS / 1_000 * 1.2) == []


def test_token_for_another_audience_is_refused(kafka: Secured) -> None:
    with pytest.raises(AuthenticationFailed, match="OAUTHBEARER failed") as failed:
        kafka.topics("SASL", kafka.by_token("SASL_SSL", audience="other"))
    assert "sasl.oauthbearer.token.endpoint.url" in failed.value.remedy


def test_other_security_protocols_name_the_remedy(kafka: Secured) -> None:
    for listener, protocol in (("SSL", "PLAINTEXT"), ("CLEAR", "PLAINTEXT"), ("CLEAR", "SSL"), ("SASL", "SSL")):
        with pytest.raises(Exception, match=r"set security\.protocol"):
            kafka.topics(listener, kafka.trusting(protocol))
    with pytest.raises(AuthenticationFailed, match="has no login"):
        kafka.topics("SSL", kafka.by_password("SASL_SSL", "PLAIN"))
