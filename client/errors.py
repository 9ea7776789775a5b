"""Exceptions of the client. Each names what failed, Kafka's error code if a broker refused, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping


class ClientError(Exception):
    """An operation failed. `str()` gives one line: the problem, and after a semicolon the remedy.

    Attributes:
        problem: What failed, with the values concerned.
        remedy: The next step for an operator. Empty if none is known.
        code: Kafka's error code. None if no broker refused the operation. An int if this client does not know the code.
    """

    def __init__(self, problem: str, remedy: str = "", *, code: int | None = None) -> None:
        super().__init__(f"{problem}; {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy
        self.code = None if code is None else known_code(code)


class InvalidArgument(ClientError, ValueError):
    """An argument is invalid for any cluster. No request was sent."""


class InvalidState(ClientError, RuntimeError):
    """The operation is not possible now, such as a commit without an open transaction. No request was sent."""


class Unreachable(ClientError):
    """No connection to a broker could be made. No request was sent."""


class ConnectionLost(ClientError):
    """The connection ended before the response arrived. The broker may have carried out the request."""


class RequestTimedOut(ConnectionLost):
    """No response arrived in time, so the connection was closed. The broker may have carried out the request."""


class ProtocolError(ClientError):
    """The peer sent bytes that are no valid Kafka response to the request. The connection was closed."""


class AuthenticationFailed(ClientError):
    """The broker refused the certificate or the credentials of this client, or this client refused those of the broker.

    It is not retried: each further attempt would fail, too, and count as a failed login.
    """


class UnsupportedRequest(ClientError):
    """The broker serves no version of the request that this client knows."""


class Refused(ClientError):
    """A broker responded with an error code, either a permanent one or a retriable one until the deadline."""


class NotFound(Refused):
    """The topic, group, transactional id, transaction or broker does not exist."""


class Fenced(Refused):
    """A newer producer with the same transactional id exists. This producer must not be used again."""


FENCING_CODES = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Codes after which a producer cannot continue: its epoch is older than the current one of its transactional id."""

_UNAUTHORIZED_CODES = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
REMEDY_ACL = "log in as another user, or let an administrator add an ACL (odradek acls add)"
_REMEDIES: Final[Mapping[int, str]] = {
    ErrorCode.SECURITY_DISABLED: "to use ACLs, set authorizer.class.name on all nodes",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "set delegation.token.secret.key on all nodes",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "log in by SASL or a client certificate, and not by a token",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "list the brokers with: odradek status",
    ErrorCode.LEADER_NOT_AVAILABLE: "list partitions without a leader with: odradek health",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "list the topics with: odradek topics list",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "use another name: at most 249 letters, digits, dots, underscores and hyphens, and no internal topic"
    ),
}
"""Next step by error code, if it is the same for all requests."""


def known_code(code: int) -> int:
    """Return the code as ErrorCode, or unchanged if this client does not know it."""
    try:
        return ErrorCode(code)
    except ValueError:
        return code


def name_of(code: int) -> str:
    """Return Kafka's name of an error code, or `error N` if this client does not know it."""
    known = known_code(code)
    return known.name if isinstance(known, ErrorCode) else f"error {code}"


def refused(code: int, what: str, message: str | None = None, remedy: str = "") -> Refused:
    """Return the exception for an error code. `message` is the broker's own text.

    Without a `remedy`, the error has that of its code, if there is one.
    """
    remedy = remedy or (REMEDY_ACL if code in _UNAUTHORIZED_CODES else _REMEDIES.get(code, ""))
    if message and remedy:
        message = message.removesuffix(".")
    problem = f"{what}: {name_of(code)}" + (f": {message}" if message else "")
    return (Fenced if code in FENCING_CODES else Refused)(problem, remedy, code=code)


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise Refused unless the code is NONE."""
    if code != ErrorCode.NONE:
        raise refused(code, what, message)
