"""SCRAM-SHA-256 (RFC 5802, RFC 7677) as two cores: the client and the server of one exchange.

1. The client sends its user name and a nonce.
2. The server responds with the joined nonce, and with the salt and the iterations of the credential.
3. The client proves that it knows the password.
4. The server proves that it knows the credential.

Callers pass nonces as arguments. A nonce has at least 128 random bits and no comma.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

MECHANISM: Final = "SCRAM-SHA-256"
ITERATIONS_MIN: Final = 4_096
"""Minimum iterations of a credential, as in Apache Kafka."""
ITERATIONS_MAX: Final = 16_384
"""Maximum iterations of a credential, as in Apache Kafka. A server must not occupy its client for longer."""
MESSAGE_BYTES_MAX: Final = 1_024
"""Maximum bytes of one message of the exchange. Messages between brokers have about 150 bytes."""
SALTED_PASSWORDS_MAX: Final = 16
"""Maximum salted passwords that a process remembers. A broker needs one, a client one per salt of its servers."""
_HASH: Final = "sha256"
_NO_CHANNEL_BINDING: Final = ("n", "y")


class AuthenticationFailed(Exception):
    """The exchange failed. The message has the reason, and no secret."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Credential of one user, as a server stores it. It does not contain the password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of_password(cls, password: bytes, salt: bytes, iterations: int) -> "Credential":
        """Return the credential of a password."""
        salted = _salted_password(password, salt, iterations)
        client_key = _hmac(salted, b"Client Key")
        return cls(salt, hashlib.sha256(client_key).digest(), _hmac(salted, b"Server Key"), iterations)


class ScramClient:
    """Client of one exchange. Call `first`, `final` and `verify`, in this order."""

    def __init__(self, user: str, password: bytes, nonce: str, extensions: tuple[str, ...] = ()) -> None:
        """`extensions`: attributes after the nonce (RFC 5802, section 5.1). The proof covers them."""
        self._password = password
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = ",".join((f"n={name}", f"r={nonce}", *extensions))
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the first message to the server."""
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the second message to the server. Raise AuthenticationFailed if its first message is not valid."""
        text = _text(server_first)
        values = _attributes(text, "r", "s", "i")
        if not values["r"].startswith(self._nonce) or len(values["r"]) == len(self._nonce):
            raise AuthenticationFailed("the nonce of the server does not continue the nonce of the client")
        iterations = int(values["i"]) if values["i"].isascii() and values["i"].isdecimal() else 0
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise AuthenticationFailed(
                f"the server requires {values['i'][:10]} iterations, not {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        salted = _salted_password(self._password, _decoded(values["s"]), iterations)
        without_proof = f"c={b64encode(b'n,,').decode()},r={values['r']}"
        signed = f"{self._first_bare},{text},{without_proof}".encode()
        client_key = _hmac(salted, b"Client Key")
        signature = _hmac(hashlib.sha256(client_key).digest(), signed)
        self._server_signature = _hmac(_hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={b64encode(_xor(client_key, signature)).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check the second message of the server. Raise AuthenticationFailed unless it knows the credential."""
        text = _text(server_final)
        if text.startswith("e="):
            raise AuthenticationFailed(f"the server refused the exchange: {text[2:100]}")
        signature = _decoded(_attributes(text, "v")["v"])
        if not self._server_signature or not hmac.compare_digest(signature, self._server_signature):
            raise AuthenticationFailed("the server does not know the credential")


class ScramServer:
    """Server of one exchange. Call `first` and `final`, in this order."""

    def __init__(self, credential_of: Callable[[str], Credential | None], nonce: str) -> None:
        """`credential_of` returns the credential of a user, or None for an unknown user."""
        self._credential_of = credential_of
        self._nonce = nonce
        self._credential: Credential | None = None
        self._header = ""
        self._signed = ""
        self._user = ""
        self._extensions: tuple[str, ...] = ()

    @property
    def extensions(self) -> tuple[str, ...]:
        """Attributes after the nonce in the first message. They are authenticated after `final` has returned."""
        return self._extensions

    @property
    def user(self) -> str:
        """Name of the user. It is authenticated after `final` has returned."""
        return self._user

    def first(self, client_first: bytes) -> bytes:
        """Return the first message to the client. Raise AuthenticationFailed if its first message is not valid."""
        text = _text(client_first)
        binding, authorization, bare = [*text.split(",", 2), "", ""][:3]
        if binding not in _NO_CHANNEL_BINDING:
            raise AuthenticationFailed("channel binding is not supported")
        values = _attributes(bare, "n", "r")
        user = _user(values["n"])
        if authorization and (authorization[:2] != "a=" or _user(authorization[2:]) != user):
            raise AuthenticationFailed("the authorization id differs from the user")
        credential = self._credential_of(user)
        if credential is None or not values["r"]:
            raise AuthenticationFailed("unknown user or empty nonce")
        self._header = f"{binding},{authorization},"
        self._nonce = values["r"] + self._nonce
        self._credential, self._user = credential, user
        self._extensions = tuple(bare.split(",")[2:])
        reply = f"r={self._nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._signed = f"{bare},{reply}"
        return reply.encode()

    def final(self, client_final: bytes) -> bytes:
        """Return the second message to the client. Raise AuthenticationFailed unless it knows the password."""
        credential, self._credential = self._credential, None
        if credential is None:
            raise AuthenticationFailed("the exchange has no first message")
        without_proof, separator, proof = _text(client_final).rpartition(",p=")
        values = _attributes(without_proof, "c", "r")
        if not separator or _decoded(values["c"]) != self._header.encode():
            raise AuthenticationFailed("the channel binding differs from that of the first message")
        if not hmac.compare_digest(values["r"].encode(), self._nonce.encode()):
            raise AuthenticationFailed("the nonce differs from that of the first message")
        signed = f"{self._signed},{without_proof}".encode()
        signature = _hmac(credential.stored_key, signed)
        client_key = _xor(_decoded(proof), signature)
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), credential.stored_key):
            raise AuthenticationFailed("the password differs")
        return f"v={b64encode(_hmac(credential.server_key, signed)).decode()}".encode()


@lru_cache(maxsize=SALTED_PASSWORDS_MAX)
def _salted_password(password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(_HASH, password, salt, iterations)


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, _HASH)


def _xor(left: bytes, right: bytes) -> bytes:
    if len(left) != len(right):
        raise AuthenticationFailed("the proof has a wrong length")
    return bytes(one ^ other for one, other in zip(left, right, strict=True))


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise AuthenticationFailed(f"a message has {len(message)} bytes, more than {MESSAGE_BYTES_MAX}")
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise AuthenticationFailed("a message is not UTF-8 text") from error


def _attributes(text: str, *names: str) -> dict[str, str]:
    """Return the leading attributes of a message, which must have these names. Further attributes are extensions."""
    parts = text.split(",")
    if [part[:2] for part in parts[: len(names)]] != [f"{name}=" for name in names]:
        raise AuthenticationFailed(f"a message does not begin with the attributes {', '.join(names)}")
    return {name: part[2:] for name, part in zip(names, parts, strict=False)}


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError) as error:
        raise AuthenticationFailed("an attribute is not base64") from error


def _user(text: str) -> str:
    """Return a user name without escapes."""
    name = text.replace("=2C", ",").replace("=3D", "=")
    if not name or text.count("=") != text.count("=2C") + text.count("=3D"):
        raise AuthenticationFailed("the user name is empty or has an invalid escape")
    return name
