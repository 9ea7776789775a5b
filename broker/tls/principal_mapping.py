"""Map the subject of a client certificate to a principal's name, by the rules of ssl.principal.mapping.rules.

Kafka's class is SslPrincipalMapper. Its patterns are Java's regular expressions. A pattern that Python does not know,
or reads in another way, is refused.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from odradek.broker.config.property import ConfigError
from odradek.protocol.java_text import trimmed

PROPERTY: Final = "ssl.principal.mapping.rules"
_RULE: Final = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
"""Kafka's own pattern of a rule."""
_PARSER: Final = re.compile(_RULE, re.ASCII)
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_OTHER_ESCAPES: Final = "ZbB0"
"""Characters after a backslash that have another meaning in Java: `\\Z`, `\\b` and `\\B` outside ASCII, and `\\0`."""
_OTHER_GROUPS: Final = re.compile(r"\(\?(P|\(|[A-Za-z]*[auLx])")
_OTHER_IN_CLASS: Final = ("[", "&&", "--", "~~", "||")
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]")
"""Control characters and the line ends of Java, for which `.` and `$` differ between Java and Python."""
_CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    replacement: tuple[int | str, ...]
    """Texts, and numbers of groups."""
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        return _CASES[self.case](self.pattern.sub(self._expand, name))

    def _expand(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self.replacement)


class PrincipalMapping:
    """The rules, in their order. The first rule that matches the name of a subject applies."""

    def __init__(self, text: str) -> None:
        """Parse the value of ssl.principal.mapping.rules. Raise ConfigError."""
        rules = (match[1] for match in _SPLITTER.finditer(trimmed(text)))
        self._rules = tuple(_parse(rule) for rule in rules if rule)

    def name_of(self, subject: str) -> str | None:
        """Return the name of the principal for the subject of a certificate; None if no rule matches."""
        for rule in self._rules:
            if rule is None:
                return subject
            if not _CONTROLS.search(subject) and (name := rule.apply(subject)) is not None:
                return name
        return None


def _parse(rule: str) -> _Rule | None:
    """Return a rule, or None for the rule DEFAULT. Raise ConfigError."""
    match = _PARSER.match(rule)
    if match is None or match.end() != len(rule):
        raise ConfigError(f"{PROPERTY}: {rule!r} is not a rule; write RULE:pattern/replacement/[LU] or DEFAULT")
    if match[1] is not None:
        return None
    other = _other_meaning(match[2])
    if other is not None:
        raise ConfigError(f"{PROPERTY}: {other!r} in the pattern of {rule!r} is not supported")
    try:
        pattern = re.compile(match[2], re.ASCII)
    except re.error as error:
        raise ConfigError(f"{PROPERTY}: the pattern of {rule!r} is invalid or not supported: {error}") from None
    return _Rule(pattern, _replacement(rule, match[4], pattern.groups), match[6])


def _other_meaning(pattern: str) -> str | None:
    """Return the first construct of a pattern that Python accepts with another meaning than Java, or None."""
    position, class_start = 0, -1
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            if pattern[position + 1 : position + 2] in tuple(_OTHER_ESCAPES):
                return pattern[position : position + 2]
            position += 1
        elif class_start >= 0:
            if char == "]" and position == class_start:
                return "[]"
            if pattern.startswith(_OTHER_IN_CLASS, position):
                return pattern[class_start - 1 : position + 2]
            if char == "]":
                class_start = -1
        elif char == "[":
            position += pattern.startswith("[^", position)
            class_start = position + 1
        elif pattern.startswith("{,", position):
            return "{,"
        elif (group := _OTHER_GROUPS.match(pattern, position)) is not None:
            return group[0]
        position += 1
    return None


def _replacement(rule: str, text: str, groups: int) -> tuple[int | str, ...]:
    """Parse the replacement of a rule, as Java's Matcher.appendReplacement does. Raise ConfigError.

    `$` and digits name a group, with as many digits as there are groups for. A backslash escapes any character. A
    number above that of the last group is literal text if the pattern has groups, as in Kafka.
    """
    parts: list[int | str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\":
            parts.append(text[position])
            position += 1
        elif char == "$":
            digits = re.match("[0-9]+", text[position:])
            if digits is None:
                raise ConfigError(f"{PROPERTY}: write \\$ for the character $ in the replacement of {rule!r}")
            number = digits[0]
            while int(number) > groups and len(number) > 1:
                number = number[:-1]
            if int(number) > groups and not groups:
                raise ConfigError(f"{PROPERTY}: the pattern of {rule!r} has no group {number}")
            parts.append(int(number) if int(number) <= groups else f"${number}")
            position += len(number)
        else:
            parts.append(char)
    return tuple(parts)
