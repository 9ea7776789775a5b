"""Command line of the Spark job of the demo."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.spark import delays_job

if TYPE_CHECKING:
    from pathlib import Path


def test_invalid_file_of_properties_is_a_usage_error_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("ssl.keystore.location=C:\\users")
    words = ["--bootstrap", "127.0.0.1:9092", "--command-config", str(path), "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["delays_job", *words])
    monkeypatch.setattr(delays_job, "start_session", lambda *_, **__: pytest.fail("Spark was started"))
    with pytest.raises(SystemExit, match="2"):
        delays_job.main()
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"delays_job: error: {path} line 1: four hexadecimal digits must follow ")
