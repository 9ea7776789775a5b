"""The file of the first SCRAM credentials of a cluster."""

import random

import pytest

from odradek.broker.config.bootstrap_scram import parse_bootstrap_scram
from odradek.broker.config.property import ConfigError
from odradek.protocol.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, Credential


def test_lines_have_the_syntax_of_kafka_storage() -> None:
    text = """
# the administrator
SCRAM-SHA-256=[name=admin,password=s3cret]
SCRAM-SHA-512=[name="a,b" , iterations=8192, password="p,w ="]
"""
    credentials = parse_bootstrap_scram(text, random.Random(1).getrandbits)
    assert list(credentials) == [("admin", 1), ("a,b", 2)]
    first, second = credentials.values()
    assert first == Credential.of_password(SCRAM_SHA_256, b"s3cret", first.salt, 4_096)
    assert second == Credential.of_password(SCRAM_SHA_512, b"p,w =", second.salt, 8_192)
    assert first.salt != second.salt


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("admin=s3cret", "line 1 is not of the form"),
        ("PLAIN=[name=admin,password=s3cret]", "line 1 is not of the form"),
        ("SCRAM-SHA-256=[name=admin]", "line 1 has no name or no password"),
        ("SCRAM-SHA-256=[password=s3cret]", "line 1 has no name or no password"),
        ("SCRAM-SHA-256=[name=admin,password=s3cret,iterations=4095]", "the iterations are not from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=admin,password=s3cret,iterations=x]", "the iterations are not from"),
        ("SCRAM-SHA-256=[name=admin,password=s3cret,name=b]", "another item than name"),
        ("SCRAM-SHA-256=[name=admin,password=s3cret,salt=x]", "another item than name"),
        ('SCRAM-SHA-256=[name=admin,password="s3cret]', "another item than name"),
        ("SCRAM-SHA-256=[name=a,password=s3cret]\nSCRAM-SHA-256=[name=a,password=x]", "line 2: the user has"),
    ],
)
def test_invalid_line_is_refused_without_its_values(line: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error) as failed:
        parse_bootstrap_scram(line, random.Random(1).getrandbits)
    assert "s3cret" not in str(failed.value)
    assert "admin" not in str(failed.value)
