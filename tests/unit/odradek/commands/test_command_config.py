"""Option `--command-config`: client properties of commands that talk to a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from odradek.commands.application import app
from odradek.commands.target import COMMAND_CONFIG_VARIABLE
from odradek.local.directory import ClusterDirectory, ClusterState
from tests.support.ports import free_port
from tests.unit.odradek.local.test_directory import PLAN, own_process

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "alice-secret"


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nretries=3\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="alice" password="{SECRET}";\n'
    )
    return path


@pytest.mark.parametrize(
    "arguments", [["topics", "list"], ["txns"], ["txns", "list"], ["producers", "list", "t"], ["produce", "t", "v"]]
)
def test_file_is_read_by_option_and_by_environment(properties: Path, arguments: list[str]) -> None:
    target = ["--bootstrap", f"127.0.0.1:{free_port()}"]
    warning = f"warning: properties in {properties} without effect: retries"
    given = CliRunner().invoke(app, [*arguments, *target, "--command-config", str(properties)])
    assert warning in given.stderr.replace("\n", "")
    environment = {COMMAND_CONFIG_VARIABLE: str(properties)}
    assert warning in CliRunner().invoke(app, [*arguments, *target], env=environment).stderr.replace("\n", "")


def test_option_before_a_subcommand_applies_to_it(properties: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMAND_CONFIG_VARIABLE, "")  # the command sets it; monkeypatch restores it
    arguments = ["txns", "--bootstrap", f"127.0.0.1:{free_port()}", "--command-config", str(properties), "list"]
    assert "without effect: retries" in CliRunner().invoke(app, arguments).stderr.replace("\n", "")


def test_invalid_file_is_a_usage_error_of_status(tmp_path: Path) -> None:
    ClusterDirectory(tmp_path).write_state(ClusterState(PLAN, {1: own_process()}))
    options = ["--dir", str(tmp_path), "--once", "--command-config", str(tmp_path / "absent")]
    printed = CliRunner().invoke(app, ["status", *options])
    assert (printed.exit_code, printed.stdout) == (2, "")
    assert "absent cannot be read" in printed.stderr.replace("\n", "")


def test_invalid_file_is_a_usage_error_without_its_secrets(properties: Path) -> None:
    properties.write_text(properties.read_text().replace('";', '"'))
    printed = CliRunner().invoke(app, ["topics", "list", "--command-config", str(properties)])
    assert printed.exit_code == 2
    assert "sasl.jaas.config does not end with a semicolon" in printed.stderr.replace("\n", "")
    assert SECRET not in printed.output
