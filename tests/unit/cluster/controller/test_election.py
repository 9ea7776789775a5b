"""Election table: the next ISR, ELR and leader of a partition (KIP-966)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from odradek.cluster.controller.election import Election, Rules, next_change
from odradek.cluster.metadata.image import PartitionImage
from odradek.cluster.metadata.partition_change import changed_partition

TOPIC = UUID(int=5)
ONLINE, PREFERRED, UNCLEAN = Election.ONLINE, Election.PREFERRED, Election.UNCLEAN


def part(
    leader: int,
    isr: str,
    elr: str = "",
    *,
    known: str = "",
    replicas: str = "123",
    adding: str = "",
    removing: str = "",
    recovering: int = 0,
) -> PartitionImage:
    """Make a partition. Each digit is a replica: part(1, "12", "3")."""
    return PartitionImage(
        0,
        ids(replicas),
        ids(isr),
        leader,
        7,
        9,
        tuple(UUID(int=1000 + number) for number in ids(replicas)),
        ids(removing),
        ids(adding),
        recovering,
        ids(elr),
        ids(known),
    )


def ids(text: str) -> tuple[int, ...]:
    return tuple(int(letter) for letter in text)


@dataclass(frozen=True)
class Case:
    """Row of the election table.

    `alive` brokers are active, `lost` ones have a new directory. `isr` is the requested ISR.
    """

    name: str
    before: PartitionImage
    isr: str
    alive: str
    after: PartitionImage
    min_isr: int = 2
    elr: bool = True
    election: Election = ONLINE
    unclean_shutdown: str = ""
    lost: str = ""
    rules: Rules = field(init=False)

    def __post_init__(self) -> None:
        rules = Rules(
            can_lead=lambda number: str(number) in self.alive and str(number) not in self.lost,
            is_alive=lambda number: str(number) in self.alive,
            default_directory=lambda number: UUID(int=2000 + number),
            min_isr=self.min_isr,
            elr=self.elr,
            election=self.election,
            unclean_shutdown=ids(self.unclean_shutdown),
        )
        object.__setattr__(self, "rules", rules)


CASES = [
    # clean elections
    Case("the leader stays", part(1, "123"), "13", "123", part(1, "13")),
    Case("the leader stays though the preferred one is in sync", part(2, "12"), "12", "123", part(2, "12")),
    Case("the next in-sync replica in order of assignment", part(1, "132"), "32", "23", part(2, "32")),
    Case("no replica outside the ISR", part(1, "13"), "3", "23", part(3, "3", "1")),
    Case("no inactive replica", part(1, "123"), "23", "3", part(3, "23")),
    Case("no in-sync replica is active, without ELR", part(1, "1"), "", "23", part(-1, "1"), elr=False),
    Case("no in-sync replica is active", part(1, "1"), "", "23", part(-1, "", "1", known="1")),
    Case("the leader is active again, without ELR", part(-1, "1"), "1", "123", part(1, "1"), elr=False),
    Case("the leader lost its directory, without ELR", part(-1, "1"), "1", "123", part(-1, "1"), elr=False, lost="1"),
    # preferred elections
    Case("preferred", part(2, "123"), "123", "123", part(1, "123"), election=PREFERRED),
    Case("preferred is not in sync", part(2, "23"), "23", "123", part(2, "23"), election=PREFERRED),
    Case("preferred is not active", part(2, "123"), "123", "23", part(2, "123"), election=PREFERRED),
    Case("preferred has no directory", part(2, "123"), "123", "123", part(2, "123"), election=PREFERRED, lost="1"),
    # eligible leader replicas
    Case("removed replicas are eligible below min ISR", part(1, "12"), "1", "12", part(1, "1", "2")),
    Case("eligible replicas stay eligible", part(1, "1", "2"), "1", "12", part(1, "1", "2")),
    Case("no replica is eligible at min ISR", part(1, "1", "2"), "13", "123", part(1, "13")),
    Case("min ISR is bounded by the number of replicas", part(1, "12"), "1", "12", part(1, "1", "2"), min_isr=9),
    Case("the ISR has all replicas", part(1, "12"), "123", "123", part(1, "123"), min_isr=9),
    Case("min ISR is one", part(1, "12"), "1", "12", part(1, "1"), min_isr=1),
    Case("the last in-sync replica leaves", part(1, "1", "2"), "", "3", part(-1, "", "12", known="1")),
    Case("an eligible replica is active again", part(-1, "", "12", known="1"), "", "23", part(2, "2", "1")),
    Case(
        "the first eligible replica in order of assignment",
        part(-1, "", "12", known="1"), "", "123", part(1, "1", "2"),
    ),
    Case("no replica outside the ELR", part(-1, "", "2", known="2"), "", "13", part(-1, "", "2", known="2")),
    Case("eligible, but the ISR has a member", part(-1, "1", "2"), "1", "2", part(-1, "1", "2")),
    Case(
        "eligible, without its directory",
        part(-1, "", "2", known="2"), "", "2", part(-1, "", "2", known="2"), lost="2",
    ),
    Case("unclean shutdown in the ISR", part(1, "12"), "1", "1", part(1, "1"), unclean_shutdown="2"),
    Case("unclean shutdown in the ELR", part(1, "1", "2"), "1", "1", part(1, "1"), unclean_shutdown="2"),
    Case("ELR is disabled", part(1, "1", "2"), "1", "12", part(1, "1"), elr=False),
    # last known leader
    Case(
        "unclean shutdown of the last in-sync replica",
        part(1, "1"), "", "23", part(-1, "", known="1"), unclean_shutdown="1",
    ),
    Case("the last known leader returns", part(-1, "", known="1"), "", "123", part(1, "1", recovering=1)),
    Case("only other replicas are active", part(-1, "", known="1"), "", "23", part(-1, "", known="1")),
    Case(
        "the last known leader without its directory",
        part(-1, "", known="1"), "", "123", part(-1, "", known="1"), lost="1",
    ),
    Case("no leader before", part(-1, "2"), "", "13", part(-1, "", "2", known="2")),
    # unclean elections
    Case("unclean", part(-1, "", "1", known="1"), "", "23", part(2, "2", recovering=1), election=UNCLEAN),
    Case("unclean, without ELR", part(-1, "1"), "1", "23", part(2, "2", recovering=1), election=UNCLEAN, elr=False),
    Case("clean with an eligible replica", part(-1, "", "3"), "", "123", part(3, "3"), election=UNCLEAN),
    Case("the recovery state is kept", part(2, "2", recovering=1), "2", "2", part(2, "2", recovering=1)),
    Case(
        "unclean, prefer a replica with its directory",
        part(-1, "", known="1"), "", "123", part(2, "2", recovering=1),
        election=UNCLEAN, lost="1",
    ),
    Case("no replica is active", part(-1, "", known="1"), "", "", part(-1, "", known="1"), election=UNCLEAN),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_next_change(case: Case) -> None:
    target = replace(case.before, isr=ids(case.isr))
    record = next_change(TOPIC, case.before, target, case.rules)
    elected = case.before if record is None else changed_partition(case.before, record)
    assert replace(elected, leader_epoch=7, partition_epoch=9) == case.after
    # The leader epoch rises if the leader changes, and there is a record only if the partition changes.
    assert elected.leader_epoch == 7 + (elected.leader != case.before.leader)
    assert (record is None) == (case.after == case.before)
    repeated = replace(elected, isr=elected.isr)
    assert next_change(TOPIC, elected, repeated, replace(case.rules, unclean_shutdown=())) is None, (
        "the decision is final"
    )


def test_unclean_leader_without_its_directory_records_the_new_one() -> None:
    before = part(-1, "", known="1")
    case = Case("", before, "", "1", before, election=UNCLEAN, lost="1")
    record = next_change(TOPIC, before, before, case.rules)
    assert record is not None
    after = changed_partition(before, record)
    assert (after.leader, after.isr, after.leader_recovery_state) == (1, (1,), 1)
    assert after.directories == (UUID(int=2001), UUID(int=1002), UUID(int=1003))


# ---- reassignment ---------------------------------------------------------------------------------------------------

MOVES = [
    ("not all new replicas are in sync", part(1, "1", replicas="341", adding="34", removing="1"), "13", None),
    (
        "all new replicas are in sync",
        part(1, "1", replicas="341", adding="34", removing="1"), "134", part(3, "34", replicas="34"),
    ),
    (
        "the leader stays",
        part(1, "12", replicas="132", adding="3", removing="2"), "123", part(1, "13", replicas="13"),
    ),
    ("no replica is removed", part(1, "12", replicas="123", adding="3"), "123", part(1, "123")),
    ("no replica is added", part(1, "123", replicas="123", removing="3"), "12", part(1, "12", replicas="12")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "before", "isr", "after"), MOVES, ids=[move[0].replace(" ", "-") for move in MOVES])
def test_isr_change_continues_or_completes_a_reassignment(
    name: str, before: PartitionImage, isr: str, after: PartitionImage | None
) -> None:
    case = Case(name, before, isr, "1234", before, min_isr=1)
    record = next_change(TOPIC, before, replace(before, isr=ids(isr)), case.rules)
    assert record is not None
    elected = changed_partition(before, record)
    if after is None:
        assert (elected.replicas, elected.adding_replicas, elected.isr) == (
            before.replicas,
            before.adding_replicas,
            ids(isr),
        )
        assert elected.leader_epoch == 7
        return
    directories = {number: UUID(int=1000 + number) for number in before.replicas}
    assert (elected.replicas, elected.isr, elected.leader) == (after.replicas, after.isr, after.leader)
    assert (elected.adding_replicas, elected.removing_replicas) == ((), ())
    assert elected.directories == tuple(directories[number] for number in elected.replicas)
    # The leader epoch rises so that removed replicas cannot continue with their epoch.
    assert elected.leader_epoch == 7 + (
        set(before.replicas) != set(elected.replicas) or elected.leader != before.leader
    )
