"""Bugs that are planted by replacing one function of the product during a run: the checkers must find each of them.

The product has no switch for any of them. Some need one broker, others several. `python -m tests.sim.planted.bugs
--write` updates docs/planted.md.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import odradek.broker.apis.produce
import odradek.broker.apis.write_txn_markers
import odradek.broker.coordinators.internal_appends
import odradek.broker.partition.compaction_job
import odradek.cluster.controller.partitions.isr
import odradek.coordinator.group.offsets.core
import odradek.coordinator.txn.core
import odradek.coordinator.txn.end_txn
import odradek.storage.compaction.batch_filter
import odradek.storage.recovery.loader
import odradek.storage.recovery.sweep
from odradek.broker.partition.flush import GroupFlush
from odradek.broker.partition.leader_term import LeaderTerm
from odradek.broker.partition.partition import Partition
from odradek.broker.process.expiry_clock import ExpiryClock
from odradek.broker.quorum.storage import PartitionRaftStorage
from odradek.broker.requests.session import Session
from odradek.cluster.raft.replica import Replica
from odradek.cluster.replication.leader import LeaderReplicas
from odradek.coordinator.group.classic.state import ClassicGroup
from odradek.coordinator.txn.state import ProducerIdentity, Transaction
from odradek.coordinator.txn.transitions import Event
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.engine import Engine
from odradek.storage.compaction.batch_filter import BatchFilter
from odradek.storage.compaction.cleaned_transactions import CleanedTransactions
from odradek.storage.log.log import PartitionLog
from odradek.storage.producers.entry import ProducerUpdate
from tests.sim.options.run_options import FLUSH, Options, generate_options
from tests.sim.options.scenario_options import VOTER_FAILURE
from tests.sim.planted import (
    cluster_bugs,
    compaction_bugs,
    group_bugs,
    hostile_bugs,
    log_bugs,
    power_loss_bugs,
    security_bugs,
    two_phase_bugs,
)
from tests.sim.planted.planted import Planted
from tests.sim.result import Result
from tests.sim.run import run_seed


def _acknowledge_before_flush(original: Callable[..., Any]) -> Callable[..., Any]:
    def appended(self: GroupFlush) -> None:
        self._acknowledgeable(self._log.log_end_offset)
        original(self)

    return appended


def _stable_offset_too_high(original: Callable[..., Any]) -> Callable[..., Any]:
    def refresh_stable_offset(self: PartitionLog) -> None:
        original(self)
        self.last_stable_offset = min(self.last_stable_offset + 1, self.high_watermark)

    return refresh_stable_offset


def _no_epoch_check(original: Callable[..., Any]) -> Callable[..., Any]:
    def tv2_event(txn: Transaction, given: ProducerIdentity, *, commit: bool) -> Event:
        try:
            event: Event = original(txn, given, commit=commit)
        except Refusal as refusal:
            if refusal.error is not ErrorCode.PRODUCER_FENCED:
                raise
            return Event.COMMIT_TV2 if commit else Event.ABORT_TV2
        if txn.state.name == "ONGOING":  # otherwise an old epoch is treated as a retry
            return Event.COMMIT_TV2 if commit else Event.ABORT_TV2
        return event

    return tv2_event


def _effects_before_commit(original: Callable[..., Any]) -> Callable[..., Any]:
    def park(self: Engine[Any, Any], call: Any, reply: Any, decision: Any) -> None:
        original(self, call, reply, decision)
        parked = self._parked[-1]
        effects, parked.effects = parked.effects, ()
        for effect in effects:
            self._on_effect(effect)

    return park


def _refuse_retried_marker(original: Callable[..., Any]) -> Callable[..., Any]:
    def check_marker(self: ProducerUpdate, marker: Any, epoch: int, transaction_version: int) -> None:
        original(self, marker, epoch, transaction_version)
        if transaction_version >= 2 and epoch <= self.entry.epoch:  # KAFKA-19999
            raise Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)

    return check_marker


def _no_rebuild(original: Callable[..., Any]) -> Callable[..., Any]:
    def replay_producers(state: Any, snapshots: Any, segments: Any, replay: Any) -> None:
        state.clear(replay.end_offset)

    return replay_producers


def _expiry_by_wall_clock(_original: Callable[..., Any]) -> Callable[..., Any]:
    def expiry_ms(self: ExpiryClock) -> int:
        return self.wall_ms()

    return expiry_ms


PLANTED: Final = (
    Planted(
        "acknowledged before the flush",
        GroupFlush,
        "appended",
        _acknowledge_before_flush,
        ("I1 ", "I14"),
        durability=FLUSH,
    ),
    Planted(
        "last stable offset one too high",
        PartitionLog,
        "refresh_stable_offset",
        _stable_offset_too_high,
        ("I16", "I9", "I5"),
    ),
    Planted(
        "epoch check skipped on EndTxn",
        odradek.coordinator.txn.end_txn,
        "_tv2_event",
        _no_epoch_check,
        ("I8",),
    ),
    Planted(
        "marker sent before prepare is committed",
        Engine,
        "_park",
        _effects_before_commit,
        ("I14",),
    ),
    Planted(
        "retried marker refused",
        ProducerUpdate,
        "_check_marker",
        _refuse_retried_marker,
        (r"L1 \S+ \(state \d\) is not resolved",),
    ),
    Planted(
        "producer state not rebuilt",
        odradek.storage.recovery.loader,
        "replay_producers",
        _no_rebuild,
        ("I16",),
    ),
    Planted("retention by the wall clock", ExpiryClock, "expiry_ms", _expiry_by_wall_clock, ("I1 ",)),
    Planted(
        "truncation to the high watermark instead of by leader epoch",
        Partition,
        "follow",
        cluster_bugs.truncate_to_high_watermark,
        ("I10", "I11"),
        brokers=3,
    ),
    Planted(
        "ListOffsets right after an election",
        Partition,
        "check_high_watermark_known",
        cluster_bugs.end_known_immediately,
        ("I9",),
        brokers=3,
    ),
    Planted(
        "transaction begun in memory only",
        odradek.coordinator.txn.core,
        "decide_add",
        cluster_bugs.begin_in_memory,
        ("I13", "I14"),
        brokers=3,
    ),
    Planted(
        "stale write accepted by the controller",
        odradek.cluster.controller.partitions.isr,
        "_refused",
        cluster_bugs.accept_stale_write,
        ("I9 at rest", "I10", "I11", "I12"),
        brokers=3,
    ),
    Planted(
        "vote not persisted before the response",
        PartitionRaftStorage,
        "save_hard_state",
        cluster_bugs.forget_vote,
        ("I12 two controllers",),
        brokers=3,
        scenario=VOTER_FAILURE,
    ),
    Planted(
        "follower acknowledges before the append",
        LeaderTerm,
        "fetched",
        cluster_bugs.acknowledge_before_append,
        ("I12",),
        brokers=3,
    ),
    Planted(
        "marker of a deposed coordinator accepted",
        ProducerUpdate,
        "_check_marker",
        cluster_bugs.accept_deposed_coordinator,
        ("I13",),
        brokers=3,
    ),
    Planted(
        "ISR shrunk without the controller",
        LeaderReplicas,
        "shrinkage",
        cluster_bugs.shrink_without_controller,
        ("I12",),
        brokers=3,
    ),
    Planted(
        "pending offsets dropped at fail-over",
        odradek.coordinator.group.offsets.core,
        "on_loaded",
        group_bugs.drop_pending,
        ("I7",),
        brokers=3,
        groups=True,
    ),
    Planted(
        "TxnOffsetCommit of a fenced member accepted",
        ClassicGroup,
        "check_offset_commit",
        group_bugs.accept_fenced_member,
        ("I7", "I8"),
        groups=True,
    ),
    Planted(
        "marker acknowledged before its offsets take effect",
        Engine,
        "mark",
        group_bugs.apply_offsets_late,
        ("I7",),
        groups=True,
    ),
    Planted(
        "newest value of a key compacted away",
        BatchFilter,
        "_retains",
        compaction_bugs.remove_newest,
        ("I10",),
    ),
    Planted(
        "compacted past the last stable offset",
        odradek.broker.partition.compaction_job,
        "cleanable",
        compaction_bugs.compact_unstable,
        ("invariant compaction-bound",),
        groups=True,
    ),
    Planted(
        "last batch of a producer compacted away",
        BatchFilter,
        "_is_last_of_producer",
        compaction_bugs.forget_last_batches,
        ("I10",),
    ),
    Planted(
        "marker compacted away before its records",
        CleanedTransactions,
        "on_control_batch",
        compaction_bugs.remove_marker_first,
        (r"I10 .*the marker was removed before the data",),
    ),
    Planted(
        "unfinished swap dropped at the start",
        odradek.storage.recovery.sweep,
        "_complete_swaps",
        compaction_bugs.drop_swaps,
        ("I10", "I13", "I14"),
    ),
    Planted(
        "roles of a listener not checked",
        Session,
        "roles",
        hostile_bugs.serve_all_roles,
        ("I17",),
        brokers=3,
        hostile=True,
    ),
    Planted(
        "any marker of a client written",
        odradek.broker.apis.write_txn_markers,
        "_abort_hanging",
        hostile_bugs.write_any_marker,
        ("I17",),
        hostile=True,
    ),
    Planted(
        "unreadable record of a client appended to an internal topic",
        odradek.broker.apis.produce,
        "check_client_append",
        hostile_bugs.append_unchecked,
        ("I17",),
        hostile=True,
    ),
    Planted(
        "readable value of a client appended to an internal topic",
        odradek.broker.coordinators.internal_appends,
        "_owner",
        hostile_bugs.append_readable,
        ("I17",),
        hostile=True,
    ),
    Planted(
        "any epoch of a forged vote adopted",
        Replica,
        "admits_epoch",
        hostile_bugs.adopt_any_epoch,
        ("invariant raft-epoch-range",),
        brokers=3,
        hostile=True,
        shared_listener=True,
    ),
    *power_loss_bugs.BUGS,
    *log_bugs.BUGS,
    *two_phase_bugs.BUGS,
    *security_bugs.BUGS,
)
TABLE: Final = Path(__file__).resolve().parents[3] / "docs" / "planted.md"
SEEDS: Final = range(300)
EXCERPT_CHARACTERS_MAX: Final = 110
NUMBER: Final = re.compile(r"(?<![A-Za-z0-9])(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+)")
"""A number or a UUID in a finding. The number of a check (`I14`, `L1`) is a part of its name."""


@contextmanager
def planted(bug: Planted) -> Iterator[None]:
    original = getattr(bug.owner, bug.name)
    setattr(bug.owner, bug.name, bug.make(original))
    try:
        yield
    finally:
        setattr(bug.owner, bug.name, original)


def options_for(bug: Planted, seed: int) -> Options:
    pairs = bug.brokers > 1 and not bug.groups
    return generate_options(
        seed,
        durability=bug.durability,
        brokers=bug.brokers,
        pairs=pairs,
        groups=bug.groups,
        hostile=True if bug.hostile else False if bug.security else None,
        shared_listener=bug.shared_listener if bug.hostile else None,
        damage=bug.damage,
        owners=True if bug.owners else None,
        outages=bug.outages,
        scenario=bug.scenario,
        disk_faults=False,
        security=bug.security,
    )


def run_with(bug: Planted, seed: int) -> Result:
    with planted(bug):
        return run_seed(seed, options=options_for(bug, seed))


def find(bug: Planted, seeds: Iterable[int]) -> tuple[int, Result] | None:
    """Return the first seed of which one of the bug's checkers has a finding, and its run; None if no seed does.

    A seed that also fails without the bug does not count.
    """
    for seed in seeds:
        result = run_with(bug, seed)
        if finding_of(bug, result) is not None and run_seed(seed, options=options_for(bug, seed)).passed:
            return seed, result
    return None


def finding_of(bug: Planted, result: Result) -> str | None:
    """Return the first line of the first finding by one of the bug's checkers, or None."""
    lines = (finding.splitlines()[0] for finding in result.findings if finding)
    return next((line for line in lines if any(re.match(checker, line) for checker in bug.checkers)), None)


def find_again(bug: Planted) -> tuple[int, Result] | None:
    """Return the result of `find`, which starts with the seed that docs/planted.md names: a full search is long."""
    row = re.search(rf"^\| {re.escape(bug.title)} \| \d+ \| (\d+) \|", TABLE.read_text(), re.MULTILINE)
    first = [] if row is None else [int(row[1])]
    return find(bug, (*first, *SEEDS))


def table_row(bug: Planted, found: tuple[int, Result] | None) -> str:
    """Return the row of docs/planted.md for a result of `find`.

    Numbers and UUIDs in the finding are replaced by N. They change with each change of the order of events, the
    finding rarely.
    """
    if found is None:
        return f"| {bug.title} | {bug.brokers} | not found | {_names(bug)} | |"
    seed, result = found
    finding = NUMBER.sub("N", (finding_of(bug, result) or "").replace("|", "/").replace("`", "'"))
    excerpt = finding if len(finding) <= EXCERPT_CHARACTERS_MAX else finding[:EXCERPT_CHARACTERS_MAX].rpartition(" ")[0]
    return f"| {bug.title} | {bug.brokers} | {seed} | {_names(bug)} | `{excerpt.strip()}` |"


def _names(bug: Planted) -> str:
    """Return the checkers of the bug for the table: of each expression, the words before any pattern."""
    return ", ".join(dict.fromkeys(re.split(r" ?[.\\]", checker)[0].strip() for checker in bug.checkers))


def table() -> str:
    """Run all bugs and return the contents of docs/planted.md."""
    lines = [
        "# Planted bugs",
        "",
        "These defects verify that the simulation finds defects. For each, one function of the product is replaced.",
        "Then seeds are run until a checker that is meant to see the defect reports a finding. Other findings do not",
        "count. The table lists that seed, these checkers, and their first finding. N is a number or a UUID.",
        "`make test-all` compares all rows with new runs, and `make test` five of them.",
        "`python -m tests.sim.planted.bugs --write` generates this page.",
        "",
        "| bug | brokers | failing seed | checkers | their first finding |",
        "|---|---|---|---|---|",
        *(table_row(bug, find_again(bug)) for bug in PLANTED),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = table()
    if "--write" in sys.argv:
        TABLE.write_text(text)
    print(text)
