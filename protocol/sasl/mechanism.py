"""Types that all SASL mechanisms share: the client and the server of one exchange of messages."""

from dataclasses import dataclass
from typing import Final, Protocol

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"


class AuthenticationFailed(Exception):
    """The exchange failed. The message is for the log of this process: it has the reason, and no secret.

    `public` is the error message for the other process. None: the reason can reveal which users exist, so the other
    process receives a general message.
    """

    def __init__(self, reason: str, *, public: str | None = None) -> None:
        super().__init__(reason)
        self.public = public


@dataclass(frozen=True, slots=True)
class Identity:
    """Result of a successful exchange."""

    user: str
    """Name of the principal."""
    expires_ms: int | None = None
    """Wall-clock time at which the credential expires, in milliseconds; None if it does not expire."""
    by_token: bool = False
    """True if the client authenticated with a delegation token of `user`."""
    node_id: int | None = None
    """Id of the node that authenticated with the cluster secret; None if the client is no node of the cluster."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Response of a server to one message of its client."""

    message: bytes
    identity: Identity | None = None
    """The authenticated user. None: the exchange continues."""


class SaslServer(Protocol):
    """Server of one exchange."""

    def next(self, message: bytes) -> Reply:
        """Return the response to the next message of the client. Raise AuthenticationFailed."""
        ...


class SaslClient(Protocol):
    """Client of one exchange. Call `first`, then `next` with each message of the server until it returns None."""

    @property
    def mechanism(self) -> str:
        """Return the name of the mechanism, for SaslHandshake."""
        ...

    def first(self) -> bytes:
        """Return the first message to the server."""
        ...

    def next(self, message: bytes) -> bytes | None:
        """Return the response to a message of the server. Return None if the server has authenticated the client.

        Raise AuthenticationFailed if the server refuses the client or does not prove its own identity.
        """
        ...
