"""Map the subject of a client certificate to a principal's name, by the rules of ssl.principal.mapping.rules.

Kafka's class is SslPrincipalMapper. Its patterns are Java's regular expressions. A pattern that Python or RE2 does not
know, or reads in another way, is refused. RE2 matches in time linear in the length of the subject, which the owner of
the certificate has chosen. Java and Python need time beyond any limit for some patterns, such as those in Kafka's
documentation, and subjects with many repetitions.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import re2

from odradek.broker.config.property import ConfigError
from odradek.protocol.java_text import trimmed

PROPERTY: Final = "ssl.principal.mapping.rules"
SUBJECT_CHARACTERS_MAX: Final = 2_048
"""Maximum characters of a subject that rules with a pattern apply to. A match takes at most some milliseconds. Subjects
have up to about 10 attributes, and RFC 5280 permits 64 characters in most of them."""
PATTERN_MEMORY_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum memory of RE2 for one pattern, in bytes: its default."""
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
_FOLDED_TO_ASCII: Final = re.compile("[\u017f\u212a]")
"""Characters outside ASCII that RE2 regards as `s` and `k` if a pattern ignores the case. Java does not, so such a rule
does not apply to a subject with one of them."""
_IGNORES_CASE: Final = re.compile(r"\(\?[a-z]*i")
_CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: Any
    """The pattern as RE2 has compiled it."""
    replacement: tuple[int | str, ...]
    """Texts, and numbers of groups."""
    case: str
    ignores_case: bool

    def apply(self, name: str) -> str | None:
        if self.ignores_case and _FOLDED_TO_ASCII.search(name):
            return None
        if self.pattern.fullmatch(name) is None:
            return None
        return _CASES[self.case](self._replaced(name))

    def _replaced(self, name: str) -> str:
        """Replace each match, as Java's String.replaceAll does. An empty match can follow another match."""
        parts: list[str] = []
        position = copied = 0
        while position <= len(name) and (match := self.pattern.search(name, position)) is not None:
            begin, end = match.span()
            parts.append(name[copied:begin])
            parts += [part if isinstance(part, str) else match[part] or "" for part in self.replacement]
            copied, position = end, end + (begin == end)
        return "".join((*parts, name[copied:]))


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
            if len(subject) > SUBJECT_CHARACTERS_MAX or _CONTROLS.search(subject):
                continue
            if (name := rule.apply(subject)) is not None:
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
        groups = re.compile(match[2], re.ASCII).groups
    except re.error as error:
        raise ConfigError(f"{PROPERTY}: the pattern of {rule!r} is invalid or not supported: {error}") from None
    ignores_case = _IGNORES_CASE.search(match[2]) is not None
    if ignores_case and not match[2].isascii():
        raise ConfigError(f"{PROPERTY}: the pattern of {rule!r} ignores the case of letters outside ASCII")
    return _Rule(_compiled(rule, match[2]), _replacement(rule, match[4], groups), match[6], ignores_case)


def _compiled(rule: str, pattern: str) -> Any:
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        [words] = error.args  # bytes
        raise ConfigError(
            f"{PROPERTY}: RE2 does not support the pattern of {rule!r}: {words.decode(errors='replace')}; "
            "use no look-around, back reference or possessive quantifier"
        ) from None


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
