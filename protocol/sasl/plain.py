"""PLAIN (RFC 4616) as two cores. The client sends its password: use it on a connection with encryption alone."""

import hashlib
import hmac
from collections.abc import Callable
from typing import Final

from odradek.protocol.sasl.mechanism import PLAIN, AuthenticationFailed, Identity, Reply

_SEPARATOR: Final = "\0"
_TOKENS: Final = 3
_INVALID: Final = "Authentication failed: Invalid username or password"
"""Error message for an unknown user and for another password, in Kafka's words."""


class PlainClient:
    """Client of one exchange."""

    mechanism: Final = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self._message = _SEPARATOR.join(("", user, password)).encode()

    def first(self) -> bytes:
        """Return the user name and the password."""
        return self._message

    def next(self, message: bytes) -> bytes | None:
        """Return None: the server sends one empty message."""
        if message:
            raise AuthenticationFailed("the server sent a message, but PLAIN has none from the server")
        return None


class PlainServer:
    """Server of one exchange."""

    def __init__(self, password_of: Callable[[str], str | None]) -> None:
        """`password_of` returns the password of a user, or None for an unknown user."""
        self._password_of = password_of

    def next(self, message: bytes) -> Reply:
        """Authenticate the user in the client's only message."""
        tokens = _tokens(message)
        if len(tokens) != _TOKENS:
            raise _refused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}")
        authorization, user, password = tokens
        if not user:
            raise _refused("Authentication failed: username not specified")
        if not password:
            raise _refused("Authentication failed: password not specified")
        expected = self._password_of(user)
        # An unknown user takes the same steps. The hashes have equal length, so that no comparison reveals a length.
        matches = hmac.compare_digest(_hash(password), _hash(expected or ""))
        if expected is None or not matches:
            raise _refused(_INVALID)
        if authorization not in ("", user):
            raise _refused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return Reply(b"", Identity(user))


def is_plain(message: bytes) -> bool:
    """Return True for a message of PLAIN. Other mechanisms have no NUL characters in their messages."""
    return message.count(_SEPARATOR.encode()) == _TOKENS - 1


def _tokens(message: bytes) -> list[str]:
    try:
        return message.decode().split(_SEPARATOR, _TOKENS)
    except UnicodeDecodeError:
        pass  # raised below, so that the traceback does not contain the message
    raise _refused("Invalid SASL/PLAIN response: not UTF-8 text")


def _hash(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()


def _refused(message: str) -> AuthenticationFailed:
    return AuthenticationFailed(message, public=message)
