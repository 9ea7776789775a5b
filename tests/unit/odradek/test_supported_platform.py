"""Brokers are refused on any system except Linux, with one sentence and exit code 2."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from odradek import BrokerFailed, LocalCluster, supported_platform
from odradek.broker.__main__ import main
from odradek.commands.application import app

if TYPE_CHECKING:
    from pathlib import Path

USAGE = 2
SENTENCE = (
    "Odradek brokers run on Linux only, and this system is darwin: "
    "run them in a container or virtual machine with Linux\n"
)


@pytest.fixture(autouse=True)
def on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace `sys` in this module only: libraries that are imported during the test must read the real platform."""
    monkeypatch.setattr(supported_platform, "sys", SimpleNamespace(platform="darwin"))


def test_up_is_refused_and_makes_no_directory(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["up", "--dir", str(tmp_path / "data")], env={"COLUMNS": "300"})
    assert (result.exit_code, result.output) == (USAGE, SENTENCE)
    assert not (tmp_path / "data").exists()


def test_the_broker_module_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--set", "log.dirs=/nowhere"]) == USAGE
    assert capsys.readouterr().err == SENTENCE


def test_local_cluster_is_refused() -> None:
    with pytest.raises(BrokerFailed, match="run on Linux only") as refused:
        LocalCluster().start()
    assert refused.value.exit_code == USAGE
