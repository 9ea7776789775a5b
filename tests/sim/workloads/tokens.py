"""Delegation tokens during a run: a client creates, renews, expires and removes them, and logs in with them."""

import asyncio
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from odradek.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from odradek.protocol.sasl.scram import NONCE_BITS, SCRAM_SHA_256
from odradek.protocol.sasl.scram_client import ScramClient
from tests.sim.checkers.tokens import TokenLogin
from tests.sim.cluster.users import LoginFailed, log_in
from tests.sim.options.security_options import TOKEN_VALIDITY_MS
from tests.sim.workloads.client import CONNECT_SECONDS, Client
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from odradek.broker.node import Node
    from tests.sim.checkers.tokens import TokenEvidence
    from tests.sim.world import World

TOKENS_MAX: Final = 6
"""Maximum tokens of a run. Each broker computes the credential of each token with 4,096 hashes."""
ACTIONS: Final = (3, 3, 2, 1, 8)
"""Weights of creation, renewal, expiration, removal and login."""
THINK_SECONDS: Final = 0.2
"""Maximum time between two actions, in seconds."""
OUTLIVED: Final = 1.2
"""Time of a request after the end of its session, as a multiple of the lifetime. Clocks differ by 2 % at most."""
OUTLIVE_PROBABILITY: Final = 0.15
"""Share of the logins after which the client waits for the end of the session."""
WAITED_SECONDS_MAX: Final = 4.0
"""Maximum lifetime of a session whose end the client waits for, in seconds."""


@dataclass(frozen=True, slots=True)
class _Token:
    token_id: str
    hmac: bytes


class TokenUser(Client):
    """Changes its tokens on random brokers, and logs in with all that it ever had, until the run stops."""

    def __init__(self, world: "World", name: str, evidence: "TokenEvidence") -> None:
        super().__init__(world, name)
        self._evidence = evidence
        self._tokens: list[_Token] = []

    async def run(self) -> None:
        actions = (self._create, self._renew, self._expire, self._remove, self._use)
        while not self.world.stopping:
            await asyncio.sleep(self.rng.random() * THINK_SECONDS)
            (action,) = self.rng.choices(actions, ACTIONS) if self._tokens else (self._create,)
            try:
                await action()
            except OSError:
                await self.backoff()
        self.close()

    async def _create(self) -> None:
        if len(self._tokens) >= TOKENS_MAX:
            return
        response = await self.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3, self._random_node())
        if not response.error_code:
            self._tokens.append(_Token(response.token_id, bytes(response.hmac)))
            self.world.count("token created")

    async def _renew(self) -> None:
        hmac = self.rng.choice(self._tokens).hmac
        request = RenewDelegationTokenRequest(hmac, renew_period_ms=TOKEN_VALIDITY_MS)
        if not (await self.call(request, 2, self._random_node())).error_code:
            self.world.count("token renewed")

    async def _expire(self) -> None:
        hmac, period_ms = self.rng.choice(self._tokens).hmac, self.rng.randrange(TOKEN_VALIDITY_MS // 2)
        await self.call(ExpireDelegationTokenRequest(hmac, expiry_time_period_ms=period_ms), 2, self._random_node())

    async def _remove(self) -> None:
        request = ExpireDelegationTokenRequest(self.rng.choice(self._tokens).hmac, expiry_time_period_ms=-1)
        if not (await self.call(request, 2, self._random_node())).error_code:
            self.world.count("token removed")

    async def _use(self) -> None:
        """Log in with a token, and record a success. Then send a request after the end of the session."""
        number = self._random_node()
        machine = self.world.cluster.machine(number)
        node, token = machine.node, self.rng.choice(self._tokens)
        if node is None:
            return
        offset, wall_ms = node.metadata.image.offset, machine.clock.wall_ms()
        nonce = f"{self.rng.getrandbits(NONCE_BITS):x}"
        password = b64encode(token.hmac).decode()
        sasl = ScramClient.of_password(SCRAM_SHA_256, token.token_id, password, nonce, by_token=True)
        connection = await self._connected(number)
        try:
            lifetime = await log_in(connection, sasl)
        except LoginFailed:
            self.world.count("token refused")
            return
        self._note(node, token, offset, min(wall_ms, machine.clock.wall_ms()), number)
        waits = self.rng.random() < OUTLIVE_PROBABILITY and 0 < lifetime <= WAITED_SECONDS_MAX
        if waits and await self._served(connection):
            await asyncio.sleep(OUTLIVED * lifetime)
            if await self._served(connection):
                self._evidence.outlived.append(f"broker {number}")
            self.world.count("session of a token ended")
        connection.abort()

    def _note(self, node: "Node", token: _Token, offset: int, wall_ms: int, number: int) -> None:
        login = TokenLogin(f"broker {number}", token.token_id, offset, node.metadata.image.offset, wall_ms)
        self._evidence.logins.append(login)
        self.world.count("login by a token")

    async def _served(self, connection: RawClient) -> bool:
        """Return True if the broker responds to a request."""
        try:
            await connection.call(ListGroupsRequest(), 4, timeout=CONNECT_SECONDS)
        except OSError:
            return False
        return True

    async def _connected(self, number: int) -> RawClient:
        host, port = self.world.cluster.address_of(number)
        connecting = RawClient.connect(host, port, client_id=self._client_id)
        return await asyncio.wait_for(connecting, CONNECT_SECONDS)
