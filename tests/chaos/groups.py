"""I7 for groups of real clients: each input has exactly one visible output, and a group's offsets are those of the inputs whose outputs are visible.

`inputs` and `outputs` are read from the files of the brokers, where the key of an output names its group and its input; offsets from the
files of `__consumer_offsets`. So no reader has to be believed. What members tell is needed for takers only, who write nothing.
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

    from tests.chaos.group_log import GroupLog
    from tests.chaos.verdict import LiveEvidence
    from tests.sim.history import Partition

LATE_SLACK_SECONDS: Final = 1.0
SHOWN_MAX: Final = 8
"""So many offsets are named in one finding."""
TXN_OFFSET_COMMIT: Final = 28
BACK: Final = "offsets that went back by a late commit of offsets"
EXPOSED: Final = "inputs of a transaction exposed to a late request of the classic protocol"


@dataclass
class GroupFigures:
    """Of one group. `longest_pause_s` is the longest time between two commits of any of its members, told to them as done."""

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
    """One group: what it is, what its members told, and what the files say of it."""

    name: str
    kind: str
    protocol: str
    processes: list[str] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    outputs: dict[Partition, Counter[int]] = field(default_factory=dict)
    """Visible outputs of each input."""
    aborted: int = 0
    offsets: dict[Partition, int] = field(default_factory=dict)

    @property
    def transforms(self) -> bool:
        return self.kind == TRANSFORMER


@dataclass
class GroupEvidence:
    """`fetched` is what the cluster answers to OffsetFetch at the end. `inputs` are offsets of the visible records of each input partition."""

    groups: dict[str, Group]
    log: GroupLog
    inputs: dict[Partition, list[int]]
    fetched: Mapping[str, Mapping[Partition, int]] = field(default_factory=dict)
    late: list[dict[str, Any]] = field(default_factory=list)
    """What the proxy saw of late commits of offsets."""
    exposed: dict[int, None] = field(default_factory=dict)
    """Transactions that a late request of the classic protocol may have ended or added to."""
    clock: float = 0.0
    """Wall clock less monotonic clock, in seconds."""
    counters: Counter[str] = field(default_factory=Counter)


def collect(
    evidence: LiveEvidence, notes: list[dict[str, Any]], log: GroupLog, inputs: Mapping[str, int]
) -> GroupEvidence:
    """What the files and the journals say about groups."""
    groups: dict[str, Group] = {}
    for note in notes:
        if note["op"] == "member":
            group = groups.setdefault(note["group"], Group(note["group"], note["role"], note["protocol"]))
            group.processes.append(note["proc"])
        elif note["op"] in {"assigned", "took", "committed"}:
            groups[note["group"]].notes.append(note)
    for partition, keys in evidence.keys.items():
        for offset, key in keys.items():
            name, topic, index, of = key.decode().split("|")
            status = evidence.partitions[partition].slots[offset].status
            if status in {ABORTED, OPEN}:
                groups[name].aborted += 1
            else:
                groups[name].outputs.setdefault((topic, int(index)), Counter())[int(of)] += 1
    for name, offsets in log.final().items():
        if name in groups:
            groups[name].offsets = offsets
    places = [(topic, index) for topic, count in inputs.items() for index in range(count)]
    visible = {place: [slot.offset for slot in evidence.partitions[place].visible()] for place in places}
    found = GroupEvidence(groups, log, visible)
    found.late = [note for note in notes if note["op"] == "late" and note["client"].partition("/")[0] in groups]
    spans = [
        (note["client"], note["since"], note["until"])
        for note in found.late
        if note["api"] == TXN_OFFSET_COMMIT and note["version"] <= evidence.classic_version_last
    ]
    found.exposed = evidence.exposed_transactions() | evidence.transactions_within(spans)
    found.clock = next((note["wall"] - note["t"] for note in notes if note["op"] == "clock"), 0.0)
    return found


def check_groups(evidence: GroupEvidence) -> list[str]:
    findings: list[str] = []
    for group in evidence.groups.values():
        findings += check_offsets(evidence, group)
        findings += check_fetched(evidence, group)
        if group.transforms:
            findings += check_outputs(evidence, group)
        else:
            findings += check_taken(evidence, group)
        findings += check_acknowledged(evidence, group)
    findings += [
        f"I7 hanging: {len(pending)} offsets of producer {producer_id} wait for a marker, the first of {pending[0].group}"
        for producer_id, pending in evidence.log.open.items()
    ]
    return findings


def shown(place: Partition, offsets: list[int]) -> str:
    more = f" and {len(offsets) - SHOWN_MAX} more" if len(offsets) > SHOWN_MAX else ""
    return f"{place[0]}-{place[1]} at {', '.join(map(str, offsets[:SHOWN_MAX]))}{more}"


def check_outputs(evidence: GroupEvidence, group: Group) -> Iterator[str]:
    """Each visible input below the group's offset has one visible output, and no other has any."""
    exposed = _exposed_inputs(evidence, group)
    for place, visible in evidence.inputs.items():
        outputs = group.outputs.get(place, Counter())
        end = group.offsets.get(place, 0)
        known = set(visible)
        wrong = {
            "more than one visible output": [offset for offset, count in sorted(outputs.items()) if count > 1],
            "a visible output and is no visible input": [offset for offset in sorted(outputs) if offset not in known],
            "no visible output, but lies below its offset": [
                each for each in visible if each < end and not outputs[each]
            ],
            "a visible output, but lies not below its offset": [
                each for each in visible if each >= end and outputs[each]
            ],
        }
        for what, offsets in wrong.items():
            judged = [offset for offset in offsets if (place, offset) not in exposed]
            evidence.counters[EXPOSED] += len(offsets) - len(judged)
            if judged:
                yield f"I7 {group.name}: {shown(place, judged)} has {what} ({end})"


def _exposed_inputs(evidence: GroupEvidence, group: Group) -> set[tuple[Partition, int]]:
    return {
        (_place(note["place"]), offset)
        for note in group.notes
        if note["op"] == "took" and note["txn"] in evidence.exposed
        for offset in note["offsets"]
    }


def _place(pair: list[Any]) -> Partition:
    return (pair[0], pair[1])


def check_taken(evidence: GroupEvidence, group: Group) -> Iterator[str]:
    """Takers: what lies below the group's offset was taken by one of them, before that offset was committed."""
    taken: dict[Partition, set[int]] = {}
    for note in group.notes:
        if note["op"] == "took":
            taken.setdefault(_place(note["place"]), set()).update(note["offsets"])
    for place, visible in evidence.inputs.items():
        end = group.offsets.get(place, 0)
        lost = [offset for offset in visible if offset < end and offset not in taken.get(place, ())]
        if lost:
            yield f"I7 {group.name}: {shown(place, lost)} was taken by nobody, but lies below its offset ({end})"
        strange = sorted(taken.get(place, set()) - set(visible))
        if strange:
            yield f"I7 {group.name}: {shown(place, strange)} was read and is no visible input"


def check_offsets(evidence: GroupEvidence, group: Group) -> Iterator[str]:
    """No committed offset goes back, in the order of the log."""
    last: dict[Partition, int] = {}
    for each in evidence.log.commits:
        if each.group != group.name:
            continue
        before = last.get(each.place, 0)
        last[each.place] = each.offset
        if each.offset >= before:
            continue
        if _is_late(evidence, group, each.at_ms / 1000 - evidence.clock):
            evidence.counters[BACK] += 1
        else:
            yield f"I7 {group.name}: its offset of {each.place[0]}-{each.place[1]} goes back from {before} to {each.offset}"


def _is_late(evidence: GroupEvidence, group: Group, at: float) -> bool:
    """Whether a commit of offsets that its client had given up was on its way then: nothing tells it from a new one."""
    return any(
        note["client"].partition("/")[0] == group.name and note["since"] <= at <= note["until"] + LATE_SLACK_SECONDS
        for note in evidence.late
    )


def check_fetched(evidence: GroupEvidence, group: Group) -> Iterator[str]:
    """The coordinator answers what its log says."""
    if group.name not in evidence.fetched:
        return
    fetched = evidence.fetched[group.name]
    for place in evidence.inputs:
        said, written = fetched.get(place, -1), group.offsets.get(place, -1)
        if said != written:
            yield f"I7 {group.name}: OffsetFetch says {said} of {place[0]}-{place[1]}, the log {written}"


def check_acknowledged(evidence: GroupEvidence, group: Group) -> Iterator[str]:
    """What a member was told is committed is not gone, and nobody who is given the partition afterwards begins before it."""
    acknowledged: dict[Partition, int] = {}
    given: dict[tuple[str, Partition], int] = {}
    excused = any(note["client"].partition("/")[0] == group.name for note in evidence.late)
    for note in group.notes:
        if note["op"] == "committed":
            for topic, index, offset in note["ends"]:
                place = (topic, index)
                acknowledged[place] = max(acknowledged.get(place, 0), offset)
        elif note["op"] == "assigned":
            for pair in note["places"]:
                given[note["proc"], _place(pair)] = acknowledged.get(_place(pair), 0)
        elif (begin := given.pop((note["proc"], _place(note["place"])), 0)) > note["offsets"][0] and not excused:
            yield f"I7 {group.name}: {note['proc']} begins {shown(_place(note['place']), note['offsets'][:1])}, {begin} was committed before"
    for place, offset in acknowledged.items():
        if group.offsets.get(place, 0) < offset and not excused:
            yield f"I7 {group.name}: {offset} of {place[0]}-{place[1]} was acknowledged as committed, it is {group.offsets.get(place, 0)}"


def measure_groups(evidence: GroupEvidence) -> dict[str, GroupFigures]:
    found = {}
    for group in evidence.groups.values():
        figures = found[group.name] = GroupFigures(group.protocol, group.kind, len(group.processes))
        figures.rebalances = len(evidence.log.generations.get(group.name, ()))
        figures.aborted = group.aborted
        if group.transforms:
            figures.inputs = sum(len(outputs) for outputs in group.outputs.values())
        else:
            taken = {
                (_place(note["place"]), each)
                for note in group.notes
                if note["op"] == "took"
                for each in note["offsets"]
            }
            figures.inputs = len(taken)
        figures.longest_pause_s = longest_gap([note["t"] for note in group.notes if note["op"] == "committed"])
    return found
