"""The verdict: the clients' history and the files of every replica, before the simulator's own checkers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.chaos.agreement import check_agreement
from tests.chaos.group_log import GroupLog
from tests.chaos.groups import check_groups, collect, measure_groups
from tests.chaos.journal import shorten
from tests.chaos.segment_archive import Originals, expand
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
    from tests.chaos.journal import Told
    from tests.sim.checkers.batches import Batch
    from tests.sim.history import Partition

TRANSACTION_STATE: Final = "__transaction_state"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
END_TXN: Final = 26
METADATA: Final = ("__cluster_metadata", 0)
SCAN_INTERVAL_MS: Final = 1_000
CLASSIC_VERSION_LAST: Final = 4
"""EndTxn up to this version names no epoch that is its transaction's alone."""


Span = tuple[str, float, float]
"""Transactional id, since, until."""


@dataclass
class Findings:
    """`violations` fail a run always; `delays` (what came too late) only where the machine had time to spare."""

    violations: list[str] = field(default_factory=list)
    delays: list[str] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    groups: dict[str, GroupFigures] = field(default_factory=dict)


@dataclass
class LiveEvidence(Evidence):
    """What the proxy saw of late EndTxn frames."""

    late_spans: list[Span] = field(default_factory=list)
    keys: dict[Partition, dict[int, bytes]] = field(default_factory=dict)
    """Of the records that have one, by offset."""
    classic_version_last: int = CLASSIC_VERSION_LAST

    def exposed_transactions(self) -> dict[int, None]:
        """Transactions of the classic protocol that ran while an EndTxn was on its way that its client had given up."""
        return self.transactions_within(self.late_spans)

    def transactions_within(self, late: list[Span]) -> dict[int, None]:
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
    """All batches of one replica. Raises Unreadable: a batch that contradicts itself, or bytes after the last one."""
    found: list[Batch] = []
    for path in files_of(data, partition):
        content = path.read_bytes()
        batches = list(read_batches(content, check_crc=True))
        end = batches[-1].position + batches[-1].size if batches else 0
        if any(content[end:]):
            raise Unreadable(f"{path.name}: {len(content) - end} bytes after the last whole batch")
        found += batches
    return found


@dataclass(frozen=True)
class NodeFiles:
    """What is left of the nodes: their data directories, and what was in the logs of coordinators that have been compacted since."""

    replicas: dict[int, Path]
    originals: Originals | None = None


def gather(told: Told, files: NodeFiles, topics: dict[str, int], findings: Findings, *, at_rest: bool) -> LiveEvidence:
    """Read the files of all nodes after the last, clean stop."""
    evidence = LiveEvidence(told.history, {}, scan_interval_ms=SCAN_INTERVAL_MS)
    evidence.late_spans = [
        (note["client"], note["since"], note["until"])
        for note in told.notes
        if note["op"] == "late" and note["api"] == END_TXN and note["version"] <= CLASSIC_VERSION_LAST
    ]
    evidence.repeaters = frozenset(note["proc"] for note in told.notes if note["op"] == "repeater")
    names = [(topic, index) for topic, count in topics.items() for index in range(count)]
    for partition in [*names, *partitions_of(TRANSACTION_STATE, files.replicas)]:
        batches = compare(partition, files, findings, at_rest=at_rest)
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
    """Those of an internal topic that anybody has files of."""
    names = {path.name for data in replicas.values() for path in data.glob(f"{topic}-*")}
    return [(topic, index) for index in sorted(int(name.rpartition("-")[2]) for name in names)]


def load_groups(files: NodeFiles, findings: Findings, *, at_rest: bool) -> GroupLog:
    log = GroupLog()
    for partition in partitions_of(CONSUMER_OFFSETS, files.replicas):
        log.add(compare(partition, files, findings, at_rest=at_rest))
    return log


def load_metadata(replicas: dict[int, Path], findings: Findings) -> dict[int, list[Batch]]:
    found = {}
    for node, data in replicas.items():
        try:
            found[node] = load(data, METADATA)
        except Unreadable as damage:
            findings.violations.append(f"I12 the metadata log of node {node}: {damage}")
    return found


def compare(partition: Partition, files: NodeFiles, findings: Findings, *, at_rest: bool) -> list[Batch]:
    """I10: all replicas hold the same batches; to their very ends where all were in sync. Returns those of the longest."""
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
    whole = list(logs) if at_rest else ()
    name = f"{partition[0]}-{partition[1]}"
    if files.originals is not None and partition[0] in {TRANSACTION_STATE, CONSUMER_OFFSETS}:
        logs, wrong = expand(name, files.originals.of(partition), logs)
        findings.violations += wrong
    findings.violations += check_replicas(name, logs, committed, whole=whole)
    return max(logs.values(), key=lambda batches: batches[-1].last_offset if batches else -1, default=[])


def check(
    told: Told,
    files: NodeFiles,
    topics: Topics,
    disturbance_ms: int,
    fetched: Mapping[str, Mapping[Partition, int]],
    *,
    at_rest: bool,
) -> Findings:
    """All checkers of the simulator, the comparison of the replicas, and the groups. `fetched` are their offsets as the cluster says at the end."""
    findings = Findings()
    evidence = gather(told, files, topics.all, findings, at_rest=at_rest)
    groups = collect(evidence, told.notes, load_groups(files, findings, at_rest=at_rest), topics.inputs)
    groups.fetched = fetched
    findings.violations += check_groups(groups)
    findings.groups = measure_groups(groups)
    evidence.disturbance_ms = disturbance_ms
    findings.violations += check_agreement(load_metadata(files.replicas, findings))
    for finding in run_checkers(evidence):
        (findings.delays if finding.startswith("I15") else findings.violations).append(finding)
    findings.counters = dict(evidence.counters) | {name: count for name, count in groups.counters.items() if count}
    if files.originals is not None:
        findings.counters["segments cleaned"] = files.originals.cleaned_segments
    return findings
