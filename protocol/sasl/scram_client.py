"""Client side of SCRAM."""

import hmac
from collections.abc import Callable
from typing import Final

from odradek.protocol.sasl.mechanism import AuthenticationFailed
from odradek.protocol.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    attributes,
    decoded,
    encoded,
    escaped_name,
    text_of,
    xor,
)

Salted = Callable[[bytes, int], bytes]
"""Return the salted password for a salt and a number of iterations."""
_SERVER_ERROR_CHARACTERS_MAX: Final = 100


class ScramClient:
    """Client of one exchange."""

    def __init__(
        self, mechanism: ScramMechanism, user: str, salted: Salted, nonce: str, extensions: tuple[str, ...] = ()
    ) -> None:
        """Begin an exchange. `nonce` has at least 128 random bits and no comma.

        `extensions`: attributes after the nonce (RFC 5802, section 5.1). The proof covers them.
        """
        self._mechanism = mechanism
        self._salted = salted
        self._nonce = nonce
        self._first_bare = ",".join((f"n={escaped_name(user)}", f"r={nonce}", *extensions))
        self._server_signature: bytes | None = None

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, user: str, password: str, nonce: str, *, by_token: bool = False
    ) -> "ScramClient":
        """Return the client of a user. `by_token`: `user` is the id of a delegation token, `password` its HMAC."""
        secret = password.encode()

        def salted(salt: bytes, iterations: int) -> bytes:
            return mechanism.salted(secret, salt, iterations)

        return cls(mechanism, user, salted, nonce, ("tokenauth=true",) if by_token else ())

    @property
    def mechanism(self) -> str:
        return self._mechanism.name

    def first(self) -> bytes:
        """Return the first message to the server."""
        return f"n,,{self._first_bare}".encode()

    def next(self, message: bytes) -> bytes | None:
        """Return the proof of the password, or None after the server has proved its knowledge of the credential."""
        if self._server_signature is None:
            return self._final(text_of(message))
        self._verify(text_of(message), self._server_signature)
        return None

    def _final(self, text: str) -> bytes:
        values = attributes(text, "r", "s", "i")
        if not values["r"].startswith(self._nonce) or len(values["r"]) == len(self._nonce):
            raise AuthenticationFailed("the nonce of the server does not continue the nonce of the client")
        iterations = int(values["i"]) if values["i"].isascii() and values["i"].isdecimal() else 0
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise AuthenticationFailed(
                f"the server requires {values['i'][:10]} iterations, not {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        mechanism = self._mechanism
        salted = self._salted(decoded(values["s"]), iterations)
        without_proof = f"c={encoded(b'n,,')},r={values['r']}"
        signed = f"{self._first_bare},{text},{without_proof}".encode()
        client_key = mechanism.hmac(salted, b"Client Key")
        signature = mechanism.hmac(mechanism.hash(client_key), signed)
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={encoded(xor(client_key, signature))}".encode()

    @staticmethod
    def _verify(text: str, expected: bytes) -> None:
        """Raise AuthenticationFailed unless the server knows the credential."""
        if text.startswith("e="):
            raise AuthenticationFailed(f"the server refused the exchange: {text[2:_SERVER_ERROR_CHARACTERS_MAX]}")
        if not hmac.compare_digest(decoded(attributes(text, "v")["v"]), expected):
            raise AuthenticationFailed("the server does not know the credential")
