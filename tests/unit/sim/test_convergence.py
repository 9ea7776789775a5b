"""Convergence after the faults, against hand-written logs of several brokers."""

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, cast

from odradek.simulation.environment.loop import SimLoop
from tests.sim.evidence.convergence import Convergence
from tests.sim.evidence.final_reads import undisturbed
from tests.sim.options.run_options import Options, generate_options
from tests.unit.sim.test_cluster_checkers import PLACE, TOPIC_RECORD, Watched, change_record, data, partition_record

if TYPE_CHECKING:
    from tests.sim.world import World

TIMEOUT_SECONDS = 1.0


@dataclass
class Host:
    number: int


class QuietWorld:
    """The parts of a world that `Convergence` uses: three hosts, some of them possibly removed, and a loop."""

    def __init__(self, *gone: int) -> None:
        self.watched = Watched()
        self.monitor = self.watched.monitor
        self.loop = SimLoop(Random(1))
        self.options: Options = replace(generate_options(1, brokers=3), faults=[])
        self.cluster = self
        self.remaining = [Host(number) for number in (1, 2, 3) if number not in gone]
        self.convergence = Convergence(cast("World", self))

    def equal_ends(self) -> list[str]:
        findings = self.loop.run_until_complete(self.convergence.equal_ends(TIMEOUT_SECONDS))
        self.loop.close()
        return findings


def test_ends_of_equal_replicas_are_recorded() -> None:
    quiet = QuietWorld()
    quiet.watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    for number in (1, 2, 3):
        quiet.watched.write(number, "ledger-0", data(0, b"a", epoch=4))
    assert quiet.equal_ends() == []
    assert quiet.convergence.ends == {PLACE: 1}


def test_lagging_replica_is_reported() -> None:
    quiet = QuietWorld()
    quiet.watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    for number in (1, 2):
        quiet.watched.write(number, "ledger-0", data(0, b"a", epoch=4))
    assert quiet.equal_ends() == [f"I10 {PLACE}: its replicas end at {{1: 1, 2: 1, 3: 0}} 1 s after the last fault"]
    assert quiet.convergence.ends == {}


def test_removed_broker_is_not_awaited_and_may_not_lead() -> None:
    quiet = QuietWorld(3)
    quiet.watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3), change_record(1, 1, 2))
    for number in (1, 2):
        quiet.watched.write(number, "ledger-0", data(0, b"a", epoch=4))
    assert quiet.equal_ends() == []
    without_leader = QuietWorld(1)
    without_leader.watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    assert "has leader 1" in without_leader.equal_ends()[0]


def test_remaining_replica_outside_the_isr_is_reported() -> None:
    quiet = QuietWorld()
    quiet.watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2))
    assert "ISR (1, 2) of (1, 2, 3)" in quiet.equal_ends()[0]


def test_query_is_repeated_until_nothing_was_appended_during_it() -> None:
    quiet = QuietWorld()
    quiet.watched.commit_metadata(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    ends: list[int] = []

    async def query(end: int) -> int:
        if len(ends) < 2:  # a delayed marker arrives twice
            quiet.watched.write(1, "ledger-0", data(end, b"a", epoch=4))
        ends.append(end)
        return end

    assert quiet.loop.run_until_complete(undisturbed(cast("World", quiet), PLACE, query)) == 2
    assert ends == [0, 1, 2]
    quiet.loop.close()
