"""The state machine of a connection's SASL logins."""

import pytest

from odradek.broker.requests.session_login import REPEAT_MS_MIN, IllegalState, LoginState, SessionLogin
from odradek.protocol.sasl.mechanism import AuthenticationFailed, Identity, Reply


class Server:
    """A mechanism with two messages: any text, then the name of the user."""

    def next(self, message: bytes) -> Reply:
        if not message:
            raise AuthenticationFailed("an empty message")
        return Reply(b"more") if message == b"first" else Reply(b"", Identity(message.decode()))


def complete(login: SessionLogin, user: str = "alice", now_ms: int = 0, mechanism: str = "PLAIN") -> None:
    login.begin(mechanism, Server(), now_ms)
    assert login.next(b"first") == Reply(b"more")
    identity = login.next(user.encode()).identity
    assert identity is not None
    login.succeed(identity, 500)


def test_login_completes_after_its_messages() -> None:
    login = SessionLogin()
    assert (login.state, login.identity, login.expires_ms) == (LoginState.NONE, None, None)
    complete(login)
    assert (login.state, login.identity, login.expires_ms) == (LoginState.COMPLETE, Identity("alice"), 500)


def test_message_without_a_handshake_is_illegal() -> None:
    with pytest.raises(IllegalState):
        SessionLogin().next(b"first")
    login = SessionLogin()
    complete(login)
    with pytest.raises(IllegalState):
        login.next(b"first")


def test_handshake_during_an_exchange_is_illegal() -> None:
    login = SessionLogin()
    login.begin("PLAIN", Server(), 0)
    with pytest.raises(IllegalState):
        login.begin("PLAIN", Server(), 0)


def test_failed_login_ends_all_logins_of_the_connection() -> None:
    login = SessionLogin()
    login.begin("PLAIN", Server(), 0)
    with pytest.raises(AuthenticationFailed, match="an empty message"):
        login.next(b"")
    login.fail()
    with pytest.raises(IllegalState):
        login.begin("PLAIN", Server(), 0)
    with pytest.raises(IllegalState):
        login.next(b"first")


def test_repeated_login_keeps_the_identity_until_it_completes() -> None:
    login = SessionLogin()
    complete(login)
    login.begin("PLAIN", Server(), 1)
    assert login.is_repeated
    assert login.identity == Identity("alice")
    login.next(b"first")
    login.succeed(Identity("alice", expires_ms=7), None)
    assert (login.is_repeated, login.identity, login.expires_ms) == (False, Identity("alice", expires_ms=7), None)


def test_repeated_login_cannot_change_principal_or_mechanism() -> None:
    login = SessionLogin()
    complete(login)
    with pytest.raises(AuthenticationFailed) as failed:
        login.begin("SCRAM-SHA-256", Server(), 1)
    assert failed.value.public is not None
    assert "re-authentication of mechanism 'PLAIN'" in failed.value.public
    login.begin("PLAIN", Server(), 1)
    with pytest.raises(AuthenticationFailed) as failed:
        login.next(b"bob")
    assert failed.value.public == "Cannot change principals during re-authentication from User.alice: User.bob"


def test_login_is_repeated_at_most_once_per_second() -> None:
    login = SessionLogin()
    complete(login)
    complete(login, now_ms=10)
    with pytest.raises(IllegalState):
        login.begin("PLAIN", Server(), 10 + REPEAT_MS_MIN - 1)
    complete(login, now_ms=10 + REPEAT_MS_MIN)
