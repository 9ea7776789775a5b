"""What the client processes share: their order (one JSON argument), the end of standard input as the word to stop, and their share of the history."""

from __future__ import annotations

import copy
import itertools
import json
import os
import sys
import threading
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.journal import Journal, expand, name_of
from tests.sim.history import END, FAIL, INFO, INIT, OK, PRODUCE

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN, IDEMPOTENT, TRANSACTIONAL = "plain", "idempotent", "transactional"
TRANSFORMER, TAKER = "transformer", "taker"
"""Members of groups: one reads, writes and commits offsets in transactions, the other reads and commits."""
CLASSIC: Final = 1
"""The generation of transactions that librdkafka and aiokafka speak (TV1)."""
TRANSACTION_TIMEOUT_MS: Final = 7_000
DELIVERY_TIMEOUT_MS: Final = 30_000
REQUEST_TIMEOUT_MS: Final = 4_000
CALL_SECONDS: Final = 10.0
RECORDS_MAX: Final = 20
PARTITIONS_MAX: Final = 6
SESSION_MS: Final = 3_000
HEARTBEAT_MS: Final = 500
POLL_INTERVAL_MS: Final = 12_000
"""A member that does not poll for so long leaves its group by itself."""
HUNG_SECONDS: Final = 20.0
HUNG: Final = 4
"""Exit code of a client whose library does not come back from a call: librdkafka's send_offsets_to_transaction (docs/clients.md)."""
STUCK: Final = 3
"""Exit code of a client that could not finish after it was told to stop."""


@dataclass(frozen=True)
class Order:
    """What a client process is told. `number` is never given to another process; a transactional id may be. A member of a group reads `topics`,
    and writes to `outputs` what it makes of them."""

    number: int
    process: str
    bootstrap: str
    journal: str
    seed: int
    kind: str
    topics: dict[str, int]
    transactional_id: str = ""
    records_per_second: float = 50.0
    pause_seconds: float = 0.08
    committed: bool = True
    group: str = ""
    protocol: str = ""
    outputs: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps(asdict(self))

    def arguments(self) -> list[str]:
        """The same as NAME=VALUE, for the Java client."""
        return [f"{name}={_plain(value)}" for name, value in asdict(self).items()]

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return [(topic, index) for topic, count in self.topics.items() for index in range(count)]


def _plain(value: Any) -> str:
    return ",".join(f"{topic}:{count}" for topic, count in value.items()) if isinstance(value, dict) else str(value)


class Client:
    """One client process: its order, its journal, and whether it was told to stop."""

    def __init__(self) -> None:
        self.order = Order(**json.loads(sys.argv[1]))
        self.journal = Journal(Path(self.order.journal), self.order.process)
        self.rng = Random(self.order.seed)
        self.stopping = threading.Event()
        self.partitions = self.order.partitions
        self._values = itertools.count(1)
        self._sequences: dict[tuple[str, int], int] = {}
        self._incarnations = itertools.count(1)
        self.incarnation = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def under(self, transactional_id: str) -> Client:
        """This process as another producer: its records, incarnations and numbers are still of one count."""
        twin = copy.copy(self)
        twin.order = replace(self.order, transactional_id=transactional_id)
        return twin

    def _listen(self) -> None:
        while os.read(sys.stdin.fileno(), 64):
            pass
        self.stopping.set()

    def be_born(self) -> int:
        """A new producer of this process; the number of its INIT."""
        self.incarnation = self.order.number * 1000 + next(self._incarnations)
        generation = CLASSIC if self.order.transactional_id else 0
        tid = {"tid": self.order.transactional_id} if self.order.transactional_id else {}
        return self.journal.invoke(INIT, incarnation=self.incarnation, generation=generation, **tid)

    def send(self, partition: tuple[str, int], transaction: int) -> tuple[bytes, Callable[[int | None], None]]:
        """Note the invocation. Returns what to send, and what to call with the offset (None: nobody knows)."""
        name = name_of(self.order.number, next(self._values))
        details: dict[str, Any] = {"topic": partition[0], "partition": partition[1], "value": name}
        if self.order.kind != PLAIN:  # without retries and numbers nothing keeps the order over a lost connection
            self._sequences[partition] = self._sequences.get(partition, -1) + 1
            details |= {"seq": self._sequences[partition], "incarnation": self.incarnation}
        if transaction >= 0:
            details |= {"txn": transaction, "tid": self.order.transactional_id, "generation": CLASSIC}
        number = self.journal.invoke(PRODUCE, **details)

        def settle(offset: int | None) -> None:
            if offset is None:
                self.journal.complete(PRODUCE, number, INFO)
            else:
                self.journal.complete(PRODUCE, number, OK, at=offset)

        settle.refused = lambda: self.journal.complete(PRODUCE, number, FAIL)  # type: ignore[attr-defined]
        return expand(name), settle

    def end(self, transaction: int, *, commit: bool, written: bool) -> int:
        """Note the call of commit or abort.

        Only a commit of records proves that the broker was asked: an abort of records that were not sent yet, or the end of an empty
        transaction, may succeed within the client, and so says nothing about fencing.
        """
        proof = commit and written
        tid = {"tid": self.order.transactional_id, "incarnation": self.incarnation} if proof else {}
        return self.journal.invoke(END, txn=transaction, commit=commit, **tid)

    def transaction_number(self, count: int) -> int:
        return self.order.number * 1_000_000 + count

    def choose(self) -> list[tuple[str, int]]:
        """Where the records of one transaction go."""
        if self.rng.random() < 0.04:
            return []
        some = self.rng.sample(self.partitions, self.rng.randint(1, min(PARTITIONS_MAX, len(self.partitions))))
        return [self.rng.choice(some) for _ in range(self.rng.randint(1, RECORDS_MAX))]

    def think_seconds(self) -> float:
        """The pause after a transaction; now and then in one, longer than its time-out."""
        return self.rng.expovariate(1 / self.order.pause_seconds)

    def overtime_seconds(self) -> float:
        return TRANSACTION_TIMEOUT_MS / 1000 * 1.15 if self.rng.random() < 0.002 else 0.0
