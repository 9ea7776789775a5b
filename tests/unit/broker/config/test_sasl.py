"""Settings of SASL: valid ones, and the errors of invalid ones, which contain no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.broker.config.property import ConfigError
from odradek.broker.config.sasl import parse_sasl
from odradek.broker.config.sources import load

if TYPE_CHECKING:
    from odradek.broker.security.sasl_settings import SaslSettings

PACKAGE = "org.apache.kafka.common.security"
PLAIN = f'{PACKAGE}.plain.PlainLoginModule required username="n" password="x" user_alice="s3cret" user_bob="p,w";'
BASE = {
    "log.dirs": "/tmp/x",
    "listeners": "IN://:1,CLIENTS://:2",
    "inter.broker.listener.name": "IN",
    "listener.security.protocol.map": "IN:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
}
OAUTH = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
    "sasl.oauthbearer.expected.audience": "a,b",
    "sasl.oauthbearer.expected.issuer": "https://issuer",
}
HANDLER, VALIDATOR = "sasl.server.callback.handler.class", "oauthbearer.OAuthBearerValidatorCallbackHandler"
JAAS = "listener.name.clients.plain.sasl.jaas.config"


def of(values: dict[str, str]) -> dict[str, SaslSettings]:
    return parse_sasl(load(environment={}, assignments=[f"{name}={value}" for name, value in (BASE | values).items()]))


def test_users_of_plain_are_the_options_of_its_login_module() -> None:
    settings = of({"sasl.enabled.mechanisms": "PLAIN", JAAS: PLAIN})
    assert list(settings) == ["CLIENTS"]
    assert settings["CLIENTS"].passwords == {"alice": "s3cret", "bob": "p,w"}
    assert "s3cret" not in repr(settings)


def test_listener_without_sasl_has_no_settings() -> None:
    assert of({"listener.security.protocol.map": "IN:PLAINTEXT,CLIENTS:PLAINTEXT"}) == {}


def test_scram_needs_no_login_module_and_accepts_its_own() -> None:
    module = f"{PACKAGE}.scram.ScramLoginModule required;"
    values = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}
    for more in ({}, {"listener.name.clients.scram-sha-512.sasl.jaas.config": module}):
        assert of(values | more)["CLIENTS"].mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")


def test_properties_of_a_mechanism_have_precedence_over_those_of_the_listener() -> None:
    settings = of(
        {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            JAAS: PLAIN,
            "connections.max.reauth.ms": "1",
            "listener.name.clients.connections.max.reauth.ms": "2",
            "listener.name.clients.scram-sha-512.connections.max.reauth.ms": "3",
        }
    )
    assert settings["CLIENTS"].max_reauth_ms == {"PLAIN": 2, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 3}


def test_settings_of_tokens() -> None:
    tokens = of(OAUTH | {"sasl.oauthbearer.sub.claim.name": "user"})["CLIENTS"].tokens
    assert tokens is not None
    assert tokens.jwks_url == "https://issuer/keys"
    assert (tokens.rules.audiences, tokens.rules.issuer) == (("a", "b"), "https://issuer")
    assert (tokens.rules.sub_claim, tokens.rules.scope_claim, tokens.rules.clock_skew_s) == ("user", "scope", 30)


def test_handler_that_validates_tokens_is_accepted() -> None:
    handler = {f"listener.name.clients.oauthbearer.{HANDLER}": f"{PACKAGE}.{VALIDATOR}"}
    assert of(OAUTH | handler) == of(OAUTH)


def test_tokens_without_expected_audience_or_issuer_need_explicit_consent() -> None:
    for name in ("audience", "issuer"):
        values = {key: value for key, value in OAUTH.items() if not key.endswith(name)}
        with pytest.raises(ConfigError, match=f"sasl.oauthbearer.expected.{name}: OAUTHBEARER .* needs it"):
            of(values)
        assert of(values | {f"sasl.oauthbearer.allow.unverified.{name}": "true"})["CLIENTS"].tokens is not None


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({}, "sasl.enabled.mechanisms: not set, but the listener CLIENTS uses SASL"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "'GSSAPI' is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, f"{JAAS}: not set; set it to"),
        ({"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": PLAIN}, "set it for one listener and mechanism"),
        ({"sasl.enabled.mechanisms": "PLAIN", JAAS: "s3cret"}, f"{JAAS}: has no control flag"),
        ({"sasl.enabled.mechanisms": "PLAIN", JAAS: PLAIN.replace("Plain", "s3cret")}, "the login module is not"),
        ({"sasl.enabled.mechanisms": "PLAIN", JAAS: PLAIN.replace("user_", "")}, "PLAIN needs users with passwords"),
        ({"sasl.enabled.mechanisms": "PLAIN", JAAS: PLAIN.replace("p,w", "")}, "PLAIN needs users with passwords"),
        ({JAAS.replace("plain", "gssapi"): PLAIN}, "no such property of a listener"),
        ({JAAS.replace("plain.", ""): PLAIN}, "no such property of a listener"),
        ({"listener.name.clients.plain.log.dirs": "x"}, "no such property of a mechanism"),
        ({"listener.name.clients.plain.sasl.oauthbearer.expected.issuer": "x"}, "only OAUTHBEARER has this property"),
        ({f"listener.name.clients.scram-sha-256.{HANDLER}": f"{PACKAGE}.{VALIDATOR}"}, "only OAUTHBEARER has this"),
        (OAUTH | {"sasl.oauthbearer.jwks.endpoint.url": ""}, "needs a URL with https, http or file"),
        (OAUTH | {"sasl.oauthbearer.jwks.endpoint.url": "ftp://x/y"}, "needs a URL with https, http or file"),
        (OAUTH | {"sasl.oauthbearer.jwks.endpoint.url": "file:"}, "needs a URL with https, http or file"),
        (
            OAUTH
            | {
                "listener.name.clients.oauthbearer.sasl.jaas.config": f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule "
                'required unsecuredLoginStringClaim_sub="s3cret";'
            },
            "unsecured tokens are not supported",
        ),
    ],
)
def test_invalid_settings_are_refused_without_their_secrets(values: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError) as failed:
        of(values)
    assert error in str(failed.value)
    assert "s3cret" not in str(failed.value)
    assert failed.value.__cause__ is None


@pytest.mark.parametrize(("mode", "refused"), [("none", True), ("accept", True), ("login", False), ("required", False)])
def test_listener_between_nodes_with_sasl_needs_a_login_of_nodes(mode: str, refused: bool) -> None:
    values = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "inter.broker.listener.name": "CLIENTS",
        "controller.quorum.voters": "1@h:1,2@h:2",
        "odradek.inter.broker.authentication": mode,
    }
    if not refused:
        of(values)
        return
    with pytest.raises(ConfigError, match=f"authentication: {mode}, but nodes use the listener CLIENTS"):
        of(values)
