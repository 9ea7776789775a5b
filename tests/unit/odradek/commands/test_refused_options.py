"""Options that have no meaning together: the command refuses them with one sentence, before it connects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from odradek.commands.application import app

if TYPE_CHECKING:
    from pathlib import Path

WHERE = ("--bootstrap", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("use", "--list", "--remove"), "--list"),
        (("use", "--none", "--remove"), "--none"),
        (("use", "--list", *WHERE), "--list"),
        (("use", "prod", "--remove", *WHERE), "--remove"),
        (("use", "prod", "--list"), "--list"),
        (("status", "--watch", "--json"), "--watch"),
        (("topics", "list", *WHERE, "--bootstrap-server", "127.0.0.1:2"), "--bootstrap-server"),
        (("topics", "list", *WHERE, "--dir", "d"), "--dir"),
        (("groups", "reset", "g", "--from-file", "f", "--topic", "t", *WHERE), "--from-file"),
        (("groups", "reset", "g", "--all-topics", "--to-latest", "--dry-run", "--execute", *WHERE), "--dry-run"),
        (("partitions", "reassign", "--list", "--dry-run", *WHERE), "--list"),
        (("partitions", "reassign", "--list", "--no-wait", *WHERE), "--no-wait"),
        (("txns", "abort", "id", "--partition", "0", *WHERE), "--partition"),
        (("txns", "expire", "id", "--idle", "1", *WHERE), "--idle"),
        (("acls", "list", "--applying", *WHERE), "--resource"),
        (("records", "delete", "t", "--before", "1", "--all", *WHERE), "--before"),
        (("produce", "t", "v", "--from-json", *WHERE), "--from-json"),
    ],
    ids=" ".join,
)
def test_meaningless_combination_is_refused(
    words: tuple[str, ...], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert named in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
