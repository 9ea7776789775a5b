"""A producer with aiokafka: idempotent, or transactional with the classic transaction protocol (TV1)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import IllegalOperation, KafkaError

from odradek.client.security.credentials import BearerToken
from tests.chaos.clients.common import (
    CALL_SECONDS,
    REQUEST_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    TRANSACTIONAL,
    Client,
    python_settings,
)
from tests.sim.history import END, INFO, INIT, OK

if TYPE_CHECKING:
    from odradek.pipeline.cluster.access import Access

BURST_SECONDS = 0.05
END_SECONDS = 60.0
CLOSE_SECONDS = 3.0
BACKOFF_SECONDS = 0.3
UNSETTLED_MAX = 400
FAILURES = (KafkaError, IllegalOperation, OSError, TimeoutError)
"""Failures of calls of aiokafka. IllegalOperation, which is no KafkaError: a failed send has ended the transaction."""


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Tokens of the file in the client properties."""

    def __init__(self, credentials: BearerToken) -> None:
        self._credentials = credentials

    async def token(self) -> str:
        return await self._credentials.source.token()


def producer_settings(access: Access) -> dict[str, Any]:
    """Return the addresses and the security of a producer. It can have a token."""
    credentials = access.security.credentials
    tokens = {"sasl_oauth_token_provider": Tokens(credentials)} if isinstance(credentials, BearerToken) else {}
    return {**python_settings(access), **tokens}


class Aio:
    """Creates producers and records the results of their sends. `unsettled` contains the sends without a result."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.producer: AIOKafkaProducer | None = None
        self.unsettled: dict[asyncio.Future[Any], None] = {}
        self.failed = False

    async def new_producer(self) -> bool:
        spec = self.client.spec
        number = self.client.new_incarnation()
        self.failed = False
        self.producer = AIOKafkaProducer(
            **producer_settings(spec.access),
            client_id=spec.transactional_id or spec.process,
            acks="all",
            enable_idempotence=True,
            transactional_id=spec.transactional_id or None,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            retry_backoff_ms=50,
            metadata_max_age_ms=5_000,
        )
        try:
            await asyncio.wait_for(self.producer.start(), END_SECONDS)
        except FAILURES:
            self.client.journal.complete(INIT, number, INFO)
            await self.drop()
            await asyncio.sleep(BACKOFF_SECONDS)
            return False
        self.client.journal.complete(INIT, number, OK)
        return True

    async def drop(self) -> None:
        """Discard the producer. Its pending sends remain without a result."""
        producer, self.producer = self.producer, None
        for future in list(self.unsettled):
            future.cancel()
        if producer is not None:
            stop = asyncio.ensure_future(producer.stop())
            with contextlib.suppress(*FAILURES, asyncio.CancelledError, AssertionError):
                await asyncio.wait_for(stop, CLOSE_SECONDS)
        self.unsettled.clear()

    async def send(self, partition: tuple[str, int], transaction: int = -1, key: bytes | None = None) -> None:
        assert self.producer is not None
        value, settle = self.client.send(partition, transaction)
        future = await self.producer.send(partition[0], value, key, partition=partition[1])
        self.unsettled[future] = None

        def delivered(done: asyncio.Future[Any]) -> None:
            self.unsettled.pop(done, None)
            if done.cancelled() or done.exception() is not None:
                self.failed = True
                settle(None)
            else:
                settle(done.result().offset)

        future.add_done_callback(delivered)


async def run_stream(client: Client) -> int:
    aio = Aio(client)
    rate = client.spec.records_per_second
    while not client.stopping.is_set():
        if aio.producer is None and not await aio.new_producer():
            continue
        try:
            for _ in range(max(1, round(client.rng.expovariate(1 / (rate * BURST_SECONDS))))):
                if len(aio.unsettled) < UNSETTLED_MAX:
                    await aio.send(client.rng.choice(client.partitions))
        except FAILURES:
            aio.failed = True
        await asyncio.sleep(BURST_SECONDS)
        if aio.failed:  # the sequence numbers after a batch with unknown result are invalid
            await aio.drop()
    if aio.producer is not None:
        await asyncio.wait_for(aio.producer.flush(), END_SECONDS)
    return 0


class Transactions:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.aio = Aio(client)
        self.count = 0

    async def run(self) -> int:
        while not self.client.stopping.is_set():
            if self.aio.producer is None and not await self.aio.new_producer():
                continue
            if not await self._run_transaction():
                await self.aio.drop()
            await asyncio.sleep(self.client.pause_seconds())
        return 0

    async def _run_transaction(self) -> bool:
        producer = self.aio.producer
        assert producer is not None
        self.count += 1
        number = self.client.transaction_number(self.count)
        partitions = self.client.choose()
        try:
            await producer.begin_transaction()
            for partition in partitions:
                await asyncio.wait_for(self.aio.send(partition, number), CALL_SECONDS)
            await asyncio.sleep(self.client.timeout_pause_seconds())
        except FAILURES:
            return await self._end(number, commit=False, written=bool(partitions))
        commit = self.client.rng.random() > 1 / 3
        return await self._end(number, commit=commit, written=bool(partitions))

    async def _end(self, transaction: int, *, commit: bool, written: bool) -> bool:
        """Commit or abort. Return False if a new producer is needed: with TV1, a failure has an unknown result."""
        producer = self.aio.producer
        assert producer is not None
        number = self.client.end(transaction, commit=commit, written=written)
        try:
            work = producer.commit_transaction() if commit else producer.abort_transaction()
            await asyncio.wait_for(work, END_SECONDS)
        except FAILURES as failure:
            self.client.journal.complete(END, number, INFO, reason=repr(failure))
            return False
        self.client.journal.complete(END, number, OK)
        return not self.aio.failed


def main() -> int:
    logging.disable(logging.CRITICAL)
    client = Client()
    work = Transactions(client).run() if client.spec.kind == TRANSACTIONAL else run_stream(client)
    return asyncio.run(work)


if __name__ == "__main__":
    sys.exit(main())
