"""Evaluation of a run: the simulator's checkers on the clients' history and on the files of all replicas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.chaos.group_log import GroupOffsetsLog
from tests.chaos.groups import check_groups, collect, measure_groups
from tests.chaos.journal import shorten
from tests.chaos.metadata_agreement import check_metadata_logs
from tests.chaos.segment_archive import SegmentArchive, expand
from tests.sim.checkers.all_checkers import run_checkers
from tests.sim.checkers.batches import Unreadable, read_batches
from tests.sim.checkers.coordinator_log import read_entries
from tests.sim.checkers.evidence import Evidence
from tests.sim.checkers.replicas import check_replicas, read_watermarks
from tests.sim.checkers.visibility import PartitionModel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.chaos.fleet import Topics
    from tests.chaos.groups import GroupFigures
    from tests.chaos.journal import MergedJournals
    from tests.sim.checkers.batches import Batch
    from tests.sim.history import Partition

TRANSACTION_STATE: Final = "__transaction_state"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
END_TXN: Final = 26
METADATA: Final = ("__cluster_metadata", 0)
SCAN_INTERVAL_MS: Final = 1_000
CLASSIC_VERSION_LAST: Final = 4
"""Last EndTxn version of the classic protocol: the producer epoch does not change with each transaction."""


Span = tuple[str, float, float]
"""Transactional id, begin and end of the time in which a late EndTxn was in flight, in seconds."""


@dataclass
class Findings:
    """Findings of a run. `violations` always fail it; `delays` (exceeded time limits) only without machine overload."""

    violations: list[str] = field(default_factory=list)
    delays: list[str] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    groups: dict[str, GroupFigures] = field(default_factory=dict)


@dataclass
class LiveEvidence(Evidence):
    """Evidence of a run with processes: the simulator's evidence, the late EndTxn requests and the record keys."""

    late_spans: list[Span] = field(default_factory=list)
    keys: dict[Partition, dict[int, bytes]] = field(default_factory=dict)
    """Record keys by partition and offset."""
    classic_version_last: int = CLASSIC_VERSION_LAST

    def exposed_transactions(self) -> dict[int, None]:
        """Return the transactions of the classic protocol during which a late EndTxn of their id was in flight."""
        return self.transactions_within(self.late_spans)

    def transactions_within(self, late: list[Span]) -> dict[int, None]:
        """Return the transactions that overlap with a span of their transactional id."""
        exposed: dict[int, None] = {}
        spans: dict[str, list[tuple[float, float]]] = {}
        for transactional_id, since, until in late:
            spans.setdefault(transactional_id, []).append((since, until))
        for number, operations in self.history.transactions().items():
            last = max(operation.completed_at for operation in operations)
            ended = last if all(operation.completed_at >= 0 for operation in operations) else float("inf")
            for since, until in spans.get(operations[0].transactional_id or "", ()):
                if operations[0].invoked_at <= until and ended >= since:
                    exposed[number] = None
        return exposed


def files_of(data: Path, partition: Partition) -> list[Path]:
    return sorted((data / f"{partition[0]}-{partition[1]}").glob("*.log"))


def load(data: Path, partition: Partition) -> list[Batch]:
    """Read all batches of one replica.

    Raises:
        Unreadable: a batch is invalid, or the file has bytes after its last batch.
    """
    loaded: list[Batch] = []
    for path in files_of(data, partition):
        content = path.read_bytes()
        batches = list(read_batches(content, check_crc=True))
        end = batches[-1].position + batches[-1].size if batches else 0
        if any(content[end:]):
            raise Unreadable(f"{path.name}: {len(content) - end} bytes after the last complete batch")
        loaded += batches
    return loaded


@dataclass(frozen=True)
class NodeFiles:
    """Data directories by node id, and the archive of the coordinators' segments before compaction."""

    replicas: dict[int, Path]
    archive: SegmentArchive | None = None


def gather(
    journals: MergedJournals, files: NodeFiles, topics: dict[str, int], findings: Findings, *, is_settled: bool
) -> LiveEvidence:
    """Read the files of all nodes after their clean shutdown. Add damaged files to `findings`."""
    evidence = LiveEvidence(journals.history, {}, scan_interval_ms=SCAN_INTERVAL_MS)
    evidence.late_spans = [
        (note["client"], note["since"], note["until"])
        for note in journals.notes
        if note["op"] == "late" and note["api"] == END_TXN and note["version"] <= CLASSIC_VERSION_LAST
    ]
    evidence.repeaters = frozenset(note["proc"] for note in journals.notes if note["op"] == "repeater")
    names = [(topic, index) for topic, count in topics.items() for index in range(count)]
    for partition in [*names, *partitions_of(TRANSACTION_STATE, files.replicas)]:
        batches = compare(partition, files, findings, is_settled=is_settled)
        if partition[0] == TRANSACTION_STATE:
            evidence.coordinators[partition[1]] = read_entries(batches)
            continue
        for batch in batches:
            if not batch.is_control:
                for offset, (key, _) in enumerate(batch.records, batch.base_offset):
                    if key is not None:
                        evidence.keys.setdefault(partition, {})[offset] = key
                batch.records = [(key, shorten(value).encode("latin-1")) for key, value in batch.records]
        evidence.partitions[partition] = PartitionModel.of(batches)
    return evidence


def partitions_of(topic: str, replicas: dict[int, Path]) -> list[Partition]:
    """Return the partitions of an internal topic for which any node has files."""
    names = {path.name for data in replicas.values() for path in data.glob(f"{topic}-*")}
    return [(topic, index) for index in sorted(int(name.rpartition("-")[2]) for name in names)]


def load_groups(files: NodeFiles, findings: Findings, *, is_settled: bool) -> GroupOffsetsLog:
    log = GroupOffsetsLog()
    for partition in partitions_of(CONSUMER_OFFSETS, files.replicas):
        log.add(compare(partition, files, findings, is_settled=is_settled))
    return log


def load_metadata(replicas: dict[int, Path], findings: Findings) -> dict[int, list[Batch]]:
    logs = {}
    for node, data in replicas.items():
        try:
            logs[node] = load(data, METADATA)
        except Unreadable as damage:
            findings.violations.append(f"I12 the metadata log of node {node}: {damage}")
    return logs


def compare(partition: Partition, files: NodeFiles, findings: Findings, *, is_settled: bool) -> list[Batch]:
    """Check I10 for one partition, and return the batches of its longest replica.

    I10: all replicas have the same committed batches. If the cluster has settled, their complete logs are equal.
    """
    logs: dict[int, list[Batch]] = {}
    committed: dict[int, int] = {}
    for node, data in files.replicas.items():
        try:
            logs[node] = load(data, partition)
        except Unreadable as damage:
            findings.violations.append(f"I10 replica {node} of {partition}: {damage}")
            continue
        checkpoint = data / "replication-offset-checkpoint"
        watermarks = read_watermarks(checkpoint.read_text()) if checkpoint.exists() else {}
        committed[node] = watermarks.get(partition, 0)
    whole = list(logs) if is_settled else ()
    name = f"{partition[0]}-{partition[1]}"
    if files.archive is not None and partition[0] in {TRANSACTION_STATE, CONSUMER_OFFSETS}:
        logs, violations = expand(name, files.archive.batches_of(partition), logs)
        findings.violations += violations
    findings.violations += check_replicas(name, logs, committed, whole=whole)
    return max(logs.values(), key=lambda batches: batches[-1].last_offset if batches else -1, default=[])


def check(
    journals: MergedJournals,
    files: NodeFiles,
    topics: Topics,
    disturbance_ms: int,
    fetched: Mapping[str, Mapping[Partition, int]],
    *,
    is_settled: bool,
) -> Findings:
    """Run the simulator's checkers, the comparison of the replicas and the checks of the groups.

    `disturbance_ms` is the longest time in which faults could delay the cluster; the time limits of I15 include it.
    `fetched` contains the OffsetFetch responses at the end of the run.
    """
    findings = Findings()
    evidence = gather(journals, files, topics.all, findings, is_settled=is_settled)
    groups = collect(evidence, journals.notes, load_groups(files, findings, is_settled=is_settled), topics.inputs)
    groups.fetched = fetched
    findings.violations += check_groups(groups)
    findings.groups = measure_groups(groups)
    evidence.disturbance_ms = disturbance_ms
    findings.violations += check_metadata_logs(load_metadata(files.replicas, findings))
    for finding in run_checkers(evidence):
        (findings.delays if finding.startswith("I15") else findings.violations).append(finding)
    findings.counters = dict(evidence.counters) | {name: count for name, count in groups.counters.items() if count}
    if files.archive is not None:
        findings.counters["segments cleaned"] = files.archive.cleaned_segments
    return findings
