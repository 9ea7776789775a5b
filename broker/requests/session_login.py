"""The SASL logins of one connection (KIP-43, KIP-152) as a state machine, with repeated logins (KIP-368)."""

from enum import Enum
from typing import Final

from odradek.protocol.errors import ErrorCode, Malformed
from odradek.protocol.sasl.mechanism import AuthenticationFailed, Identity, Reply, SaslServer
from odradek.runtime.machine import BUG, Refuse, To, TransitionTable

VERSIONS_BEFORE_LOGIN_MAX: Final = 4
"""Maximum ApiVersions requests of a connection before its login. A client sends one, and repeats it in another version.

Without a limit, a client that never logs in could occupy the event loop, and keep its connection open.
"""
REPEAT_MS_MIN: Final = 1_000
"""Minimum milliseconds between the begins of two repeated logins of a connection, as in Apache Kafka."""


class LoginState(Enum):
    """State of the login of a connection."""

    NONE = "the client has not begun a login"
    EXCHANGE = "the first login is under way"
    COMPLETE = "the client is authenticated"
    REPEATED_EXCHANGE = "the client is authenticated, and a repeated login is under way"
    FAILED = "a login has failed, and the connection closes"

    __hash__ = object.__hash__


class LoginEvent(Enum):
    """Event that changes the login of a connection."""

    HANDSHAKE = "SaslHandshake with a mechanism that the listener supports"
    MESSAGE = "SaslAuthenticate"
    SUCCESS = "the server of the mechanism has authenticated the client"
    FAILURE = "a request for the login was refused"

    __hash__ = object.__hash__


_S, _E = LoginState, LoginEvent
_ILLEGAL: Final = Refuse(ErrorCode.ILLEGAL_SASL_STATE)
_EXCHANGE, _COMPLETE, _REPEATED, _FAILED = To(_S.EXCHANGE), To(_S.COMPLETE), To(_S.REPEATED_EXCHANGE), To(_S.FAILED)
# fmt: off
LOGIN_TABLE: Final[TransitionTable[LoginState, LoginEvent, To[LoginState] | Refuse]] = TransitionTable.of_rows(
    "login",
    LoginState,
    LoginEvent,
    {
        #              NONE       EXCHANGE   COMPLETE   REPEATED_EXCHANGE  FAILED
        _E.HANDSHAKE: (_EXCHANGE, _ILLEGAL,  _REPEATED, _ILLEGAL,          _ILLEGAL),
        _E.MESSAGE:   (_ILLEGAL,  _EXCHANGE, _ILLEGAL,  _REPEATED,         _ILLEGAL),
        _E.SUCCESS:   (BUG,       _COMPLETE, BUG,       _COMPLETE,         BUG),
        _E.FAILURE:   (_FAILED,   _FAILED,   _FAILED,   _FAILED,           _FAILED),
    },
)
# fmt: on


class SessionLogin:
    """The login of one connection."""

    __slots__ = ("_repeated_ms", "_server", "_versions", "expires_ms", "identity", "is_raw", "mechanism", "state")

    def __init__(self) -> None:
        self.state = LoginState.NONE
        self.mechanism = ""
        """The mechanism of the last handshake."""
        self.identity: Identity | None = None
        """The user of the last complete login. A repeated login that is under way does not change it."""
        self.expires_ms: int | None = None
        """Monotonic time from which only a repeated login is served; None if the session does not expire."""
        self.is_raw = False
        """True while the messages of the client are SASL messages without a request header (SaslHandshake v0)."""
        self._server: SaslServer | None = None
        self._repeated_ms: int | None = None
        self._versions = 0

    @property
    def is_repeated(self) -> bool:
        """True if the client is authenticated, and a repeated login is under way or has failed."""
        return self.identity is not None and self.state is not LoginState.COMPLETE

    def count_versions(self) -> None:
        """Count an ApiVersions request before the login. Raise Malformed above VERSIONS_BEFORE_LOGIN_MAX."""
        self._versions += 1
        if self._versions > VERSIONS_BEFORE_LOGIN_MAX:
            raise Malformed(f"the client sent {self._versions} ApiVersions requests, but did not log in")

    def begin(self, mechanism: str, server: SaslServer, now_ms: int, *, is_raw: bool = False) -> None:
        """Begin an exchange of `mechanism` with `server`. Raise AuthenticationFailed if it is not the time for it.

        `is_raw`: the messages of the exchange have no request header.
        """
        if self.state is LoginState.COMPLETE:
            if mechanism != self.mechanism:
                raise AuthenticationFailed(
                    "the client changed the mechanism",
                    public=f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication "
                    f"of mechanism '{self.mechanism}'",
                )
            if self._repeated_ms is not None and now_ms - self._repeated_ms < REPEAT_MS_MIN:
                raise IllegalState("the client repeated its login twice in a second")
            self._repeated_ms = now_ms
        self._step(LoginEvent.HANDSHAKE)
        self.mechanism, self._server, self.is_raw = mechanism, server, is_raw

    def next(self, message: bytes) -> Reply:
        """Return the response to a message of the client. Raise AuthenticationFailed.

        After a reply with an identity, the caller calls `succeed`.
        """
        self._step(LoginEvent.MESSAGE)
        assert self._server is not None
        reply = self._server.next(message)
        before, after = self.identity, reply.identity
        if before is not None and after is not None and (after.user, after.node_id) != (before.user, before.node_id):
            raise AuthenticationFailed(
                "the client changed the principal",
                public=f"Cannot change principals during re-authentication from User.{before.user}: User.{after.user}",
            )
        return reply

    def succeed(self, identity: Identity, expires_ms: int | None) -> None:
        """Complete the login. `expires_ms` is the monotonic time at which the session expires."""
        self._step(LoginEvent.SUCCESS)
        self.identity, self.expires_ms, self._server, self.is_raw = identity, expires_ms, None, False

    def fail(self) -> None:
        """Refuse all later requests for a login: the connection closes."""
        self._step(LoginEvent.FAILURE)
        self._server = None

    def _step(self, event: LoginEvent) -> None:
        outcome = LOGIN_TABLE.look_up(self.state, event)
        if isinstance(outcome, Refuse):
            raise IllegalState(f"{event.value} was received, but {self.state.value}")
        self.state = outcome.state


class SessionExpired(Malformed):
    """The session of a client has expired, and the client sent another request than those of a login."""


class IllegalState(AuthenticationFailed):
    """A request that does not belong to the state of the login. Its error code is ILLEGAL_SASL_STATE."""
