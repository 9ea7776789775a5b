"""Owners of two-phase commits (KIP-939).

An owner writes, records its decision, and may fail before it sends EndTxn. Its next incarnation comes back after the
transaction time-outs of all other producers, keeps the transaction, and ends it as decided.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.sim.history import DECIDE, OK
from tests.sim.workloads.client import NONE
from tests.sim.workloads.producers import Dialect
from tests.sim.workloads.transactions import Behavior, TransactionalProducer

if TYPE_CHECKING:
    from tests.sim.world import World

OWNER_DIALECT: Final = Dialect(2, init=6, produce=12, end=5)
TRANSACTIONS: Final = 12
"""Transactions per owner."""
COMMIT_PROBABILITY: Final = 0.7
UNDECIDED_PROBABILITY: Final = 0.1
"""Part of the transactions whose owner fails before it decides."""
FAILURE_PROBABILITY: Final = 0.5
"""Part of the decided transactions whose owner fails before EndTxn."""
FURTHER_FAILURE_PROBABILITY: Final = 0.4
"""Part of the incarnations that keep a transaction and fail again."""
ABSENCE_FACTOR_MAX: Final = 3.0
"""Maximum time until an owner comes back, as a multiple of the transaction time-out of other producers."""
NOTHING_ONGOING: Final = (-1, -1)


class Owner(TransactionalProducer):
    """Begins, writes, decides and ends transactions that never time out."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name, OWNER_DIALECT, name, Behavior(overtime=0.0, empty=0.0))
        self.ongoing = NOTHING_ONGOING
        """Identity of the transaction that the last InitProducerId has kept."""

    async def run(self, transactions: int) -> None:
        while not await self.initialize():
            await self.backoff()
        for _ in range(transactions):
            await self._own()
            await asyncio.sleep(self.rng.random() * self.world.options.think_seconds)
        self.close()

    def init_request(self, expected: tuple[int, int]) -> InitProducerIdRequest:
        request = super().init_request(expected)
        request.enable2_pc = request.keep_prepared_txn = True
        return request

    def initialized(self, response: Any) -> None:
        self.ongoing = (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)

    async def _own(self) -> None:
        """Run one transaction until it is ended as decided."""
        self.transaction = self.world.next_transaction()
        prepared = (self.producer_id, self.producer_epoch)
        written = all([await self.write(self._round()) for _ in range(self.rng.randint(1, 2))])
        commit = written and self.rng.random() < COMMIT_PROBABILITY
        if self.rng.random() < UNDECIDED_PROBABILITY:
            self.world.count("owner failed before its decision")
            await self._fail()
            commit = False
            self._decide(commit=commit)
        else:
            self._decide(commit=commit)
            if self.rng.random() < FAILURE_PROBABILITY:
                self.world.count("owner failed before EndTxn")
                await self._fail()
            elif await self.end(commit=commit):
                return
        await self._come_back(prepared, commit=commit)

    def _decide(self, *, commit: bool) -> None:
        operation = self.invoke(
            DECIDE, transactional_id=self.transactional_id, transaction=self.transaction, commit=commit
        )
        self.settle(operation, NONE)
        assert operation.outcome == OK

    async def _fail(self) -> None:
        self.close()
        absence_ms = self.world.options.transaction_timeout_ms * ABSENCE_FACTOR_MAX
        await asyncio.sleep(absence_ms / 1_000 * self.rng.random())

    async def _come_back(self, prepared: tuple[int, int], *, commit: bool) -> None:
        """Keep the transaction with the identity `prepared`, and end it. Return when it is not ongoing."""
        while True:
            if await self.initialize():
                if self.ongoing != prepared:
                    return
                if self.rng.random() < FURTHER_FAILURE_PROBABILITY:
                    self.world.count("owner failed again")
                elif await self.end(commit=commit):
                    self.world.count("kept transaction ended")
                    return
            await self.backoff()
