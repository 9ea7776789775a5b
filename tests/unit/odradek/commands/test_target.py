"""Search for the cluster of a command: options, environment, profiles, the local directory."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from odradek import client
from odradek.commands import profiles
from odradek.commands.application import app
from odradek.commands.target import DEFAULT_BOOTSTRAP, Found, Target, find
from odradek.local.directory import ClusterDirectory, ClusterState
from tests.unit.odradek.local.test_directory import PLAN, own_process

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return an environment with a profile in use. The working directory holds a local cluster."""
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    stored = {"prod": profiles.Profile("profile:1", "/prod.properties")}
    profiles.write(environment, profiles.Profiles("prod", stored))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    for path in (work / "odradek-data", tmp_path / "other"):
        ClusterDirectory(path).write_state(ClusterState(PLAN, {}))
    for name in ("ODRADEK_BOOTSTRAP", "ODRADEK_DIR", "ODRADEK_CLIENT_CONFIG"):
        monkeypatch.setenv(name, "")  # so that it is also removed after a test that sets it
        monkeypatch.delenv(name)
    return environment


@pytest.mark.parametrize(
    ("target", "variables", "found"),
    [
        (Target(bootstrap="option:1"), {"ODRADEK_BOOTSTRAP": "variable:1"}, Found("option:1", None)),
        (Target(Path("../other")), {"ODRADEK_BOOTSTRAP": "v:1"}, Found(PLAN.bootstrap, None, Path("../other"))),
        (Target(), {"ODRADEK_BOOTSTRAP": "variable:1", "ODRADEK_DIR": "../other"}, Found("variable:1", None)),
        (Target(), {"ODRADEK_DIR": "../other"}, Found(PLAN.bootstrap, None, Path("../other"))),
        (Target(), {}, Found("profile:1", Path("/prod.properties"))),
        (Target(command_config=Path("/own")), {}, Found("profile:1", Path("/own"))),
        (Target(), {"ODRADEK_CLIENT_CONFIG": "/v"}, Found("profile:1", Path("/v"))),
        (Target(bootstrap="option:1", command_config=Path("/own")), {}, Found("option:1", Path("/own"))),
    ],
)
def test_options_precede_variables_and_variables_precede_the_profile(
    home: dict[str, str], target: Target, variables: Mapping[str, str], found: Found
) -> None:
    assert find(target, {**home, **variables}) == found


def test_without_a_profile_commands_use_the_local_directory_or_the_default_port(
    home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles.write(home, profiles.Profiles())
    assert find(Target(), home) == Found(PLAN.bootstrap, None, Path("odradek-data"))
    monkeypatch.chdir(tmp_path)
    assert find(Target(), home) == Found(DEFAULT_BOOTSTRAP, None)


def test_running_brokers_of_a_directory_are_the_bootstrap_addresses(tmp_path: Path) -> None:
    ClusterDirectory(tmp_path).write_state(ClusterState(PLAN, {2: own_process()}))
    assert find(Target(tmp_path), {}) == Found(PLAN.endpoint(2), None, tmp_path)


def test_two_clusters_and_an_empty_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(client.InvalidArgument, match="specify one of them"):
        find(Target(tmp_path, "a:1"), {})
    with pytest.raises(client.ClientError, match="odradek up --dir"):
        find(Target(tmp_path), {})


def test_use_stores_a_private_profile_that_later_commands_use(home: dict[str, str]) -> None:
    def use(*arguments: str) -> str:
        printed = CliRunner().invoke(app, ["use", *arguments], env=home)
        assert printed.exit_code == 0, printed.stderr
        return printed.stdout

    use("test", "--bootstrap", "127.0.0.1:1", "--command-config", "client.properties")
    path = profiles.path_of(home)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    stored = {row["name"]: row for row in json.loads(use("--list", "--json"))}
    assert stored["test"]["command_config"] == str(Path("client.properties").resolve())
    assert [name for name, row in stored.items() if row["used"]] == ["test"]
    assert use("prod") == "using prod: profile:1\n"
    assert "127.0.0.1:1" in use("--list")
    assert use("--none") == "no profile is used\n"
    assert profiles.in_use(home) is None
    assert use("test", "--remove") == "removed: test\n"
    assert list(profiles.read(home).profiles) == ["prod"]


@pytest.mark.parametrize("words", [["status", "--once"], ["use", "new"]])
def test_malformed_bootstrap_is_a_usage_error_and_is_not_stored(home: dict[str, str], words: list[str]) -> None:
    refused = CliRunner().invoke(app, [*words, "--bootstrap", "host:99999"], env=home)
    assert (refused.exit_code, refused.stderr) == (2, "bootstrap is 'host:99999': the highest port is 65535\n")
    assert list(profiles.read(home).profiles) == ["prod"]


@pytest.mark.parametrize(("arguments", "reason"), [([], "specify one of"), (["absent"], "there is no profile absent")])
def test_use_without_a_known_name_is_a_usage_error(home: dict[str, str], arguments: list[str], reason: str) -> None:
    printed = CliRunner().invoke(app, ["use", *arguments], env=home)
    assert printed.exit_code == 2
    assert reason in printed.stderr


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"current": null, "profiles": {"a": {}}}',
        '{"current": "a", "profiles": {"a": {"bootstrap": 9092}}}',
        '{"current": "a", "profiles": {"a": {"bootstrap": "a:1", "command_config": ["x"]}}}',
        '{"current": ["a"], "profiles": {}}',
    ],
)
def test_damaged_profiles_are_an_error_with_their_path(home: dict[str, str], content: str) -> None:
    profiles.path_of(home).write_text(content)
    with pytest.raises(client.ClientError, match=r"profiles.json is damaged"):
        find(Target(), home)


def test_profile_in_use_that_does_not_exist_is_an_error_until_another_one_is_used(home: dict[str, str]) -> None:
    profiles.path_of(home).write_text('{"current": "gone", "profiles": {"a": {"bootstrap": "a:1"}}}')
    with pytest.raises(client.ClientError, match="there is no profile gone, which is in use; use another one"):
        find(Target(), home)
    assert find(Target(bootstrap="b:1"), home) == Found("b:1", None)
    assert CliRunner().invoke(app, ["use", "a"], env=home).stdout == "using a: a:1\n"
    assert find(Target(), home) == Found("a:1", None)


def test_kafka_name_of_the_bootstrap_option_is_accepted() -> None:
    printed = CliRunner().invoke(app, ["topics", "list", "--bootstrap-server", "no-port"])
    assert "no-port" in printed.stderr
