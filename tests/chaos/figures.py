"""Figures of a run: operation counts, the longest unavailability, and the times from a fault to new commits."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from tests.sim.history import END, FETCH, INFO, LIST, NEVER, OK, PRODUCE

if TYPE_CHECKING:
    from tests.chaos.journal import MergedJournals
    from tests.sim.history import Operation

FAILURE_DECLARED: Final = re.compile(r"^(?P<at>\S+Z) .*node failure declared .*\bmember=(?P<member>\d+)", re.MULTILINE)
DETECTION_SECONDS_MAX: Final = 5.0
"""Maximum time from a kill to its failure declaration, in seconds. A later declaration has another cause."""


@dataclass
class Figures:
    """Figures of one run. Fields whose name ends with `_s` are in seconds.

    `longest_unavailability_s` is the longest time in which no partition acknowledged a record.
    `longest_unavailability_of_a_partition_s` is the maximum of that time over the single partitions.
    """

    seconds: float = 0.0
    events: int = 0
    operations: int = 0
    records_acknowledged: int = 0
    records_unknown: int = 0
    records_read: int = 0
    transactions_begun: int = 0
    transactions_committed: int = 0
    transactions_aborted: int = 0
    transactions_unknown: int = 0
    offsets_listed: int = 0
    clients_hung: int = 0
    kills: int = 0
    pauses: int = 0
    stops: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    frames: dict[str, int] = field(default_factory=dict)
    longest_unavailability_s: float = 0.0
    longest_unavailability_of_a_partition_s: float = 0.0
    longest_fault_s: float = 0.0
    kill_to_commit_median_s: float | None = None
    kill_to_commit_max_s: float | None = None
    kill_to_commit_of_all_median_s: float | None = None
    kill_to_commit_of_all_max_s: float | None = None
    recovery_after_heal_s: float | None = None
    kill_to_declaration_median_s: float | None = None
    kill_to_declaration_max_s: float | None = None
    not_recovered: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}


def measure(journals: MergedJournals) -> Figures:
    """Compute the figures of a run, except the detection times, which need the logs of the brokers."""
    figures = Figures(events=journals.events)
    operations = journals.history.operations
    figures.operations = len(operations)
    if not operations:
        return figures
    produced = [operation for operation in operations if operation.kind == PRODUCE]
    _count(figures, journals, produced)
    groups = {note["group"]: None for note in journals.notes if note["op"] == "member"}
    produced = [operation for operation in produced if not _is_from_group(operation, groups)]
    acks = sorted(operation.completed_at for operation in produced if operation.outcome == OK)
    started_at = min(operation.invoked_at for operation in operations)
    figures.seconds = (acks[-1] if acks else started_at) - started_at
    figures.longest_unavailability_s = longest_gap(acks)
    by_partition: dict[tuple[str, int], list[float]] = {}
    for operation in produced:
        if operation.outcome == OK:
            by_partition.setdefault(operation.partition, []).append(operation.completed_at)
    gaps = [longest_gap(sorted(times)) for times in by_partition.values()]
    figures.longest_unavailability_of_a_partition_s = max(gaps, default=0.0)
    _after_kills(figures, journals, groups)
    _after_heal(figures, journals, by_partition, groups)
    return figures


def _is_from_group(operation: Operation, groups: dict[str, None]) -> bool:
    """Return True if a group member wrote the operation. A member without assigned partitions writes nothing.

    Times therefore do not include operations of group members.
    """
    return (operation.transactional_id or "").partition("/")[0] in groups


def longest_gap(times: list[float]) -> float:
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def _count(figures: Figures, journals: MergedJournals, produced: list[Operation]) -> None:
    history = journals.history
    outcomes = Counter(operation.outcome for operation in produced)
    figures.records_acknowledged = outcomes[OK]
    figures.records_unknown = outcomes[INFO]
    figures.records_read = sum(len(operation.records) for operation in history.of(FETCH))
    figures.offsets_listed = sum(1 for operation in history.of(LIST) if operation.outcome == OK)
    ends: dict[int, dict[bool, str]] = {}
    for operation in history.of(END):
        ends.setdefault(operation.transaction, {})[operation.commit] = operation.outcome
    figures.transactions_begun = len(history.transactions())
    figures.transactions_committed = sum(1 for outcomes_of in ends.values() if outcomes_of.get(True) == OK)
    figures.transactions_aborted = sum(1 for outcomes_of in ends.values() if outcomes_of.get(False) == OK)
    completed = figures.transactions_committed + figures.transactions_aborted
    figures.transactions_unknown = figures.transactions_begun - completed
    for note in journals.notes:
        if note["op"] == "fault" and note["type"] == "invoke":
            kind = note["fault"]["kind"]
            figures.faults[kind] = figures.faults.get(kind, 0) + 1
        elif note["op"] == "frame fault":
            figures.frames[note["action"]] = figures.frames.get(note["action"], 0) + 1
    figures.clients_hung = sum(1 for note in journals.notes if note["op"] == "hung")
    figures.kills = sum(1 for note in journals.notes if note["op"] == "kill")
    figures.pauses = sum(1 for note in journals.notes if note["op"] == "pause")
    figures.stops = sum(1 for note in journals.notes if note["op"] == "stop")
    spans: dict[int, float] = {}
    for note in journals.notes:
        if note["op"] == "fault":
            started = spans.setdefault(note["id"], note["t"])
            figures.longest_fault_s = max(figures.longest_fault_s, note["t"] - started)


def _after_kills(figures: Figures, journals: MergedJournals, groups: dict[str, None]) -> None:
    """Measure the time from a kill -9 to the next commit of a transaction that began after it.

    The first figure counts the first commit of any transactional id, the second the last of the first commits of all.
    """
    commits: dict[str, list[tuple[float, float]]] = {}
    for operations in journals.history.transactions().values():
        last = operations[-1]
        if _is_from_group(last, groups):
            continue
        if last.kind == END and last.commit and last.outcome == OK and last.transactional_id:
            commits.setdefault(last.transactional_id, []).append((operations[0].invoked_at, last.completed_at))
    first_waits, all_waits = [], []
    for note in journals.notes:
        if note["op"] != "kill" or not commits:
            continue
        killed_at = note["t"]
        waits = [
            min((committed_at - killed_at for begun_at, committed_at in rows if begun_at >= killed_at), default=None)
            for rows in commits.values()
        ]
        known = [wait for wait in waits if wait is not None]
        if known:
            first_waits.append(min(known))
        if len(known) == len(waits):
            all_waits.append(max(known))
    if first_waits:
        figures.kill_to_commit_median_s = statistics.median(first_waits)
        figures.kill_to_commit_max_s = max(first_waits)
    if all_waits:
        figures.kill_to_commit_of_all_median_s = statistics.median(all_waits)
        figures.kill_to_commit_of_all_max_s = max(all_waits)


def add_detections(figures: Figures, journals: MergedJournals, logs: list[str]) -> None:
    """Measure the time from a kill -9 to the first failure declaration in `logs`, the contents of the brokers' logs."""
    clock = next((note["wall"] - note["t"] for note in journals.notes if note["op"] == "clock"), None)
    if clock is None:
        return
    declarations: dict[int, list[float]] = {}
    for text in logs:
        for match in FAILURE_DECLARED.finditer(text):
            declared_at = datetime.fromisoformat(match["at"]).timestamp() - clock
            declarations.setdefault(int(match["member"]), []).append(declared_at)
    waits = []
    for note in journals.notes:
        if note["op"] == "kill":
            delays = [declared_at - note["t"] for declared_at in declarations.get(note["node"], ())]
            waits += sorted(delay for delay in delays if 0 <= delay <= DETECTION_SECONDS_MAX)[:1]
    if waits:
        figures.kill_to_declaration_median_s = statistics.median(waits)
        figures.kill_to_declaration_max_s = max(waits)


def _after_heal(
    figures: Figures,
    journals: MergedJournals,
    by_partition: dict[tuple[str, int], list[float]],
    groups: dict[str, None],
) -> None:
    """Measure the recovery time after the last fault was undone.

    The recovery ends when each partition has acknowledged a record and each transactional id has ended a transaction.
    """
    healed = max((note["t"] for note in journals.notes if note["op"] == "all healed"), default=None)
    if healed is None:
        return
    waits = []
    for partition, times in by_partition.items():
        later = [acknowledged_at for acknowledged_at in times if acknowledged_at > healed]
        if later:
            waits.append(min(later) - healed)
        else:
            figures.not_recovered.append(
                f"{partition[0]}-{partition[1]} acknowledged no record after the end of all faults"
            )
    ends: dict[str, float] = {}
    for operation in journals.history.of(END):
        if operation.transactional_id and operation.completed != NEVER and not _is_from_group(operation, groups):
            before = ends.get(operation.transactional_id, float("inf"))
            is_recovered = operation.outcome == OK and operation.invoked_at > healed
            ends[operation.transactional_id] = min(before, operation.completed_at if is_recovered else float("inf"))
    for transactional_id, ended_at in ends.items():
        if ended_at == float("inf"):
            figures.not_recovered.append(f"{transactional_id} ended no transaction after the end of all faults")
        else:
            waits.append(ended_at - healed)
    figures.recovery_after_heal_s = max(waits, default=None)
