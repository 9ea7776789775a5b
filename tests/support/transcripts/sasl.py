"""Commands of the golden transcripts of SASL: one exchange of messages at a time.

    * user NAME PASSWORD           A user of PLAIN, and of SCRAM with 4,096 iterations.
    * token TEXT NAME EXPIRES      A token that the server accepts for a user, with its expiry in milliseconds.
    * server MECHANISM             Begin an exchange on the server.
    * send MESSAGE                 Pass a message to the server. %00 is the byte 0, %20 a blank.
    * log-in MECHANISM NAME PASSWORD [tokenauth]    Run a whole exchange between our client and our server.
    * client MECHANISM NAME PASSWORD                Begin an exchange of the client alone.
    * receive MESSAGE              Pass a message to the client; - is an empty message.

Lines begin with `C` for a message of the client and `S` for one of the server. `-` is an empty message.
Nonces are fixed.

See harness.py for the format of a transcript, and for how to update one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_to_bytes

from odradek.protocol.sasl.mechanism import OAUTHBEARER, PLAIN, AuthenticationFailed, Identity
from odradek.protocol.sasl.oauthbearer import InvalidToken, OAuthBearerClient, OAuthBearerServer
from odradek.protocol.sasl.plain import PlainClient, PlainServer
from odradek.protocol.sasl.scram import ITERATIONS_MIN, SCRAM_MECHANISMS, Credential, Decoys
from odradek.protocol.sasl.scram_client import ScramClient
from odradek.protocol.sasl.scram_server import Account, ClientFirst, ScramServer
from tests.support.transcripts.harness import Interpreter

if TYPE_CHECKING:
    from odradek.protocol.sasl.mechanism import SaslClient, SaslServer

CLIENT_NONCE, SERVER_NONCE = "clientNonce", "serverNonce"
SALT = b"a salt of 16 byt"
PRINTABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


class SaslInterpreter(Interpreter):
    """Execute commands on one client and one server of SASL mechanisms."""

    empty_output = ("ok",)

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.users: dict[str, str] = {}
        self.tokens: dict[str, Identity] = {}
        self.server: SaslServer | None = None
        self.client: SaslClient | None = None

    def collect(self, result: Any) -> list[str]:
        output, self.lines = self.lines, []
        return output

    def do_user(self, name: str, password: str) -> None:
        self.users[text(name).decode()] = text(password).decode()

    def do_token(self, token: str, name: str, expires_ms: str) -> None:
        self.tokens[token] = Identity(name, expires_ms=int(expires_ms))

    def do_server(self, mechanism: str) -> None:
        self.server = self._server(mechanism)

    def do_send(self, message: str) -> None:
        assert self.server is not None
        self._serve(self.server, text(message))

    def do_client(self, mechanism: str, name: str, password: str) -> None:
        self.client = made_client(mechanism, name, password)
        self.lines.append(f"C {shown(self.client.first())}")

    def do_receive(self, message: str) -> None:
        assert self.client is not None
        self._receive(self.client, text(message))

    def do_log_in(self, mechanism: str, name: str, password: str, by_token: str = "") -> None:
        client, server = made_client(mechanism, name, password, by_token=bool(by_token)), self._server(mechanism)
        message: bytes | None = client.first()
        while message is not None:
            self.lines.append(f"C {shown(message)}")
            reply = self._serve(server, message)
            message = None if reply is None else self._receive(client, reply, show=False)

    def _server(self, mechanism: str) -> SaslServer:
        if mechanism == PLAIN:
            return PlainServer(self.users.get)
        if mechanism == OAUTHBEARER:
            return OAuthBearerServer(self._validate)
        scram = SCRAM_MECHANISMS[mechanism]

        def account_of(first: ClientFirst) -> Account | None:
            password = self.users.get(first.user)
            if password is None:
                return None
            credential = Credential.of_password(scram, password.encode(), SALT, ITERATIONS_MIN)
            return Account(credential, Identity(first.user, by_token=first.by_token))

        return ScramServer(scram, account_of, Decoys(b"key of the decoys"), SERVER_NONCE)

    def _validate(self, token: str) -> Identity:
        if token not in self.tokens:
            raise InvalidToken("its signature is not valid")
        return self.tokens[token]

    def _serve(self, server: SaslServer, message: bytes) -> bytes | None:
        """Show the response of the server. Return None if it refuses the message."""
        try:
            reply = server.next(message)
        except AuthenticationFailed as error:
            self.lines.append(f"S refused: {error}")
            self.lines.append(f"S sends the error: {error.public or 'invalid credentials'}")
            return None
        self.lines.append(f"S {shown(reply.message)}")
        identity = reply.identity
        if identity is not None:
            expiry = "" if identity.expires_ms is None else f" until {identity.expires_ms}"
            token = " by a delegation token" if identity.by_token else ""
            self.lines.append(f"S authenticated: {identity.user}{expiry}{token}")
        return reply.message

    def _receive(self, client: SaslClient, message: bytes, *, show: bool = True) -> bytes | None:
        """Show the response of the client, if `show`. Return None if its exchange has ended."""
        try:
            reply = client.next(message)
        except AuthenticationFailed as error:
            self.lines.append(f"C refused: {error}")
            return None
        if reply is None:
            self.lines.append("C complete")
        elif show:
            self.lines.append(f"C {shown(reply)}")
        return reply


def made_client(mechanism: str, name: str, password: str, *, by_token: bool = False) -> SaslClient:
    user, secret = text(name).decode(), text(password).decode()
    if mechanism == PLAIN:
        return PlainClient(user, secret)
    if mechanism == OAUTHBEARER:
        return OAuthBearerClient(secret)
    return ScramClient.of_password(SCRAM_MECHANISMS[mechanism], user, secret, CLIENT_NONCE, by_token=by_token)


def text(word: str) -> bytes:
    return b"" if word == "-" else unquote_to_bytes(word)


def shown(message: bytes) -> str:
    return quote(message, safe=PRINTABLE) or "-"
