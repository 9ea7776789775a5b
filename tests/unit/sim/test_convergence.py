"""What several brokers hold when all is quiet, against logs written by hand."""

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, cast

from tests.sim.environment.loop import SimLoop
from tests.sim.evidence.convergence import Convergence
from tests.sim.evidence.final_reads import undisturbed
from tests.sim.options.run_options import Options, generate_options
from tests.unit.sim.test_cluster_checkers import PLACE, TOPIC_RECORD, Watched, change_record, data, partition_record

if TYPE_CHECKING:
    from tests.sim.world import World

PATIENCE = 1.0


@dataclass
class Host:
    number: int


class Quiet:
    """As much of a world as is looked at: three hosts of which one may be gone, and an hour glass."""

    def __init__(self, *gone: int) -> None:
        self.watched = Watched()
        self.monitor = self.watched.monitor
        self.loop = SimLoop(Random(1))
        self.options: Options = replace(generate_options(1, brokers=3), faults=[])
        self.cluster = self
        self.remaining = [Host(number) for number in (1, 2, 3) if number not in gone]
        self.convergence = Convergence(cast("World", self))

    def equal_ends(self) -> list[str]:
        found = self.loop.run_until_complete(self.convergence.equal_ends(PATIENCE))
        self.loop.close()
        return found


def test_what_all_replicas_hold_is_remembered() -> None:
    quiet = Quiet()
    quiet.watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    for number in (1, 2, 3):
        quiet.watched.write(number, "ledger-0", data(0, b"a", epoch=4))
    assert quiet.equal_ends() == []
    assert quiet.convergence.ends == {PLACE: 1}


def test_a_replica_that_stays_behind_is_seen() -> None:
    quiet = Quiet()
    quiet.watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    for number in (1, 2):
        quiet.watched.write(number, "ledger-0", data(0, b"a", epoch=4))
    assert quiet.equal_ends() == [f"I10 {PLACE}: its replicas end at {{1: 1, 2: 1, 3: 0}} 1 s after the last fault"]
    assert quiet.convergence.ends == {}


def test_who_is_gone_is_not_waited_for_and_does_not_lead() -> None:
    quiet = Quiet(3)
    quiet.watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3), change_record(1, 1, 2))
    for number in (1, 2):
        quiet.watched.write(number, "ledger-0", data(0, b"a", epoch=4))
    assert quiet.equal_ends() == []
    led_by_nobody = Quiet(1)
    led_by_nobody.watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    assert "has leader 1" in led_by_nobody.equal_ends()[0]


def test_who_is_here_and_out_of_sync_is_seen() -> None:
    quiet = Quiet()
    quiet.watched.agree(TOPIC_RECORD, partition_record(1, 1, 2))
    assert "ISR (1, 2) of (1, 2, 3)" in quiet.equal_ends()[0]


def test_an_answer_counts_when_nothing_was_written_while_it_was_asked_for() -> None:
    quiet = Quiet()
    quiet.watched.agree(TOPIC_RECORD, partition_record(1, 1, 2, 3))
    asked: list[int] = []

    async def ask(end: int) -> int:
        if len(asked) < 2:  # a marker that was held up arrives, and comes once more
            quiet.watched.write(1, "ledger-0", data(end, b"a", epoch=4))
        asked.append(end)
        return end

    assert quiet.loop.run_until_complete(undisturbed(cast("World", quiet), PLACE, ask)) == 2
    assert asked == [0, 1, 2]
    quiet.loop.close()
