"""Credentials of a client for SASL, from the properties `sasl.*`."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote, urlsplit

from odradek.client.errors import InvalidArgument
from odradek.client.security.names import (
    CALLBACK_HANDLER,
    CLIENT_ID,
    CLIENT_SECRET,
    JAAS_CONFIG,
    MECHANISM,
    SCOPE,
    TOKEN_URL,
)
from odradek.client.security.tls import Tls
from odradek.client.security.tokens import TokenEndpoint, TokenFile, TokenSource
from odradek.protocol.sasl.jaas import JaasInvalid, LoginModule, login_module
from odradek.protocol.tls_stores import StoreUnusable, trust_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from odradek.protocol.sasl.mechanism import SaslClient

PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"
_PACKAGE: Final = "org.apache.kafka.common.security"
LOGIN_MODULES: Final = {
    PLAIN: f"{_PACKAGE}.plain.PlainLoginModule",
    SCRAM_256: f"{_PACKAGE}.scram.ScramLoginModule",
    SCRAM_512: f"{_PACKAGE}.scram.ScramLoginModule",
    OAUTHBEARER: f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule",
}
"""Login module of each supported mechanism."""
OAUTH_HANDLERS: Final = (
    f"{_PACKAGE}.oauthbearer.OAuthBearerLoginCallbackHandler",
    f"{_PACKAGE}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
"""Values of CALLBACK_HANDLER that Kafka's clients need for OAUTHBEARER. Nothing is loaded from them."""
NONCE_BYTES: Final = 18
"""Random bytes of a nonce: 144 bits."""
EXTENSION_PREFIX: Final = "extension_"


class Credentials(Protocol):
    """Credentials of one client."""

    async def client(self) -> SaslClient:
        """Return the client of a new exchange."""
        ...

    @property
    def mechanism(self) -> str:
        """Return the name of the mechanism."""
        ...

    @property
    def is_costly(self) -> bool:
        """Return True if the exchange computes thousands of hashes."""
        ...

    @property
    def remedy(self) -> str:
        """Return the next step of an operator if a broker refuses the credentials."""
        ...


@dataclass(frozen=True, slots=True)
class UserPassword:
    """User name and password, for PLAIN and SCRAM. With `by_token`, those of a delegation token (KIP-48)."""

    mechanism: str
    user: str
    password: str = field(repr=False)
    by_token: bool = False

    @property
    def is_costly(self) -> bool:
        return self.mechanism != PLAIN

    @property
    def remedy(self) -> str:
        return f"check the user {self.user!r} and its password in {JAAS_CONFIG}"

    async def client(self) -> SaslClient:
        if self.mechanism == PLAIN:
            from odradek.protocol.sasl.plain import PlainClient

            return PlainClient(self.user, self.password)
        from odradek.protocol.sasl.scram import SCRAM_MECHANISMS
        from odradek.protocol.sasl.scram_client import ScramClient

        mechanism = SCRAM_MECHANISMS[self.mechanism]
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        return ScramClient.of_password(mechanism, self.user, self.password, nonce, by_token=self.by_token)


@dataclass(frozen=True, slots=True)
class BearerToken:
    """Source of tokens, for OAUTHBEARER, and the extensions of the first message."""

    source: TokenSource
    extensions: tuple[tuple[str, str], ...] = ()
    mechanism: str = OAUTHBEARER
    is_costly: bool = False

    @property
    def remedy(self) -> str:
        return f"check the token of {TOKEN_URL}: issuer, audience and expiry"

    async def client(self) -> SaslClient:
        from odradek.protocol.sasl.oauthbearer import OAuthBearerClient

        token = await self.source.token()
        try:
            return OAuthBearerClient(token, dict(self.extensions))
        except ValueError as error:
            raise InvalidArgument(f"{JAAS_CONFIG}: {error}") from None


def credentials_of(properties: Mapping[str, str], read: Callable[[str], bytes]) -> Credentials:
    """Return the credentials of the properties `sasl.*`. Raise InvalidArgument if one is missing or invalid."""
    mechanism = properties.get(MECHANISM, "GSSAPI")
    if mechanism not in LOGIN_MODULES:
        raise InvalidArgument(
            f"{MECHANISM} is {mechanism}, which this client does not support", f"set it to {', '.join(LOGIN_MODULES)}"
        )
    text = properties.get(JAAS_CONFIG)
    if text is None:
        other = (
            " (sasl.username and sasl.password are properties of librdkafka)" if "sasl.username" in properties else ""
        )
        raise InvalidArgument(f"{JAAS_CONFIG} is not set{other}", f"write: {_example(mechanism)}")
    try:
        module = login_module(text)
    except JaasInvalid as error:
        raise InvalidArgument(f"{JAAS_CONFIG} {error}", f"write: {_example(mechanism)}") from None
    if module.name != LOGIN_MODULES[mechanism]:
        raise InvalidArgument(
            f"{JAAS_CONFIG} names a login module that {mechanism} does not have", f"write: {_example(mechanism)}"
        )
    if mechanism == OAUTHBEARER:
        return _bearer_token(properties, module, read)
    for name in ("username", "password"):
        if not module.options.get(name):
            raise InvalidArgument(f"{JAAS_CONFIG} has no {name}", f"write: {_example(mechanism)}")
    by_token = mechanism != PLAIN and module.options.get("tokenauth", "").lower() == "true"
    return UserPassword(mechanism, module.options["username"], module.options["password"], by_token)


def _example(mechanism: str) -> str:
    options = "" if mechanism == OAUTHBEARER else ' username="..." password="..."'
    return f"{LOGIN_MODULES[mechanism]} required{options};"


def _bearer_token(properties: Mapping[str, str], module: LoginModule, read: Callable[[str], bytes]) -> BearerToken:
    handler = properties.get(CALLBACK_HANDLER)
    if handler is not None and handler not in OAUTH_HANDLERS:
        raise InvalidArgument(f"{CALLBACK_HANDLER} names a class that only Java can load", f"use {OAUTH_HANDLERS[0]}")
    url = properties.get(TOKEN_URL)
    if url is None:
        raise InvalidArgument(
            f"{TOKEN_URL} is not set", "set it to the address of the token endpoint, or to file:///..."
        )
    options = module.options
    extensions = tuple(
        (name.removeprefix(EXTENSION_PREFIX), value)
        for name, value in options.items()
        if name.startswith(EXTENSION_PREFIX)
    )
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if it is no number
    except ValueError:
        raise InvalidArgument(f"{TOKEN_URL} is no address", "use https://, http:// or file://") from None
    if parts.scheme == "file":
        return BearerToken(TokenFile(Path(unquote(parts.path))), extensions)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InvalidArgument(f"{TOKEN_URL} has the scheme {parts.scheme!r}", "use https://, http:// or file://")
    if parts.username is not None or parts.password is not None:
        raise InvalidArgument(f"{TOKEN_URL} contains credentials", f"use clientId and clientSecret in {JAAS_CONFIG}")
    client_id = properties.get(CLIENT_ID) or options.get("clientId")
    secret = properties.get(CLIENT_SECRET) or options.get("clientSecret")
    if not client_id or not secret:
        raise InvalidArgument(f"{CLIENT_ID} or {CLIENT_SECRET} is not set", f"set both, with {TOKEN_URL}")
    try:
        trusted = trust_store(options, read)
    except StoreUnusable as error:
        raise InvalidArgument(f"{JAAS_CONFIG}: {error}") from None
    scope = properties.get(SCOPE) or options.get("scope")
    return BearerToken(TokenEndpoint(url, client_id, secret, scope, Tls(trusted)), extensions)
