"""Settings of SASL: the mechanisms of each listener, the users of PLAIN, and the rules for tokens."""

from typing import Final
from urllib.parse import urlsplit

from odradek.broker.config.addresses import has_other_voters, inter_broker_listener, parse_listeners
from odradek.broker.config.authentication import ACCEPT, NONE
from odradek.broker.config.properties import Config
from odradek.broker.config.property import ConfigError, Password
from odradek.broker.security.sasl_settings import SaslSettings, TokenRules, TokenSettings
from odradek.protocol.sasl.jaas import JaasInvalid, LoginModule, login_module
from odradek.protocol.sasl.mechanism import OAUTHBEARER, PLAIN
from odradek.protocol.sasl.scram import SCRAM_MECHANISMS

_PACKAGE: Final = "org.apache.kafka.common.security."
_MODULES: Final = {
    PLAIN: f"{_PACKAGE}plain.PlainLoginModule",
    **dict.fromkeys(SCRAM_MECHANISMS, f"{_PACKAGE}scram.ScramLoginModule"),
    OAUTHBEARER: f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule",
}
"""Name of the login module by mechanism."""
_USER: Final = "user_"
_UNSECURED: Final = "unsecured"
_JAAS: Final = "sasl.jaas.config"


def parse_sasl(config: Config) -> dict[str, SaslSettings]:
    """Return the settings of each listener with SASL by its name. Raise ConfigError."""
    if config.sasl_jaas_config is not None:
        raise ConfigError(f"{_JAAS}: set it for one listener and mechanism, as listener.name.NAME.MECHANISM.{_JAAS}")
    names = [listener.name for listener in parse_listeners(config) if listener.security_protocol.uses_sasl]
    used = {inter_broker_listener(config), *(name.upper() for name in config.controller_listener_names)}
    mode = config.odradek_inter_broker_authentication
    if mode in {NONE, ACCEPT} and has_other_voters(config) and (between := [name for name in names if name in used]):
        raise ConfigError(
            f"odradek.inter.broker.authentication: {mode}, but nodes use the listener {between[0]}, which has SASL; "
            "set login or required"
        )
    return {name: _settings(config, name) for name in names}


def _settings(config: Config, listener: str) -> SaslSettings:
    mechanisms = config.on_listener(listener).sasl_enabled_mechanisms
    if not mechanisms:
        raise ConfigError(f"sasl.enabled.mechanisms: not set, but the listener {listener} uses SASL; name a mechanism")
    own = {mechanism: config.on_listener(listener, mechanism) for mechanism in mechanisms}
    modules = {mechanism: login_module_of(settings, listener, mechanism) for mechanism, settings in own.items()}
    return SaslSettings(
        {mechanism: settings.connections_max_reauth_ms for mechanism, settings in own.items()},
        _passwords(modules[PLAIN], jaas_label(listener, PLAIN)) if PLAIN in own else {},
        _tokens(own[OAUTHBEARER], modules[OAUTHBEARER], listener) if OAUTHBEARER in own else None,
    )


def jaas_label(listener: str, mechanism: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{_JAAS}"


def login_module_of(config: Config, listener: str, mechanism: str) -> LoginModule | None:
    """Return the login module of a mechanism on a listener. Errors contain no value."""
    value: Password | None = config.sasl_jaas_config
    if value is None:
        return None
    label = jaas_label(listener, mechanism)
    try:
        module = login_module(value.value)
    except JaasInvalid as error:
        raise ConfigError(f"{label}: {error}") from None
    if module.name != _MODULES[mechanism]:
        raise ConfigError(f"{label}: the login module is not {_MODULES[mechanism]}; no other module is supported")
    return module


def _passwords(module: LoginModule | None, label: str) -> dict[str, str]:
    if module is None:
        raise ConfigError(f'{label}: not set; set it to {_MODULES[PLAIN]} required user_NAME="PASSWORD";')
    passwords = {
        name.removeprefix(_USER): password for name, password in module.options.items() if name.startswith(_USER)
    }
    if not passwords or not all(name and password for name, password in passwords.items()):
        raise ConfigError(f"{label}: PLAIN needs users with passwords; add options of the form user_NAME=PASSWORD")
    return passwords


def _tokens(config: Config, module: LoginModule | None, listener: str) -> TokenSettings:
    if module is not None and any(name.startswith(_UNSECURED) for name in module.options):
        label = jaas_label(listener, OAUTHBEARER)
        raise ConfigError(f"{label}: unsecured tokens are not supported; remove their options")
    url = config.sasl_oauthbearer_jwks_endpoint_url or ""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https", "file"} or not (parts.path if parts.scheme == "file" else parts.hostname):
        raise ConfigError(
            f"sasl.oauthbearer.jwks.endpoint.url: OAUTHBEARER on the listener {listener} needs a URL with https, http "
            "or file"
        )
    audiences, issuer = config.sasl_oauthbearer_expected_audience, config.sasl_oauthbearer_expected_issuer
    if not audiences and not config.sasl_oauthbearer_allow_unverified_audience:
        raise ConfigError(
            f"sasl.oauthbearer.expected.audience: OAUTHBEARER on the listener {listener} needs it, or "
            "sasl.oauthbearer.allow.unverified.audience=true"
        )
    if not issuer and not config.sasl_oauthbearer_allow_unverified_issuer:
        raise ConfigError(
            f"sasl.oauthbearer.expected.issuer: OAUTHBEARER on the listener {listener} needs it, or "
            "sasl.oauthbearer.allow.unverified.issuer=true"
        )
    rules = TokenRules(
        audiences,
        issuer or None,
        config.sasl_oauthbearer_clock_skew_seconds,
        config.sasl_oauthbearer_sub_claim_name,
        config.sasl_oauthbearer_scope_claim_name,
    )
    return TokenSettings(rules, url, config.sasl_oauthbearer_jwks_endpoint_refresh_ms)
