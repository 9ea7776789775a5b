"""Fuzz target of the subjects of client certificates. The bytes are a certificate, or the Name in it."""

from __future__ import annotations

from cryptography.hazmat.primitives.serialization import Encoding

from odradek.broker.tls.distinguished_name import rfc2253_name, subject_name
from odradek.broker.tls.principal_mapping import PrincipalMapping
from tests.fuzz.target import Bound, Target
from tests.support.certificates import issue

RULES = PrincipalMapping("RULE:^CN=(.*?),.*$/$1/L,RULE:^CN=([a-z]+)$/$1/U,DEFAULT")


def run(data: bytes) -> int:
    """Read the subject, and map it: the last rule matches each subject."""
    try:
        subject = subject_name(data)
    except ValueError:
        subject = rfc2253_name(data)
    assert RULES.name_of(subject) is not None
    return 0


def seeds() -> list[bytes]:
    certificate = issue("alice", issue("authority", ca=True)).certificate
    names = ("3010310e300c06035504030c056e756c0078", "300e310c300a06035504031203313233", "3000")
    return [certificate.public_bytes(Encoding.DER), *map(bytes.fromhex, names)]


SUBJECTS = Target("subjects", run, seeds, typed=(ValueError,), steps=Bound(20_000, 400))
