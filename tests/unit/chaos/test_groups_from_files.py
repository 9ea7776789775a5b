"""Invariant I7 on constructed files and journals: a run of one transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.coordinator.group.records import to_record
from odradek.protocol.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from tests.chaos.clients.common import TRANSFORMER
from tests.chaos.clients.member import key_of
from tests.chaos.evaluation import Findings, NodeFiles, check
from tests.chaos.fleet import Topics
from tests.chaos.journal import Journal, expand, name_of, now, read
from tests.sim.history import INFO, OK
from tests.sim.workloads.encode import TRANSACTIONAL, encode_batch, encode_marker

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = Topics({}, {"in": 1}, {"out": 1})
GROUP = "g"
PID = 7
INPUTS, OUTPUTS, OFFSETS = "in-0", "out-0", "__consumer_offsets-0"


class Files:
    """Writes the logs of one broker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.logs: dict[str, list[bytes]] = {}
        (directory / "history").mkdir()
        member = Journal(directory / "history" / "c001.jsonl", "c001")
        member.write("member", INFO, group=GROUP, role=TRANSFORMER, protocol="consumer")

    def write(self, log: str, key: bytes | None, value: bytes, *, pid: int = -1) -> None:
        batches = self.logs.setdefault(log, [])
        offset = len(batches)
        attributes = TRANSACTIONAL if pid >= 0 else 0
        batches.append(
            encode_batch(
                [(key, value)],
                timestamp=1,
                producer_id=pid,
                producer_epoch=0 if pid >= 0 else -1,
                base_sequence=offset if pid >= 0 else -1,
                attributes=attributes,
                base_offset=offset,
                leader_epoch=0,
            )
        )

    def write_marker(self, log: str, *, commit: bool = True) -> None:
        batches = self.logs[log]
        batches.append(
            encode_marker(
                producer_id=PID,
                producer_epoch=0,
                coordinator_epoch=0,
                commit=commit,
                timestamp=1,
                base_offset=len(batches),
            )
        )

    def write_inputs(self, count: int) -> None:
        for number in range(count):
            self.write(INPUTS, None, expand(name_of(1, number)))

    def transform(self, offset: int, *, offsets_commit: bool = True) -> None:
        """Write one transaction with the output and the committed offset of an input."""
        name = name_of(2, len(self.logs.get(OUTPUTS, ())))
        self.write(OUTPUTS, key_of(GROUP, ("in", 0), offset), expand(name), pid=PID)
        record = to_record(
            OffsetCommitKey(group=GROUP, topic="in", partition=0),
            OffsetCommitValue(offset=offset + 1),
            4,
            producer_id=PID,
        )
        assert record.key is not None
        assert record.value is not None
        self.write(OFFSETS, record.key, record.value, pid=PID)
        self.write_marker(OUTPUTS)
        self.write_marker(OFFSETS, commit=offsets_commit)

    def check(self, fetched: int) -> Findings:
        for name, batches in self.logs.items():
            path = self.directory / "broker-1" / name / "00000000000000000000.log"
            path.parent.mkdir(parents=True)
            path.write_bytes(b"".join(batches))
        replicas = {1: self.directory / "broker-1"}
        offsets = {GROUP: {("in", 0): fetched}}
        return check(read(self.directory / "history"), NodeFiles(replicas), TOPICS, 0, offsets, is_settled=True)


def group_violations(findings: Findings) -> list[str]:
    return [finding for finding in findings.violations if finding.startswith("I7")]


def test_transaction_with_output_and_offset_is_valid(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write_inputs(2)
    files.transform(0)
    findings = files.check(1)
    assert group_violations(findings) == []
    assert (findings.groups[GROUP].inputs, findings.groups[GROUP].aborted) == (1, 0)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("duplicate", "I7 g: in-0 at 0 has more than one visible output (1)"),
        ("without offset", "I7 g: in-0 at 0 has a visible output, but is not below the committed offset (0)"),
        ("skipped", "I7 g: in-0 at 0 has no visible output, but is below the committed offset (2)"),
        ("unknown input", "I7 g: in-0 at 9 has a visible output, but is not a visible input (10)"),
    ],
)
def test_violation_in_the_files_is_reported(tmp_path: Path, fault: str, expected: str) -> None:
    files = Files(tmp_path)
    files.write_inputs(2)
    if fault == "duplicate":
        files.transform(0)
        files.transform(0)
    elif fault == "without offset":
        files.transform(0, offsets_commit=False)
    elif fault == "skipped":
        files.transform(1)
    else:
        files.transform(9)
    assert expected in group_violations(files.check(1))


def test_pending_offset_without_a_marker_is_reported_as_hanging(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write_inputs(1)
    files.transform(0)
    files.logs[OFFSETS].pop()
    assert any(
        finding.startswith("I7 hanging: 1 offsets of producer 7") for finding in group_violations(files.check(-1))
    )


@pytest.mark.parametrize(
    ("version", "sent_before_s", "excluded"),
    [(3, 0.0, True), (3, 10.0, False), (5, 0.0, False)],
    ids=["sent by it", "sent before it", "not of the classic protocol"],
)
def test_inputs_of_an_aborted_transaction_are_excluded_if_its_offset_commit_arrived_later(
    tmp_path: Path, version: int, sent_before_s: float, excluded: bool
) -> None:
    files = Files(tmp_path)
    files.write_inputs(2)
    files.transform(1)  # another transaction has committed the offset behind both inputs
    client = f"{GROUP}/2"
    member, proxy = (Journal(tmp_path / "history" / f"{name}.jsonl", name) for name in ("c002", "proxy"))
    end = member.invoke("end", txn=1, commit=False, tid=client)
    sent = now() - sent_before_s
    member.write("consumed", INFO, group=GROUP, partition=["in", 0], offsets=[0], txn=1)
    member.complete("end", end, OK)
    later = now() + 1
    proxy.write("late", INFO, client=client, api=28, version=version, sent=sent, since=later, until=later + 1)
    assert (group_violations(files.check(2)) == []) is excluded
