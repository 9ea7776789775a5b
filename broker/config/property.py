"""One property of the configuration as data: from it come parsing, validation, DescribeConfigs and the documentation."""

import dataclasses
import math
import re
import sys
from collections.abc import Callable
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Final

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = sys.float_info.max
ALL: Final = "*"
"""Alone in a list: everything."""
_BLANKS: Final = "".join(map(chr, range(33)))
"""What Java's String.trim takes off."""
_COMMA: Final = re.compile(r"\s*,\s*", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?\d+")
_NAMED: Final = re.compile(r"[+-]?(NaN|Infinity)")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?")
_HEXADECIMAL: Final = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
"""The forms of Java's Double.valueOf."""


class ConfigError(ValueError):
    """A configuration that cannot be used; the message is the one line a person gets to read.

    `reason` is what is wrong with a value, as Kafka's clients and tools are told it, `whole` if they are told nothing else; `shown`
    the value, where it was understood before it was refused.
    """

    def __init__(self, message: str, reason: str = "", shown: str | None = None, *, whole: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.shown = shown
        self.whole = whole


def invalid_value(name: str, text: str, error: ConfigError) -> str:
    """What Kafka's clients are told of a value that is refused."""
    if error.whole:
        return error.reason
    return f"Invalid value {text if error.shown is None else error.shown} for configuration {name}: {error.reason}"


class Kind(IntEnum):
    """Value types, with the codes DescribeConfigs uses."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Scope(Enum):
    STATIC = "static"
    """Read when the node starts; DescribeConfigs calls it read-only."""
    CLUSTER = "cluster"
    """The same value for every broker."""
    TOPIC = "topic"
    """The default of a topic's own property."""
    TOPIC_ALONE = "topic alone"
    """Of topics: no broker has a default of it, and Kafka's tools see none."""
    DYNAMIC = "dynamic"
    """Of a broker, and may change while it runs: whoever obeys it asks `TopicSettings.current`."""
    DYNAMIC_ALONE = "dynamic alone"
    """The same for what Kafka only knows while a broker runs: it is described where it has been set."""


@dataclasses.dataclass(frozen=True, slots=True)
class Property:
    """`name` as in server.properties; `topic_name` is the topic's own property that this one is the default of."""

    name: str
    kind: Kind
    default: Any
    doc: str
    scope: Scope = Scope.STATIC
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    topic_name: str | None = None
    or_equal: int | None = None
    """A value that is allowed beside those from `low` to `high`."""
    fixed: str = ""
    """Why it can only have its default; Kafka's words where it has some."""
    set_low: int | None = None
    """The lowest value that may be set while the cluster runs, where a node's own configuration may go below."""
    items: tuple[str, str] | None = None
    """A pattern for each item of a list that is not `ALL`, and how Kafka puts it. Such a list is kept as it was given."""
    may_be_empty: bool = False
    """May somebody set a list to nothing?"""
    may_be_nan: bool = True
    """NaN is neither below nor above a bound, as Java compares."""

    @property
    def is_dynamic(self) -> bool:
        """Can it be changed while a broker runs?"""
        return self.scope in {Scope.TOPIC, Scope.DYNAMIC, Scope.DYNAMIC_ALONE}

    @property
    def has_default(self) -> bool:
        """Does a broker that was told nothing describe it?"""
        return self.scope not in {Scope.TOPIC_ALONE, Scope.DYNAMIC_ALONE}

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    def parse(self, text: str, *, name: str | None = None) -> Any:
        """The value `text` stands for. Raises `ConfigError` with one line that names the property and what is wrong.

        It reads what is set already: empty items of lists are passed over, since versions before took them.
        """
        return self._parse(text, name or self.name, self.low, strict=False)

    def parse_static(self, text: str) -> Any:
        """As `parse`, of what a node's own configuration says."""
        return self._parse(text, self.name, self.low, strict=True)

    def parse_set(self, text: str, *, name: str | None = None, bounded: bool = True) -> Any:
        """As `parse`, of what is set while the cluster runs: nothing does not stand for unset, and `bounded` by `set_low`, too."""
        label = name or self.name
        low = self.set_low if bounded and self.set_low is not None else self.low
        value = self._parse(text, label, low, strict=True)
        if value is None:
            raise ConfigError(
                f"{label}: {text!r} is not {_WANTED[self.kind]}", f"Not a number of type {self.kind.name}"
            )
        if self.items is not None and "".join(value) != ALL:
            pattern, wanted = self.items
            if not all(re.fullmatch(pattern, item) for item in value):
                raise ConfigError(f"{label}: {text!r} {wanted}", f"{label} {wanted}", f"[{', '.join(value)}]")
        return value

    def _parse(self, text: str, label: str, low: float | None, *, strict: bool) -> Any:
        text = text.strip(_BLANKS)
        if not text and self.default is None:
            return None
        try:
            value = _PARSERS[self.kind](text)
        except ValueError:
            reason = _REASONS.get(self.kind, f"Not a number of type {self.kind.name}")
            raise ConfigError(f"{label}: {text!r} is not {_WANTED[self.kind]}", reason) from None
        if self.kind is Kind.LIST:
            return self._items(label, text, value, strict=strict)
        self._check(label, text, value, low)
        return value

    def _items(self, label: str, text: str, items: tuple[str, ...], *, strict: bool) -> tuple[str, ...]:
        """Each one once, as Kafka's ValidList has it (KIP-1161); a list with a form of its own stays as it was given."""
        if strict and not items and not self.may_be_empty:
            reason = f"Configuration '{label}' must not be empty. Valid values include: any non-empty value"
            raise ConfigError(f"{label}: at least one is needed", reason, whole=True)
        if self.items is not None:
            return items
        for item in items:
            if item:
                self._check_choice(label, text, item)
            elif strict:
                reason = f"Configuration '{label}' values must not be empty."
                raise ConfigError(f"{label}: {text!r} has an empty item", reason, whole=True)
        return tuple(dict.fromkeys(item for item in items if item))

    def _check(self, label: str, text: str, value: Any, low: float | None) -> None:
        if self.fixed and value != self.default:
            raise ConfigError(f"{label}: {text!r} is refused: {self.fixed}", self.fixed, whole=True)
        if self.or_equal is not None:
            if value != self.or_equal and not self.low <= value <= self.high:
                reason = f"Value must be between {self.low} and {self.high} or equal to {self.or_equal}"
                raise ConfigError(
                    f"{label}: {text} is neither from {self.low} to {self.high} nor {self.or_equal}",
                    reason,
                    self.render(value),
                )
            return
        if low is not None and (value < low or (math.isnan(value) and not self.may_be_nan)):
            reason = f"Value must be at least {low}"
            raise ConfigError(f"{label}: {text} is below the smallest allowed value, {low}", reason, self.render(value))
        if self.high is not None and value > self.high:
            reason = f"Value must be no more than {self.high}"
            raise ConfigError(
                f"{label}: {text} is above the largest allowed value, {self.high}", reason, self.render(value)
            )
        self._check_choice(label, text, value)

    def _check_choice(self, label: str, text: str, value: Any) -> None:
        if self.choices and value not in self.choices:
            choices = ", ".join(self.choices)
            raise ConfigError(
                f"{label}: {text!r} is not one of {choices}", f"String must be one of: {choices}", str(value)
            )

    def render(self, value: Any) -> str | None:
        """The value as text, as Kafka's tools print it."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(str(item) for item in value)
        return _java_text(value) if self.kind is Kind.DOUBLE else str(value)


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in {"true", "false"}:
        raise ValueError(text)
    return lowered == "true"


def _whole(bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text):
            raise ValueError(text)
        value = int(text)
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(text)
        return value

    return parse


def _list(text: str) -> tuple[str, ...]:
    return tuple(_COMMA.split(text)) if text else ()


def _double(text: str) -> float:
    """As Java's Double.parseDouble: what is too large is infinite."""
    if _NAMED.fullmatch(text):
        return float(text)
    digits = text.rstrip("fFdD")
    if _DECIMAL.fullmatch(text):
        return float(digits)
    if not _HEXADECIMAL.fullmatch(text):
        raise ValueError(text)
    try:
        return float.fromhex(digits)
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def _java_text(value: float) -> str:
    """As Java prints a double: 0.5, 1.0E7, 9.0E-4, 1.7976931348623157E308, NaN, -Infinity."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    digits, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


_PARSERS: Final[dict[Kind, Callable[[str], Any]]] = {
    Kind.BOOLEAN: _boolean,
    Kind.STRING: str,
    Kind.INT: _whole(32),
    Kind.SHORT: _whole(16),
    Kind.LONG: _whole(64),
    Kind.DOUBLE: _double,
    Kind.LIST: _list,
}
_WANTED: Final[dict[Kind, str]] = {
    Kind.BOOLEAN: "true or false",
    Kind.STRING: "text",
    Kind.INT: "a whole number of 32 bits",
    Kind.SHORT: "a whole number of 16 bits",
    Kind.LONG: "a whole number of 64 bits",
    Kind.DOUBLE: "a number",
    Kind.LIST: "a comma separated list",
}

_REASONS: Final[dict[Kind, str]] = {Kind.BOOLEAN: "Expected value to be either true or false"}


def row(
    name: str,
    kind: Kind,
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    scope: Scope = Scope.STATIC,
    topic: str | None = None,
    or_equal: int | None = None,
    fixed: str = "",
    set_low: int | None = None,
    items: tuple[str, str] | None = None,
    may_be_empty: bool = False,
    may_be_nan: bool = True,
) -> Any:
    """A dataclass field that carries its property. The field's name must be the property's with `_` for `.`."""
    scope = Scope.TOPIC if topic and scope is Scope.STATIC else scope
    made = Property(
        *(name, kind, default, doc, scope, low, high, choices, topic, or_equal, fixed, set_low, items),
        may_be_empty=may_be_empty,
        may_be_nan=may_be_nan,
    )
    return dataclasses.field(default=default, metadata={"property": made})


def properties_of(config_class: type[Any]) -> dict[str, Property]:
    """All properties of a configuration class by name, in the order in which they are written down."""
    found: dict[str, Property] = {}
    for field in dataclasses.fields(config_class):
        prop: Property | None = field.metadata.get("property")
        if prop is None:
            continue
        assert prop.attribute == field.name, f"{prop.name} stands on field {field.name}"
        assert prop.name not in found, f"{prop.name} is written down twice"
        found[prop.name] = prop
    return found
