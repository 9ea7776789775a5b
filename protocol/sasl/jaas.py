"""Parser of `sasl.jaas.config`: login modules with options, in the syntax that Kafka's class JaasConfig reads.

A login module is a name here. Nothing is loaded or evaluated. Errors contain no value, because values are secrets.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

FLAGS: Final = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
TEXT_CHARACTERS_MAX: Final = 1_000_000
"""Maximum characters of a value. A PLAIN listener with 10,000 users has about 500,000."""

_SPACE: Final = re.compile(r"(?:[\x00-\x20]|//[^\n]*|/\*.*?\*/|/[^\n]*)+", re.DOTALL)
"""White space and comments of Java's StreamTokenizer. A single slash begins a comment, too."""
_WORD: Final = re.compile(r"[A-Za-z_$\xa0-\U0010ffff][A-Za-z_$\xa0-\U0010ffff0-9.\-]*")
_NUMBER: Final = re.compile(r"[0-9.\-]+")
_QUOTED: Final = re.compile(r"""(["'])((?:\\.|(?!\1)[^\\\n])*)(\1|\n|$)""", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasInvalid(ValueError):
    """The text is no JAAS configuration. The message has the place and the problem, and no value."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One login module: the name of its class, and its options. The representation has no value of an option."""

    name: str
    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Token:
    """A token. `text` is None for a number and for punctuation, as in Java's StreamTokenizer."""

    text: str | None
    punctuation: str = ""


def login_module(text: str) -> LoginModule:
    """Return the only login module of a text. Raise JaasInvalid if the text has none, several, or another syntax."""
    modules = login_modules(text)
    if len(modules) != 1:
        raise JaasInvalid(f"has {len(modules)} login modules; exactly one is possible")
    return modules[0]


def login_modules(text: str) -> list[LoginModule]:
    """Return the login modules of a text. Raise JaasInvalid if it has another syntax."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise JaasInvalid(f"has {len(text)} characters; at most {TEXT_CHARACTERS_MAX} are possible")
    tokens = _tokens(text)
    modules = []
    for token in tokens:
        if token.text is None:
            raise JaasInvalid("does not begin with the name of a login module")
        modules.append(LoginModule(token.text, _options(tokens)))
    if not modules:
        raise JaasInvalid("has no login module")
    return modules


def _options(tokens: Iterator[_Token]) -> dict[str, str]:
    flag = next(tokens, None)
    if flag is None or (flag.text or "").upper() not in FLAGS:
        raise JaasInvalid("has no control flag after the login module; write `required`")
    options: dict[str, str] = {}
    while (name := next(tokens, None)) is not None:
        if name.punctuation == ";":
            return options
        number = len(options) + 1
        equals, value = next(tokens, None), next(tokens, None)
        if name.text is None or equals is None or equals.punctuation != "=" or value is None or value.text is None:
            raise JaasInvalid(f'has no value for option number {number}; write name="value" and end with a semicolon')
        options[name.text] = value.text
    raise JaasInvalid("does not end with a semicolon")


def _tokens(text: str) -> Iterator[_Token]:
    """Yield the tokens, as Java's StreamTokenizer with the settings of Kafka's class JaasConfig."""
    position = 0
    while position < len(text):
        if (space := _SPACE.match(text, position)) is not None:
            position = space.end()
        elif (quoted := _QUOTED.match(text, position)) is not None:
            yield _Token(_ESCAPE.sub(_unescaped, quoted[2]))
            position = quoted.end()
        elif (word := _WORD.match(text, position)) is not None:
            yield _Token(word[0])
            position = word.end()
        elif (number := _NUMBER.match(text, position)) is not None:
            yield _Token(None)
            position = number.end()
        else:
            yield _Token(None, text[position])
            position += 1


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPED.get(escaped, escaped)
