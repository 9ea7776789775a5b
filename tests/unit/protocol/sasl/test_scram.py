"""SCRAM-SHA-256: the example of RFC 7677, and messages that must be refused."""

from base64 import b64decode

import pytest

from odradek.protocol.sasl.scram import (
    ITERATIONS_MAX,
    MESSAGE_BYTES_MAX,
    AuthenticationFailed,
    Credential,
    ScramClient,
    ScramServer,
)

USER = "user"
PASSWORD = b"pencil"
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential_of(user: str) -> Credential | None:
    return Credential.of_password(PASSWORD, SALT, 4_096) if user in {USER, "a,b=c"} else None


def server(nonce: str = SERVER_NONCE) -> ScramServer:
    return ScramServer(credential_of, nonce)


def client(user: str = USER, password: bytes = PASSWORD) -> ScramClient:
    return ScramClient(user, password, CLIENT_NONCE)


def test_client_and_server_send_the_messages_of_the_rfc() -> None:
    one, other = client(), server()
    assert one.first() == CLIENT_FIRST
    assert other.first(CLIENT_FIRST) == SERVER_FIRST
    assert one.final(SERVER_FIRST) == CLIENT_FINAL
    assert other.final(CLIENT_FINAL) == SERVER_FINAL
    one.verify(SERVER_FINAL)
    assert other.user == USER


def test_user_name_with_special_characters_is_escaped() -> None:
    one, other = client("a,b=c"), server()
    assert one.first() == b"n,,n=a=2Cb=3Dc,r=rOprNGfwEbeRWgbNEkqO"
    one.verify(other.final(one.final(other.first(one.first()))))
    assert other.user == "a,b=c"


def test_server_refuses_another_password_and_ends_the_exchange() -> None:
    one, other = client(password=b"pencils"), server()
    proof = one.final(other.first(one.first()))
    with pytest.raises(AuthenticationFailed, match="the password differs"):
        other.final(proof)
    with pytest.raises(AuthenticationFailed, match="no first message"):
        other.final(CLIENT_FINAL)


def test_client_refuses_a_server_without_the_credential() -> None:
    one = client()
    one.first()
    with pytest.raises(AuthenticationFailed, match="does not know the credential"):
        one.verify(SERVER_FINAL)
    one.final(SERVER_FIRST)
    for message in (b"v=" + b"A" * 43 + b"=", b"v="):
        with pytest.raises(AuthenticationFailed, match="does not know the credential"):
            one.verify(message)
    with pytest.raises(AuthenticationFailed, match="refused the exchange: invalid-proof"):
        one.verify(b"e=invalid-proof")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"n,a=other,n=user,r=x", "authorization id differs"),
        (b"n,user,n=user,r=x", "authorization id differs"),
        (b"p=tls-unique,,n=user,r=x", "channel binding"),
        (b"n,,n=another-user,r=x", "unknown user"),
        (b"n,,n=user,r=", "empty nonce"),
        (b"n,,n=us=er,r=x", "invalid escape"),
        (b"n,,n=,r=x", "user name is empty"),
        (b"n,,r=x,n=user", "does not begin with"),
        (b"n,,m=ext,n=user,r=x", "does not begin with"),
        (b"", "channel binding"),
        (b"n", "does not begin with"),
        (b"\xff", "not UTF-8"),
        (b"n,,n=user,r=" + b"x" * MESSAGE_BYTES_MAX, "more than 1024"),
    ],
)
def test_server_refuses_first_messages(message: bytes, reason: str) -> None:
    with pytest.raises(AuthenticationFailed, match=reason):
        server().first(message)


def test_authorization_id_of_the_user_is_accepted() -> None:
    assert server().first(b"n,a=user,n=user,r=rOprNGfwEbeRWgbNEkqO") == SERVER_FIRST


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"c=biws", b"c=eSws", "channel binding differs"),
        (b"c=biws", b"c=!", "not base64"),
        (b"hNlF$k0", b"hNlF$k1", "nonce differs"),
        (SERVER_NONCE.encode(), b"", "nonce differs"),
        (b",p=", b",q=", "does not begin with"),
        (b"dHzb", b"AAAA", "password differs"),
        (b"dHzb", b"", "wrong length"),
        (b"c=biws,", b"", "does not begin with"),
    ],
)
def test_server_refuses_final_messages(old: bytes, new: bytes, reason: str) -> None:
    other = server()
    other.first(CLIENT_FIRST)
    assert old in CLIENT_FINAL
    with pytest.raises(AuthenticationFailed, match=reason):
        other.final(CLIENT_FINAL.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"r=rOpr", b"r=rOps", "does not continue"),
        (SERVER_NONCE.encode(), b"", "does not continue"),
        (b"i=4096", b"i=4095", "4095 iterations"),
        (b"i=4096", b"i=%d" % (ITERATIONS_MAX + 1), "16385 iterations"),
        (b"i=4096", b"i=-1", "-1 iterations"),
        (b"i=4096", b"i=" + b"9" * 900, "9999999999 iterations"),
        (b"s=W22Z", b"s=!", "not base64"),
        (b"s=", b"t=", "does not begin with"),
    ],
)
def test_client_refuses_first_messages_of_a_server(old: bytes, new: bytes, reason: str) -> None:
    one = client()
    one.first()
    assert old in SERVER_FIRST
    with pytest.raises(AuthenticationFailed, match=reason):
        one.final(SERVER_FIRST.replace(old, new))


def test_server_requires_its_own_nonce() -> None:
    """A recorded exchange is refused, because each exchange has another nonce."""
    other = server("another-nonce-of-the-server")
    other.first(CLIENT_FIRST)
    with pytest.raises(AuthenticationFailed, match="nonce differs"):
        other.final(CLIENT_FINAL)
