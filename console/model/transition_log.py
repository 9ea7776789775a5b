"""Decoded records of `__transaction_state`, and the timeline of a transactional id that follows from them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from odradek.client.admin.offsets import EARLIEST, LATEST, IsolationLevel, fetch_offsets
from odradek.client.consumer.decode import checked_batches
from odradek.client.consumer.fetcher import Fetcher, Reader
from odradek.client.consumer.transitions import COMPLETE, PREPARED, transitions_of
from odradek.client.errors import ClientError
from odradek.client.network.fan_out import FanOut
from odradek.console.model.internal_topic import read_internal_topic
from odradek.protocol.errors import Malformed
from odradek.protocol.hashing import partition_for
from odradek.protocol.internal_topics import TRANSACTION_STATE
from odradek.protocol.special_values import NO_LEADER
from odradek.protocol.txn_state import TxnState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from odradek.client import Cluster, TopicPartition
    from odradek.client.consumer.transitions import Transition
    from odradek.client.network.metadata import Topic

ROWS_MAX: Final = 200
"""Maximum records per page of the table."""
SCANNED_PER_PARTITION: Final = 200
"""Offsets at the end of each partition that are read without an exact id. 50 partitions have 10,000 of them."""
SCANNED_OF_ID: Final = 10_000
"""Offsets of the partition of an id that are read for its timeline. A transaction writes about three records."""
FETCH_BYTES: Final = 2 * 2**20
"""Maximum size of one Fetch response in bytes, unless its first batch alone is larger."""
STEPS_MAX: Final = 300
"""Maximum records of an id that its timeline shows."""
SCAN_DEADLINE_S: Final = 4.0
"""Seconds for the partitions of one leader. It is below the deadline of a part, so that the other leaders count."""


@dataclass(slots=True)
class LogView:
    """Records of `__transaction_state` from the ends of its partitions, newest first.

    Attributes:
        transitions: The newest records that match.
        partition: The partition of the exact id that was requested, or None.
        partitions: Number of partitions of the topic. 0: the topic does not exist.
        scanned: Number of records that were decoded.
        is_whole: True if all records that the logs have were decoded.
        problems: Reason by partition or broker, for each log that was not read.
    """

    transitions: list[Transition] = field(default_factory=list)
    partition: int | None = None
    partitions: int = 0
    scanned: int = 0
    is_whole: bool = True
    problems: dict[str, str] = field(default_factory=dict)


async def read_log(cluster: Cluster, text: str = "", *, exact: bool = False, rows_max: int = ROWS_MAX) -> LogView:
    """Read the newest records whose transactional id contains `text`, or is `text` if `exact` is true.

    Raise Refused if the user may not describe `__transaction_state`.
    """
    view = LogView()
    topic = await read_internal_topic(cluster, TRANSACTION_STATE)
    if topic is None:
        return view
    view.partitions = len(topic.partitions)
    indexes: Iterable[int] = topic.partitions
    if exact:
        view.partition = partition_for(text, len(topic.partitions))
        indexes = [view.partition]
    by_leader: dict[int, list[int]] = {}
    for index in indexes:
        leader = topic.partitions[index].leader
        if leader == NO_LEADER:
            view.problems[f"partition {index}"] = "it has no leader"
        else:
            by_leader.setdefault(leader, []).append(index)
    fan_out = FanOut(cluster, tolerant=True)
    starts, ends = await asyncio.gather(
        fetch_offsets(fan_out, [topic], EARLIEST), fetch_offsets(fan_out, [topic], LATEST)
    )
    length = SCANNED_OF_ID if exact else SCANNED_PER_PARTITION
    found = await asyncio.gather(
        *(
            _read_leader(cluster, topic, _readers(cluster, leader, led, starts, ends, length), view)
            for leader, led in by_leader.items()
            if leader not in fan_out.unreachable
        )
    )
    view.problems |= {f"broker {node_id}": reason for node_id, reason in fan_out.unreachable.items()}
    every = [row for rows in found for row in rows]
    view.scanned = len(every)
    view.is_whole = not view.problems and all(
        ends.get(key, 0) - starts.get(key, 0) <= length for key in ((TRANSACTION_STATE, index) for index in indexes)
    )
    view.transitions = newest(every, text, exact=exact, rows_max=rows_max)
    return view


def newest(every: Iterable[Transition], text: str, *, exact: bool, rows_max: int) -> list[Transition]:
    """Return the newest records that match, newest first. Records of one partition stay in the order of offsets."""
    wanted = [
        row
        for row in every
        if (row.transactional_id == text if exact else text.lower() in row.transactional_id.lower())
    ]
    wanted.sort(key=lambda row: (row.timestamp_ms, row.log_partition, row.offset), reverse=True)
    if exact:  # one partition: its order is that of its offsets, whatever the clocks of its leaders were
        wanted.sort(key=lambda row: row.offset, reverse=True)
    return wanted[:rows_max]


def _readers(
    cluster: Cluster,
    leader: int,
    indexes: Iterable[int],
    starts: dict[tuple[str, int], int],
    ends: dict[tuple[str, int], int],
    length: int,
) -> list[Reader]:
    readers = []
    for index in indexes:
        key = TRANSACTION_STATE, index
        if key in starts and key in ends and starts[key] < ends[key]:
            first = max(starts[key], ends[key] - length)
            readers.append(Reader(index, leader, first, ends[key], cluster.attempts()))
    return readers


async def _read_leader(cluster: Cluster, topic: Topic, readers: Sequence[Reader], view: LogView) -> list[Transition]:
    """Read partitions of one leader. A failure is recorded in the view, and what was read before it is returned."""
    rows: list[Transition] = []
    if not readers:
        return rows
    first = {reader.index: reader.position for reader in readers}
    leader = readers[0].leader
    try:
        async with (
            asyncio.timeout(SCAN_DEADLINE_S),
            aclosing(
                Fetcher(cluster, topic, IsolationLevel.READ_UNCOMMITTED, FETCH_BYTES).fetched(readers)
            ) as responses,
        ):
            async for fetched in responses:
                index = fetched.reader.index
                for header, batch, _ in checked_batches(fetched.data.records or b""):
                    if not header.is_control and header.last_offset >= first[index]:
                        rows += transitions_of(index, header, batch)
                        await asyncio.sleep(0)  # a record takes about 30 µs, and other requests are served in between
    except (ClientError, Malformed) as error:
        view.problems[f"broker {leader}"] = str(error)
    except TimeoutError:
        view.problems[f"broker {leader}"] = f"its partitions were not read within {SCAN_DEADLINE_S:g} s"
    return rows


@dataclass(frozen=True, slots=True)
class Step:
    """A record of a transactional id as a step of its timeline.

    Attributes:
        transition: The record.
        at_ms: Time of the change in ms since 1970.
        lasted_ms: Milliseconds until the next step of the same transaction. None: it is the last one.
        added: Partitions that the step added to the transaction.
    """

    transition: Transition
    at_ms: int
    lasted_ms: int | None
    added: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """The steps of one transaction, or the initialization or removal of a transactional id.

    Attributes:
        outcome: `committed`, `aborted`, `committing`, `aborting`, `ongoing`, `initialized`, `removed` or `unknown`.
        begin_ms: Time of its begin in ms since 1970.
        end_ms: Time of its last step if it has ended, or None.
        steps: Its steps in the order of the log.
        partitions: Its partitions.
    """

    outcome: str
    begin_ms: int
    end_ms: int | None
    steps: tuple[Step, ...]
    partitions: tuple[TopicPartition, ...]

    def lasted_ms(self, now_ms: int) -> int:
        """Return its duration in milliseconds, until now if it has not ended."""
        return max(0, (now_ms if self.end_ms is None else self.end_ms) - self.begin_ms)

    @property
    def ongoing_ms(self) -> int | None:
        """Milliseconds from its begin to the decision. None: it is not decided, or its begin is not known."""
        decided = next((step.at_ms for step in self.steps if step.transition.state in PREPARED), None)
        return None if decided is None else max(0, decided - self.begin_ms)

    @property
    def marking_ms(self) -> int | None:
        """Milliseconds from the decision to the last marker. None: one of both is not known."""
        decided = next((step.at_ms for step in self.steps if step.transition.state in PREPARED), None)
        return None if decided is None or self.end_ms is None else max(0, self.end_ms - decided)


def timeline(transitions: Sequence[Transition]) -> list[Run]:
    """Return the transactions of one transactional id, newest first. `transitions` are in the order of offsets."""
    groups: list[list[Transition]] = []
    before: Transition | None = None
    for now in transitions:
        if before is None or _begins(before.state, now.state):
            groups.append([])
        groups[-1].append(now)
        before = now
    return [_run(group) for group in reversed(groups)]


def _begins(before: TxnState | None, now: TxnState | None) -> bool:
    """Return True if a record of state `now` after one of state `before` belongs to another transaction."""
    if now is TxnState.ONGOING:
        return before is not TxnState.ONGOING
    if now in PREPARED:
        return before not in {TxnState.ONGOING, now}
    if now in COMPLETE:
        return before not in {*PREPARED, now}
    return True


_OUTCOMES: Final = {
    None: "removed",
    TxnState.EMPTY: "initialized",
    TxnState.ONGOING: "ongoing",
    TxnState.PREPARE_COMMIT: "committing",
    TxnState.PREPARE_ABORT: "aborting",
    TxnState.COMPLETE_COMMIT: "committed",
    TxnState.COMPLETE_ABORT: "aborted",
}


def _run(group: Sequence[Transition]) -> Run:
    times = [row.update_ms if row.update_ms >= 0 else row.timestamp_ms for row in group]
    steps = []
    known: dict[TopicPartition, None] = {}
    for number, row in enumerate(group):
        lasted = max(0, times[number + 1] - times[number]) if number + 1 < len(group) else None
        added = tuple(each for each in row.partitions if each not in known)
        known |= dict.fromkeys(added)
        steps.append(Step(row, times[number], lasted, added))
    last = group[-1].state
    outcome = _OUTCOMES.get(last, "unknown")
    begin = group[0].start_ms if group[0].start_ms >= 0 and last not in {TxnState.EMPTY, None} else times[0]
    is_open = last in {TxnState.ONGOING, *PREPARED}
    return Run(outcome, min(begin, times[0]), None if is_open else times[-1], tuple(steps), tuple(known))
