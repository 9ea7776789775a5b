"""Contexts of TLS from Kafka's properties."""

import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID

from odradek.broker.config.addresses import parse_listeners
from odradek.broker.config.properties import Config
from odradek.broker.config.property import ConfigError, Password
from odradek.broker.tls.contexts import client_context, load_stores, server_context, verify_handshake
from odradek.broker.tls.node_tls import ListenerTls, NodeTls, NoPrincipal
from odradek.cluster.authorizer import ANONYMOUS
from odradek.protocol.security_protocol import SecurityProtocol
from tests.support.certificates import Issued, issue
from tests.support.tls_rig import AUTHORITY, NODE, node_config

ALGORITHM = "ssl_endpoint_identification_algorithm"


def der(issued: Issued) -> bytes:
    return issued.certificate.public_bytes(Encoding.DER)


def read_file(path: str) -> bytes:
    return Path(path).read_bytes()


def server(config: Config) -> ssl.SSLContext:
    return server_context(config, config.ssl_client_auth, load_stores(config, read_file))


def names(context: ssl.SSLContext) -> set[str]:
    return {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.2"}


def test_only_versions_1_2_and_1_3_are_enabled_by_default() -> None:
    context = server(node_config())
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION


@pytest.mark.parametrize(
    ("more", "lowest", "highest"),
    [
        ({"ssl_protocol": "TLSv1.2"}, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        ({"ssl_enabled_protocols": ("TLSv1.3",)}, ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
        (
            {"ssl_cipher_suites": ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)},
            ssl.TLSVersion.TLSv1_2,
            ssl.TLSVersion.TLSv1_2,
        ),
    ],
)
def test_properties_restrict_the_versions(
    more: dict[str, Any], lowest: ssl.TLSVersion, highest: ssl.TLSVersion
) -> None:
    context = server(node_config(**more))
    assert (context.minimum_version, context.maximum_version) == (lowest, highest)


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
    ],
)
def test_suites_have_their_iana_names(suite: str, name: str) -> None:
    assert names(server(node_config(ssl_cipher_suites=(suite,)))) == {name}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"ssl_cipher_suites": ("TLS_RSA_WITH_RC4_128_MD5",)}, r"ssl\.cipher\.suites: TLS_RSA_WITH_RC4_128_MD5 is"),
        ({"ssl_cipher_suites": ("TLS_AES_256_GCM_SHA384",)}, r"ssl\.cipher\.suites: add TLS_CHACHA20"),
        ({"ssl_enabled_protocols": ("TLSv1.3",), "ssl_protocol": "TLSv1.2"}, r"ssl\.enabled\.protocols: no version"),
        ({"ssl_keystore_key": None, "ssl_keystore_certificate_chain": None}, r"ssl\.keystore\.location: not set"),
        ({"ssl_truststore_certificates": None, "ssl_client_auth": "required"}, r"ssl\.truststore\.location: not set"),
        ({"ssl_keystore_key": Password("x")}, r"ssl\.keystore\.key"),
    ],
)
def test_contradictions_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        server(node_config(**more))


def test_error_names_the_listener() -> None:
    config = node_config(ssl_keystore_key=None, ssl_keystore_certificate_chain=None)
    with pytest.raises(ConfigError, match=r"\(listener SSL\)$"):
        NodeTls(config, parse_listeners(config), read_file)


def test_node_with_a_certificate_that_its_truststore_refuses_does_not_start() -> None:
    config = node_config(
        trusted=issue("other", ca=True), node_id=1, controller_quorum_voters=("1@localhost:1", "2@localhost:2")
    )
    with pytest.raises(ConfigError, match="refuses its own certificate: certificate verification failed"):
        NodeTls(config, parse_listeners(config), read_file)


def test_handshake_in_memory_verifies_both_certificates() -> None:
    config = node_config(ssl_client_auth="required")
    verify_handshake(server(config), client_context(config, load_stores(config, read_file)))
    without = node_config(ssl_keystore_key=None, ssl_keystore_certificate_chain=None)
    with pytest.raises(ConfigError, match="peer did not return a certificate"):
        verify_handshake(server(config), client_context(without, load_stores(without, read_file)))


@pytest.mark.parametrize(("of_listener", "mode"), [(None, ssl.CERT_NONE), ("required", ssl.CERT_REQUIRED)])
def test_sasl_ssl_uses_only_the_client_authentication_of_its_listener(
    of_listener: str | None, mode: ssl.VerifyMode
) -> None:
    config = node_config(
        ssl_client_auth="required",
        overrides={} if of_listener is None else {"SSL": {"ssl_client_auth": of_listener}},
    )
    address = replace(parse_listeners(config)[0], security_protocol=SecurityProtocol.SASL_SSL)
    assert ListenerTls(config, address, read_file).server.verify_mode is mode


@pytest.mark.parametrize(("of_listener", "verifies"), [({}, True), ({"SSL": {ALGORITHM: ""}}, False)])
def test_host_names_of_other_nodes_are_verified_unless_the_property_is_empty(
    of_listener: dict[str, Any], verifies: bool
) -> None:
    voters = ("1@localhost:1", "2@localhost:2")
    config = node_config(node_id=1, controller_quorum_voters=voters, overrides=of_listener)
    client = ListenerTls(config, parse_listeners(config)[0], read_file).client
    assert client.check_hostname is verifies
    assert client.verify_mode is ssl.CERT_REQUIRED


def test_principal_is_the_mapped_subject() -> None:
    config = node_config(ssl_principal_mapping_rules="RULE:CN=(n.*)/$1/U")
    tls = ListenerTls(config, parse_listeners(config)[0], read_file)
    assert tls.principal(None) == ANONYMOUS
    assert tls.principal(der(NODE)).name == "NODE"
    with pytest.raises(NoPrincipal, match="no rule"):
        tls.principal(der(AUTHORITY))


def test_contexts_are_made_again_only_after_a_change(tmp_path: Path) -> None:
    file = tmp_path / "node.pem"
    file.write_text(NODE.chain_pem + NODE.key_pem())
    config = node_config(ssl_keystore_key=None, ssl_keystore_certificate_chain=None, ssl_keystore_location=str(file))
    tls = ListenerTls(config, parse_listeners(config)[0], read_file)
    before = tls.server
    assert tls.changed(config, read_file) is None
    file.write_text("")
    with pytest.raises(ConfigError, match=r"node\.pem has no certificate"):
        tls.changed(config, read_file)
    file.write_text(NODE.key_pem() + NODE.chain_pem)
    changed = tls.changed(config, read_file)
    assert changed is not None
    assert tls.server is before
    tls.use(changed)
    assert tls.server is changed.server
    assert tls.changed(config, read_file) is None
    of_properties = replace(config, ssl_keystore_location=None, ssl_keystore_key=Password("x"))
    with pytest.raises(ConfigError):
        tls.changed(of_properties, read_file)


def malformed_names() -> Issued:
    """Return a certificate that OpenSSL accepts, and whose only host is an IP address of one byte."""
    hosts = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, bytes.fromhex("3003870101"))
    name, valid = NODE.certificate.subject, NODE.certificate
    builder = x509.CertificateBuilder(name, name, NODE.key.public_key(), 1)
    builder = builder.not_valid_before(valid.not_valid_before_utc).not_valid_after(valid.not_valid_after_utc)
    return replace(NODE, certificate=builder.add_extension(hosts, critical=False).sign(NODE.key, SHA256()))


def test_certificate_with_malformed_names_is_refused_and_the_one_in_use_stays() -> None:
    config, malformed = node_config(), node_config(malformed_names())
    listener = ListenerTls(config, parse_listeners(config)[0], read_file)
    for use in (
        lambda: listener.changed(malformed, read_file),
        lambda: NodeTls(malformed, parse_listeners(config), read_file),
    ):
        with pytest.raises(ConfigError, match=r"the names in the certificate cannot be read .* \(listener SSL\)"):
            use()
    assert listener.changed(config, read_file) is None


@pytest.mark.parametrize(
    ("name", "hosts", "permitted", "refused"),
    [
        ("node", ("a.example", "b.example", "c.example"), {}, None),
        ("NODE", ("a.example", "b.example"), {}, None),
        ("other", ("a.example", "b.example"), {}, r"the subject CN=other instead of CN=node; set ssl\.allow\.dn"),
        ("other", ("a.example", "b.example"), {"ssl_allow_dn_changes": True}, None),
        ("node", ("b.example",), {}, r"the new certificate lacks a\.example; set ssl\.allow\.san"),
        ("node", (), {"ssl_allow_san_changes": True}, None),
    ],
)
def test_replaced_certificate_keeps_the_names_unless_others_are_permitted(
    name: str, hosts: tuple[str, ...], permitted: dict[str, Any], refused: str | None
) -> None:
    config = node_config(issue("node", AUTHORITY, hosts=("a.example", "b.example")), **permitted)
    listener = ListenerTls(config, parse_listeners(config)[0], read_file)
    new = node_config(issue(name, AUTHORITY, hosts=hosts), **permitted)
    if refused is None:
        assert listener.changed(new, read_file) is not None
    else:
        with pytest.raises(ConfigError, match=refused):
            listener.changed(new, read_file)
