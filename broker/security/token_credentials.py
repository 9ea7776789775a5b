"""SCRAM credentials of delegation tokens (KIP-48).

A client logs in with the id of a token as the user name, and with its HMAC in base64 as the password. The credential
takes about 3 ms to compute, so a thread computes it when the token reaches the metadata of the broker. A renewal does
not change it. The salt is that of the decoy with the same id, so a salt does not show whether the token exists.
"""

from asyncio import Event
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from odradek.cluster.controller.messages.tokens import TokenRules
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import MetadataImage
from odradek.cluster.metadata.tokens import USER
from odradek.protocol.sasl.delegation_token import token_password
from odradek.protocol.sasl.mechanism import Identity
from odradek.protocol.sasl.scram import ITERATIONS_MIN, Credential, Decoys, ScramMechanism
from odradek.protocol.sasl.scram_server import Account

InThread = Callable[[Callable[[], list[Credential]]], Coroutine[Any, Any, list[Credential]]]
"""Run a function off the event loop."""


class TokenCredentials:
    """The credentials of the tokens in the metadata, for the SCRAM mechanisms that listeners of the node have."""

    def __init__(
        self,
        rules: TokenRules,
        metadata: MetadataCache,
        mechanisms: Sequence[ScramMechanism],
        decoys: Decoys,
        wall_ms: Callable[[], int],
    ) -> None:
        """Subscribe to the metadata. `run` computes the credentials."""
        self._rules = rules
        self._metadata = metadata
        self._mechanisms = mechanisms
        self._decoys = decoys
        self._wall_ms = wall_ms
        self._credentials: dict[str, dict[str, Credential]] = {}
        self._pending: OrderedDict[str, Event | None] = OrderedDict()
        """Ids of tokens without a credential, and the event that logins with them wait for."""
        self._changed = Event()
        metadata.subscribe(self.on_metadata)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Note new tokens, and forget removed ones."""
        for token_id in delta.changed_tokens():
            if token_id not in image.tokens:
                self._credentials.pop(token_id, None)
                self._finish(token_id)
            elif token_id not in self._credentials:
                self._pending.setdefault(token_id, None)
        if self._pending:
            self._changed.set()

    def account(self, mechanism: ScramMechanism, token_id: str) -> Account | None:
        """Return the credential of a token and its owner. Return None if the token is unknown or has expired."""
        token = self._metadata.image.tokens.get(token_id)
        credential = self._credentials.get(token_id, {}).get(mechanism.name)
        if token is None or credential is None or token.is_expired(self._wall_ms()) or not token.owner.startswith(USER):
            return None
        expires_ms = min(token.expires_ms, token.max_ms)
        return Account(credential, Identity(token.owner.removeprefix(USER), expires_ms, by_token=True))

    def preparation(self, token_id: str) -> Event | None:
        """Return the event that the credential of a token is complete, and compute it next; None if it is complete."""
        if token_id not in self._pending:
            return None
        event = self._pending[token_id] = self._pending[token_id] or Event()
        self._pending.move_to_end(token_id, last=False)
        return event

    async def run(self, in_thread: InThread) -> None:
        """Compute the credentials of new tokens, one token at a time."""
        while True:
            while self._pending:
                token_id = next(iter(self._pending))
                found = await in_thread(partial(_credentials, self._rules, self._mechanisms, self._decoys, token_id))
                if token_id in self._metadata.image.tokens:
                    names = (mechanism.name for mechanism in self._mechanisms)
                    self._credentials[token_id] = dict(zip(names, found, strict=True))
                self._finish(token_id)
            self._changed.clear()
            await self._changed.wait()

    def _finish(self, token_id: str) -> None:
        event = self._pending.pop(token_id, None)
        if event is not None:
            event.set()


def _credentials(
    rules: TokenRules, mechanisms: Sequence[ScramMechanism], decoys: Decoys, token_id: str
) -> list[Credential]:
    password = token_password(rules.hmac(token_id)).encode()
    salts = [decoys.credential(mechanism, token_id, by_token=True).salt for mechanism in mechanisms]
    return [
        Credential.of_password(mechanism, password, salt, ITERATIONS_MIN)
        for mechanism, salt in zip(mechanisms, salts, strict=True)
    ]
