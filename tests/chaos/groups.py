"""Invariant I7 for groups of client processes.

Each input has exactly one visible output, and the committed offsets of a group cover exactly the inputs with a visible
output. The check reads inputs, outputs and committed offsets from the files of the brokers, not from consumers: the key
of an output contains its group and its input. Only committers write no output; for them, the check uses the journals.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.clients.common import TRANSFORMER
from tests.chaos.figures import longest_gap
from tests.sim.checkers.visibility import ABORTED, OPEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.chaos.evaluation import LiveEvidence
    from tests.chaos.group_log import GroupOffsetsLog
    from tests.sim.history import Partition

LATE_SLACK_SECONDS: Final = 1.0
"""Time for which a late request can still take effect after its response left the broker, in seconds."""
SHOWN_MAX: Final = 8
"""Maximum offsets in one finding."""
TXN_OFFSET_COMMIT: Final = 28
DECREASED: Final = "offsets decreased by a late OffsetCommit or TxnOffsetCommit"
EXPOSED: Final = "inputs of a transaction exposed to a late request of the classic protocol"


@dataclass
class GroupFigures:
    """Figures of one group. `longest_pause_s` is the longest time between two acknowledged commits of its members."""

    protocol: str
    kind: str
    members: int = 0
    rebalances: int = 0
    inputs: int = 0
    aborted: int = 0
    longest_pause_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(self).items()}


@dataclass
class Group:
    """One group: its kind and protocol, the journal notes of its members, and its outputs and offsets in the files."""

    name: str
    kind: str
    protocol: str
    processes: list[str] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    outputs: dict[Partition, Counter[int]] = field(default_factory=dict)
    """Number of visible outputs of each input, by input partition and offset."""
    aborted: int = 0
    offsets: dict[Partition, int] = field(default_factory=dict)

    @property
    def transforms(self) -> bool:
        return self.kind == TRANSFORMER


@dataclass
class GroupEvidence:
    """Input of the group checks.

    `fetched` contains the OffsetFetch responses at the end of the run, `inputs` the offsets of the visible records of
    each input partition.
    """

    groups: dict[str, Group]
    log: GroupOffsetsLog
    inputs: dict[Partition, list[int]]
    fetched: Mapping[str, Mapping[Partition, int]] = field(default_factory=dict)
    late: list[dict[str, Any]] = field(default_factory=list)
    """Proxy events about late OffsetCommit and TxnOffsetCommit requests."""
    exposed: dict[int, None] = field(default_factory=dict)
    """Transactions that sent a late request of the classic protocol, or that it may have ended or added offsets to."""
    clock: float = 0.0
    """Wall-clock time minus monotonic time, in seconds."""
    counters: Counter[str] = field(default_factory=Counter)


def collect(
    evidence: LiveEvidence, notes: list[dict[str, Any]], log: GroupOffsetsLog, inputs: Mapping[str, int]
) -> GroupEvidence:
    """Collect the evidence about groups from the files and the journals."""
    groups: dict[str, Group] = {}
    for note in notes:
        if note["op"] == "member":
            group = groups.setdefault(note["group"], Group(note["group"], note["role"], note["protocol"]))
            group.processes.append(note["proc"])
        elif note["op"] in {"assigned", "consumed", "committed"}:
            groups[note["group"]].notes.append(note)
    for partition, keys in evidence.keys.items():
        for offset, key in keys.items():
            name, topic, index, input_offset = key.decode().split("|")
            status = evidence.partitions[partition].slots[offset].status
            if status in {ABORTED, OPEN}:
                groups[name].aborted += 1
            else:
                groups[name].outputs.setdefault((topic, int(index)), Counter())[int(input_offset)] += 1
    for name, offsets in log.final().items():
        if name in groups:
            groups[name].offsets = offsets
    partitions = [(topic, index) for topic, count in inputs.items() for index in range(count)]
    visible = {input_: [slot.offset for slot in evidence.partitions[input_].visible()] for input_ in partitions}
    collected = GroupEvidence(groups, log, visible)
    collected.late = [note for note in notes if note["op"] == "late" and note["client"].partition("/")[0] in groups]
    spans = [
        (note["client"], since, until)
        for note in collected.late
        if note["api"] == TXN_OFFSET_COMMIT and note["version"] <= evidence.classic_version_last
        for since, until in ((note["sent"], note["sent"]), (note["since"], note["until"]))
    ]
    collected.exposed = evidence.exposed_transactions() | evidence.transactions_within(spans)
    collected.clock = next((note["wall"] - note["t"] for note in notes if note["op"] == "clock"), 0.0)
    return collected


def check_groups(evidence: GroupEvidence) -> list[str]:
    """Run all checks of I7 for each group, and return the violations."""
    findings: list[str] = []
    for group in evidence.groups.values():
        findings += check_offsets(evidence, group)
        findings += check_fetched(evidence, group)
        if group.transforms:
            findings += check_outputs(evidence, group)
        else:
            findings += check_consumed(evidence, group)
        findings += check_acknowledged(evidence, group)
    findings += [
        f"I7 hanging: {len(pending)} offsets of producer {producer_id} are pending, first group: {pending[0].group}"
        for producer_id, pending in evidence.log.open.items()
    ]
    return findings


def shown(partition: Partition, offsets: list[int]) -> str:
    more = f" and {len(offsets) - SHOWN_MAX} more" if len(offsets) > SHOWN_MAX else ""
    return f"{partition[0]}-{partition[1]} at {', '.join(map(str, offsets[:SHOWN_MAX]))}{more}"


def check_outputs(evidence: GroupEvidence, group: Group) -> Iterator[str]:
    """Check that exactly the visible inputs below the committed offset have one visible output each."""
    exposed = _exposed_inputs(evidence, group)
    for partition, visible in evidence.inputs.items():
        outputs = group.outputs.get(partition, Counter())
        end = group.offsets.get(partition, 0)
        known = set(visible)
        violations = {
            "more than one visible output": [offset for offset, count in sorted(outputs.items()) if count > 1],
            "a visible output, but is not a visible input": [
                offset for offset in sorted(outputs) if offset not in known
            ],
            "no visible output, but is below the committed offset": [
                offset for offset in visible if offset < end and not outputs[offset]
            ],
            "a visible output, but is not below the committed offset": [
                offset for offset in visible if offset >= end and outputs[offset]
            ],
        }
        for violation, offsets in violations.items():
            checked = [offset for offset in offsets if (partition, offset) not in exposed]
            evidence.counters[EXPOSED] += len(offsets) - len(checked)
            if checked:
                yield f"I7 {group.name}: {shown(partition, checked)} has {violation} ({end})"


def _exposed_inputs(evidence: GroupEvidence, group: Group) -> set[tuple[Partition, int]]:
    return {
        (_partition(note["partition"]), offset)
        for note in group.notes
        if note["op"] == "consumed" and note["txn"] in evidence.exposed
        for offset in note["offsets"]
    }


def _partition(pair: list[Any]) -> Partition:
    return (pair[0], pair[1])


def check_consumed(evidence: GroupEvidence, group: Group) -> Iterator[str]:
    """Check that a committer has consumed each visible input below the committed offset of its group."""
    consumed: dict[Partition, set[int]] = {}
    for note in group.notes:
        if note["op"] == "consumed":
            consumed.setdefault(_partition(note["partition"]), set()).update(note["offsets"])
    for partition, visible in evidence.inputs.items():
        end = group.offsets.get(partition, 0)
        lost = [offset for offset in visible if offset < end and offset not in consumed.get(partition, ())]
        if lost:
            yield f"I7 {group.name}: no member consumed {shown(partition, lost)}, but the committed offset is {end}"
        invisible = sorted(consumed.get(partition, set()) - set(visible))
        if invisible:
            yield f"I7 {group.name}: a member consumed {shown(partition, invisible)}, which is not a visible input"


def check_offsets(evidence: GroupEvidence, group: Group) -> Iterator[str]:
    """Check that no committed offset of a group decreases in log order."""
    last: dict[Partition, int] = {}
    for commit in evidence.log.commits:
        if commit.group != group.name:
            continue
        topic, index = commit.partition
        before = last.get(commit.partition, 0)
        last[commit.partition] = commit.offset
        if commit.offset >= before:
            continue
        if _is_late(evidence, group, commit.at_ms / 1000 - evidence.clock):
            evidence.counters[DECREASED] += 1
        else:
            yield f"I7 {group.name}: the committed offset of {topic}-{index} decreases from {before} to {commit.offset}"


def _is_late(evidence: GroupEvidence, group: Group, time: float) -> bool:
    """Return True if a late offset commit of the group was in flight at `time`.

    A request is late if its client has closed the pair. The coordinator cannot distinguish it from a new request.
    """
    return any(
        note["client"].partition("/")[0] == group.name and note["since"] <= time <= note["until"] + LATE_SLACK_SECONDS
        for note in evidence.late
    )


def check_fetched(evidence: GroupEvidence, group: Group) -> Iterator[str]:
    """Check that the OffsetFetch response of the coordinator equals the offsets in its log."""
    if group.name not in evidence.fetched:
        return
    fetched = evidence.fetched[group.name]
    for partition in evidence.inputs:
        returned, logged = fetched.get(partition, -1), group.offsets.get(partition, -1)
        if returned != logged:
            name = f"{partition[0]}-{partition[1]}"
            yield f"I7 {group.name}: OffsetFetch returns {returned} for {name}, the log has {logged}"


def check_acknowledged(evidence: GroupEvidence, group: Group) -> Iterator[str]:
    """Check acknowledged commits: they are in the log, and a later assignment does not start at a lower offset."""
    acknowledged: dict[Partition, int] = {}
    minimums: dict[tuple[str, Partition], int] = {}
    has_late_commit = any(note["client"].partition("/")[0] == group.name for note in evidence.late)
    for note in group.notes:
        if note["op"] == "committed":
            for topic, index, offset in note["ends"]:
                partition = (topic, index)
                acknowledged[partition] = max(acknowledged.get(partition, 0), offset)
        elif note["op"] == "assigned":
            for pair in note["partitions"]:
                minimums[note["proc"], _partition(pair)] = acknowledged.get(_partition(pair), 0)
        else:
            partition = _partition(note["partition"])
            minimum = minimums.pop((note["proc"], partition), 0)
            if minimum > note["offsets"][0] and not has_late_commit:
                start = shown(partition, note["offsets"][:1])
                yield f"I7 {group.name}: {note['proc']} starts {start}, but offset {minimum} was committed before"
    for partition, offset in acknowledged.items():
        if group.offsets.get(partition, 0) < offset and not has_late_commit:
            topic, index, logged = *partition, group.offsets.get(partition)
            yield f"I7 {group.name}: offset {offset} of {topic}-{index} was acknowledged, but the log has {logged}"


def measure_groups(evidence: GroupEvidence) -> dict[str, GroupFigures]:
    found = {}
    for group in evidence.groups.values():
        figures = found[group.name] = GroupFigures(group.protocol, group.kind, len(group.processes))
        figures.rebalances = len(evidence.log.generations.get(group.name, ()))
        figures.aborted = group.aborted
        if group.transforms:
            figures.inputs = sum(len(outputs) for outputs in group.outputs.values())
        else:
            consumed = {
                (_partition(note["partition"]), offset)
                for note in group.notes
                if note["op"] == "consumed"
                for offset in note["offsets"]
            }
            figures.inputs = len(consumed)
        figures.longest_pause_s = longest_gap([note["t"] for note in group.notes if note["op"] == "committed"])
    return found
