"""Exceptions of the client for error codes."""

from __future__ import annotations

from odradek.client.errors import REMEDY_ACL, refused
from odradek.protocol.errors import ErrorCode


def test_error_of_authorization_has_the_next_step() -> None:
    codes = [code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED")]
    assert len(codes) > 3
    assert [code for code in codes if refused(code, "topic t").remedy != REMEDY_ACL] == []
    assert refused(codes[0], "topic t", remedy="wait").remedy == "wait"
    assert refused(ErrorCode.INVALID_TOPIC_EXCEPTION, "topic t").remedy == ""
