"""Tokens for OAUTHBEARER, from a file or from the token endpoint of an identity provider."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlencode, urlsplit

from odradek.client.errors import AuthenticationFailed, Unreachable
from odradek.client.security.tls import Tls, context_of

if TYPE_CHECKING:
    from pathlib import Path

TOKEN_BYTES_MAX: Final = 2**20
"""Maximum bytes of a token file or of a response of an identity provider. Tokens have about 1,000 bytes."""
ENDPOINT_TIMEOUT_S: Final = 10.0
"""Seconds for a response of an identity provider."""
REFRESH_FRACTION: Final = 0.8
"""Fraction of the lifetime of a token after which a new one is fetched, as sasl.login.refresh.window.factor."""
TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/\-]+=*")
"""Syntax of a bearer token (RFC 6750, section 2.1). Other characters could add attributes to the SASL message."""


class TokenSource(Protocol):
    """Source of tokens."""

    async def token(self) -> str:
        """Return a token that has not expired. Raise ClientError if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file with one token. It is read at each login, because another process renews it."""

    path: Path

    async def token(self) -> str:
        try:
            text = await asyncio.to_thread(self._read)
        except (OSError, UnicodeDecodeError) as error:
            raise AuthenticationFailed(
                f"the token file {self.path} cannot be read ({getattr(error, 'strerror', None) or 'not UTF-8 text'})",
                "check sasl.oauthbearer.token.endpoint.url",
            ) from None
        return _checked(text.strip(), f"the token file {self.path}")

    def _read(self) -> str:
        with self.path.open("rb") as file:
            return file.read(TOKEN_BYTES_MAX).decode()


@dataclass(eq=False)
class TokenEndpoint:
    """Token endpoint of an identity provider, for the grant type client_credentials (RFC 6749, section 4.4).

    Attributes:
        url: Address, with the scheme http or https.
        client_id: Name of the client at the identity provider.
        client_secret: Secret of the client. It does not appear in the representation.
        scope: Requested scope. None: the default of the identity provider.
        tls: Settings of TLS for the scheme https.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    tls: Tls = field(default_factory=Tls)
    _token: str = field(default="", init=False, repr=False)
    _refresh_at: float = field(default=0.0, init=False, repr=False)

    async def token(self) -> str:
        loop = asyncio.get_running_loop()
        if not self._token or loop.time() >= self._refresh_at:
            response = await asyncio.to_thread(self._fetch)
            self._token = _checked(str(response.get("access_token", "")), f"the response of {self.url}")
            lifetime_s = response.get("expires_in")
            valid_s = float(lifetime_s) if isinstance(lifetime_s, int | float) else 0.0
            self._refresh_at = loop.time() + REFRESH_FRACTION * valid_s
        return self._token

    def _fetch(self) -> dict[str, Any]:
        from http.client import HTTPException

        try:
            status, body = self._post()
        except (OSError, HTTPException, UnicodeError) as error:  # UnicodeError: a name that DNS cannot encode
            raise Unreachable(f"the token endpoint {self.url} cannot be reached ({error})") from None
        if status != HTTPStatus.OK:
            raise AuthenticationFailed(
                f"the token endpoint {self.url} refused the client {self.client_id!r} (HTTP {status})",
                "check clientId and clientSecret in sasl.jaas.config",
            )
        try:
            content: Any = json.loads(body)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise AuthenticationFailed(f"the response of {self.url} is no JSON object")
        return content

    def _post(self) -> tuple[int, bytes]:
        """Return status and content of the response. A redirection is not followed: it could leak the secret."""
        from http.client import HTTPConnection, HTTPSConnection

        parts = urlsplit(self.url)
        fields = {"grant_type": "client_credentials"} | ({} if self.scope is None else {"scope": self.scope})
        credentials = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        headers = {
            "Authorization": f"Basic {credentials}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        host, port = parts.hostname or "", parts.port
        connection = (
            HTTPSConnection(host, port, timeout=ENDPOINT_TIMEOUT_S, context=context_of(self.tls))
            if parts.scheme == "https"
            else HTTPConnection(host, port, timeout=ENDPOINT_TIMEOUT_S)
        )
        try:
            target = parts.path or "/"
            connection.request("POST", f"{target}?{parts.query}" if parts.query else target, urlencode(fields), headers)
            response = connection.getresponse()
            return response.status, response.read(TOKEN_BYTES_MAX)
        finally:
            connection.close()


def _checked(token: str, source: str) -> str:
    """Return the token. Raise AuthenticationFailed if it is empty or has other characters than a bearer token."""
    if not TOKEN.fullmatch(token):
        raise AuthenticationFailed(f"{source} has no bearer token")
    return token
