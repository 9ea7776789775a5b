"""Evaluation of constructed runs with client journals and files of three replicas: one valid run, one per violation."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.evaluation import Findings, NodeFiles, check
from tests.chaos.fleet import Topics
from tests.chaos.journal import Journal, expand, name_of, read
from tests.sim.history import END, FAIL, FETCH, INFO, INIT, LIST, OK, PRODUCE
from tests.sim.workloads.encode import TRANSACTIONAL, encode_batch, encode_marker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPIC = "t"
NODES = (1, 2, 3)
TID = "tx"
PID = 1000
A, B, C, D = (name_of(1, number) for number in range(1, 5))


class ScriptedRun:
    """A run of one transactional producer, one plain producer and one reader.

    Transaction 1 commits records A and B. Record C is not transactional.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.history = directory / "history"
        self.history.mkdir()
        self.producer = Journal(self.history / "c001.jsonl", "c001")
        self.reader = Journal(self.history / "c002.jsonl", "c002")
        self.plain = Journal(self.history / "c003.jsonl", "c003")
        self.logs: dict[int, list[bytes]] = {0: [], 1: []}
        self.ends = {0: 0, 1: 0}
        self.entries: list[bytes] = []
        self.is_settled = True
        self.damage: Callable[[], None] = lambda: None

    def write_valid_run(self) -> ScriptedRun:
        self.init_producer(1001)
        for partition, name in ((0, A), (1, B)):
            number = self.send(partition, name, txn=1)
            offset = self.write(partition, name)
            self.producer.complete(PRODUCE, number, OK, offset=offset)
        self.write_state(1, (0, 1), epoch=0)
        self.commit(1, 1001)
        self.write_state(2, (0, 1), epoch=1)
        for partition in (0, 1):
            self.write_marker(partition, commit=True, epoch=1)
        self.write_state(4, (), epoch=1)
        number = self.plain.invoke(PRODUCE, topic=TOPIC, partition=0, value=C)
        self.plain.complete(PRODUCE, number, OK, offset=self.write(0, C, pid=-1))
        self.read(0, 0, 3, (0, A), (2, C))
        return self

    # ---- clients ----------------------------------------------------------------------------------------------------

    def init_producer(self, incarnation: int) -> None:
        number = self.producer.invoke(INIT, incarnation=incarnation, tid=TID, generation=2)
        self.producer.complete(INIT, number, OK)

    def send(self, partition: int, name: str, *, txn: int, incarnation: int = 1001, generation: int = 2) -> int:
        details: dict[str, Any] = {"txn": txn, "tid": TID, "generation": generation, "incarnation": incarnation}
        return self.producer.invoke(PRODUCE, topic=TOPIC, partition=partition, value=name, seq=int(name, 36), **details)

    def commit(self, txn: int, incarnation: int, outcome: str = OK) -> None:
        number = self.producer.invoke(END, txn=txn, commit=True, tid=TID, incarnation=incarnation)
        self.producer.complete(END, number, outcome)

    def read(self, partition: int, begin: int, end: int, *records: tuple[int, str]) -> None:
        number = self.reader.invoke(FETCH, topic=TOPIC, partition=partition, isolation=1, offset=begin)
        self.reader.complete(FETCH, number, OK, records=list(records), next=end)

    def poll(self, offset: int) -> None:
        number = self.reader.invoke(LIST, topic=TOPIC, partition=0, isolation=0)
        self.reader.complete(LIST, number, OK, offset=offset)

    # ---- files ------------------------------------------------------------------------------------------------------

    def write(self, partition: int, name: str, *, pid: int = PID, epoch: int = 0, sequence: int = 0) -> int:
        offset = self.ends[partition]
        attributes = TRANSACTIONAL if pid >= 0 else 0
        self.logs[partition].append(
            encode_batch(
                [(None, expand(name))],
                timestamp=1,
                producer_id=pid,
                producer_epoch=epoch if pid >= 0 else -1,
                base_sequence=sequence if pid >= 0 else -1,
                attributes=attributes,
                base_offset=offset,
                leader_epoch=0,
            )
        )
        self.ends[partition] += 1
        return offset

    def write_marker(self, partition: int, *, commit: bool, epoch: int) -> None:
        offset = self.ends[partition]
        marker = encode_marker(
            producer_id=PID, producer_epoch=epoch, coordinator_epoch=0, commit=commit, timestamp=1, base_offset=offset
        )
        self.logs[partition].append(marker)
        self.ends[partition] += 1

    def write_state(self, state: int, partitions: tuple[int, ...], *, epoch: int) -> None:
        """Write a TransactionLogValue record, version 0, with the given state."""
        key = struct.pack(">hh", 0, len(TID)) + TID.encode()
        value = struct.pack(">hqhib", 0, PID, epoch, 60_000, state)
        topic = struct.pack(">ih", 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">i", len(partitions))
        value += (
            topic + b"".join(struct.pack(">i", partition) for partition in partitions)
            if partitions
            else struct.pack(">i", 0)
        )
        value += struct.pack(">qq", 1, 1)
        self.entries.append(encode_batch([(key, value)], timestamp=1, base_offset=len(self.entries), leader_epoch=0))

    def segment(self, node: int, partition: int) -> Path:
        return self.directory / f"broker-{node}" / f"{TOPIC}-{partition}" / "00000000000000000000.log"

    def check(self) -> Findings:
        for node in NODES:
            for partition, batches in self.logs.items():
                path = self.segment(node, partition)
                path.parent.mkdir(parents=True)
                path.write_bytes(b"".join(batches))
            path = self.directory / f"broker-{node}" / "__transaction_state-0" / "00000000000000000000.log"
            path.parent.mkdir(parents=True)
            path.write_bytes(b"".join(self.entries))
            marks = [f"{TOPIC} {partition} {end}" for partition, end in self.ends.items()]
            checkpoint = self.directory / f"broker-{node}" / "replication-offset-checkpoint"
            checkpoint.write_text("\n".join(["0", str(len(marks)), *marks]) + "\n")
        self.damage()
        replicas = {node: self.directory / f"broker-{node}" for node in NODES}
        return check(
            read(self.history), NodeFiles(replicas), Topics({TOPIC: 2}, {}, {}), 0, {}, is_settled=self.is_settled
        )


def test_valid_run_has_no_findings(tmp_path: Path) -> None:
    findings = ScriptedRun(tmp_path).write_valid_run().check()
    assert (findings.violations, findings.delays) == ([], [])


def lost_record(run: ScriptedRun) -> None:
    number = run.plain.invoke(PRODUCE, topic=TOPIC, partition=0, value=D)
    run.plain.complete(PRODUCE, number, OK, offset=9)


def duplicate_record(run: ScriptedRun) -> None:
    run.write(1, C, pid=-1)


def written_refused_record(run: ScriptedRun) -> None:
    number = run.plain.invoke(PRODUCE, topic=TOPIC, partition=0, value=D)
    run.plain.complete(PRODUCE, number, FAIL)
    run.write(0, D, pid=-1)


def corrupt_value(run: ScriptedRun) -> None:
    number = run.plain.invoke(PRODUCE, topic=TOPIC, partition=0, value=D)
    offset = run.ends[0]
    run.logs[0].append(encode_batch([(None, D.encode() + b"?")], timestamp=1, base_offset=offset, leader_epoch=0))
    run.ends[0] += 1
    run.plain.complete(PRODUCE, number, OK, offset=offset)


def read_of_missing_record(run: ScriptedRun) -> None:
    run.read(1, 0, 1, (0, A))


def skipped_record(run: ScriptedRun) -> None:
    run.read(0, 0, 3, (2, C))


def offset_out_of_range(run: ScriptedRun) -> None:
    number = run.reader.invoke(FETCH, topic=TOPIC, partition=0, isolation=1, offset=2)
    run.reader.complete(FETCH, number, FAIL, error=1)


def decreased_high_watermark(run: ScriptedRun) -> None:
    run.poll(3)
    run.poll(2)


def torn_transaction(run: ScriptedRun) -> None:
    for partition in (0, 1):
        run.send(partition, D if partition else name_of(1, 9), txn=2)
    run.write(0, name_of(1, 9), epoch=1)
    run.write(1, D, epoch=1)
    run.write_state(1, (0, 1), epoch=1)
    run.commit(2, 1001, INFO)
    run.write_state(2, (0, 1), epoch=2)
    run.write_marker(0, commit=True, epoch=2)
    run.write_marker(1, commit=False, epoch=2)
    run.write_state(4, (), epoch=2)


def hanging_transaction(run: ScriptedRun) -> None:
    run.send(0, D, txn=2)
    run.write(0, D, epoch=1)


def unfenced_producer(run: ScriptedRun) -> None:
    run.init_producer(1002)
    run.commit(2, 1001)


def different_replica(run: ScriptedRun) -> None:
    def damage() -> None:
        path = run.segment(2, 0)
        path.write_bytes(b"".join([*run.logs[0][:-1], encode_batch([(None, expand(D))], timestamp=1, base_offset=2)]))

    run.damage = damage


def short_replica(run: ScriptedRun) -> None:
    run.damage = lambda: (run.segment(3, 0).write_bytes(b"".join(run.logs[0][:-1])), None)[1]


def corrupt_batch(run: ScriptedRun) -> None:
    def damage() -> None:
        content = bytearray(run.segment(1, 1).read_bytes())
        content[70] ^= 1
        run.segment(1, 1).write_bytes(content)

    run.damage = damage


@pytest.mark.parametrize(
    ("violation", "expected"),
    [
        (lost_record, "I1 lost"),
        (duplicate_record, "I2 duplicate"),
        (written_refused_record, "I2 refused yet written"),
        (corrupt_value, "I3 two values"),
        (read_of_missing_record, "I3 read"),
        (skipped_record, "I4 skipped"),
        (offset_out_of_range, "I4 refused read"),
        (decreased_high_watermark, "I9 high watermark"),
        (torn_transaction, "I6 torn"),
        (hanging_transaction, "I6 hanging"),
        (unfenced_producer, "I8 not fenced"),
        (different_replica, "I10"),
        (short_replica, "I10"),
        (corrupt_batch, "I10"),
    ],
)
def test_violation_is_reported(tmp_path: Path, violation: Callable[[ScriptedRun], None], expected: str) -> None:
    run = ScriptedRun(tmp_path).write_valid_run()
    violation(run)
    assert any(finding.startswith(expected) for finding in run.check().violations)


def test_repetition_by_a_client_without_idempotence_is_counted_not_reported(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path).write_valid_run()
    run.plain.write("repeater", INFO)
    run.write(1, C, pid=-1)
    findings = run.check()
    assert findings.violations == []
    assert findings.counters == {"records resent by their client without sequence, or with a new producer epoch": 1}


@pytest.mark.parametrize(("epoch", "is_counted"), [(3, True), (2, False)])
def test_repetition_by_librdkafka_is_reported_unless_its_producer_epoch_is_new(
    tmp_path: Path, epoch: int, is_counted: bool
) -> None:
    run = ScriptedRun(tmp_path).write_valid_run()
    run.plain.write("repeater", INFO)
    number = run.plain.invoke(PRODUCE, topic=TOPIC, partition=0, value=D)
    for repetition, producer_epoch in enumerate((2, epoch)):
        offset = run.ends[0]
        run.logs[0].append(
            encode_batch(
                [(None, expand(D))],
                timestamp=1,
                producer_id=7,
                producer_epoch=producer_epoch,
                base_sequence=0 if is_counted else repetition,
                base_offset=offset,
                leader_epoch=0,
            )
        )
        run.ends[0] += 1
    run.plain.complete(PRODUCE, number, OK, offset=offset)
    duplicates = [finding for finding in run.check().violations if finding.startswith("I2 duplicate")]
    assert (duplicates == []) is is_counted


def test_repetition_of_another_clients_record_is_reported(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path).write_valid_run()
    run.plain.write("repeater", INFO)
    run.write(1, A, pid=-1)
    assert any(finding.startswith("I2 duplicate") for finding in run.check().violations)


@pytest.mark.parametrize(("version", "reported"), [(4, False), (5, True)])
def test_late_end_txn_exposes_only_transactions_of_the_classic_protocol(
    tmp_path: Path, version: int, reported: bool
) -> None:
    run = ScriptedRun(tmp_path).write_valid_run()
    proxy = Journal(run.history / "proxy.jsonl", "proxy")
    proxy.write("late", INFO, client=TID, api=26, version=version, since=0.0, until=float(2**40))
    torn_transaction(run)
    findings = run.check()
    assert any(finding.startswith("I6 torn") for finding in findings.violations) is reported
    assert ("classic transactions torn by a late EndTxn" in findings.counters) is not reported
