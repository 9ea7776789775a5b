"""The log of a broker process."""

import pytest
import structlog

from odradek.broker.process.logging import configure, printable_texts
from tests.support.broker_context import config

SECRET = "hunter2"


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_traceback_contains_no_value_of_a_variable(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = structlog.get_config()
    try:
        configure(config(f"odradek.log.format={log_format}"))
        try:
            _fail(SECRET)
        except RuntimeError as error:
            structlog.get_logger().error("unexpected exception", exc_info=error)
    finally:
        structlog.configure(**before)
    log = capsys.readouterr().err
    assert (SECRET in log, "_fail" in log, "RuntimeError" in log) == (False, True, True)


def _fail(password: str) -> None:
    raise RuntimeError(len(password))


def test_characters_in_fields_that_end_a_line_or_control_a_terminal_are_escaped() -> None:
    names = ["a\n"]
    event: dict[str, object] = {
        "event": "started\nready",
        "group": "\x1b[2Ja\u2028b\x85c\r\né d",
        "names": names,
        "count": 3,
    }
    expected = {"event": "started\nready", "group": r"\x1b[2Ja\u2028b\x85c\r\né d", "names": names, "count": 3}
    assert printable_texts(None, "info", event) == expected
