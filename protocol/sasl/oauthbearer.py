"""OAUTHBEARER (RFC 7628) as two cores. The client sends a token (JWT), and the server validates it.

If the token is not valid, the server sends the error as JSON. The client acknowledges it by one byte, and the exchange
fails.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from odradek.protocol.sasl.mechanism import OAUTHBEARER, AuthenticationFailed, Identity, Reply

ACKNOWLEDGMENT: Final = b"\x01"
"""The client's message after an error."""
TOKEN_BYTES_MAX: Final = 65_536
"""Maximum bytes of the client's first message. Tokens have about 1 KiB, with many groups or roles about 16 KiB."""
_SEPARATOR: Final = "\x01"
_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authorization>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)", re.ASCII)
_AUTH_KEY: Final = "auth"
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_REFUSAL: Final = '{"status":"invalid_token"}'
"""The error of any token that is not valid, as Apache Kafka sends it."""
_ERROR_CHARACTERS_MAX: Final = 200
"""Maximum characters of a server's error in an error message."""


class InvalidToken(Exception):
    """A token is not valid. The message has the reason, and no part of the token."""


Validate = Callable[[str], Identity]
"""Return the user that a token identifies. Raise InvalidToken."""


class OAuthBearerClient:
    """Client of one exchange."""

    mechanism: Final = OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        """`extensions`: further pairs of name and value. Raise ValueError if one of them is not valid."""
        pairs = dict(extensions or {})
        for name, value in pairs.items():
            valid = _EXTENSION_NAME.fullmatch(name) and _EXTENSION_VALUE.fullmatch(value)
            if name == _AUTH_KEY or not valid:
                raise ValueError(f"extension {name!r} of OAUTHBEARER is not valid; use letters alone for its name")
        texts = (f"{_AUTH_KEY}=Bearer {token}", *(f"{name}={value}" for name, value in pairs.items()))
        self._message = f"n,,{_SEPARATOR}{_SEPARATOR.join(texts)}{_SEPARATOR}{_SEPARATOR}".encode()
        self._error: str | None = None

    def first(self) -> bytes:
        """Return the message with the token."""
        return self._message

    def next(self, message: bytes) -> bytes | None:
        """Return None after an empty message, and the acknowledgment after an error of the server."""
        if self._error is not None:
            raise AuthenticationFailed(f"the server refused the token: {self._error}")
        if not message:
            return None
        self._error = repr(message[:_ERROR_CHARACTERS_MAX].decode("utf-8", "replace"))
        return ACKNOWLEDGMENT


class OAuthBearerServer:
    """Server of one exchange."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._invalid: InvalidToken | None = None

    def next(self, message: bytes) -> Reply:
        """Authenticate the user of the token. Return the error if the token is not valid."""
        if self._invalid is not None:
            raise AuthenticationFailed(f"the token is not valid: {self._invalid}", public=_REFUSAL)
        authorization, token = _parse(message)
        try:
            identity = self._validate(token)
        except InvalidToken as error:
            self._invalid = error
            return Reply(_REFUSAL.encode())
        if authorization not in ("", identity.user):
            raise AuthenticationFailed(
                "the authorization id differs from the principal of the token",
                public="Authentication failed: Client requested an authorization id that is different from the "
                "token's principal name",
            )
        return Reply(b"", identity)


def _parse(message: bytes) -> tuple[str, str]:
    """Return the authorization id and the token of the client's first message. Raise AuthenticationFailed."""
    if len(message) > TOKEN_BYTES_MAX:
        raise AuthenticationFailed(f"a message has {len(message)} bytes, more than {TOKEN_BYTES_MAX}")
    matched = _FIRST.fullmatch(message.decode("utf-8", "replace"))
    if matched is None:
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in matched["pairs"].split(_SEPARATOR) if pair)
    auth = pairs.get(_AUTH_KEY)
    if auth is None:
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message: 'auth' not specified")
    parts = _AUTH.fullmatch(auth)
    if parts is None:
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if parts["scheme"].lower() != "bearer":
        raise AuthenticationFailed("Invalid scheme in OAUTHBEARER client first message: it is not bearer")
    return matched["authorization"] or "", parts["token"]
