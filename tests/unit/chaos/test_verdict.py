"""The verdict on whole runs written by hand: journals of clients and files of three replicas. One good run, and one bad per anomaly."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.fleet import Topics
from tests.chaos.journal import Journal, expand, name_of, read
from tests.chaos.verdict import Findings, NodeFiles, check
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


class Story:
    """A run of one transactional producer and one reader. Transaction 1 commits A and B; C is written outside of any."""

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
        self.at_rest = True
        self.damage: Callable[[], None] = lambda: None

    def good(self) -> Story:
        self.born(1001)
        for partition, name in ((0, A), (1, B)):
            number = self.send(partition, name, txn=1)
            at = self.write(partition, name)
            self.producer.complete(PRODUCE, number, OK, at=at)
        self.decide(1, (0, 1), epoch=0)
        self.commit(1, 1001)
        self.decide(2, (0, 1), epoch=1)
        for partition in (0, 1):
            self.mark(partition, commit=True, epoch=1)
        self.decide(4, (), epoch=1)
        number = self.plain.invoke(PRODUCE, topic=TOPIC, partition=0, value=C)
        self.plain.complete(PRODUCE, number, OK, at=self.write(0, C, pid=-1))
        self.read(0, 0, 3, (0, A), (2, C))
        return self

    # -- clients

    def born(self, incarnation: int) -> None:
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
        self.reader.complete(LIST, number, OK, at=offset)

    # -- files

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

    def mark(self, partition: int, *, commit: bool, epoch: int) -> None:
        offset = self.ends[partition]
        marker = encode_marker(
            producer_id=PID, producer_epoch=epoch, coordinator_epoch=0, commit=commit, timestamp=1, base_offset=offset
        )
        self.logs[partition].append(marker)
        self.ends[partition] += 1

    def decide(self, state: int, partitions: tuple[int, ...], *, epoch: int) -> None:
        """A record of the coordinator, version 0."""
        key = struct.pack(">hh", 0, len(TID)) + TID.encode()
        value = struct.pack(">hqhib", 0, PID, epoch, 60_000, state)
        topic = struct.pack(">ih", 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">i", len(partitions))
        value += (
            topic + b"".join(struct.pack(">i", each) for each in partitions) if partitions else struct.pack(">i", 0)
        )
        value += struct.pack(">qq", 1, 1)
        self.entries.append(encode_batch([(key, value)], timestamp=1, base_offset=len(self.entries), leader_epoch=0))

    def segment(self, node: int, partition: int) -> Path:
        return self.directory / f"broker-{node}" / f"{TOPIC}-{partition}" / "00000000000000000000.log"

    def judge(self) -> Findings:
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
        return check(read(self.history), NodeFiles(replicas), Topics({TOPIC: 2}, {}, {}), 0, {}, at_rest=self.at_rest)


def test_a_good_run_has_no_findings(tmp_path: Path) -> None:
    findings = Story(tmp_path).good().judge()
    assert (findings.violations, findings.delays) == ([], [])


def lost(story: Story) -> None:
    number = story.plain.invoke(PRODUCE, topic=TOPIC, partition=0, value=D)
    story.plain.complete(PRODUCE, number, OK, at=9)


def twice(story: Story) -> None:
    story.write(1, C, pid=-1)


def refused_yet_written(story: Story) -> None:
    number = story.plain.invoke(PRODUCE, topic=TOPIC, partition=0, value=D)
    story.plain.complete(PRODUCE, number, FAIL)
    story.write(0, D, pid=-1)


def damaged_on_the_way(story: Story) -> None:
    number = story.plain.invoke(PRODUCE, topic=TOPIC, partition=0, value=D)
    offset = story.ends[0]
    story.logs[0].append(encode_batch([(None, D.encode() + b"?")], timestamp=1, base_offset=offset, leader_epoch=0))
    story.ends[0] += 1
    story.plain.complete(PRODUCE, number, OK, at=offset)


def read_what_is_not_there(story: Story) -> None:
    story.read(1, 0, 1, (0, A))


def passed_over(story: Story) -> None:
    story.read(0, 0, 3, (2, C))


def no_place_to_read_on(story: Story) -> None:
    number = story.reader.invoke(FETCH, topic=TOPIC, partition=0, isolation=1, offset=2)
    story.reader.complete(FETCH, number, FAIL, error=1)


def watermark_back(story: Story) -> None:
    story.poll(3)
    story.poll(2)


def torn(story: Story) -> None:
    for partition in (0, 1):
        story.send(partition, D if partition else name_of(1, 9), txn=2)
    story.write(0, name_of(1, 9), epoch=1)
    story.write(1, D, epoch=1)
    story.decide(1, (0, 1), epoch=1)
    story.commit(2, 1001, INFO)
    story.decide(2, (0, 1), epoch=2)
    story.mark(0, commit=True, epoch=2)
    story.mark(1, commit=False, epoch=2)
    story.decide(4, (), epoch=2)


def hanging(story: Story) -> None:
    story.send(0, D, txn=2)
    story.write(0, D, epoch=1)


def not_fenced(story: Story) -> None:
    story.born(1002)
    story.commit(2, 1001)


def replica_differs(story: Story) -> None:
    def damage() -> None:
        path = story.segment(2, 0)
        path.write_bytes(b"".join([*story.logs[0][:-1], encode_batch([(None, expand(D))], timestamp=1, base_offset=2)]))

    story.damage = damage


def replica_is_short(story: Story) -> None:
    story.damage = lambda: (story.segment(3, 0).write_bytes(b"".join(story.logs[0][:-1])), None)[1]


def checksum(story: Story) -> None:
    def damage() -> None:
        content = bytearray(story.segment(1, 1).read_bytes())
        content[70] ^= 1
        story.segment(1, 1).write_bytes(content)

    story.damage = damage


@pytest.mark.parametrize(
    ("anomaly", "found"),
    [
        (lost, "I1 lost"),
        (twice, "I2 duplicate"),
        (refused_yet_written, "I2 refused yet written"),
        (damaged_on_the_way, "I3 two values"),
        (read_what_is_not_there, "I3 read"),
        (passed_over, "I4 skipped"),
        (no_place_to_read_on, "I4 refused read"),
        (watermark_back, "I9 high watermark"),
        (torn, "I6 torn"),
        (hanging, "I6 hanging"),
        (not_fenced, "I8 not fenced"),
        (replica_differs, "I10"),
        (replica_is_short, "I10"),
        (checksum, "I10"),
    ],
)
def test_an_anomaly_is_found_by_name(tmp_path: Path, anomaly: Callable[[Story], None], found: str) -> None:
    story = Story(tmp_path).good()
    anomaly(story)
    assert any(finding.startswith(found) for finding in story.judge().violations)


def test_a_client_without_numbers_may_repeat_its_own_records_only(tmp_path: Path) -> None:
    story = Story(tmp_path).good()
    story.plain.write("repeater", INFO)
    story.write(1, C, pid=-1)
    findings = story.judge()
    assert findings.violations == []
    assert findings.counters == {"records resent by their client without sequence, or with a new producer epoch": 1}


@pytest.mark.parametrize(("epoch", "excused"), [(3, True), (2, False)])
def test_an_idempotent_client_may_repeat_under_a_new_epoch_only(tmp_path: Path, epoch: int, excused: bool) -> None:
    story = Story(tmp_path).good()
    story.plain.write("repeater", INFO)
    number = story.plain.invoke(PRODUCE, topic=TOPIC, partition=0, value=D)
    for times, each in enumerate((2, epoch)):
        offset = story.ends[0]
        story.logs[0].append(
            encode_batch(
                [(None, expand(D))],
                timestamp=1,
                producer_id=7,
                producer_epoch=each,
                base_sequence=0 if excused else times,
                base_offset=offset,
                leader_epoch=0,
            )
        )
        story.ends[0] += 1
    story.plain.complete(PRODUCE, number, OK, at=offset)
    found = [finding for finding in story.judge().violations if finding.startswith("I2 duplicate")]
    assert (found == []) is excused


def test_what_another_client_wrote_twice_is_not_excused(tmp_path: Path) -> None:
    story = Story(tmp_path).good()
    story.plain.write("repeater", INFO)
    story.write(1, A, pid=-1)
    assert any(finding.startswith("I2 duplicate") for finding in story.judge().violations)


@pytest.mark.parametrize(("version", "judged"), [(4, False), (5, True)])
def test_a_late_end_exposes_transactions_of_the_classic_protocol_only(
    tmp_path: Path, version: int, judged: bool
) -> None:
    story = Story(tmp_path).good()
    proxy = Journal(story.history / "proxy.jsonl", "proxy")
    proxy.write("late", INFO, client=TID, api=26, version=version, since=0.0, until=float(2**40))
    torn(story)
    findings = story.judge()
    assert any(finding.startswith("I6 torn") for finding in findings.violations) is judged
    assert ("classic transactions torn by a late EndTxn" in findings.counters) is not judged
