"""`odradek users` against a broker: a user logs in after it is added, and not after it is removed."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from odradek import client
from odradek.commands import users
from odradek.commands.application import app
from tests.support.sasl_broker import SaslBroker, java_properties

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
PASSWORD = "b0b's, secret"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("sasl")) as running:
        yield running
    assert PASSWORD not in running.log()


def command(broker: SaslBroker, *words: str, stdin: str = "") -> tuple[int, str]:
    finished = CliRunner().invoke(app, ["users", *words, "--bootstrap", broker.plain], input=stdin)
    return finished.exit_code, finished.output


def logs_in(broker: SaslBroker, mechanism: str) -> bool:
    """Return True if the user bob can list the topics."""
    rows = {name: value.replace('"alice"', '"bob"') for name, value in java_properties(mechanism, PASSWORD).items()}
    settings = client.Settings(security=client.Security.of(rows), retry=client.RetryPolicy(deadline_s=0))

    async def listed() -> bool:
        async with client.Cluster(broker.sasl, settings) as cluster:
            await client.list_topics(cluster)
        return True

    try:
        return asyncio.run(listed())
    except client.AuthenticationFailed:
        return False


def test_user_is_added_listed_and_removed(broker: SaslBroker, tmp_path: Path) -> None:
    assert not logs_in(broker, "SCRAM-SHA-512")
    assert command(broker, "add", "bob", stdin=f"{PASSWORD}\n") == (0, "added: bob (SCRAM-SHA-512)\n")
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    options = ("--mechanism", "scram-sha-256", "--iterations", "8192", "--password-file", str(file))
    assert command(broker, "add", "bob", *options)[0] == 0
    assert logs_in(broker, "SCRAM-SHA-512")
    assert logs_in(broker, "SCRAM-SHA-256")
    listed = json.loads(command(broker, "list", "--json")[1])
    assert [row for row in listed if row["user"] == "bob"] == [
        {"user": "bob", "mechanism": "SCRAM-SHA-256", "iterations": 8_192},
        {"user": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 4_096},
    ]
    assert command(broker, "remove", "bob") == (0, "removed: bob (SCRAM-SHA-256, SCRAM-SHA-512)\n")
    assert not logs_in(broker, "SCRAM-SHA-512")


@pytest.mark.parametrize(
    ("words", "stdin", "output"),
    [
        (("add", "carol"), "", "the password is empty"),
        (("add", "carol", "--password-file", "/absent"), "", "/absent: No such file"),
        (("add", "carol", "--mechanism", "PLAIN"), "x\n", "mechanism PLAIN: unknown"),
        (("add", "carol", "--iterations", "1"), "x\n", "iterations 1: expected 4096 to 16384"),
        (("remove", "carol"), "", "user carol: it has no SCRAM credential"),
    ],
)
def test_invalid_usage_is_refused(broker: SaslBroker, words: tuple[str, ...], stdin: str, output: str) -> None:
    code, printed = command(broker, *words, stdin=stdin)
    assert code == 2
    assert output in " ".join(printed.split())


def test_password_is_typed_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    prompts: list[dict[str, object]] = []

    def prompt(_text: str, **options: object) -> str:
        prompts.append(options)
        return PASSWORD

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("typer.prompt", prompt)
    assert users.read_password(None) == PASSWORD
    assert prompts == [{"hide_input": True, "confirmation_prompt": True}]
