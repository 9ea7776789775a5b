"""The rate of logins of one address, in virtual time."""

from __future__ import annotations

import asyncio
import random
from base64 import b64encode
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.requests.api import Ordered
from odradek.broker.requests.listener import Listener
from odradek.broker.requests.node_principals import NodePrincipals
from odradek.broker.requests.session import Session
from odradek.broker.requests.session_login import LoginState
from odradek.broker.security.authentication import PREPARATION_SECONDS_MAX, TOO_MANY, Authentication
from odradek.broker.security.authorizer import AllowAll
from odradek.broker.security.failed_logins import FAILURES_MAX, FAILURES_PER_SECOND, WAIT_SECONDS_MAX
from odradek.broker.security.mechanisms import Mechanisms
from odradek.broker.security.sasl_settings import SaslSettings
from odradek.protocol.errors import ErrorCode
from odradek.protocol.sasl.mechanism import Identity
from odradek.protocol.sasl.scram import ITERATIONS_MIN, Credential
from odradek.protocol.sasl.scram_server import Account
from odradek.protocol.security_protocol import SecurityProtocol
from tests.support.fake_kafka import virtual_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LISTENER = Listener("CLIENTS", "", 1, "h", 1, security_protocol=SecurityProtocol.SASL_PLAINTEXT)
GOOD, BAD = b"\0alice\0secret", b"\0alice\0another"
DELAY_MS = 100


class Rig:
    """The logins of a listener with PLAIN. Each one has its own connection."""

    def __init__(self) -> None:
        clock: Any = SimpleNamespace(
            monotonic_ms=lambda: round(asyncio.get_running_loop().time() * 1_000), wall_ms=lambda: 0
        )
        mechanisms = Mechanisms(
            node_id=1,
            random_bits=random.Random(1).getrandbits,
            account_of=lambda *_: None,
            settings={"CLIENTS": SaslSettings({"PLAIN": 0, "SCRAM-SHA-256": 0}, {"alice": "secret"}, None)},
        )
        self.authentication = Authentication(mechanisms, clock, failure_delay_ms=DELAY_MS)

    async def log_in(
        self, message: bytes, address: str = "10.0.0.1", mechanism: str = "PLAIN"
    ) -> tuple[Any, float, bool]:
        """Return the response, the seconds until it, and True if the connection ends with it."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        session = Session(1, LISTENER, address, 2)
        context: Any = SimpleNamespace(session=session, ends_connection=False, api_version=1)
        self.authentication.handshake(context, mechanism)
        result: Any = self.authentication.authenticate(context, message)
        response = await result.awaitable if isinstance(result, Ordered) else result
        return response, loop.time() - started_s, context.ends_connection


def in_virtual_time(scenario: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    with virtual_loop() as loop:
        loop.run_until_complete(scenario(Rig()))


def test_login_by_a_new_token_waits_for_its_credential() -> None:
    async def scenario(rig: Rig) -> None:
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        account = Account(Credential(b"salt of token", b"k" * 32, b"k" * 32, ITERATIONS_MIN), Identity("alice"))
        tokens: Any = SimpleNamespace(
            preparation=lambda token: event if token == "new" else None,
            account=lambda _, token: account if event.is_set() and token == "new" else None,
        )
        rig.authentication.mechanisms.tokens = tokens
        known = b"s=" + b64encode(b"salt of token")
        loop.call_later(3, event.set)
        response, seconds, _ = await rig.log_in(b"n,,n=new,r=nonce,tokenauth=true", mechanism="SCRAM-SHA-256")
        assert (response.error_code, round(seconds), known in response.auth_bytes) == (ErrorCode.NONE, 3, True)
        for message in (b"n,,n=other,r=nonce,tokenauth=true", b"n,,n=new,r=nonce"):
            response, seconds, _ = await rig.log_in(message, mechanism="SCRAM-SHA-256")
            assert (response.error_code, round(seconds), known in response.auth_bytes) == (ErrorCode.NONE, 0, False)
        event.clear()
        response, seconds, _ = await rig.log_in(b"n,,n=new,r=nonce,tokenauth=true", mechanism="SCRAM-SHA-256")
        assert (round(seconds), known in response.auth_bytes) == (PREPARATION_SECONDS_MAX, False)

    in_virtual_time(scenario)


def test_login_that_succeeds_is_not_delayed_and_one_that_fails_ends_its_connection() -> None:
    async def scenario(rig: Rig) -> None:
        response, seconds, ends = await rig.log_in(GOOD)
        assert (response.error_code, seconds, ends) == (ErrorCode.NONE, 0, False)
        response, seconds, ends = await rig.log_in(BAD)
        assert (response.error_code, ends) == (ErrorCode.SASL_AUTHENTICATION_FAILED, True)
        assert seconds >= DELAY_MS / 1_000

    in_virtual_time(scenario)


def test_login_that_raises_an_unexpected_exception_ends_its_connection_and_counts_as_failed() -> None:
    """Otherwise a client that finds a bug of a mechanism can repeat the login without a limit."""

    class Broken:
        def next(self, message: bytes) -> Any:
            raise RecursionError

    async def scenario(rig: Rig) -> None:
        session = Session(1, LISTENER, "10.0.0.1", 2)
        session.login.begin("PLAIN", Broken(), 0)
        context: Any = SimpleNamespace(session=session, ends_connection=False)
        with pytest.raises(RecursionError):
            rig.authentication.authenticate(context, GOOD)
        assert (session.login.state, context.ends_connection) == (LoginState.FAILED, True)
        assert rig.authentication.counts["CLIENTS"].failed == 1

    in_virtual_time(scenario)


def test_valid_password_waits_as_others_after_many_failures_of_its_address() -> None:
    """Otherwise an early response would mean success, and many connections would try passwords quickly."""

    async def scenario(rig: Rig) -> None:
        failed = [asyncio.ensure_future(rig.log_in(BAD)) for _ in range(FAILURES_MAX)]
        await asyncio.sleep(0)
        logins = await asyncio.gather(*(rig.log_in(GOOD) for _ in range(5)))
        waits_s = [seconds for _, seconds, _ in logins]
        assert {response.error_code for response, _, _ in logins} == {ErrorCode.NONE}
        assert all(later - earlier > 0.9 / FAILURES_PER_SECOND for earlier, later in pairwise(waits_s))
        assert waits_s[0] > 0
        assert (await rig.log_in(GOOD, "10.0.0.2"))[1] == 0
        await asyncio.gather(*failed)

    in_virtual_time(scenario)


def test_attempts_of_many_connections_are_bounded() -> None:
    async def scenario(rig: Rig) -> None:
        logins = await asyncio.gather(*(rig.log_in(BAD) for _ in range(10 * FAILURES_MAX)))
        tried = [response for response, _, _ in logins if response.error_message != TOO_MANY]
        assert len(tried) <= FAILURES_MAX + FAILURES_PER_SECOND * WAIT_SECONDS_MAX + 1
        assert all(ends for _, _, ends in logins)

    in_virtual_time(scenario)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("CLIENTS", "the client requires a mechanism that is not one of PLAIN, SCRAM-SHA-256"),
        ("NODES", "the client requires a login by SASL, which this listener does not serve"),
    ],
)
def test_mechanism_that_the_listener_does_not_serve_is_refused_with_the_reason(name: str, reason: str) -> None:
    """The listener NODES serves nodes by the principals of their certificates."""
    nodes = NodePrincipals({}, None, AllowAll(), alone=True)
    listener = Listener(name, "", 1, "h", 1, authenticates=True, security_protocol=SecurityProtocol.SSL, nodes=nodes)

    async def scenario(rig: Rig) -> None:
        reasons: list[str] = []
        session = Session(1, listener, "10.0.0.1", 2)
        session.on_login_failed = lambda error: reasons.append(str(error))
        context: Any = SimpleNamespace(session=session, ends_connection=False, api_version=1)
        result: Any = rig.authentication.handshake(context, "SCRAM-SHA-512")
        assert (await result.awaitable).error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert (reasons, context.ends_connection) == ([reason], True)

    in_virtual_time(scenario)
