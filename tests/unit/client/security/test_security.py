"""Security from Kafka's client properties: what is accepted, what is refused, and that no secret is shown."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from odradek.client import AuthenticationFailed, InvalidArgument, Security, read_security
from odradek.client.security.credentials import BearerToken, UserPassword
from odradek.client.security.tls import context_of
from odradek.client.security.tokens import TokenEndpoint
from odradek.protocol.security_protocol import SecurityProtocol
from tests.support.certificates import issue

if TYPE_CHECKING:
    from pathlib import Path

MODULES = "org.apache.kafka.common.security"
SECRET = "alice-secret"
SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": f'{MODULES}.scram.ScramLoginModule required username="alice" password="{SECRET}";',
}
OAUTH = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
    f'clientId="app" clientSecret="{SECRET}" extension_tenant="blue";',
    "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
    "sasl.login.callback.handler.class": f"{MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
}


def test_no_property_is_plain_text() -> None:
    assert Security.of({}) == Security(SecurityProtocol.PLAINTEXT)
    assert Security.of({"ssl.truststore.location": "absent", "bootstrap.servers": "a:1"}) == Security()


def test_user_and_password_of_scram() -> None:
    security = Security.of(SCRAM)
    assert security.protocol is SecurityProtocol.SASL_SSL
    assert security.credentials == UserPassword("SCRAM-SHA-512", "alice", SECRET)
    assert SECRET not in repr(security)


def test_delegation_token_is_used_with_scram() -> None:
    text = SCRAM["sasl.jaas.config"].replace("password", 'tokenauth="true" password')
    credentials = Security.of(SCRAM | {"sasl.jaas.config": text}).credentials
    assert isinstance(credentials, UserPassword)
    assert credentials.by_token
    client = asyncio.run(credentials.client())
    assert client.first().endswith(b",tokenauth=true")


def test_token_endpoint_of_oauthbearer() -> None:
    credentials = Security.of(OAUTH).credentials
    assert isinstance(credentials, BearerToken)
    assert isinstance(credentials.source, TokenEndpoint)
    assert credentials.source.client_id == "app"
    assert credentials.extensions == (("tenant", "blue"),)
    assert SECRET not in repr(credentials)


def test_token_file_is_read_at_each_login(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    properties = OAUTH | {"sasl.oauthbearer.token.endpoint.url": path.as_uri()}
    credentials = Security.of(properties).credentials
    assert credentials is not None

    async def first() -> bytes:
        return (await credentials.client()).first()

    path.write_text("aaa.bbb.ccc\n")
    assert b"auth=Bearer aaa.bbb.ccc\x01tenant=blue" in asyncio.run(first())
    path.write_text("ddd.eee.fff")
    assert b"auth=Bearer ddd.eee.fff\x01" in asyncio.run(first())
    path.write_text("ddd\x01auth=x")
    with pytest.raises(AuthenticationFailed, match="has no bearer token"):
        asyncio.run(first())
    path.unlink()
    with pytest.raises(AuthenticationFailed, match="cannot be read"):
        asyncio.run(first())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"security.protocol": "TLS"}, "set it to PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"sasl.mechanism": "GSSAPI"}, "set it to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ({"sasl.mechanism": ""}, "sasl.mechanism is GSSAPI, which this client does not support"),
        ({"sasl.jaas.config": ""}, "sasl.jaas.config is not set; write: "),
        ({"sasl.jaas.config": "", "sasl.username": "alice"}, "are properties of librdkafka"),
        ({"sasl.jaas.config": f'{MODULES}.scram.ScramLoginModule required username="alice";'}, "has no password"),
        ({"sasl.jaas.config": f'{MODULES}.scram.ScramLoginModule required password="{SECRET}"'}, "with a semicolon"),
        ({"sasl.jaas.config": f'Evil required username="alice" password="{SECRET}";'}, "does not have"),
        ({"sasl.login.class": "x.Y"}, "sasl.login.class is not supported"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "ssl.cipher.suites: add TLS_AES_256_GCM_SHA384, "),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_RC4_128_MD5"}, "TLS_RSA_WITH_RC4_128_MD5 is unknown or insecure"),
        (
            {"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.3"},
            "ssl.cipher.suites: no suite is one of TLSv1.3; name one, or none",
        ),
        ({"ssl.engine.factory.class": "x.Y"}, "ssl.engine.factory.class is not supported"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "set it to https, or leave it empty"),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "TLS version 'TLSv1.1' is not supported"),
        ({"ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.2"}, "have no version in common"),
        ({"ssl.truststore.location": "/absent.p12"}, "/absent.p12 cannot be read (No such file or directory)"),
    ],
)
def test_invalid_properties_are_refused_with_the_remedy(changes: dict[str, str], expected: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Security.of(SCRAM | changes)
    assert expected in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"sasl.oauthbearer.token.endpoint.url": ""}, "is not set; set it to the address of the token endpoint"),
        ({"sasl.oauthbearer.token.endpoint.url": "ftp://x/y"}, "use https://, http:// or file://"),
        ({"sasl.oauthbearer.token.endpoint.url": f"https://a:{SECRET}@x/y"}, "contains credentials"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://x:port/y"}, "is no address; use https://, http:// or file://"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://[x/y"}, "is no address; use https://, http:// or file://"),
        ({"sasl.login.callback.handler.class": "x.Y"}, "names a class that only Java can load"),
        ({"sasl.jaas.config": f'{MODULES}.oauthbearer.OAuthBearerLoginModule required clientSecret="{SECRET}";'},
         "is not set; set both"),
    ],
)  # fmt: skip
def test_invalid_properties_of_oauthbearer_are_refused(changes: dict[str, str], expected: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Security.of(OAUTH | changes)
    assert expected in str(refused.value)
    assert SECRET not in str(refused.value)


def test_certificate_that_openssl_refuses_is_named_before_the_first_connection() -> None:
    weak = issue("alice", curve=ec.SECP192R1)
    store = {"ssl.keystore.type": "PEM", "ssl.keystore.key": weak.key_pem(), "ssl.keystore.certificate.chain": weak.pem}
    with pytest.raises(InvalidArgument, match=r"OpenSSL refuses the certificates \(ee key too small\)") as refused:
        Security.of({"security.protocol": "SSL"} | store)
    assert "PRIVATE KEY" not in str(refused.value)


def test_named_cipher_suites_are_the_only_ones_that_are_offered() -> None:
    tls = Security.of(SCRAM | {"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}).tls
    assert tls is not None
    context = context_of(tls)
    assert [each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.2"] == [
        "ECDHE-RSA-AES128-GCM-SHA256"
    ]
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2


def test_properties_of_an_unused_part_are_not_checked() -> None:
    assert Security.of(SCRAM | {"security.protocol": "SASL_PLAINTEXT", "ssl.cipher.suites": "x"}).tls is None


def test_file_of_properties_is_read_as_in_java(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    lines = [f"{name} = {value} \t" for name, value in SCRAM.items()]  # Kafka's clients trim values
    path.write_text("\n".join(["# comment", *lines, "group.id=a", "acks:all", ""]))
    warnings: list[str] = []
    assert read_security(path, warnings.append) == Security.of(SCRAM)
    assert warnings == [f"warning: properties in {path} without effect: acks, group.id"]
    assert read_security(None, warnings.append) == Security()
    with pytest.raises(InvalidArgument, match="cannot be read"):
        read_security(tmp_path / "absent", warnings.append)
    path.write_text("ssl.keystore.location=C:\\users")
    with pytest.raises(InvalidArgument, match="line 1: four hexadecimal digits must follow") as caught:
        read_security(path, warnings.append)
    assert caught.value.remedy == "write a backslash as \\\\"
    path.write_bytes(b"\xff")
    with pytest.raises(InvalidArgument, match="is not UTF-8 text"):
        read_security(path, warnings.append)
