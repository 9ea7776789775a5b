"""Common parts of the client processes: their specification (one JSON argument), their stop, and their journal.

A client process completes its pending operations and exits when its standard input ends.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import sys
import threading
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import jwt

from odradek.client.security.credentials import BearerToken
from odradek.client.security.names import SECURITY_PROTOCOL
from odradek.client.security.tls import context_of
from odradek.client.security.tokens import TokenFile
from odradek.pipeline.cluster.access import Access
from tests.chaos.journal import Journal, expand, name_of
from tests.sim.history import END, FAIL, INFO, INIT, OK, PRODUCE

if TYPE_CHECKING:
    from collections.abc import Callable

PLAIN, IDEMPOTENT, TRANSACTIONAL = "plain", "idempotent", "transactional"
TRANSFORMER, COMMITTER = "transformer", "committer"
"""Kinds of group members.

A transformer reads, writes and commits offsets in transactions. A committer reads and commits.
"""
CLASSIC: Final = 1
"""The transaction protocol of librdkafka and aiokafka (TV1)."""
TRANSACTION_TIMEOUT_MS: Final = 7_000
DELIVERY_TIMEOUT_MS: Final = 30_000
REQUEST_TIMEOUT_MS: Final = 4_000
CALL_SECONDS: Final = 10.0
RECORDS_MAX: Final = 20
PARTITIONS_MAX: Final = 6
SESSION_MS: Final = 3_000
HEARTBEAT_MS: Final = 500
POLL_INTERVAL_MS: Final = 12_000
"""Maximum time between two polls of a member, in milliseconds. A member that exceeds it leaves its group."""
HUNG_SECONDS: Final = 20.0
"""Time after which a call of send_offsets_to_transaction counts as hung, in seconds."""
HUNG: Final = 4
"""Exit code of a client with a hung call: librdkafka's send_offsets_to_transaction may never return (docs/clients.md).
"""
STUCK: Final = 3
"""Exit code of a client that could not complete its operations after the stop request."""


@dataclass(frozen=True)
class ClientSpec:
    """Specification of a client process.

    No two processes have the same `number`; several processes may have the same `transactional_id`. A group member
    reads `topics`, and writes its outputs to the topics `outputs`.
    """

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
    security: str = ""
    """File with the client properties of the user; empty without security."""

    def text(self) -> str:
        return json.dumps(asdict(self))

    def arguments(self) -> list[str]:
        """Return the specification as NAME=VALUE arguments, for the Java client."""
        return [f"{name}={_argument(value)}" for name, value in asdict(self).items()]

    @property
    def access(self) -> Access:
        """Addresses of the brokers, and the security of the connections."""
        return Access.of_file(self.bootstrap, Path(self.security) if self.security else None)

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return [(topic, index) for topic, count in self.topics.items() for index in range(count)]


def python_settings(access: Access) -> dict[str, Any]:
    """Return the addresses and the security of a client of aiokafka or kafka-python."""
    settings: dict[str, Any] = {"bootstrap_servers": access.bootstrap}
    security = access.security
    if security.tls is not None:
        settings |= {"security_protocol": security.protocol.name, "ssl_context": context_of(security.tls)}
    if isinstance(security.credentials, BearerToken):
        settings["sasl_mechanism"] = security.credentials.mechanism  # the client adds the provider of its library
    elif security.credentials is not None:
        own = access.confluent()
        settings |= {
            "sasl_mechanism": security.credentials.mechanism,
            "sasl_plain_username": own["sasl.username"],
            "sasl_plain_password": own["sasl.password"],
        }
    return settings


def confluent_settings(access: Access) -> dict[str, Any]:
    """Return the addresses and the security of a client of confluent-kafka. It can have a token."""
    credentials = access.security.credentials
    if not isinstance(credentials, BearerToken):
        return access.confluent()
    without_login = replace(access, properties={**access.properties, SECURITY_PROTOCOL: "SSL"})
    return without_login.confluent() | {
        SECURITY_PROTOCOL: access.security.protocol.name,
        "sasl.mechanism": credentials.mechanism,
        "oauth_cb": partial(_token, credentials),
    }


def _token(credentials: BearerToken, _config: str) -> tuple[str, float]:
    """Return the token of the file, and the time at which it expires."""
    assert isinstance(credentials.source, TokenFile)
    token = credentials.source.path.read_text()
    return token, float(jwt.decode(token, options={"verify_signature": False})["exp"])


def _argument(value: Any) -> str:
    return ",".join(f"{topic}:{count}" for topic, count in value.items()) if isinstance(value, dict) else str(value)


class Client:
    """State of this client process. `stopping` is set when its standard input ends."""

    def __init__(self) -> None:
        self.spec = ClientSpec(**json.loads(sys.argv[1]))
        self.journal = Journal(Path(self.spec.journal), self.spec.process)
        self.rng = Random(self.spec.seed)
        self.stopping = threading.Event()
        self.partitions = self.spec.partitions
        self._values = itertools.count(1)
        self._sequences: dict[tuple[str, int], int] = {}
        self._incarnations = itertools.count(1)
        self.incarnation = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def under(self, transactional_id: str) -> Client:
        """Return this process as a producer with another transactional id. The counters of the process are shared."""
        client = copy.copy(self)
        client.spec = replace(self.spec, transactional_id=transactional_id)
        return client

    def _listen(self) -> None:
        while os.read(sys.stdin.fileno(), 64):
            pass
        self.stopping.set()

    def new_incarnation(self) -> int:
        """Begin a new producer incarnation, and return the journal id of its INIT."""
        self.incarnation = self.spec.number * 1000 + next(self._incarnations)
        generation = CLASSIC if self.spec.transactional_id else 0
        tid = {"tid": self.spec.transactional_id} if self.spec.transactional_id else {}
        return self.journal.invoke(INIT, incarnation=self.incarnation, generation=generation, **tid)

    def send(self, partition: tuple[str, int], transaction: int) -> tuple[bytes, Callable[[int | None], None]]:
        """Record the invocation.

        Return the record value, and a callback for the offset (None if the result is unknown).
        """
        name = name_of(self.spec.number, next(self._values))
        details: dict[str, Any] = {"topic": partition[0], "partition": partition[1], "value": name}
        if self.spec.kind != PLAIN:  # without idempotence, records can be reordered after a lost connection
            self._sequences[partition] = self._sequences.get(partition, -1) + 1
            details |= {"seq": self._sequences[partition], "incarnation": self.incarnation}
        if transaction >= 0:
            details |= {"txn": transaction, "tid": self.spec.transactional_id, "generation": CLASSIC}
        number = self.journal.invoke(PRODUCE, **details)

        def settle(offset: int | None) -> None:
            if offset is None:
                self.journal.complete(PRODUCE, number, INFO)
            else:
                self.journal.complete(PRODUCE, number, OK, offset=offset)

        settle.refused = lambda: self.journal.complete(PRODUCE, number, FAIL)  # type: ignore[attr-defined]
        return expand(name), settle

    def end(self, transaction: int, *, commit: bool, written: bool) -> int:
        """Record the call of commit or abort, and return its journal id.

        Only the commit of a transaction with records proves that the client sent EndTxn. An abort of records that were
        not sent yet, and the end of an empty transaction, can succeed within the client without a fencing check.
        """
        proof = commit and written
        tid = {"tid": self.spec.transactional_id, "incarnation": self.incarnation} if proof else {}
        return self.journal.invoke(END, txn=transaction, commit=commit, **tid)

    def transaction_number(self, count: int) -> int:
        return self.spec.number * 1_000_000 + count

    def choose(self) -> list[tuple[str, int]]:
        """Sample the partition of each record of one transaction."""
        if self.rng.random() < 0.04:
            return []
        sample = self.rng.sample(self.partitions, self.rng.randint(1, min(PARTITIONS_MAX, len(self.partitions))))
        return [self.rng.choice(sample) for _ in range(self.rng.randint(1, RECORDS_MAX))]

    def pause_seconds(self) -> float:
        """Sample the pause after a transaction."""
        return self.rng.expovariate(1 / self.spec.pause_seconds)

    def timeout_pause_seconds(self) -> float:
        """Sample the pause within a transaction: usually 0, rarely longer than the transaction time-out."""
        return TRANSACTION_TIMEOUT_MS / 1000 * 1.15 if self.rng.random() < 0.002 else 0.0
