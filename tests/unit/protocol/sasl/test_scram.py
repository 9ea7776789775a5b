"""SCRAM: the example of RFC 7677, messages that must be refused, and exchanges of unknown users."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest

from odradek.protocol.sasl.mechanism import AuthenticationFailed, Identity
from odradek.protocol.sasl.scram import (
    ITERATIONS_MAX,
    MESSAGE_BYTES_MAX,
    SCRAM_MECHANISMS,
    SCRAM_SHA_256,
    Credential,
    Decoys,
    ScramMechanism,
)
from odradek.protocol.sasl.scram_client import ScramClient
from odradek.protocol.sasl.scram_server import Account, ClientFirst, ScramServer

if TYPE_CHECKING:
    from collections.abc import Callable

USER = "user"
PASSWORD = "pencil"
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


DECOYS = Decoys(b"key of the decoys")
CREDENTIALS = {
    mechanism.name: Credential.of_password(mechanism, PASSWORD.encode(), SALT, 4_096)
    for mechanism in SCRAM_MECHANISMS.values()
}


def server(nonce: str = SERVER_NONCE, mechanism: ScramMechanism = SCRAM_SHA_256) -> ScramServer:
    def account_of(first: ClientFirst) -> Account | None:
        if first.user not in {USER, "a,b=c"}:
            return None
        return Account(CREDENTIALS[mechanism.name], Identity("owner" if first.by_token else first.user))

    return ScramServer(mechanism, account_of, DECOYS, nonce)


def client(user: str = USER, password: str = PASSWORD, mechanism: ScramMechanism = SCRAM_SHA_256) -> ScramClient:
    return ScramClient.of_password(mechanism, user, password, CLIENT_NONCE)


def sent(one: ScramClient, message: bytes) -> bytes:
    """Return the response of a client, which must not end the exchange."""
    reply = one.next(message)
    assert reply is not None
    return reply


def test_client_and_server_send_the_messages_of_the_rfc() -> None:
    one, other = client(), server()
    assert one.first() == CLIENT_FIRST
    assert other.next(CLIENT_FIRST).message == SERVER_FIRST
    assert one.next(SERVER_FIRST) == CLIENT_FINAL
    reply = other.next(CLIENT_FINAL)
    assert (reply.message, reply.identity) == (SERVER_FINAL, Identity(USER))
    assert one.next(SERVER_FINAL) is None


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values(), ids=lambda mechanism: mechanism.name)
def test_exchange_of_each_mechanism_succeeds(mechanism: ScramMechanism) -> None:
    one, other = client(mechanism=mechanism), server(mechanism=mechanism)
    final = sent(one, other.next(one.first()).message)
    assert one.next(other.next(final).message) is None


def test_mechanisms_have_different_proofs() -> None:
    one, other = client(mechanism=SCRAM_MECHANISMS["SCRAM-SHA-512"]), server()
    final = sent(one, other.next(one.first()).message)
    with pytest.raises(AuthenticationFailed, match="wrong length"):
        other.next(final)


def test_user_name_with_special_characters_is_escaped() -> None:
    one, other = client("a,b=c"), server()
    assert one.first() == b"n,,n=a=2Cb=3Dc,r=rOprNGfwEbeRWgbNEkqO"
    reply = other.next(sent(one, other.next(one.first()).message))
    assert reply.identity == Identity("a,b=c")
    assert one.next(reply.message) is None


def test_login_by_a_token_names_it_in_an_extension_and_authenticates_its_owner() -> None:
    one = ScramClient.of_password(SCRAM_SHA_256, USER, PASSWORD, CLIENT_NONCE, by_token=True)
    other = server()
    assert one.first() == CLIENT_FIRST + b",tokenauth=true"
    reply = other.next(sent(one, other.next(one.first()).message))
    assert reply.identity == Identity("owner")


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS.values(), ids=lambda mechanism: mechanism.name)
def test_exchange_of_an_unknown_user_has_the_same_messages_and_hashes(mechanism: ScramMechanism) -> None:
    """A client cannot find out by the messages, or by the work of the server, which users exist."""
    exchanges = {user: _failed_exchange(user, mechanism) for user in (USER, "nobody", "unknown")}
    challenges = {user: challenge for user, (challenge, _, _) in exchanges.items()}
    assert challenges["nobody"] == _failed_exchange("nobody", mechanism)[0]
    assert challenges["nobody"] != challenges["unknown"]
    for challenge, failed, hashes in exchanges.values():
        nonce, salt, iterations = challenge.decode().split(",")
        assert nonce == f"r={CLIENT_NONCE}{SERVER_NONCE}"
        assert b64decode(salt.removeprefix("s="))
        assert iterations == "i=4096"
        assert failed.public is None
        assert hashes == exchanges[USER][2]
        assert len(hashes) > 2


def test_unknown_user_is_refused_also_with_the_password_of_its_decoy() -> None:
    class KnownDecoys(Decoys):
        def credential(self, mechanism: ScramMechanism, name: str, *, by_token: bool = False) -> Credential:
            return CREDENTIALS[mechanism.name]

    one, other = client("nobody"), ScramServer(SCRAM_SHA_256, lambda _: None, KnownDecoys(b""), SERVER_NONCE)
    proof = sent(one, other.next(one.first()).message)
    with pytest.raises(AuthenticationFailed, match="unknown user"):
        other.next(proof)


def _failed_exchange(user: str, mechanism: ScramMechanism) -> tuple[bytes, AuthenticationFailed, list[str]]:
    """Return the challenge, the failure after a wrong proof, and the hash functions that the server called."""
    one, other = client(user, "other password", mechanism), server(mechanism=mechanism)
    hashes: list[str] = []
    with pytest.MonkeyPatch.context() as patch, pytest.raises(AuthenticationFailed) as failed:
        challenge = _counted(patch, hashes, lambda: other.next(one.first()).message)
        final = sent(one, challenge)
        _counted(patch, hashes, lambda: other.next(final).message)
    return challenge, failed.value, hashes


def test_server_refuses_another_password_and_ends_the_exchange() -> None:
    one, other = client(password="pencils"), server()
    proof = sent(one, other.next(one.first()).message)
    with pytest.raises(AuthenticationFailed, match="the password differs"):
        other.next(proof)
    with pytest.raises(AuthenticationFailed, match="the exchange has ended"):
        other.next(CLIENT_FINAL)


def test_client_refuses_a_server_without_the_credential() -> None:
    one = client()
    one.first()
    with pytest.raises(AuthenticationFailed, match="does not begin with"):
        one.next(SERVER_FINAL)
    one.next(SERVER_FIRST)
    for message in (b"v=" + b"A" * 43 + b"=", b"v="):
        with pytest.raises(AuthenticationFailed, match="does not know the credential"):
            one.next(message)
    with pytest.raises(AuthenticationFailed, match="refused the exchange: invalid-proof"):
        one.next(b"e=invalid-proof")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"n,a=other,n=user,r=x", "authorization id differs"),
        (b"n,user,n=user,r=x", "authorization id is not an attribute"),
        (b"p=tls-unique,,n=user,r=x", "channel binding"),
        (b"n,,n=user,r=", "the nonce is empty"),
        (b"n,,n=us=er,r=x", "invalid escape"),
        (b"n,,n=,r=x", "user name is empty"),
        (b"n,,r=x,n=user", "does not begin with"),
        (b"n,,m=ext,n=user,r=x", "does not begin with"),
        (b"", "channel binding"),
        (b"n", "does not begin with"),
        (b"\xff", "not UTF-8"),
        (b"n,,n=user,r=" + b"x" * MESSAGE_BYTES_MAX, "more than 4096"),
    ],
)
def test_server_refuses_first_messages(message: bytes, reason: str) -> None:
    with pytest.raises(AuthenticationFailed, match=reason):
        server().next(message)


def test_authorization_id_of_the_user_is_accepted() -> None:
    assert server().next(b"n,a=user,n=user,r=rOprNGfwEbeRWgbNEkqO").message == SERVER_FIRST


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
    other.next(CLIENT_FIRST)
    assert old in CLIENT_FINAL
    with pytest.raises(AuthenticationFailed, match=reason):
        other.next(CLIENT_FINAL.replace(old, new))


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
        one.next(SERVER_FIRST.replace(old, new))


def test_server_requires_its_own_nonce() -> None:
    """A recorded exchange is refused, because each exchange has another nonce."""
    other = server("another-nonce-of-the-server")
    other.next(CLIENT_FIRST)
    with pytest.raises(AuthenticationFailed, match="nonce differs"):
        other.next(CLIENT_FINAL)


def _counted(patch: pytest.MonkeyPatch, hashes: list[str], call: Callable[[], bytes]) -> bytes:
    """Return the result of `call`, and append the hash functions that it uses to `hashes`."""
    new, digest = hashlib.new, hmac.digest

    def counted_new(name: str, data: bytes = b"") -> Any:
        hashes.append(name)
        return new(name, data)

    def counted_digest(key: bytes, message: bytes, name: str) -> bytes:
        hashes.append(f"hmac {name}")
        return digest(key, message, name)

    patch.setattr(hashlib, "new", counted_new)
    patch.setattr(hmac, "digest", counted_digest)
    try:
        return call()
    finally:
        patch.undo()
