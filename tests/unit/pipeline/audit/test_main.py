"""The command of the audit: logs that cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from odradek.client import ClientError
from odradek.pipeline import audit as package
from odradek.pipeline.audit.__main__ import UNREADABLE, main
from odradek.pipeline.spark import session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TRACEBACK = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "wire.py", line 94, in _scan
odradek.client.errors.Refused: t-0: UNKNOWN_TOPIC_OR_PARTITION

JVM stacktrace:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ClientError("t-0 has no leader"), "t-0 has no leader"),
        (OSError("No space left on device"), "No space left on device"),
        (PySparkException(TRACEBACK), "odradek.client.errors.Refused: t-0: UNKNOWN_TOPIC_OR_PARTITION"),
        (
            Py4JError("An error occurred while calling o1.parquet.\n: java.io.IOException: x\n\tat y"),
            "java.io.IOException: x",
        ),
        (Py4JError(TRACEBACK), "odradek.client.errors.Refused: t-0: UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_error_of_a_started_audit_is_one_line_and_exit_code_2(
    error: Exception,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stopped: list[object] = []

    def fail(*arguments: object, **options: object) -> None:
        assert not stopped
        raise error

    def start(name: str, master: str, *, console: Path, settings: Sequence[str] = ()) -> str:
        return "session"

    monkeypatch.setattr(package, "audit", fail)
    monkeypatch.setattr(session, "start_session", start)
    monkeypatch.setattr(session, "stop_session", stopped.append)
    (tmp_path / "t-0").mkdir()
    assert main(["--log-dirs", str(tmp_path)]) == UNREADABLE
    assert capsys.readouterr().err == f"The audit failed. Repair the cause, and repeat the audit: {reason}\n"
    assert stopped == ["session"]


def test_client_properties_are_refused_for_log_directories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--log-dirs", str(tmp_path), "--command-config", str(tmp_path / "client.properties")])
    assert refused.value.code == UNREADABLE
    assert "--command-config is for --bootstrap" in capsys.readouterr().err
