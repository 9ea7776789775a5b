"""Authentication between the nodes of a cluster by SCRAM-SHA-256, with a credential derived from the cluster secret.

All nodes have the same secret, so that each of them is client and server. The password and the salt are derived from
the secret with different labels, so that neither reveals the secret.

The client's first message names the node that the client has dialed, in the extension attribute `t`, and the node
of the client, in the attribute `s`. The proof covers both. A server refuses a login that names another target. A
process that receives a login at the address of a failed node can therefore not pass it on to a third node, or back to
the client, and hold an authenticated connection. Later requests of the connection cannot name another source.
"""

import hmac
import re
from collections.abc import Callable
from typing import Final

from odradek.protocol.sasl.login import Login
from odradek.protocol.sasl.mechanism import AuthenticationFailed, Identity
from odradek.protocol.sasl.scram import ITERATIONS_MIN, NONCE_BITS, SCRAM_SHA_256, Credential, Decoys
from odradek.protocol.sasl.scram_client import ScramClient
from odradek.protocol.sasl.scram_server import Account, ClientFirst, ScramServer

MECHANISM: Final = SCRAM_SHA_256
USER: Final = "cluster"
"""User name of all nodes. The login of a client with this name is no login of a node (`is_node_login`)."""
SECRET_BYTES_MIN: Final = 32
"""Minimum bytes of a cluster secret. `openssl rand -base64 32` writes 44."""
FAILED_MESSAGE: Final = "the cluster secrets (cluster.secret.file) of the two nodes differ"
_SALT_BYTES: Final = 16
_NAMED_MAX: Final = 40
"""Maximum characters of a client's attributes in an error message. The two attributes of a node have at most 25."""
_TARGET: Final = "t="
_SOURCE: Final = "s="
_SOURCE_ATTRIBUTE: Final = re.compile(rf"{_SOURCE}([0-9]{{1,10}})")
_NODE_FIRST: Final = f"n,,n={USER},r=".encode()
"""Start of the first message of a node. The message of a client whose user has this name starts in the same way."""
_FINAL: Final = b"c="
"""Start of the second message of a node or client."""


class AnotherNode(AuthenticationFailed):
    """The login does not name the node that received it. The message is for both sides."""

    def __init__(self, message: str) -> None:
        super().__init__(message, public=message)


class ClusterSecret:
    """Secret of the cluster: it makes the clients and servers of SCRAM exchanges."""

    def __init__(self, secret: bytes, random_bits: Callable[[int], int]) -> None:
        """`random_bits` returns an integer with that number of unpredictable bits, for nonces."""
        self._random_bits = random_bits
        self.datagram_key: Final = hmac.digest(secret, b"odradek failure detector datagrams", "sha256")
        """Key of the datagrams of the failure detector."""
        self.decoys: Final = Decoys(hmac.digest(secret, b"odradek scram decoys", "sha256"))
        """Credentials of unknown users."""
        self._node_decoys = Decoys(hmac.digest(secret, b"odradek scram decoys of nodes", "sha256"))
        """Credentials of unknown users in the login of a node. They differ from `decoys`: equal salts in the logins of
        a node and of a client would show that a user is unknown."""
        self._password = hmac.digest(secret, b"odradek scram-sha-256 password", "sha256").hex().encode()
        salt = hmac.digest(secret, b"odradek scram-sha-256 salt", "sha256")[:_SALT_BYTES]
        self._credential = Credential.of_password(MECHANISM, self._password, salt, ITERATIONS_MIN)

    def login(self, source: int, target: int) -> Login:
        """Return the client side of a new exchange of node `source` with node `target`. No other node accepts it."""
        return Login(ScramClient(MECHANISM, USER, self._salted_password, self._nonce(), _extensions(source, target)))

    def server(self, node_id: int) -> ScramServer:
        """Return the server side of a new exchange on node `node_id`."""

        def account_of(first: ClientFirst) -> Account | None:
            identity = Identity(USER, node_id=_source(first, node_id))
            return Account(self._credential, identity) if first.user == USER else None

        return ScramServer(MECHANISM, account_of, self._node_decoys, self._nonce())

    def _nonce(self) -> str:
        return f"{self._random_bits(NONCE_BITS):x}"

    def _salted_password(self, salt: bytes, iterations: int) -> bytes:
        """Return the salted password. All nodes have one salt, so it is computed once, at the start of the process."""
        if iterations != ITERATIONS_MIN:
            raise AuthenticationFailed(f"the node requires {iterations} iterations, not {ITERATIONS_MIN}")
        return MECHANISM.salted(self._password, salt, iterations)


def is_node_login(first: ClientFirst) -> bool:
    """Return True if a first message names a target node: it is the login of a node, not of a client."""
    return any(extension.startswith(_TARGET) for extension in first.extensions)


def may_be_of_node(message: bytes) -> bool:
    """Return False for a message that begins the login of a client. A nonce contains no comma (RFC 5802, section 7)."""
    if message.startswith(_NODE_FIRST):
        return f",{_TARGET}".encode() in message
    return message.startswith(_FINAL)


def _extensions(source: int, target: int) -> tuple[str, str]:
    return f"{_TARGET}{target}", f"{_SOURCE}{source}"


def _source(first: ClientFirst, node_id: int) -> int:
    """Return the node that logs in to this node, `node_id`.

    Raise AnotherNode unless the message has the two attributes in their order and no other one, so that no attribute
    can be read in two ways.
    """
    source = _SOURCE_ATTRIBUTE.fullmatch(first.extensions[-1]) if first.extensions else None
    if source is None or first.extensions != _extensions(int(source[1]), node_id):
        named = ",".join(first.extensions)[:_NAMED_MAX]
        raise AnotherNode(
            f"the login is for another node: this is node {node_id}, the login has {named!r}; check the "
            "address of each node in controller.quorum.voters and advertised.listeners"
        )
    return int(source[1])


def parse_secret(content: bytes, name: str, random_bits: Callable[[int], int]) -> ClusterSecret:
    """Return the secret in the content of file `name`, without surrounding white space. Raise ValueError if short."""
    secret = content.strip()
    if len(secret) < SECRET_BYTES_MIN:
        raise ValueError(
            f"cluster.secret.file: {name} has {len(secret)} bytes, at least {SECRET_BYTES_MIN} are needed; "
            "make one with: openssl rand -base64 32"
        )
    return ClusterSecret(secret, random_bits)
