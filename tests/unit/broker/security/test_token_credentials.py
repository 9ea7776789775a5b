"""Credentials of delegation tokens: when they are computed, and what a login by an unknown token shows."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from odradek.broker.security.token_credentials import TokenCredentials
from odradek.cluster.controller.messages.tokens import TokenRules
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.records import RemoveDelegationTokenRecord, encode_record
from odradek.cluster.metadata.replay.tokens import token_record
from odradek.cluster.metadata.tokens import DelegationToken
from odradek.cluster.raft.batches import LogBatch
from odradek.cluster.raft.messages import EpochEnd
from odradek.protocol.sasl import scram
from odradek.protocol.sasl.delegation_token import token_password
from odradek.protocol.sasl.mechanism import AuthenticationFailed, Identity
from odradek.protocol.sasl.scram import ITERATIONS_MIN, SCRAM_SHA_256, SCRAM_SHA_512, Credential, Decoys
from odradek.protocol.sasl.scram_client import ScramClient
from odradek.protocol.sasl.scram_server import ScramServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from odradek.cluster.metadata.records import MetadataRecord

RULES = TokenRules(b"key")
DECOYS = Decoys(b"decoys")
TOKEN = DelegationToken("User:alice", "User:alice", (), 100, 300, 200)


class Rig:
    """Metadata with tokens, and threads that finish when the test says so."""

    def __init__(self) -> None:
        self.metadata = MetadataCache()
        self.now_ms = 150
        self.computed = 0
        self.may_compute = asyncio.Semaphore(0)
        self.offset = -1
        self.credentials = TokenCredentials(
            RULES, self.metadata, (SCRAM_SHA_256, SCRAM_SHA_512), DECOYS, lambda: self.now_ms
        )

    async def in_thread(self, work: Callable[[], list[Credential]]) -> list[Credential]:
        await self.may_compute.acquire()
        self.computed += 1
        return work()

    def write(self, *records: MetadataRecord) -> None:
        for record in records:
            self.offset += 1
            batch = LogBatch(self.offset, self.offset, 1, ((None, encode_record(record)),))
            self.metadata.on_committed([batch])

    async def compute(self) -> None:
        """Let the thread compute one credential."""
        before = self.computed
        self.may_compute.release()
        while self.computed == before:
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    def log_in(self, token_id: str, *, known: str | None = None) -> Identity | None:
        """Run an exchange with the password of the token `known`. Raise AuthenticationFailed."""
        password = token_password(RULES.hmac(known or token_id))
        client = ScramClient.of_password(SCRAM_SHA_512, token_id, password, "nonce", by_token=True)
        server = ScramServer(
            SCRAM_SHA_512, lambda first: self.credentials.account(SCRAM_SHA_512, first.user), DECOYS, "server"
        )
        final = client.next(server.next(client.first()).message)
        assert final is not None
        reply = server.next(final)
        assert client.next(reply.message) is None
        return reply.identity


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    one = Rig()
    task = asyncio.create_task(one.credentials.run(one.in_thread))
    yield one
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_token_is_usable_when_its_credential_is_computed_until_it_expires(rig: Rig) -> None:
    rig.write(token_record("one", TOKEN))
    with pytest.raises(AuthenticationFailed):
        rig.log_in("one")
    await rig.compute()
    assert rig.log_in("one") == Identity("alice", 200, by_token=True)
    rig.now_ms = 200
    assert rig.log_in("one")
    rig.now_ms = 201
    with pytest.raises(AuthenticationFailed):
        rig.log_in("one")


async def test_credentials_are_computed_after_a_snapshot_and_forgotten_by_one(rig: Rig) -> None:
    def load(offset: int, *tokens: str) -> None:
        rows = tuple((None, encode_record(token_record(name, TOKEN))) for name in tokens)
        loading = rig.metadata.on_snapshot(EpochEnd(1, offset + 1))
        loading.take([LogBatch(0, len(rows) - 1, 1, rows)])
        loading.done()

    load(10, "one", "two")
    await rig.compute()
    await rig.compute()
    assert rig.log_in("one")
    assert rig.log_in("two")
    load(20, "two")
    assert rig.log_in("two")
    with pytest.raises(AuthenticationFailed):
        rig.log_in("one")
    assert rig.computed == 2


async def test_renewal_computes_nothing_and_a_removed_token_is_forgotten(rig: Rig) -> None:
    rig.write(token_record("one", TOKEN))
    await rig.compute()
    rig.write(token_record("one", DelegationToken("User:alice", "User:alice", (), 100, 300, 250)))
    assert rig.credentials.preparation("one") is None
    assert rig.log_in("one") == Identity("alice", 250, by_token=True)
    rig.write(RemoveDelegationTokenRecord("one"))
    with pytest.raises(AuthenticationFailed):
        rig.log_in("one")
    assert rig.computed == 1


async def test_token_of_a_waiting_login_is_computed_before_others(rig: Rig) -> None:
    rig.write(*(token_record(name, TOKEN) for name in ("one", "two", "three")))
    event = rig.credentials.preparation("three")
    assert event is not None
    await rig.compute()
    assert event.is_set()
    assert rig.log_in("three")
    assert rig.credentials.preparation("three") is None
    waiting = rig.credentials.preparation("two")
    assert waiting is not None
    rig.write(RemoveDelegationTokenRecord("two"))
    assert waiting.is_set()


async def test_owner_that_is_no_user_cannot_log_in(rig: Rig) -> None:
    rig.write(token_record("one", DelegationToken("Node:cluster", "User:alice", (), 100, 300, 200)))
    await rig.compute()
    with pytest.raises(AuthenticationFailed):
        rig.log_in("one")


async def test_exchange_of_an_unknown_token_has_the_messages_and_hashes_of_a_known_one(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.write(token_record("one", TOKEN))
    await rig.compute()
    calls: Counter[str] = Counter()
    for name in ("hash", "hmac"):
        method = getattr(scram.ScramMechanism, name)

        def counted(*arguments: object, name: str = name, method: Callable[..., bytes] = method) -> bytes:
            calls[name] += 1
            return method(*arguments)

        monkeypatch.setattr(scram.ScramMechanism, name, counted)
    seen = []
    salts = {name: DECOYS.credential(SCRAM_SHA_512, name, by_token=True).salt for name in ("one", "two")}
    for token_id, salt in salts.items():
        calls.clear()
        server = ScramServer(
            SCRAM_SHA_512, lambda first: rig.credentials.account(SCRAM_SHA_512, first.user), DECOYS, "server"
        )
        challenge = server.next(f"n,,n={token_id},r=nonce,tokenauth=true".encode()).message
        assert challenge == f"r=nonceserver,s={scram.encoded(salt)},i={ITERATIONS_MIN}".encode()
        with pytest.raises(AuthenticationFailed) as failed:
            server.next(f"c=biws,r=nonceserver,p={scram.encoded(bytes(64))}".encode())
        seen.append((dict(calls), failed.value.public))
    assert seen[0] == seen[1]
