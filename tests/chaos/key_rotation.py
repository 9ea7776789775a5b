"""Rotation of the signing key of the OAuth provider during a run.

Clients with tokens must not notice it. Brokers must refuse the tokens of a key that the JWKS document no longer has.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from odradek.client.security.names import TOKEN_URL
from odradek.private_files import replace_private
from tests.chaos.journal import now
from tests.chaos.plan import FAULT_FREE_SECONDS
from tests.chaos.security import BEARER
from tests.chaos.tokens import TOKEN_SECONDS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable

    from odradek.pipeline.cluster.access import Access
    from tests.chaos.security import ChaosSecurity
    from tests.chaos.system import System
    from tests.chaos.tokens import SigningKey

RENEWAL_SECONDS: Final = 2.0
"""Time between two replacements of the token file, in seconds."""
PROBE_TOKEN_SECONDS: Final = 600
"""Lifetime of a token that tests a key, in seconds: no such token expires before its key is removed."""
RETIREMENT_SECONDS: Final = TOKEN_SECONDS + 10.0
"""Time from the first token of a new key to the removal of the old key, in seconds.

Clients have replaced their token of the old key by then, also on a machine with little processor time.
"""
APPLIED_SECONDS_MAX: Final = 60.0
"""Maximum time until each running broker has a change of the JWKS document, in seconds: some brokers are paused."""
RETRY_SECONDS: Final = 1.0
"""Pause between two logins at a broker, in seconds. It keeps refused logins below the rate that delays an address."""


@dataclass
class KeyRotation:
    """The rotations of one run.

    `accepts` logs in at a port. It returns None if the broker is not reachable.
    """

    system: System
    security: ChaosSecurity
    accepts: Callable[[int, Access], Awaitable[bool | None]]
    violations: list[str]
    delays: list[str]
    counters: Counter[str]

    async def renew(self) -> None:
        """Renew the token file until this task is canceled."""
        while True:
            self.security.tokens.renew()
            await asyncio.sleep(RENEWAL_SECONDS)

    async def run(self, stopped: asyncio.Event) -> None:
        """Rotate the key until `stopped` is set."""
        await _pause(stopped, FAULT_FREE_SECONDS)
        while not stopped.is_set():
            await self._rotate(stopped)

    async def _rotate(self, stopped: asyncio.Event) -> None:
        """Replace the key: publish a new one, sign with it, and remove the old one when no client has a token of it."""
        tokens = self.security.tokens
        old, key = tokens.signing, tokens.add_key()
        new_token, old_token = self._access(key), self._access(old)
        differing = await self._differing(new_token, accepted=True)
        if differing:
            self.delays += [f"L1 broker {node} did not accept a token of a new key" for node in differing]
            return
        self.counters["security: brokers accept a new signing key"] += 1
        tokens.sign_with(key)
        await _pause(stopped, RETIREMENT_SECONDS)
        if stopped.is_set():
            return
        tokens.retire()
        for node, is_accepted in (await self._differing(old_token, accepted=False)).items():
            if is_accepted:
                self.violations.append(f"broker {node} accepted a token of a removed key")
            else:
                self.delays.append(f"L1 broker {node} was not reachable after the removal of a key")
        self.counters["security: signing keys removed"] += 1

    def _access(self, key: SigningKey) -> Access:
        """Return the access by a token of `key`."""
        file = self.security.directory / f"{key.key_id}.jwt"
        replace_private(file, key.token(BEARER, PROBE_TOKEN_SECONDS))
        access = self.security.access("", BEARER)
        return replace(access, properties={**access.properties, TOKEN_URL: file.as_uri()})

    async def _differing(self, access: Access, *, accepted: bool) -> dict[int, bool | None]:
        """Wait until each running broker accepts or refuses a login.

        Return the last results of those that do not. A broker that is not running reads the document when it starts.
        """
        found: dict[int, bool | None] = dict.fromkeys(self.system.ports)
        deadline = now() + APPLIED_SECONDS_MAX
        while found and now() < deadline:
            for node in list(found):
                if node in self.system.running():
                    found[node] = await self.accepts(self.system.ports[node].clients, access)
                if node not in self.system.running() or found[node] is accepted:
                    del found[node]
            await asyncio.sleep(RETRY_SECONDS if found else 0)
        return found


async def _pause(stopped: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stopped.wait(), seconds)
