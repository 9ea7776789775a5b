"""Load the configuration of a node from a .properties file, the environment and `--set name=value`.

If several set the same property, the last one in this order takes precedence. All functions raise ConfigError. Its
message is one line: the property, the problem, and the place where the property was set.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from odradek.broker.config.addresses import parse_listeners, parse_metrics_listener, parse_voters
from odradek.broker.config.authorization import super_users
from odradek.broker.config.groups import contradictions
from odradek.broker.config.properties import MECHANISMS, PROPERTIES, Config, dynamic_of_listener, override_key
from odradek.broker.config.property import ConfigError
from odradek.broker.config.sasl import parse_sasl
from odradek.broker_interface import ENVIRONMENT_PREFIX
from odradek.protocol.java_properties import parse_properties
from odradek.protocol.sasl.mechanism import OAUTHBEARER

_CLUSTER_ID: Final = re.compile("[A-Za-z0-9_-]{22}")
SIMILARITY_MIN: Final = 0.85
"""Minimum similarity (difflib ratio) of an unknown name to a known one that the error message suggests."""
LISTENER_PREFIX: Final = "listener.name."
"""Begin of the properties that one listener has alone."""
_OF_TOKENS: Final = ("sasl.oauthbearer.", "sasl.server.callback.handler.class")
"""Begins of the properties that have no effect on other mechanisms than OAUTHBEARER."""
COMMAND_LINE_VARIABLES: Final = ("ODRADEK_BOOTSTRAP", "ODRADEK_CLIENT_CONFIG")
"""Environment variables of the `odradek` command. They are no properties."""


def load(
    *, properties: str = "", properties_name: str = "", environment: Mapping[str, str], assignments: Iterable[str] = ()
) -> Config:
    """Return the configuration of a node.

    `properties`: the text of a .properties file, and `properties_name` its name for error messages. `environment`: the
    environment variables. `assignments`: the values of `--set`. Later sources take precedence.
    """
    values: dict[str, Any] = {}
    of_listeners: list[tuple[str, str, str]] = []
    for name, text, source in _all_settings(properties, properties_name, environment, assignments):
        if name.startswith(LISTENER_PREFIX):
            of_listeners.append((name, text, source))
            continue
        prop = PROPERTIES.get(name)
        if prop is None:
            raise ConfigError(f"{name}: no such property ({source}){_suggestion(name, PROPERTIES)}")
        try:
            values[name] = prop.parse_static(text)
        except ConfigError as error:
            raise ConfigError(f"{error} ({source})") from None
    config = Config(**{PROPERTIES[name].attribute: value for name, value in values.items()}, given=frozenset(values))
    config = dataclasses.replace(config, overrides=_overrides(config, of_listeners))
    check(config)
    return config


def with_dynamic_values(config: Config, texts: Mapping[str, str]) -> Config:
    """Return the configuration with the values of `texts` for single listeners. Raise ConfigError.

    Other texts, and those for listeners that the node does not have, are ignored.
    """
    listeners = {listener.name.lower() for listener in parse_listeners(config)}
    settings = [
        (name, text, "dynamic configuration")
        for name, text in sorted(texts.items())
        if dynamic_of_listener(name) is not None and name.split(".")[2] in listeners
    ]
    changed = _overrides(config, settings)
    overrides = {**config.overrides, **{key: {**config.overrides.get(key, {}), **changed[key]} for key in changed}}
    return dataclasses.replace(config, overrides=overrides)


def _overrides(config: Config, settings: Iterable[tuple[str, str, str]]) -> dict[str, dict[str, Any]]:
    """Return the values of single listeners and mechanisms, as in `Config.overrides`. Raise ConfigError."""
    overrides: dict[str, dict[str, Any]] = {}
    prefixes = {f"{LISTENER_PREFIX}{listener.name.lower()}.": listener.name for listener in parse_listeners(config)}
    for name, text, source in settings:
        prefix = max((prefix for prefix in prefixes if name.startswith(prefix)), key=len, default="")
        if not prefix:
            raise ConfigError(f"{name}: no listener of that name is in listeners ({source})")
        rest = name.removeprefix(prefix)
        mechanism = next((known.lower() for known in MECHANISMS if rest.startswith(f"{known.lower()}.")), "")
        prop = PROPERTIES.get(rest.removeprefix(f"{mechanism}.") if mechanism else rest)
        if prop is None or not (prop.per_mechanism if mechanism else prop.per_listener):
            raise ConfigError(f"{name}: no such property of a {'mechanism' if mechanism else 'listener'} ({source})")
        if mechanism not in {"", OAUTHBEARER.lower()} and prop.name.startswith(_OF_TOKENS):
            raise ConfigError(f"{name}: only OAUTHBEARER has this property; remove it ({source})")
        listener = prefixes[prefix]
        key = override_key(listener, mechanism) if mechanism else listener
        try:
            overrides.setdefault(key, {})[prop.attribute] = prop.parse_static(text)
        except ConfigError as error:
            raise ConfigError(f"{name.removesuffix(prop.name)}{error} ({source})") from None
    return overrides


def check(config: Config) -> None:
    """Check the conditions that involve several properties. Raise ConfigError."""
    if not config.log_dirs:
        raise ConfigError("log.dirs: not set; set it to the data directory")
    if "," in config.log_dirs:
        raise ConfigError(f"log.dirs: {config.log_dirs!r} names more than one directory; exactly one is supported")
    parse_listeners(config)
    parse_voters(config)
    parse_sasl(config)
    if config.odradek_metrics_listener is not None:
        parse_metrics_listener(config.odradek_metrics_listener)
    if config.odradek_cluster_id is not None and not _CLUSTER_ID.fullmatch(config.odradek_cluster_id):
        raise ConfigError(f"odradek.cluster.id: {config.odradek_cluster_id!r} is not 22 characters of base64url")
    if config.queued_max_request_bytes == 0:
        raise ConfigError("queued.max.request.bytes: with 0 the broker would read no request; -1 is the default limit")
    if config.byte_budget < config.socket_request_max_bytes:
        raise ConfigError(
            f"queued.max.request.bytes: {config.byte_budget} is less than the maximum size of one request"
            f" (socket.request.max.bytes={config.socket_request_max_bytes})"
        )
    if config.broker_heartbeat_interval_ms >= config.broker_session_timeout_ms:
        raise ConfigError("broker.heartbeat.interval.ms: must be less than broker.session.timeout.ms")
    super_users(config)
    for contradiction in contradictions(config):
        raise ConfigError(contradiction)


def with_host_name(config: Config, host_name: str) -> Config:
    """Return the configuration with `host_name` advertised for each listener that has no advertised host."""
    listeners = parse_listeners(config)
    if all(listener.advertised_host for listener in listeners):
        return config
    advertised = tuple(
        f"{listener.name}://{_in_brackets(listener.advertised_host or host_name)}:{listener.advertised_port}"
        for listener in listeners
    )
    return dataclasses.replace(config, advertised_listeners=advertised)


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _all_settings(
    properties: str, properties_name: str, environment: Mapping[str, str], assignments: Iterable[str]
) -> Iterable[tuple[str, str, str]]:
    for number, name, text in parse_properties(properties):
        yield name, text, f"{properties_name or 'file'} line {number}"
    variables = {variable_name(name): name for name in PROPERTIES}
    for variable in sorted(environment):
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in COMMAND_LINE_VARIABLES:
            if variable not in variables:
                raise ConfigError(f"{variable}: no such property (environment){_suggestion(variable, variables)}")
            yield variables[variable], environment[variable], f"environment {variable}"
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"{assignment}: not of the form name=value (--set)")
        yield name.strip(), text, "--set"


def _suggestion(name: str, known: Iterable[str]) -> str:
    return "".join(f"; did you mean {match}?" for match in get_close_matches(name, known, n=1, cutoff=SIMILARITY_MIN))


def variable_name(name: str) -> str:
    """Return the environment variable of a property.

    log.segment.bytes is ODRADEK_LOG_SEGMENT_BYTES, odradek.cluster.id is ODRADEK_CLUSTER_ID.
    """
    return ENVIRONMENT_PREFIX + name.removeprefix("odradek.").replace(".", "_").upper()
