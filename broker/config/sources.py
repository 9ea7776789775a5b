"""Load the configuration of a node from a .properties file, the environment and `--set name=value`.

If several set the same property, the last one in this order takes precedence. All functions raise ConfigError. Its
message has one line per fault: the property, the problem, and the place where the property was set.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Final

from odradek.broker.config.addresses import in_brackets, parse_listeners, remote_listeners
from odradek.broker.config.checks import ADDRESSES, CHECKS, Check, violations
from odradek.broker.config.properties import (
    MECHANISMS,
    PROPERTIES,
    Config,
    dynamic_of_listener,
    of_all_listeners,
    override_key,
)
from odradek.broker.config.property import ConfigError, Property
from odradek.broker.config.without_effect import WITHOUT_EFFECT
from odradek.broker_interface import ENVIRONMENT_PREFIX, OTHER_NAMES, variable_name
from odradek.protocol.java_properties import MalformedEscape, parse_properties
from odradek.protocol.sasl.mechanism import OAUTHBEARER

SIMILARITY_MIN: Final = 0.85
"""Minimum similarity (difflib ratio) of an unknown name to a known one that the error message suggests."""
SUGGESTIONS_MAX: Final = 20
"""Maximum messages before one about an unknown name has no suggestion. A suggestion compares the name with all names,
which takes a millisecond."""
LISTENER_PREFIX: Final = "listener.name."
"""Begin of the properties that one listener has alone."""
_OF_TOKENS: Final = ("sasl.oauthbearer.", "sasl.server.callback.handler.class")
"""Begins of the properties that have no effect on other mechanisms than OAUTHBEARER."""
COMMAND_LINE_VARIABLES: Final = ("ODRADEK_BOOTSTRAP", "ODRADEK_DIR", "ODRADEK_CLIENT_CONFIG")
"""Environment variables of the `odradek` command. They are no properties."""
ALL_NAMES: Final = (*PROPERTIES, *WITHOUT_EFFECT, *OTHER_NAMES)


@dataclasses.dataclass(frozen=True, slots=True)
class _Setting:
    """A property as one of the sources sets it. `source` is the place, for messages."""

    name: str
    text: str
    source: str
    in_file: bool = False


class _Loading:
    """The values and the faults of the settings that were read so far."""

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self.values: dict[str, Any] = {}
        self.without_effect: dict[str, str] = {}
        self.of_listeners: list[_Setting] = []
        self.unknown: list[str] = []
        self.faults: list[str] = []
        self.faulty: list[str] = []
        """Names of the properties that have no valid value."""
        self.sources: dict[str, str] = {}
        self._other_names: dict[str, str] = {}
        """The texts of names that have another name, by the other name."""

    def add(self, setting: _Setting) -> None:
        """Keep the value of a setting, or its fault."""
        name = setting.name
        if name.startswith(LISTENER_PREFIX):
            self.of_listeners.append(setting)
        elif name in OTHER_NAMES:
            self._set(PROPERTIES[OTHER_NAMES[name]], setting, self._others)
        elif name in PROPERTIES:
            self._set(PROPERTIES[name], setting, self.values.__setitem__)
        elif name in WITHOUT_EFFECT:
            self._set(WITHOUT_EFFECT[name], setting, self._accept)
        else:
            is_short = len(self.unknown) + len(self.faults) < SUGGESTIONS_MAX
            suggestion = _suggestion(name, ALL_NAMES) if is_short else ""
            self.reject(setting, f"{name}: no such property ({setting.source}){suggestion}")

    def reject(self, setting: _Setting, message: str) -> None:
        """Keep a message about an unknown name: a warning for a file that may have such names, otherwise a fault."""
        (self.unknown if setting.in_file and not self._strict else self.faults).append(message)

    def _set(self, prop: Property, setting: _Setting, use: Callable[[str, Any], None]) -> None:
        try:
            use(prop.name, prop.parse_static(setting.text))
        except ConfigError as error:
            self.faults.append(f"{error} ({setting.source})")
            self.faulty.append(prop.name)
        self.sources[prop.name] = setting.source

    def _accept(self, name: str, value: Any) -> None:
        self.without_effect[name] = WITHOUT_EFFECT[name].render(value) or ""

    def _others(self, name: str, value: Any) -> None:
        self._other_names[name] = value

    def config(self, checks: Iterable[Check]) -> Config:
        """Return the configuration. Raise ConfigError with all faults."""
        values = self._other_names | self.values
        config = Config(
            **{PROPERTIES[name].attribute: value for name, value in values.items()},
            given=frozenset(values),
            without_effect=self.without_effect,
        )
        if not any(name in ADDRESSES for name in self.faulty):
            with suppress(ConfigError):  # a check reports invalid listeners
                config = dataclasses.replace(config, overrides=self._of_listeners(config))
        for message in violations(config, checks, self.faulty):
            source = self.sources.get(message.partition(":")[0])
            self.faults.append(message if source is None else f"{message} ({source})")
        if self.faults:
            raise ConfigError("\n".join(self.faults))
        return dataclasses.replace(config, unknown=tuple(self.unknown))

    def _of_listeners(self, config: Config) -> dict[str, dict[str, Any]]:
        """Return the values of single listeners and mechanisms. Raise ConfigError if the listeners are invalid."""
        overrides: dict[str, dict[str, Any]] = {}
        prefixes = _prefixes(config)
        for setting in self.of_listeners:
            try:
                _override(overrides, prefixes, setting)
            except _NoSuchProperty as error:
                self.reject(setting, str(error))
            except ConfigError as error:
                self.faults.append(str(error))
                self.faulty.append(setting.name)
        return overrides


def load(
    *,
    properties: str = "",
    properties_name: str = "",
    environment: Mapping[str, str],
    assignments: Iterable[str] = (),
    strict: bool = False,
    checks: Iterable[Check] = CHECKS,
) -> Config:
    """Return the configuration of a node.

    `properties`: the text of a .properties file, and `properties_name` its name for error messages. `environment`: the
    environment variables. `assignments`: the values of `--set`. Later sources take precedence. Unknown names in the
    file are faults if `strict`; otherwise, the configuration has a message for each. `checks`: conditions on the
    configuration.
    """
    loading = _Loading(strict=strict)
    of_file: dict[str, _Setting] = {}
    file = properties_name or "file"

    def refuse(error: MalformedEscape) -> None:
        loading.faults.append(f"{file} {error}")
        loading.faulty.append(OTHER_NAMES.get(error.name, error.name))

    for number, name, text in parse_properties(properties, refuse):
        of_file[name] = _Setting(name, text, f"{file} line {number}", in_file=True)
    for setting in of_file.values():
        loading.add(setting)
    variables = {variable_name(name): name for name in ALL_NAMES}
    for variable in sorted(environment):
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in COMMAND_LINE_VARIABLES:
            if variable not in variables:
                suggestion = _suggestion(variable, variables)
                loading.faults.append(f"{variable}: no such property (environment){suggestion}")
                continue
            loading.add(_Setting(variables[variable], environment[variable], f"environment {variable}"))
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        if not separator or not name.strip():
            loading.faults.append(f"{assignment}: not of the form name=value (--set)")
            continue
        loading.add(_Setting(name.strip(), text, "--set"))
    return loading.config(checks)


def with_dynamic_values(config: Config, texts: Mapping[str, str]) -> Config:
    """Return the configuration with the values of `texts` for listeners. Raise ConfigError.

    A value for one listener takes precedence over one for all listeners. Other texts, and those for listeners that the
    node does not have, are ignored.
    """
    common = {prop.attribute: prop.parse(texts[name]) for name in texts if (prop := of_all_listeners(name)) is not None}
    prefixes = _prefixes(config)
    overrides = {key: dict(values) for key, values in config.overrides.items()}
    for name, text in sorted(texts.items()):
        if dynamic_of_listener(name) is not None and name.startswith(tuple(prefixes)):
            _override(overrides, prefixes, _Setting(name, text, "dynamic configuration"))
    return dataclasses.replace(config, overrides=overrides, **common)


class _NoSuchProperty(ConfigError):
    """The name of a property of one listener is unknown."""


def _prefixes(config: Config) -> dict[str, str]:
    """Return the names of the listeners by the begin of their properties. Raise ConfigError."""
    listeners = (*parse_listeners(config), *remote_listeners(config))
    return {f"{LISTENER_PREFIX}{listener.name.lower()}.": listener.name for listener in listeners}


def _override(overrides: dict[str, dict[str, Any]], prefixes: Mapping[str, str], setting: _Setting) -> None:
    """Add the value of one listener or mechanism to `Config.overrides`. Raise ConfigError."""
    name, source = setting.name, setting.source
    prefix = max((prefix for prefix in prefixes if name.startswith(prefix)), key=len, default="")
    if not prefix:
        raise ConfigError(f"{name}: no listener of that name is in listeners ({source})")
    rest = name.removeprefix(prefix)
    mechanism = next((known.lower() for known in MECHANISMS if rest.startswith(f"{known.lower()}.")), "")
    prop = PROPERTIES.get(rest.removeprefix(f"{mechanism}.") if mechanism else rest)
    if prop is None or not (prop.per_mechanism if mechanism else prop.per_listener):
        raise _NoSuchProperty(f"{name}: no such property of a {'mechanism' if mechanism else 'listener'} ({source})")
    if mechanism not in {"", OAUTHBEARER.lower()} and prop.name.startswith(_OF_TOKENS):
        raise ConfigError(f"{name}: only OAUTHBEARER has this property; remove it ({source})")
    listener = prefixes[prefix]
    key = override_key(listener, mechanism) if mechanism else listener
    try:
        overrides.setdefault(key, {})[prop.attribute] = prop.parse_static(setting.text)
    except ConfigError as error:
        raise ConfigError(f"{name.removesuffix(prop.name)}{error} ({source})") from None


def with_host_name(config: Config, host_name: str) -> Config:
    """Return the configuration with `host_name` advertised for each listener that has no advertised host."""
    listeners = parse_listeners(config)
    if all(listener.advertised_host for listener in listeners):
        return config
    advertised = tuple(
        f"{listener.name}://{in_brackets(listener.advertised_host or host_name)}:{listener.advertised_port}"
        for listener in listeners
    )
    return dataclasses.replace(config, advertised_listeners=advertised)


def _suggestion(name: str, known: Iterable[str]) -> str:
    return "".join(f"; did you mean {match}?" for match in get_close_matches(name, known, n=1, cutoff=SIMILARITY_MIN))
