"""Authentication between the nodes of a cluster by SCRAM-SHA-256, with a credential derived from the cluster secret.

All nodes have the same secret, so that each of them is client and server. The password and the salt are derived from
the secret with different labels, so that neither reveals the secret.

The client's first message names the node that the client has dialed, in the extension attribute `t`. The proof covers
it, and a server refuses a login that names another node. A process that receives a login at the address of a failed
node can therefore not pass it on to a third node, or back to the client, and hold an authenticated connection.
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
_NAMED_MAX: Final = 40
"""Maximum characters of a client's attributes in an error message. The attribute with a node id has at most 13."""


class AnotherNode(AuthenticationFailed):
    """The login does not name the node that received it. The message is for both sides."""


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

    def login(self, node_id: int) -> "Login":
        """Return the client side of a new exchange with node `node_id`. No other node accepts it."""
        return Login(ScramClient(USER, self._password, self._nonce(), (_target(node_id),)))

    def exchange(self, node_id: int) -> "Exchange":
        """Return the server side of a new exchange on node `node_id`."""
        scram = ScramServer(lambda user: self._credential if user == USER else None, self._nonce())
        return Exchange(scram, node_id)

    def _nonce(self) -> str:
        return f"{self._random_bits(NONCE_BITS):x}"


def _target(node_id: int) -> str:
    return f"t={node_id}"


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

    def __init__(self, scram: ScramServer, node_id: int) -> None:
        self._scram = scram
        self._node_id = node_id
        self._has_first = False

    def received(self, message: bytes) -> tuple[SaslAuthenticateResponse, bool]:
        """Return the response to a message, and True if the client is authenticated.

        Raise AnotherNode if the login does not name this node, AuthenticationFailed if the message is not valid.
        """
        is_final, self._has_first = self._has_first, True
        reply = self._scram.final(message) if is_final else self._scram.first(message)
        self._check_target()
        return SaslAuthenticateResponse(error_message=None, auth_bytes=reply), is_final

    def _check_target(self) -> None:
        """Require the name of this node, and no other attribute, so that no attribute can be read in two ways."""
        if self._scram.extensions != (_target(self._node_id),):
            named = ",".join(self._scram.extensions)[:_NAMED_MAX]
            raise AnotherNode(
                f"the login is for another node: this is node {self._node_id}, the login has {named!r}; check the "
                "address of each node in controller.quorum.voters and advertised.listeners"
            )


FAILED_MESSAGE: Final = "the cluster secrets (cluster.secret.file) of the two nodes differ"


def failed_response(error: AuthenticationFailed) -> SaslAuthenticateResponse:
    """Return the response to a failed login. It does not reveal which check of the credential failed."""
    message = str(error) if isinstance(error, AnotherNode) else FAILED_MESSAGE
    return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
