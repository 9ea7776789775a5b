"""Options of `odradek console`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from odradek import client
from odradek.commands import console
from odradek.commands.application import app
from odradek.commands.console import parse_listen, read_security
from odradek.protocol.security_protocol import SecurityProtocol
from tests.support.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:8080", ("127.0.0.1", 8080)), ("[::1]:0", ("::1", 0)), ("console.example:80", ("console.example", 80))],
)
def test_address_is_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize("text", ["8080", ":8080", "a:", "a:b", "a:65536", "a:-1"])
def test_malformed_address_is_a_usage_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as raised:
        parse_listen(text)
    assert raised.value.exit_code == 2
    assert "expected HOST:PORT" in capsys.readouterr().err


def test_properties_need_no_credentials_and_those_given_are_not_used(tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n")
    security, mechanism = read_security(properties)
    assert (security.protocol, security.credentials) == (SecurityProtocol.SASL_PLAINTEXT, None)
    assert mechanism == "SCRAM-SHA-256"
    module = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";'
    properties.write_text(f"{properties.read_text()}sasl.jaas.config={module}\n")
    assert read_security(properties)[0].credentials is None
    assert read_security(None) == (client.Security(), "SCRAM-SHA-512")


def test_mechanism_without_password_is_refused(tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n")
    with pytest.raises(client.InvalidArgument, match="does not support logins by OAUTHBEARER"):
        read_security(properties)


def test_missing_packages_and_invalid_options_have_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["console", "-b", f"127.0.0.1:{free_port()}"]
    refused = CliRunner().invoke(app, [*options, "--schema-registry", "file:///a"])
    assert (refused.exit_code, "is not http:// or https://" in refused.stderr) == (2, True)
    monkeypatch.setattr(console, "find_spec", lambda name: None if name == "starlette" else object())
    missing = CliRunner().invoke(app, options)
    assert (missing.exit_code, missing.stderr) == (
        2,
        "the console needs starlette; install them with: pip install 'odradek[console]'\n",
    )
