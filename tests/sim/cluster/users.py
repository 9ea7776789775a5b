"""Users of a run with SASL and ACLs: their passwords, their mechanisms, and the login of a connection."""

import asyncio
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Final

from odradek.broker.config.bootstrap_scram import parse_bootstrap_scram
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from odradek.protocol.sasl.login import AUTHENTICATE_VERSION, HANDSHAKE_VERSION, Login
from odradek.protocol.sasl.mechanism import PLAIN, AuthenticationFailed
from odradek.protocol.sasl.plain import PlainClient
from odradek.protocol.sasl.scram import ITERATIONS_MIN, NONCE_BITS, SCRAM_MECHANISMS, SCRAM_SHA_256, SCRAM_SHA_512
from odradek.protocol.sasl.scram_client import ScramClient
from tests.sim.options.tenants import ADMIN, ALICE, BOB, EVE, MALLORY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.protocol.sasl.mechanism import SaslClient
    from odradek.protocol.sasl.scram import Credential
    from odradek.protocol.schema import Message
    from tests.support.raw_client import RawClient

ADDED: Final = (BOB, MALLORY, EVE)
"""Users whose credentials are added by AlterUserScramCredentials."""
MECHANISMS: Final = {
    ADMIN: (SCRAM_SHA_512.name,),
    ALICE: (SCRAM_SHA_256.name, SCRAM_SHA_512.name, PLAIN),
    BOB: (SCRAM_SHA_256.name,),
    MALLORY: (SCRAM_SHA_256.name,),
    EVE: (SCRAM_SHA_256.name,),
}
PASSWORDS: Final = {user: f"password of {user}" for user in MECHANISMS}
JAAS: Final = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{ALICE}="{PASSWORDS[ALICE]}";'
LOGIN_SECONDS_MAX: Final = 1.5
"""Maximum time of one login, in seconds."""
OWNER_SEPARATOR: Final = "/"


class LoginFailed(ConnectionError):
    """Raised if a broker refuses a login or does not complete it. No request was sent."""


@cache
def first_credentials() -> "Mapping[tuple[str, int], Credential]":
    """Return the credentials of the file that odradek.bootstrap.scram.file names.

    The hashes of a password take milliseconds, so all runs of a process have the same salts.
    """
    lines = [
        f'{mechanism}=[name={user},password="{PASSWORDS[user]}"]'
        for user in (ADMIN, ALICE)
        for mechanism in MECHANISMS[user]
        if mechanism != PLAIN
    ]
    return parse_bootstrap_scram("\n".join(lines), Random("salts").getrandbits)


def credential_request(user: str) -> AlterUserScramCredentialsRequest:
    """Return the request that adds the credential of a user."""
    (name,) = MECHANISMS[user]
    mechanism, salt = SCRAM_MECHANISMS[name], f"salt of {user}".encode()
    salted = mechanism.salted(PASSWORDS[user].encode(), salt, ITERATIONS_MIN)
    upsertion = ScramCredentialUpsertion(user, mechanism.code, ITERATIONS_MIN, salt, salted)
    return AlterUserScramCredentialsRequest(upsertions=[upsertion])


def client_id_of(user: str, name: str) -> str:
    """Return the client id of a client, which also names its user."""
    return f"{user}{OWNER_SEPARATOR}{name}"


def user_of(client_id: str) -> str:
    """Return the user of a client with this client id."""
    return client_id.partition(OWNER_SEPARATOR)[0]


class Credentials:
    """Credential of one client: its user, its password, and one mechanism for all its connections."""

    def __init__(self, user: str, name: str, seed: int, *, password: str | None = None) -> None:
        """`password` replaces the password of the user."""
        self._rng = Random(f"logins of {user} by {name}, seed {seed}")
        self._user = user
        self._password = PASSWORDS.get(user, "") if password is None else password
        self.mechanism = self._rng.choice(MECHANISMS.get(user, (SCRAM_SHA_256.name,)))

    def client(self) -> "SaslClient":
        """Return the client of a new exchange."""
        if self.mechanism == PLAIN:
            return PlainClient(self._user, self._password)
        nonce = f"{self._rng.getrandbits(NONCE_BITS):x}"
        return ScramClient.of_password(SCRAM_MECHANISMS[self.mechanism], self._user, self._password, nonce)


async def exchange(connection: "RawClient", login: Login) -> None:
    """Send the requests of a login. Raise AuthenticationFailed, or ConnectionLost if the connection ends first."""
    request: Message | None = login.request
    while request is not None:
        is_first = isinstance(request, SaslHandshakeRequest)
        request = login.received(
            await connection.call(request, HANDSHAKE_VERSION if is_first else AUTHENTICATE_VERSION)
        )


async def log_in(connection: "RawClient", sasl: "SaslClient") -> float:
    """Log in, and return the lifetime of the session in seconds; 0 if it does not expire. Raise LoginFailed."""
    login = Login(sasl)
    try:
        async with asyncio.timeout(LOGIN_SECONDS_MAX):
            await exchange(connection, login)
    except (AuthenticationFailed, OSError) as error:
        connection.abort()
        raise LoginFailed(str(error)) from error
    return login.session_lifetime_ms / 1_000
