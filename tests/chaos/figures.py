"""What a run is measured by: how much was done, how long nothing went, and how soon it went on."""

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
    from tests.chaos.journal import Told
    from tests.sim.history import Operation

FAILURE_DECLARED: Final = re.compile(r"^(?P<at>\S+Z) .*node failure declared .*\bmember=(?P<member>\d+)", re.MULTILINE)
NOTICE_SECONDS_MAX: Final = 5.0
"""A verdict that comes later is about something else."""


@dataclass
class Figures:
    """Seconds where a name ends with _s. `longest_unavailability_s` is of all producers together, the other of the worst partition."""

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
    kill_to_verdict_median_s: float | None = None
    kill_to_verdict_max_s: float | None = None
    not_recovered: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}


def measure(told: Told) -> Figures:
    figures = Figures(events=told.events)
    operations = told.history.operations
    figures.operations = len(operations)
    if not operations:
        return figures
    produced = [operation for operation in operations if operation.kind == PRODUCE]
    _count(figures, told, produced)
    groups = {note["group"]: None for note in told.notes if note["op"] == "member"}
    produced = [operation for operation in produced if not _of_a_group(operation, groups)]
    acks = sorted(operation.completed_at for operation in produced if operation.outcome == OK)
    begun = min(operation.invoked_at for operation in operations)
    figures.seconds = (acks[-1] if acks else begun) - begun
    figures.longest_unavailability_s = longest_gap(acks)
    by_partition: dict[tuple[str, int], list[float]] = {}
    for operation in produced:
        if operation.outcome == OK:
            by_partition.setdefault(operation.partition, []).append(operation.completed_at)
    gaps = [longest_gap(sorted(times)) for times in by_partition.values()]
    figures.longest_unavailability_of_a_partition_s = max(gaps, default=0.0)
    _after_kills(figures, told, groups)
    _after_heal(figures, told, by_partition, groups)
    return figures


def _of_a_group(operation: Operation, groups: dict[str, None]) -> bool:
    """Members come and go, and have nothing to do where others own the partitions: no time is measured by what they write."""
    return (operation.transactional_id or "").partition("/")[0] in groups


def longest_gap(times: list[float]) -> float:
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def _count(figures: Figures, told: Told, produced: list[Operation]) -> None:
    history = told.history
    outcomes = Counter(operation.outcome for operation in produced)
    figures.records_acknowledged = outcomes[OK]
    figures.records_unknown = outcomes[INFO]
    figures.records_read = sum(len(operation.records) for operation in history.of(FETCH))
    figures.offsets_listed = sum(1 for operation in history.of(LIST) if operation.outcome == OK)
    ends: dict[int, dict[bool, str]] = {}
    for operation in history.of(END):
        ends.setdefault(operation.transaction, {})[operation.commit] = operation.outcome
    figures.transactions_begun = len(history.transactions())
    figures.transactions_committed = sum(1 for found in ends.values() if found.get(True) == OK)
    figures.transactions_aborted = sum(1 for found in ends.values() if found.get(False) == OK)
    told_of = figures.transactions_committed + figures.transactions_aborted
    figures.transactions_unknown = figures.transactions_begun - told_of
    for note in told.notes:
        if note["op"] == "fault" and note["type"] == "invoke":
            kind = note["fault"]["kind"]
            figures.faults[kind] = figures.faults.get(kind, 0) + 1
        elif note["op"] == "trap":
            figures.frames[note["action"]] = figures.frames.get(note["action"], 0) + 1
    figures.clients_hung = sum(1 for note in told.notes if note["op"] == "hung")
    figures.kills = sum(1 for note in told.notes if note["op"] == "kill")
    figures.pauses = sum(1 for note in told.notes if note["op"] == "pause")
    figures.stops = sum(1 for note in told.notes if note["op"] == "stop")
    spans: dict[int, float] = {}
    for note in told.notes:
        if note["op"] == "fault":
            started = spans.setdefault(note["id"], note["t"])
            figures.longest_fault_s = max(figures.longest_fault_s, note["t"] - started)


def _after_kills(figures: Figures, told: Told, groups: dict[str, None]) -> None:
    """From a kill -9 to the first commit, by anybody and by each transactional id, of a transaction that was begun after it."""
    commits: dict[str, list[tuple[float, float]]] = {}
    for operations in told.history.transactions().values():
        last = operations[-1]
        if _of_a_group(last, groups):
            continue
        if last.kind == END and last.commit and last.outcome == OK and last.transactional_id:
            commits.setdefault(last.transactional_id, []).append((operations[0].invoked_at, last.completed_at))
    first, every = [], []
    for note in told.notes:
        if note["op"] != "kill" or not commits:
            continue
        at = note["t"]
        waits = [min((done - at for begun, done in rows if begun >= at), default=None) for rows in commits.values()]
        known = [wait for wait in waits if wait is not None]
        if known:
            first.append(min(known))
        if len(known) == len(waits):
            every.append(max(known))
    if first:
        figures.kill_to_commit_median_s, figures.kill_to_commit_max_s = statistics.median(first), max(first)
    if every:
        figures.kill_to_commit_of_all_median_s = statistics.median(every)
        figures.kill_to_commit_of_all_max_s = max(every)


def add_detections(figures: Figures, told: Told, logs: list[str]) -> None:
    """From a kill -9 to the first broker that holds the killed one dead, by the brokers' own logs. `logs` are their contents."""
    clock = next((note["wall"] - note["t"] for note in told.notes if note["op"] == "clock"), None)
    if clock is None:
        return
    verdicts: dict[int, list[float]] = {}
    for text in logs:
        for found in FAILURE_DECLARED.finditer(text):
            at = datetime.fromisoformat(found["at"]).timestamp() - clock
            verdicts.setdefault(int(found["member"]), []).append(at)
    waits = []
    for note in told.notes:
        if note["op"] == "kill":
            after = [
                at - note["t"] for at in verdicts.get(note["node"], ()) if 0 <= at - note["t"] <= NOTICE_SECONDS_MAX
            ]
            waits += [min(after)] if after else []
    if waits:
        figures.kill_to_verdict_median_s, figures.kill_to_verdict_max_s = statistics.median(waits), max(waits)


def _after_heal(
    figures: Figures, told: Told, by_partition: dict[tuple[str, int], list[float]], groups: dict[str, None]
) -> None:
    """From the last healing until every partition has acknowledged, and every transactional id has ended a transaction of its own again."""
    healed = max((note["t"] for note in told.notes if note["op"] == "all healed"), default=None)
    if healed is None:
        return
    waits = []
    for partition, times in by_partition.items():
        after = [at for at in times if at > healed]
        if after:
            waits.append(min(after) - healed)
        else:
            figures.not_recovered.append(
                f"{partition[0]}-{partition[1]} acknowledged nothing after the end of all faults"
            )
    ends: dict[str, float] = {}
    for operation in told.history.of(END):
        if operation.transactional_id and operation.completed != NEVER and not _of_a_group(operation, groups):
            before = ends.get(operation.transactional_id, float("inf"))
            good = operation.outcome == OK and operation.invoked_at > healed
            ends[operation.transactional_id] = min(before, operation.completed_at if good else float("inf"))
    for transactional_id, at in ends.items():
        if at == float("inf"):
            figures.not_recovered.append(f"{transactional_id} ended no transaction after the end of all faults")
        else:
            waits.append(at - healed)
    figures.recovery_after_heal_s = max(waits, default=None)
