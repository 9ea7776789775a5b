"""Key stores and trust stores from Kafka's properties."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from odradek.protocol.tls_stores import KeyStore, StoreUnusable, key_store, trust_store
from tests.support.certificates import Issued, issue

if TYPE_CHECKING:
    from collections.abc import Mapping

PASSWORD = "store-password"


@pytest.fixture(scope="module")
def broker() -> Issued:
    root = issue("root", ca=True)
    return issue("broker", issue("intermediate", root, ca=True), hosts=["localhost"])


def stored(values: dict[str, str], files: Mapping[str, bytes] | None = None) -> KeyStore:
    found = key_store(values, (files or {}).__getitem__)
    assert found is not None
    return found


def problem(values: dict[str, str], files: Mapping[str, bytes] | None = None, *, trust: bool = False) -> str:
    with pytest.raises(StoreUnusable) as refused:
        (trust_store if trust else key_store)(values, (files or {}).__getitem__)
    return str(refused.value)


def test_no_property_is_no_store() -> None:
    assert key_store({}, Path.read_bytes) is None  # type: ignore[arg-type]
    assert trust_store({}, Path.read_bytes) is None  # type: ignore[arg-type]


def test_inline_pem_gives_chain_and_key(broker: Issued) -> None:
    store = stored(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": broker.chain_pem,
            "ssl.keystore.key": broker.key_pem(),
        }
    )
    assert store.chain.decode() == broker.chain_pem
    assert store.key.decode() == broker.key_pem()


def test_inline_pem_on_one_line_is_refused_with_the_expected_form(broker: Issued) -> None:
    values = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "MIIB",
        "ssl.keystore.key": broker.key_pem(),
    }
    assert "between BEGIN CERTIFICATE and END CERTIFICATE" in problem(values)


def test_pem_file_with_encrypted_key_is_decrypted_by_the_key_password(broker: Issued) -> None:
    files = {"broker.pem": (broker.key_pem(PASSWORD) + broker.chain_pem).encode()}
    values = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "broker.pem"}
    assert stored(values | {"ssl.key.password": PASSWORD}, files).key.decode() == broker.key_pem()
    assert "set ssl.key.password" in problem(values, files)
    wrong = problem(values | {"ssl.key.password": "wrong-password"}, files)
    assert "check ssl.key.password" in wrong
    assert "wrong-password" not in wrong


def test_key_of_another_certificate_is_refused(broker: Issued) -> None:
    other = issue("other")
    values = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": broker.chain_pem,
        "ssl.keystore.key": other.key_pem(),
    }
    assert "does not belong to the first certificate" in problem(values)


def test_certificate_with_a_key_of_an_unknown_type_is_refused(broker: Issued) -> None:
    curve, unknown = bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d03017f")
    der = broker.certificate.public_bytes(Encoding.DER)
    assert curve in der
    values = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": ssl.DER_cert_to_PEM_cert(der.replace(curve, unknown)),
        "ssl.keystore.key": broker.key_pem(),
    }
    assert "put the certificate of the key first" in problem(values)


def test_pkcs12_chain_is_in_order_of_issuers(broker: Issued) -> None:
    files = {"broker.p12": broker.pkcs12(PASSWORD)}
    for kind in ("PKCS12", "JKS"):  # Java reads PKCS12 under its default type, too
        values = {
            "ssl.keystore.type": kind,
            "ssl.keystore.location": "broker.p12",
            "ssl.keystore.password": PASSWORD,
        }
        store = stored(values, files)
        assert store.chain.decode() == broker.chain_pem
        assert store.key.decode() == broker.key_pem()


def test_pkcs12_with_wrong_password_names_the_property_and_hides_the_value(broker: Issued) -> None:
    files = {"broker.p12": broker.pkcs12(PASSWORD)}
    text = problem({"ssl.keystore.location": "broker.p12", "ssl.keystore.password": "wrong-password"}, files)
    assert "check ssl.keystore.password" in text
    assert "wrong-password" not in text
    assert "ssl.keystore.password is not set" in problem({"ssl.keystore.location": "broker.p12"}, files)


@pytest.mark.full
def test_stores_of_keytool_are_read_and_jks_names_the_conversion(tmp_path: Path) -> None:
    def keytool(*arguments: str) -> None:
        subprocess.run(["keytool", *arguments], check=True, capture_output=True, timeout=60)

    name = ["-alias", "broker", "-dname", "CN=broker", "-keyalg", "EC"]
    password = ["-storepass", PASSWORD]
    p12, jks, trusted = (str(tmp_path / each) for each in ("broker.p12", "broker.jks", "trusted.p12"))
    keytool("-genkeypair", "-keystore", p12, "-storetype", "PKCS12", *name, *password)
    keytool("-genkeypair", "-keystore", jks, "-storetype", "JKS", *name, *password, "-keypass", PASSWORD)
    certificate = str(tmp_path / "broker.cer")
    keytool("-exportcert", "-keystore", p12, "-alias", "broker", "-file", certificate, *password)
    keytool("-importcert", "-keystore", trusted, "-noprompt", "-alias", "ca", "-file", certificate, *password)

    def content(path: str) -> bytes:
        return Path(path).read_bytes()

    store = key_store({"ssl.keystore.location": p12, "ssl.keystore.password": PASSWORD}, content)
    assert store is not None
    values = {"ssl.truststore.location": trusted, "ssl.truststore.password": PASSWORD}
    assert trust_store(values, content) == store.chain
    with pytest.raises(StoreUnusable, match="convert it with: keytool -importkeystore -srckeystore"):
        key_store({"ssl.keystore.location": jks, "ssl.keystore.password": PASSWORD}, content)


def test_trust_store_in_pem_has_all_certificates(broker: Issued) -> None:
    files = {"ca.pem": b"comment\n" + broker.chain_pem.encode()}
    values = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem"}
    assert trust_store(values, files.__getitem__) == broker.chain_pem.encode()
    inline = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": broker.chain_pem}
    assert trust_store(inline, files.__getitem__) == broker.chain_pem.encode()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"ssl.truststore.type": "BCFKS"}, "ssl.truststore.type=BCFKS is unknown"),
        ({"ssl.truststore.password": "secret"}, "ssl.truststore.password cannot be set without"),
        ({"ssl.truststore.certificates": "-----BEGIN"}, "set ssl.truststore.type=PEM"),
        ({"ssl.truststore.location": "ca.pem"}, "ca.pem has the format PEM; set ssl.truststore.type=PEM"),
        ({"ssl.truststore.location": "ca.pem", "ssl.truststore.type": "PEM", "ssl.truststore.password": "secret"},
         "ssl.truststore.password cannot be set with ssl.truststore.type=PEM"),
        ({"ssl.truststore.location": "absent.pem", "ssl.truststore.type": "PEM"}, "absent.pem cannot be read"),
    ],
)  # fmt: skip
def test_contradicting_properties_of_a_trust_store_are_refused(values: dict[str, str], expected: str) -> None:
    def content(path: str) -> bytes:
        if path == "ca.pem":
            return issue("ca", ca=True).pem.encode()
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(StoreUnusable) as refused:
        trust_store(values, content)
    assert expected in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"ssl.keystore.password": "secret"}, "ssl.keystore.password cannot be set without ssl.keystore.location"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "k"}, "ssl.keystore.certificate.chain is not set"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "c"}, "ssl.keystore.key is not set"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "k", "ssl.keystore.location": "x"},
         "ssl.keystore.location cannot be set with PEM text in another property"),
    ],
)  # fmt: skip
def test_contradicting_properties_of_a_key_store_are_refused(values: dict[str, str], expected: str) -> None:
    assert expected in problem(values)


def test_private_key_is_absent_from_the_representation(broker: Issued) -> None:
    store = stored(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": broker.chain_pem,
            "ssl.keystore.key": broker.key_pem(),
        }
    )
    assert "PRIVATE KEY" not in repr(store)
