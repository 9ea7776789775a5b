"""Authentication between the nodes of a cluster by SCRAM-SHA-256, with a credential derived from the cluster secret.

All nodes have the same secret, so that each of them is client and server. The password and the salt are derived from
the secret with different labels, so that neither reveals the secret.
"""

import hmac
from collections.abc import Callable
from typing import Final

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.protocol.sasl.scram import (
    ITERATIONS_MIN,
    MECHANISM,
    AuthenticationFailed,
    Credential,
    ScramClient,
    ScramServer,
)

USER: Final = "cluster"
"""User name of all nodes."""
SECRET_BYTES_MIN: Final = 32
"""Minimum bytes of a cluster secret. `openssl rand -base64 32` writes 44."""
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
NONCE_BITS: Final = 144
"""Random bits of a nonce."""
_SALT_BYTES: Final = 16


class ClusterSecret:
    """Secret of the cluster: it makes the clients and servers of SCRAM exchanges."""

    def __init__(self, secret: bytes, random_bits: Callable[[int], int]) -> None:
        """`random_bits` returns an integer with that number of unpredictable bits, for nonces."""
        self._random_bits = random_bits
        self.datagram_key: Final = hmac.digest(secret, b"odradek failure detector datagrams", "sha256")
        """Key of the datagrams of the failure detector."""
        self._password = hmac.digest(secret, b"odradek scram-sha-256 password", "sha256").hex().encode()
        salt = hmac.digest(secret, b"odradek scram-sha-256 salt", "sha256")[:_SALT_BYTES]
        self._credential = Credential.of_password(self._password, salt, ITERATIONS_MIN)

    def login(self) -> "Login":
        """Return the client side of a new exchange."""
        return Login(ScramClient(USER, self._password, self._nonce()))

    def exchange(self) -> "Exchange":
        """Return the server side of a new exchange."""
        return Exchange(ScramServer(lambda user: self._credential if user == USER else None, self._nonce()))

    def _nonce(self) -> str:
        return f"{self._random_bits(NONCE_BITS):x}"


def parse_secret(content: bytes, name: str, random_bits: Callable[[int], int]) -> ClusterSecret:
    """Return the secret in the content of file `name`, without surrounding white space. Raise ValueError if short."""
    secret = content.strip()
    if len(secret) < SECRET_BYTES_MIN:
        raise ValueError(
            f"cluster.secret.file: {name} has {len(secret)} bytes, at least {SECRET_BYTES_MIN} are needed; "
            "make one with: openssl rand -base64 32"
        )
    return ClusterSecret(secret, random_bits)


class Login:
    """Client side: the requests that authenticate a new connection to another node."""

    def __init__(self, scram: ScramClient) -> None:
        self._scram = scram
        self._steps: list[Callable[[bytes], bytes | None]] = [scram.final, self._verify]

    @property
    def request(self) -> SaslHandshakeRequest:
        """Return the first request, of version HANDSHAKE_VERSION."""
        return SaslHandshakeRequest(MECHANISM)

    def received(self, response: object) -> SaslAuthenticateRequest | None:
        """Return the request after `response`, of version AUTHENTICATE_VERSION. None: the node is authenticated.

        Raise AuthenticationFailed if either node does not know the secret.
        """
        if isinstance(response, SaslHandshakeResponse):
            if response.error_code:
                raise AuthenticationFailed(f"the node supports the mechanisms {response.mechanisms}, not {MECHANISM}")
            return SaslAuthenticateRequest(self._scram.first())
        if not isinstance(response, SaslAuthenticateResponse):
            raise AuthenticationFailed("the node sent another response")
        if response.error_code:
            raise AuthenticationFailed(response.error_message or f"error {response.error_code}")
        message = self._steps.pop(0)(bytes(response.auth_bytes))
        return None if message is None else SaslAuthenticateRequest(message)

    def _verify(self, message: bytes) -> None:
        self._scram.verify(message)


class Exchange:
    """Server side of one connection's authentication."""

    def __init__(self, scram: ScramServer) -> None:
        self._scram = scram
        self._has_first = False

    def received(self, message: bytes) -> tuple[SaslAuthenticateResponse, bool]:
        """Return the response to a message, and True if the client is authenticated.

        Raise AuthenticationFailed if the message is not valid.
        """
        if not self._has_first:
            self._has_first = True
            return SaslAuthenticateResponse(error_message=None, auth_bytes=self._scram.first(message)), False
        return SaslAuthenticateResponse(error_message=None, auth_bytes=self._scram.final(message)), True


FAILED_MESSAGE: Final = "the cluster secrets (cluster.secret.file) of the two nodes differ"


def failed_response() -> SaslAuthenticateResponse:
    """Return the response to a client that does not know the secret. It does not reveal which check failed."""
    return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, FAILED_MESSAGE)
