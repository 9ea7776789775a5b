"""The access to a cluster: settings of each client library, without a secret in the representation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.client import InvalidArgument, Settings
from odradek.pipeline.cluster.access import Access
from odradek.pipeline.faults.certificate import make_certificate

if TYPE_CHECKING:
    from pathlib import Path

ADDRESS = "127.0.0.1:9092"
AUTHORITY = make_certificate("127.0.0.1").trusted
SCRAM = {
    "security.protocol": "SASL_SSL",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.certificates": AUTHORITY,
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
    ' username="admin" password="first-secret";',
}


def test_plaintext_needs_addresses_alone() -> None:
    access = Access(ADDRESS)
    assert access.confluent() == {"bootstrap.servers": ADDRESS}
    assert access.spark() == {"kafka.bootstrap.servers": ADDRESS}
    assert (access.user, access.describe()) == (None, "PLAINTEXT")


def test_settings_of_each_client_have_the_same_user() -> None:
    access = Access(ADDRESS, SCRAM)
    assert access.confluent() == {
        "bootstrap.servers": ADDRESS,
        "security.protocol": "SASL_SSL",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.ca.pem": AUTHORITY,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "admin",
        "sasl.password": "first-secret",
    }
    assert access.spark()["kafka.sasl.jaas.config"] == SCRAM["sasl.jaas.config"]
    settings = access.settings(Settings(client_id="x"))
    assert (settings.client_id, settings.security) == ("x", access.security)
    assert (access.user, access.describe()) == ("admin", "SASL_SSL with SCRAM-SHA-256")


def test_representation_has_no_secret() -> None:
    access = Access(ADDRESS, SCRAM)
    assert "first-secret" in access.encode()
    assert "first-secret" not in repr(access)
    assert Access.decode(access.encode()) == access


def test_other_user_has_its_own_password() -> None:
    other = Access(ADDRESS, SCRAM).with_user("spark-1", "second-secret")
    assert (other.user, other.confluent()["sasl.password"]) == ("spark-1", "second-secret")
    with pytest.raises(InvalidArgument, match="set it to SCRAM-SHA-256 or SCRAM-SHA-512"):
        Access(ADDRESS, {**SCRAM, "sasl.mechanism": "PLAIN"}).with_user("spark-1", "second-secret")


def test_access_through_a_relay_trusts_the_relay_alone(tmp_path: Path) -> None:
    (tmp_path / "authority.pem").write_text(AUTHORITY)
    kept = {name: value for name, value in SCRAM.items() if name != "ssl.truststore.certificates"}
    access = Access(ADDRESS, {**kept, "ssl.truststore.location": str(tmp_path / "authority.pem")})
    relay = make_certificate("127.0.0.1").trusted
    relayed = access.through("127.0.0.1:1", relay)
    assert (relayed.bootstrap, relayed.user) == ("127.0.0.1:1", "admin")
    assert relayed.confluent()["ssl.ca.pem"] == relay
    assert Access(ADDRESS).through("127.0.0.1:1", None) == Access("127.0.0.1:1")


def test_file_has_the_properties_of_the_security_alone(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SSL\nlinger.ms=5\n")
    assert Access.of_file(ADDRESS, path) == Access(ADDRESS, {"security.protocol": "SSL"})
    assert Access.of_file(ADDRESS, None) == Access(ADDRESS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"\xff", "is not UTF-8 text"),
        (b"a=1\nssl.keystore.location=C:\\users", r"line 2: .* write a backslash as \\\\"),
    ],
)
def test_file_that_cannot_be_read_is_an_invalid_argument(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "client.properties"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=f"client.properties {message}"):
        Access.of_file(ADDRESS, path)


def test_token_is_refused_for_confluent_kafka() -> None:
    bearer = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
        "sasl.oauthbearer.token.endpoint.url": "file:///token",
    }
    with pytest.raises(InvalidArgument, match="set it to PLAIN or SCRAM-SHA-256"):
        Access(ADDRESS, bearer).confluent()
