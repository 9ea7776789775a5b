"""A history and the logs that belong to it, written by hand: what the checkers are tested with."""

from typing import Any

from tests.sim.checkers.all_checkers import run_checkers
from tests.sim.checkers.coordinator_log import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT, Entry
from tests.sim.checkers.evidence import Evidence
from tests.sim.checkers.visibility import PartitionModel
from tests.sim.history import END, FETCH, INIT, OK, PRODUCE, History, Operation
from tests.sim.workloads.encode import TRANSACTIONAL, encode_batch, encode_marker

P0, P1 = ("ledger", 0), ("ledger", 1)
TID = "bank"
PID = 1000


def values(*names: str) -> tuple[bytes, ...]:
    return tuple(name.encode() for name in names)


class Case:
    """A history and two logs, written by hand.

    The start is a good run: transaction 1 of `bank` commits a and b into both partitions.
    """

    def __init__(self) -> None:
        self.history = History()
        self.logs: dict[tuple[str, int], list[bytes]] = {P0: [], P1: []}
        self.ends = {P0: 0, P1: 0}
        self.entries: list[Entry] = []
        self.changes: dict[str, Any] = {}
        self.epoch = 0

    def good(self) -> "Case":
        self.op(INIT, transactional_id=TID, generation=2, result_producer_id=PID, result_producer_epoch=0)
        self.decide(EMPTY)
        self.produce(P0, values("a"), 0, offset=0)
        self.produce(P1, values("b"), 0, offset=0)
        self.write(P0, values("a"), 0)
        self.write(P1, values("b"), 0)
        self.decide(ONGOING, P0, P1)
        self.end(commit=True, epoch=0)
        self.decide(PREPARE_COMMIT, P0, P1, epoch=1)
        self.mark(P0, commit=True, epoch=1)
        self.mark(P1, commit=True, epoch=1)
        self.decide(COMPLETE_COMMIT, epoch=1)
        return self

    def op(self, kind: str, *, outcome: str = OK, process: str = "p", **details: Any) -> Operation:
        operation = self.history.invoke(
            kind, process, 0.0, **{key: each for key, each in details.items() if "result" not in key}
        )
        return self.history.complete(
            operation, outcome, 0.0, **{key: each for key, each in details.items() if "result" in key}
        )

    def produce(
        self, partition: tuple[str, int], what: tuple[bytes, ...], sequence: int, *, offset: int = -1, **details: Any
    ) -> Operation:
        fields: dict[str, Any] = {
            "transaction": 1,
            "transactional_id": TID,
            "generation": 2,
            "producer_id": PID,
            "producer_epoch": 0,
        } | details
        return self.op(
            PRODUCE, partition=partition, values=what, base_sequence=sequence, result_offset=offset, **fields
        )

    def end(
        self, *, commit: bool, epoch: int, transaction: int = 1, outcome: str = OK, generation: int = 2
    ) -> Operation:
        return self.op(
            END,
            outcome=outcome,
            commit=commit,
            transaction=transaction,
            transactional_id=TID,
            generation=generation,
            producer_id=PID,
            producer_epoch=epoch,
            result_producer_id=PID,
            result_producer_epoch=epoch + 1,
        )

    def read(
        self,
        partition: tuple[str, int],
        start: int,
        end: int,
        *records: tuple[int, str],
        isolation: int = 1,
        **details: Any,
    ) -> Operation:
        operation = self.op(FETCH, partition=partition, isolation=isolation, offset=start)
        fields = {"high_watermark": 10, "last_stable_offset": 10, "stable_bound": 10} | details
        for name, each in fields.items():
            setattr(operation, name, each)
        operation.records, operation.next_offset = [(offset, value.encode()) for offset, value in records], end
        return operation

    def write(
        self,
        partition: tuple[str, int],
        what: tuple[bytes, ...],
        sequence: int,
        *,
        epoch: int = 0,
        pid: int = PID,
        transactional: bool = True,
    ) -> None:
        data = encode_batch(
            [(None, value) for value in what],
            timestamp=1,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL if transactional else 0,
            base_offset=self.ends[partition],
        )
        self.logs[partition].append(data)
        self.ends[partition] += len(what)

    def mark(
        self, partition: tuple[str, int], *, commit: bool, epoch: int, coordinator_epoch: int = 0, pid: int = PID
    ) -> None:
        data = encode_marker(
            producer_id=pid,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            commit=commit,
            timestamp=1,
            base_offset=self.ends[partition],
        )
        self.logs[partition].append(data)
        self.ends[partition] += 1

    def decide(
        self, state: int, *partitions: tuple[str, int], epoch: int = 0, updated_ms: int = 1000, pid: int = PID
    ) -> None:
        self.entries.append(
            Entry(
                len(self.entries),
                0,
                TID,
                producer_id=pid,
                producer_epoch=epoch,
                timeout_ms=5000,
                state=state,
                partitions=frozenset(partitions),
                updated_ms=updated_ms,
                started_ms=1000,
            )
        )

    def findings(self) -> list[str]:
        models = {partition: PartitionModel.read([b"".join(log)]) for partition, log in self.logs.items()}
        evidence = Evidence(self.history, models, {0: self.entries}, scan_interval_ms=100)
        for name, value in self.changes.items():
            setattr(evidence, name, value)
        return run_checkers(evidence)
