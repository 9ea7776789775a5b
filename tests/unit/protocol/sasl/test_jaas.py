"""Parser of `sasl.jaas.config`. Kafka's class JaasConfig returns the same options and refuses the same texts."""

from __future__ import annotations

import traceback

import pytest

from odradek.protocol.sasl.jaas import JaasInvalid, login_module, login_modules

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_name_and_options_are_returned_without_evaluation() -> None:
    module = login_module(f'{SCRAM} required username="alice" password="alice-secret";')
    assert module.name == SCRAM
    assert module.options == {"username": "alice", "password": "alice-secret"}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("M required;", {}),
        ("M REQUISITE a=b;", {"a": "b"}),
        ("M required a='b' c=\"d\";", {"a": "b", "c": "d"}),
        ('M required a="b;c";', {"a": "b;c"}),
        (r'M required a="quote \" backslash \\ tab \t octal \101 other \9";',
         {"a": 'quote " backslash \\ tab \t octal A other 9'}),
        ('M required // comment\n a="b" /* comment */ c="d";', {"a": "b", "c": "d"}),
        ('M required user_admin="1" user_b-c.d="2";', {"user_admin": "1", "user_b-c.d": "2"}),
        ('M required a="first" a="second";', {"a": "second"}),
        ("M required a=ü;", {"a": "ü"}),
    ],
)  # fmt: skip
def test_options_in_the_syntax_of_kafka(text: str, options: dict[str, str]) -> None:
    assert login_module(text).options == options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no login module"),
        ("M", "no control flag"),
        ("M username=secret;", "no control flag"),
        ("M required", "does not end with a semicolon"),
        ("M required a=secret", "does not end with a semicolon"),
        ("M required a secret;", "no value for option number 1"),
        ("M required a=1234;", "no value for option number 1"),  # a number of Java's StreamTokenizer has no text
        ('M required a="b" c=;', "no value for option number 2"),
        ("= required;", "does not begin with the name"),
    ],
)
def test_invalid_text_is_refused_without_its_values(text: str, expected: str) -> None:
    with pytest.raises(JaasInvalid, match=expected) as refused:
        login_modules(text)
    assert "secret" not in str(refused.value)


def test_two_login_modules_are_refused_where_one_is_possible() -> None:
    text = 'M required a="b"; N optional c="d";'
    assert [module.name for module in login_modules(text)] == ["M", "N"]
    with pytest.raises(JaasInvalid, match="has 2 login modules; exactly one is possible"):
        login_module(text)


def test_representation_contains_no_option() -> None:
    module = login_module('M required password="alice-secret";')
    assert "alice-secret" not in repr(module)


def test_traceback_of_an_invalid_text_contains_no_value() -> None:
    with pytest.raises(JaasInvalid) as refused:
        login_module('M required password="alice-secret" x')
    assert "alice-secret" not in "".join(traceback.format_exception(refused.value)).replace(
        """login_module('M required password="alice-secret" x')""", ""
    )
