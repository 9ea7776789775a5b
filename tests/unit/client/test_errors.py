"""Exceptions of the client for error codes."""

from __future__ import annotations

from odradek.client.errors import REMEDY_ACL, refused
from odradek.protocol.errors import ErrorCode


def test_error_of_authorization_has_the_next_step() -> None:
    codes = [code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED")]
    assert len(codes) > 3
    assert [code for code in codes if refused(code, "topic t").remedy != REMEDY_ACL] == []
    assert refused(codes[0], "topic t", remedy="wait").remedy == "wait"
    assert refused(ErrorCode.REQUEST_TIMED_OUT, "topic t").remedy == ""


def test_text_of_the_broker_and_the_next_step_are_one_line() -> None:
    text = str(refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic t was not deleted", "There is no such topic."))
    assert text == (
        "topic t was not deleted: UNKNOWN_TOPIC_OR_PARTITION: There is no such topic; "
        "list the topics with: odradek topics list"
    )
    taken = refused(ErrorCode.INVALID_TOPIC_EXCEPTION, "topic a.b", "'a.b' collides with existing topic: a_b")
    assert str(taken) == (
        "topic a.b: INVALID_TOPIC_EXCEPTION: 'a.b' collides with existing topic: a_b; use another name: at most 249 "
        "letters, digits, dots, underscores and hyphens, and no internal topic"
    )
    assert str(refused(ErrorCode.REQUEST_TIMED_OUT, "t", "It lasted.")) == "t: REQUEST_TIMED_OUT: It lasted."
