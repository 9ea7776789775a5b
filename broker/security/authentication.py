"""Rules for all SASL logins of a node: the end of sessions, and the delay, the rate and the log of failed logins."""

from asyncio import Event, sleep, timeout
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from odradek.broker.requests.api import Ordered
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.session import Session, origin_of
from odradek.broker.requests.session_login import IllegalState
from odradek.broker.security.failed_logins import FailedLogins
from odradek.broker.security.mechanisms import Mechanisms
from odradek.cluster.authorizer import CLUSTER_NODE, Principal
from odradek.protocol.errors import ERRORS, ErrorCode
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from odradek.protocol.messages.sasl_handshake import SaslHandshakeResponse
from odradek.protocol.sasl.cluster_secret import FAILED_MESSAGE
from odradek.protocol.sasl.mechanism import AuthenticationFailed, Identity
from odradek.protocol.schema import Message
from odradek.runtime.clock import Clock

TOO_MANY: Final = "too many logins of this address have failed; repeat the login later"
PREPARATION_SECONDS_MAX: Final = 10
"""Maximum seconds that a login waits for the credential of its token. A new token is ready within milliseconds."""
HEADERS_VERSION_MIN: Final = 1
"""First version of SaslHandshake that SaslAuthenticate requests follow. SASL messages without a header follow v0."""
R = TypeVar("R", bound=Message)


@dataclass(slots=True)
class LoginCounts:
    """Counts of logins on one listener."""

    successful: int = 0
    successful_repeated: int = 0
    failed: int = 0
    failed_repeated: int = 0
    expired: int = 0
    """Connections that were closed because their session had expired."""


class Authentication:
    """The logins on all listeners of a node."""

    def __init__(self, mechanisms: Mechanisms, clock: Clock, *, failure_delay_ms: int) -> None:
        """`failure_delay_ms`: time from a failed login to its response and the end of the connection."""
        self.mechanisms: Final = mechanisms
        self._clock = clock
        self._failure_delay_ms = failure_delay_ms
        self._failures = FailedLogins()
        self._counts: dict[str, LoginCounts] = {}

    @property
    def counts(self) -> dict[str, LoginCounts]:
        """Return the counts of logins by the name of the listener."""
        return self._counts

    def handshake(
        self, context: RequestContext, mechanism: str
    ) -> SaslHandshakeResponse | Ordered[SaslHandshakeResponse]:
        """Begin a login."""
        session = context.session
        names = self.mechanisms.names(session.listener)
        server = self.mechanisms.server(session.listener, mechanism)
        try:
            if server is None:
                missing = f"a mechanism that is not one of {', '.join(names)}"
                no_login = "a login by SASL, which this listener does not serve"
                raise AuthenticationFailed(f"the client requires {missing if names else no_login}")
            is_raw = context.api_version < HEADERS_VERSION_MIN
            session.login.begin(mechanism, server, self._clock.monotonic_ms(), is_raw=is_raw)
        except AuthenticationFailed as error:
            illegal = isinstance(error, IllegalState)
            code = ErrorCode.ILLEGAL_SASL_STATE if illegal else ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return self._failed(context, error, SaslHandshakeResponse(code, names))
        return SaslHandshakeResponse(ErrorCode.NONE, names)

    def authenticate(
        self, context: RequestContext, message: bytes
    ) -> SaslAuthenticateResponse | Ordered[SaslAuthenticateResponse]:
        """Pass a message of the client to the server of its exchange."""
        session = context.session
        if not session.listener.security_protocol.uses_sasl:
            return self._advance(context, message)  # a node: no process can find a cluster secret by trying
        wait_s = self._failures.wait_s(origin_of(session.client_host), self._now_s())
        if wait_s is None:
            return self._failed(context, AuthenticationFailed(TOO_MANY, public=TOO_MANY), _too_many(), waited=True)
        preparation = self.mechanisms.preparation(session.login.mechanism, message)
        if wait_s or preparation is not None:
            return Ordered(self._advance_later(context, message, wait_s, preparation))
        return self._advance(context, message)

    def expired(self, session: Session) -> None:
        """Count a connection that is closed because its session has expired."""
        self._counts_of(session).expired += 1

    async def _advance_later(
        self, context: RequestContext, message: bytes, wait_s: float, preparation: Event | None
    ) -> Any:
        await sleep(wait_s)
        if preparation is not None:
            with suppress(TimeoutError):
                async with timeout(PREPARATION_SECONDS_MAX):
                    await preparation.wait()
        result = self._advance(context, message, waited=wait_s > 0)
        return await result.awaitable if isinstance(result, Ordered) else result

    def _advance(
        self, context: RequestContext, message: bytes, *, waited: bool = False
    ) -> SaslAuthenticateResponse | Ordered[SaslAuthenticateResponse]:
        session = context.session
        try:
            reply = session.login.next(message)
            lifetime_ms = 0 if reply.identity is None else self._succeed(session, reply.identity)
        except AuthenticationFailed as error:
            return self._failed(context, error, _refusal(session, error), waited=waited)
        except Exception:  # a bug: the client cannot repeat it without end
            self._note_failed(context, waited=waited)
            raise
        self._failures.succeeded(origin_of(session.client_host), self._now_s(), waited=waited)
        return SaslAuthenticateResponse(error_message=None, auth_bytes=reply.message, session_lifetime_ms=lifetime_ms)

    def _succeed(self, session: Session, identity: Identity) -> int:
        """Complete the login, and return the lifetime of the session in milliseconds; 0 if it does not expire."""
        login, repeated, is_node = session.login, session.login.is_repeated, identity.node_id is not None
        lifetimes_ms = [] if is_node else self._lifetimes_ms(session, identity)
        lifetime_ms = min(lifetimes_ms, default=None)
        login.succeed(identity, None if lifetime_ms is None else self._clock.monotonic_ms() + lifetime_ms)
        principal = CLUSTER_NODE if is_node else Principal("User", identity.user)
        session.log_in(principal, node_id=identity.node_id, by_token=identity.by_token)
        counts = self._counts_of(session)
        if repeated:
            counts.successful_repeated += 1
        else:
            counts.successful += 1
        return lifetime_ms or 0

    def _lifetimes_ms(self, session: Session, identity: Identity) -> list[int]:
        limit_ms = self.mechanisms.max_session_ms(session.listener, session.login.mechanism)
        lifetimes_ms = [limit_ms] if limit_ms else []
        if identity.expires_ms is not None:
            lifetimes_ms.append(max(0, identity.expires_ms - self._clock.wall_ms()))
        return lifetimes_ms

    def _failed(
        self, context: RequestContext, error: AuthenticationFailed, response: R, *, waited: bool = False
    ) -> R | Ordered[R]:
        """Log a failed login, and return its response, with which the connection ends."""
        context.session.login_failed(error)
        self._note_failed(context, waited=waited)
        if not self._failure_delay_ms:
            return response
        return Ordered(_delayed(response, self._failure_delay_ms))

    def _note_failed(self, context: RequestContext, *, waited: bool) -> None:
        """Count a failed login. The connection ends with the response."""
        session = context.session
        counts = self._counts_of(session)
        if session.login.is_repeated:
            counts.failed_repeated += 1
        else:
            counts.failed += 1
        session.login.fail()
        if session.listener.security_protocol.uses_sasl:
            self._failures.failed(origin_of(session.client_host), self._now_s(), waited=waited)
        context.ends_connection = True

    def _counts_of(self, session: Session) -> LoginCounts:
        return self._counts.setdefault(session.listener.name, LoginCounts())

    def _now_s(self) -> float:
        return self._clock.monotonic_ms() / 1_000


async def _delayed(response: R, delay_ms: int) -> R | Awaitable[R | None] | None:
    await sleep(delay_ms / 1_000)
    return response


def _refusal(session: Session, error: AuthenticationFailed) -> SaslAuthenticateResponse:
    """Return the response to a failed login. It does not reveal which check of the credential failed."""
    if isinstance(error, IllegalState):
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, ERRORS[ErrorCode.ILLEGAL_SASL_STATE].message)
    message = error.public
    if message is None and not session.listener.security_protocol.uses_sasl:
        message = FAILED_MESSAGE
    if message is None:
        action = "re-authentication" if session.login.is_repeated else "authentication"
        message = (
            f"Authentication failed during {action} due to invalid credentials with SASL mechanism "
            f"{session.login.mechanism}"
        )
    return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


def _too_many() -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, TOO_MANY)
