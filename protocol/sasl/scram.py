"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): credentials, and the parts of messages.

1. The client sends its user name and a nonce.
2. The server responds with the joined nonce, and with the salt and the iterations of the credential.
3. The client proves that it knows the password.
4. The server proves that it knows the credential.

`ScramClient` and `ScramServer` are the two sides. Like Apache Kafka, both take user names and passwords as UTF-8
without SASLprep.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from odradek.protocol.sasl.mechanism import AuthenticationFailed

ITERATIONS_MIN: Final = 4_096
"""Minimum iterations of a credential, as in Apache Kafka."""
ITERATIONS_MAX: Final = 16_384
"""Maximum iterations of a credential, as in Apache Kafka. A server must not occupy its client for longer."""
MESSAGE_BYTES_MAX: Final = 4_096
"""Maximum bytes of one message of the exchange. Messages have about 200 bytes and the name of the user.

The server of an exchange keeps about four times as many bytes until its end, and each connection can have an exchange.
"""
SALTED_PASSWORDS_MAX: Final = 16
"""Maximum salted passwords that a process remembers. A broker needs one, a client one per salt of its servers."""
SALT_BITS: Final = 130
"""Random bits of a salt that a client generates for a new credential, as in Apache Kafka."""
NONCE_BITS: Final = 144
"""Random bits of a nonce."""
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """One mechanism of the SCRAM family."""

    name: str
    code: int
    """Kafka's code of the mechanism, in records and in the requests about SCRAM credentials."""
    digest: str
    """Name of the hash function."""

    def hash(self, message: bytes) -> bytes:
        """Return the hash of `message`."""
        return hashlib.new(self.digest, message).digest()

    def hmac(self, key: bytes, message: bytes) -> bytes:
        """Return the HMAC of `message`."""
        return hmac.digest(key, message, self.digest)

    def salted(self, password: bytes, salt: bytes, iterations: int) -> bytes:
        """Return the salted password: the slow step, which takes milliseconds."""
        return _salted_password(self.digest, password, salt, iterations)


SCRAM_SHA_256: Final = ScramMechanism("SCRAM-SHA-256", 1, "sha256")
SCRAM_SHA_512: Final = ScramMechanism("SCRAM-SHA-512", 2, "sha512")
SCRAM_MECHANISMS: Final = {mechanism.name: mechanism for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)}
"""The mechanisms by name."""
SCRAM_BY_CODE: Final = {mechanism.code: mechanism for mechanism in SCRAM_MECHANISMS.values()}
"""The mechanisms by Kafka's code."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Credential of one user for one mechanism, as a server stores it. It does not contain the password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted(cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> "Credential":
        """Return the credential of a salted password."""
        stored_key = mechanism.hash(mechanism.hmac(salted, b"Client Key"))
        return cls(salt, stored_key, mechanism.hmac(salted, b"Server Key"), iterations)

    @classmethod
    def of_password(cls, mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> "Credential":
        """Return the credential of a password."""
        return cls.of_salted(mechanism, mechanism.salted(password, salt, iterations), salt, iterations)


class Decoys:
    """Credentials of unknown users, so that the exchange of an unknown user looks like that of a known user.

    A name always has the same salt, as a stored credential has. It has the length and the characters of the salts that
    Kafka's clients generate. The same name as the id of a delegation token has another salt, as for known users.
    """

    def __init__(self, key: bytes) -> None:
        """`key`: secret bytes, equal after a restart. With a cluster secret, they are also equal on all brokers."""
        self.key = key

    def credential(self, mechanism: ScramMechanism, name: str, *, by_token: bool = False) -> Credential:
        """Return a credential that matches no password. `by_token`: `name` is the id of a delegation token."""
        label = f"{'token ' if by_token else ''}{mechanism.name} {name}"
        unpredictable = hmac.digest(self.key, label.encode(), "sha512")
        salt = salt_text(int.from_bytes(unpredictable) >> (8 * len(unpredictable) - SALT_BITS)).encode()
        key = unpredictable[: len(mechanism.hash(b""))]
        return Credential(salt, key, key, ITERATIONS_MIN)


def salt_text(random_bits: int) -> str:
    """Return an integer of SALT_BITS random bits in base 36, as Kafka's clients write salts."""
    text = ""
    while random_bits or not text:
        random_bits, digit = divmod(random_bits, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text


def escaped_name(user: str) -> str:
    """Return a user name as a message contains it."""
    return user.replace("=", "=3D").replace(",", "=2C")


def user_name(text: str) -> str:
    """Return a user name without escapes. Raise AuthenticationFailed if it is empty or has an invalid escape."""
    name = text.replace("=2C", ",").replace("=3D", "=")
    if not name or text.count("=") != text.count("=2C") + text.count("=3D"):
        raise AuthenticationFailed("the user name is empty or has an invalid escape")
    return name


def text_of(message: bytes) -> str:
    """Return the text of a message. Raise AuthenticationFailed if it is too long or no text."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise AuthenticationFailed(f"a message has {len(message)} bytes, more than {MESSAGE_BYTES_MAX}")
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise AuthenticationFailed("a message is not UTF-8 text") from error


def attributes(text: str, *names: str) -> dict[str, str]:
    """Return the leading attributes of a message, which must have these names. Further attributes are extensions."""
    parts = text.split(",")
    if [part[:2] for part in parts[: len(names)]] != [f"{name}=" for name in names]:
        raise AuthenticationFailed(f"a message does not begin with the attributes {', '.join(names)}")
    return {name: part[2:] for name, part in zip(names, parts, strict=False)}


def encoded(value: bytes) -> str:
    """Return bytes as an attribute contains them."""
    return b64encode(value).decode()


def decoded(text: str) -> bytes:
    """Return the bytes of an attribute. Raise AuthenticationFailed if it is not base64."""
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError) as error:
        raise AuthenticationFailed("an attribute is not base64") from error


def xor(left: bytes, right: bytes) -> bytes:
    """Return the exclusive or of two values. Raise AuthenticationFailed if their lengths differ."""
    if len(left) != len(right):
        raise AuthenticationFailed("the proof has a wrong length")
    return bytes(one ^ other for one, other in zip(left, right, strict=True))


@lru_cache(maxsize=SALTED_PASSWORDS_MAX)
def _salted_password(digest: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(digest, password, salt, iterations)
