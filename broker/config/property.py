"""A property of the configuration as data, for parsing, validation, DescribeConfigs and documentation."""

import dataclasses
import math
import re
import sys
from collections.abc import Callable
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Final

from odradek.protocol.java_text import trimmed

INT_MAX: Final = 2**31 - 1
DOUBLE_MAX: Final = sys.float_info.max
HIDDEN: Final = "[hidden]"
"""Text that stands for a secret, as in Apache Kafka."""
ALL: Final = "*"
"""The item that stands for all items. It is the only one in its list."""
_SPACES: Final = " \t\n\x0b\f\r"
"""The characters that `\\s` matches in Java."""
NUMBER_CHARACTERS_MAX: Final = 1_000
"""Maximum characters of a number. Kafka has no limit."""
_INTEGER: Final = re.compile(r"[+-]?\d+")
_NAMED: Final = re.compile(r"[+-]?(NaN|Infinity)")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?")
_HEXADECIMAL: Final = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
"""Hexadecimal form of a number for Java's Double.valueOf. _NAMED and _DECIMAL match the other forms."""


class ConfigError(ValueError):
    """An invalid configuration. The message is one line for the operator.

    `reason`: the problem in Kafka's words, for error responses.
    `complete`: True if `reason` is the complete error message of a response.
    `rendered`: the value in Kafka's canonical form if it was parsed, or None.
    """

    def __init__(self, message: str, reason: str = "", rendered: str | None = None, *, complete: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.rendered = rendered
        self.complete = complete


def invalid_value(name: str, text: str, error: ConfigError) -> str:
    """Return the message of an error response for an invalid value, in Kafka's words."""
    if error.complete:
        return error.reason
    return (
        f"Invalid value {text if error.rendered is None else error.rendered} for configuration {name}: {error.reason}"
    )


class Kind(IntEnum):
    """Types of values, with the codes of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Password:
    """A secret value of a configuration. Log events, tracebacks and responses show it as HIDDEN."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value: Final = value

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


class Scope(Enum):
    """The resources for which a property can be set."""

    STATIC = "static"
    """A node reads the property when it starts. DescribeConfigs returns it as read-only."""
    CLUSTER = "cluster"
    """A node reads the property when it starts. All nodes need the same value."""
    TOPIC = "topic"
    """The default of a property of topics. It can also be set for running brokers."""
    TOPIC_ALONE = "topic alone"
    """A property that only topics have. Brokers do not describe it."""
    DYNAMIC = "dynamic"
    """A property of brokers that can change while they run. Its users read it with `TopicSettings.current`."""
    LISTENER = "listener"
    """A property of one listener that can change while brokers run: `listener.name.<name>.<property>`."""
    PER_BROKER = "per broker"
    """A property that Kafka changes for one running broker. A node reads it when it starts.

    A dynamic value is stored and described, and has no effect.
    """
    DYNAMIC_ALONE = "dynamic alone"
    """As DYNAMIC, but brokers describe it only if it is set, because Kafka has it only as a dynamic property."""


@dataclasses.dataclass(frozen=True, slots=True)
class Property:
    """A property: its name, type, default, documentation and valid values.

    `name` is the name in server.properties, `topic_name` the property of topics whose default it is.
    """

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
    """A valid value outside the range from `low` to `high`."""
    fixed: str = ""
    """Reason why the default is the only valid value, in Kafka's words if it has any. Empty: other values are valid."""
    set_low: int | None = None
    """Minimum for a dynamic value or a topic's value, if it is higher than that of a node's file."""
    items: tuple[str, str] | None = None
    """Pattern of each item of a list other than `ALL`, and Kafka's error message. Such a list is stored unchanged."""
    may_be_empty: bool = False
    """True if a list may be empty."""
    may_be_nan: bool = True
    """True if NaN is valid although the property has bounds: in Java, NaN is neither below nor above a bound."""
    per_listener: bool = False
    """True if a listener can have its own value: `listener.name.<name in lower case>.<property>`."""
    per_mechanism: bool = False
    """True if a SASL mechanism of a listener can have its own value: `listener.name.<name>.<mechanism>.<property>`."""
    stored_because: str = ""
    """Reason why a dynamic value of a property with an effect is only stored. PER_BROKER needs it."""

    @property
    def is_secret(self) -> bool:
        """True if no response contains the value."""
        return self.kind is Kind.PASSWORD

    @property
    def is_dynamic(self) -> bool:
        """True if the property can be set for a running broker."""
        return self.scope in {Scope.TOPIC, Scope.DYNAMIC, Scope.DYNAMIC_ALONE}

    @property
    def has_default(self) -> bool:
        """True if brokers describe the property even if it is not set."""
        return self.scope not in {Scope.TOPIC_ALONE, Scope.DYNAMIC_ALONE}

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")

    def parse(self, text: str, *, name: str | None = None) -> Any:
        """Return the value of a stored configuration. Raise ConfigError.

        Empty items of lists are skipped, because earlier versions accepted them. `name` replaces the property's name in
        messages.
        """
        return self._parse(text, name or self.name, self.low, strict=False)

    def parse_static(self, text: str) -> Any:
        """Return the value of a property in a node's file, environment or `--set`. Raise ConfigError."""
        return self._parse(text, self.name, self.low, strict=True)

    def parse_set(self, text: str, *, name: str | None = None, bounded: bool = True) -> Any:
        """Return the value of a configuration that is to be set for a broker, topic or group. Raise ConfigError.

        An empty text is no valid number. For a text or password without a default, it is the value None, as in a file.
        With `bounded`, `set_low` is the minimum.
        """
        label = name or self.name
        low = self.set_low if bounded and self.set_low is not None else self.low
        value = self._parse(text, label, low, strict=True)
        if value is None:
            if self.kind in {Kind.STRING, Kind.PASSWORD}:
                return None
            raise ConfigError(
                f"{label}: {text!r} is not {_DESCRIPTIONS[self.kind]}", f"Not a number of type {self.kind.name}"
            )
        if self.items is not None and "".join(value) != ALL:
            pattern, rule = self.items
            if not all(re.fullmatch(pattern, item) for item in value):
                raise ConfigError(f"{label}: {text!r} {rule}", f"{label} {rule}", f"[{', '.join(value)}]")
        return value

    def _parse(self, text: str, label: str, low: float | None, *, strict: bool) -> Any:
        text = trimmed(text)
        if not text and self.default is None:
            return None
        try:
            value = _PARSERS[self.kind](text)
        except ValueError:
            reason = _REASONS.get(self.kind, f"Not a number of type {self.kind.name}")
            raise ConfigError(f"{label}: {text!r} is not {_DESCRIPTIONS[self.kind]}", reason) from None
        if self.kind is Kind.LIST:
            value = self._items(label, text, value, strict=strict)
        if self.fixed and value != self.default:
            raise ConfigError(f"{label}: {text!r} is refused: {self.fixed}", self.fixed, complete=True)
        if self.kind is not Kind.LIST:
            self._check(label, text, value, low)
        return value

    def _items(self, label: str, text: str, items: tuple[str, ...], *, strict: bool) -> tuple[str, ...]:
        """Validate a list and remove duplicates, as Kafka's ValidList does (KIP-1161). Raise ConfigError.

        A list whose items have a pattern is returned unchanged.
        """
        if strict and not items and not self.may_be_empty:
            reason = f"Configuration '{label}' must not be empty. Valid values include: any non-empty value"
            raise ConfigError(f"{label}: at least one item is required", reason, complete=True)
        if self.items is not None:
            return items
        for item in items:
            if item:
                self._check_choice(label, text, item)
            elif strict:
                reason = f"Configuration '{label}' values must not be empty."
                raise ConfigError(f"{label}: {text!r} has an empty item", reason, complete=True)
        return tuple(dict.fromkeys(item for item in items if item))

    def _check(self, label: str, text: str, value: Any, low: float | None) -> None:
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
        """Return the value as text, in the form that Kafka's tools print."""
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


def _integer(bits: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if len(text) > NUMBER_CHARACTERS_MAX or not _INTEGER.fullmatch(text):
            raise ValueError(text)
        value = int(text)
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(text)
        return value

    return parse


def _list(text: str) -> tuple[str, ...]:
    return tuple(item.strip(_SPACES) for item in text.split(",")) if text else ()


def _double(text: str) -> float:
    """Parse a double as Java's Double.parseDouble does. A number that is too large becomes infinite."""
    if len(text) > NUMBER_CHARACTERS_MAX:
        raise ValueError(text)
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
    """Return a double as Java prints it: 0.5, 1.0E7, 9.0E-4, 1.7976931348623157E308, NaN, -Infinity."""
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
    Kind.INT: _integer(32),
    Kind.SHORT: _integer(16),
    Kind.LONG: _integer(64),
    Kind.DOUBLE: _double,
    Kind.LIST: _list,
    Kind.CLASS: str,
    Kind.PASSWORD: Password,
}
_DESCRIPTIONS: Final[dict[Kind, str]] = {
    Kind.BOOLEAN: "true or false",
    Kind.STRING: "text",
    Kind.INT: "an integer of 32 bits",
    Kind.SHORT: "an integer of 16 bits",
    Kind.LONG: "an integer of 64 bits",
    Kind.DOUBLE: "a number",
    Kind.LIST: "a comma-separated list",
    Kind.CLASS: "text",
    Kind.PASSWORD: "text",
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
    per_listener: bool = False,
    per_mechanism: bool = False,
    stored_because: str = "",
) -> Any:
    """Return a dataclass field for a property. The field's name is the property's name with `_` for `.`."""
    scope = Scope.TOPIC if topic and scope is Scope.STATIC else scope
    prop = Property(
        *(name, kind, default, doc, scope, low, high, choices, topic, or_equal, fixed, set_low, items),
        may_be_empty=may_be_empty,
        may_be_nan=may_be_nan,
        stored_because=stored_because,
        per_listener=per_listener,
        per_mechanism=per_mechanism,
    )
    return dataclasses.field(default=default, metadata={"property": prop})


def accepted(
    name: str,
    kind: Kind,
    default: Any,
    *,
    scope: Scope = Scope.STATIC,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Property:
    """Return a property of Kafka that a node accepts without effect."""
    return Property(
        name, kind, default, "", scope=scope, low=low, high=high, choices=choices, may_be_empty=kind is Kind.LIST
    )


def properties_of(config_class: type[Any]) -> dict[str, Property]:
    """Return all properties of a configuration class by name, in the order of their fields."""
    by_name: dict[str, Property] = {}
    for field in dataclasses.fields(config_class):
        prop: Property | None = field.metadata.get("property")
        if prop is None:
            continue
        assert prop.attribute == field.name, f"{prop.name} is on field {field.name}"
        assert prop.name not in by_name, f"{prop.name} is defined twice"
        by_name[prop.name] = prop
    return by_name
