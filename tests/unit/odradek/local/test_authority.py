"""Certificate authority of a local cluster."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from odradek.local.authority import AUTHORITY_VALIDITY, CERTIFICATE_VALIDITY, RENEWAL_BEFORE_EXPIRY, Authority

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "certificates"


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def verify(authority: Authority, path: Path, host: str, now: datetime) -> None:
    """Verify the certificate of a server by an independent implementation of RFC 5280."""
    builder = PolicyBuilder().store(Store([certificate(authority.certificate_file)])).time(now)
    builder.build_server_verifier(x509.DNSName(host)).verify(certificate(path), [])


def test_certificate_of_a_broker_is_valid_for_its_names(directory: Path) -> None:
    authority = Authority.in_directory(directory, NOW)
    path = authority.broker(1, ["kafka.example", "10.0.0.1"], NOW)
    verify(authority, path, "localhost", NOW)
    verify(authority, path, "kafka.example", NOW + CERTIFICATE_VALIDITY - DAY)
    with pytest.raises(VerificationError):
        verify(authority, path, "other.example", NOW)
    names = certificate(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1", "10.0.0.1"]


def test_all_files_are_private(directory: Path) -> None:
    authority = Authority.in_directory(directory, NOW)
    authority.broker(1, [], NOW)
    authority.user("alice", NOW)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert modes == dict.fromkeys(("authority.key", "authority.pem", "broker-1.pem", "user-alice.pem"), 0o600)


def test_certificate_of_a_user_is_for_clients_alone(directory: Path) -> None:
    authority = Authority.in_directory(directory, NOW)
    path = authority.user("alice", NOW)
    assert certificate(path).subject.rfc4514_string() == "CN=alice"
    builder = PolicyBuilder().store(Store([certificate(authority.certificate_file)])).time(NOW)
    with pytest.raises(VerificationError):
        builder.build_server_verifier(x509.DNSName("alice")).verify(certificate(path), [])
    load_pem_private_key(path.read_bytes(), None)


def test_files_stay_until_they_expire_soon_or_the_names_change(directory: Path) -> None:
    authority = Authority.in_directory(directory, NOW)
    path = authority.broker(1, ["a.example"], NOW)
    first = path.read_bytes()

    def at(now: datetime, *hosts: str) -> bytes:
        return Authority.in_directory(directory, now).broker(1, hosts, now).read_bytes()

    assert at(NOW + DAY, "a.example") == first
    assert at(NOW + CERTIFICATE_VALIDITY - RENEWAL_BEFORE_EXPIRY, "a.example") == first
    renewed = at(NOW + CERTIFICATE_VALIDITY - RENEWAL_BEFORE_EXPIRY + DAY, "a.example")
    assert renewed != first
    assert at(NOW + CERTIFICATE_VALIDITY, "a.example") == renewed
    assert at(NOW + CERTIFICATE_VALIDITY, "b.example") != renewed


def test_renewed_authority_keeps_certificates_of_its_key_valid(directory: Path) -> None:
    Authority.in_directory(directory, NOW)
    later = NOW + AUTHORITY_VALIDITY - RENEWAL_BEFORE_EXPIRY
    path = Authority.in_directory(directory, later).broker(1, [], later)
    before = path.read_bytes()
    renewed = Authority.in_directory(directory, later + DAY)
    assert renewed.certificate.not_valid_after_utc == later + DAY + AUTHORITY_VALIDITY
    assert renewed.broker(1, [], later + DAY).read_bytes() == before
    verify(renewed, path, "localhost", later + DAY)


@pytest.mark.parametrize("name", ["authority.key", "authority.pem", "broker-1.pem"])
def test_damaged_file_is_made_again(directory: Path, name: str) -> None:
    Authority.in_directory(directory, NOW).broker(1, [], NOW)
    (directory / name).write_text("damaged")
    authority = Authority.in_directory(directory, NOW)
    verify(authority, authority.broker(1, [], NOW), "localhost", NOW)
