"""The next state of a partition, as a table: who is in sync, who is eligible, who leads (KIP-966)."""

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
    """Replicas as digits: part(1, "12", "3")."""
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
    """`alive` brokers are active; of them `lost` have lost the directory of their replica. `isr`: the wished one."""

    what: str
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
    Case("the leader goes on", part(1, "123"), "13", "123", part(1, "13")),
    Case("the leader goes on though the preferred one is back", part(2, "12"), "12", "123", part(2, "12")),
    Case("the next in order of assignment", part(1, "132"), "32", "23", part(2, "32")),
    Case("not whoever is not in sync", part(1, "13"), "3", "23", part(3, "3", "1")),
    Case("not whoever is not alive", part(1, "123"), "23", "3", part(3, "23")),
    Case("nobody is left, without ELR", part(1, "1"), "", "23", part(-1, "1"), elr=False),
    Case("nobody is left", part(1, "1"), "", "23", part(-1, "", "1", known="1")),
    Case("a leader that comes back, without ELR", part(-1, "1"), "1", "123", part(1, "1"), elr=False),
    Case("its directory is lost, without ELR", part(-1, "1"), "1", "123", part(-1, "1"), elr=False, lost="1"),
    # preferred elections
    Case("preferred", part(2, "123"), "123", "123", part(1, "123"), election=PREFERRED),
    Case("preferred is not in sync", part(2, "23"), "23", "123", part(2, "23"), election=PREFERRED),
    Case("preferred is not alive", part(2, "123"), "123", "23", part(2, "123"), election=PREFERRED),
    Case("preferred has no directory", part(2, "123"), "123", "123", part(2, "123"), election=PREFERRED, lost="1"),
    # eligible leader replicas
    Case("below min ISR they stay eligible", part(1, "12"), "1", "12", part(1, "1", "2")),
    Case("they were so already", part(1, "1", "2"), "1", "12", part(1, "1", "2")),
    Case("at min ISR nobody is", part(1, "1", "2"), "13", "123", part(1, "13")),
    Case("min ISR is no more than there are replicas", part(1, "12"), "1", "12", part(1, "1", "2"), min_isr=9),
    Case("as many as there are", part(1, "12"), "123", "123", part(1, "123"), min_isr=9),
    Case("one is enough where it is asked for", part(1, "12"), "1", "12", part(1, "1"), min_isr=1),
    Case("the last one leaves", part(1, "1", "2"), "", "3", part(-1, "", "12", known="1")),
    Case("one of them comes back", part(-1, "", "12", known="1"), "", "23", part(2, "2", "1")),
    Case("the first in order of assignment", part(-1, "", "12", known="1"), "", "123", part(1, "1", "2")),
    Case("not whoever is not eligible", part(-1, "", "2", known="2"), "", "13", part(-1, "", "2", known="2")),
    Case("not while somebody is in sync", part(-1, "1", "2"), "1", "2", part(-1, "1", "2")),
    Case("not one without its directory", part(-1, "", "2", known="2"), "", "2", part(-1, "", "2", known="2"), lost="2"),
    Case("unclean stop in the ISR", part(1, "12"), "1", "1", part(1, "1"), unclean_shutdown="2"),
    Case("unclean stop in the ELR", part(1, "1", "2"), "1", "1", part(1, "1"), unclean_shutdown="2"),
    Case("ELR is switched off", part(1, "1", "2"), "1", "12", part(1, "1"), elr=False),
    # last known leader
    Case(
        "the last one stopped uncleanly", part(1, "1"), "", "23", part(-1, "", known="1"), unclean_shutdown="1"
    ),
    Case("it comes back", part(-1, "", known="1"), "", "123", part(1, "1", recovering=1)),
    Case("others do not help", part(-1, "", known="1"), "", "23", part(-1, "", known="1")),
    Case("it has no directory", part(-1, "", known="1"), "", "123", part(-1, "", known="1"), lost="1"),
    Case("its leader was gone before", part(-1, "2"), "", "13", part(-1, "", "2", known="2")),
    # unclean elections
    Case("unclean", part(-1, "", "1", known="1"), "", "23", part(2, "2", recovering=1), election=UNCLEAN),
    Case("unclean, without ELR", part(-1, "1"), "1", "23", part(2, "2", recovering=1), election=UNCLEAN, elr=False),
    Case("clean where it can be", part(-1, "", "3"), "", "123", part(3, "3"), election=UNCLEAN),
    Case("recovering goes on", part(2, "2", recovering=1), "2", "2", part(2, "2", recovering=1)),
    Case(
        "rather one with a directory", part(-1, "", known="1"), "", "123", part(2, "2", recovering=1),
        election=UNCLEAN, lost="1",
    ),
    Case("nobody is alive", part(-1, "", known="1"), "", "", part(-1, "", known="1"), election=UNCLEAN),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what.replace(" ", "-"))
def test_each_case(case: Case) -> None:
    target = replace(case.before, isr=ids(case.isr))
    record = next_change(TOPIC, case.before, target, case.rules)
    found = case.before if record is None else changed_partition(case.before, record)
    assert replace(found, leader_epoch=7, partition_epoch=9) == case.after
    # the leader epoch rises with another leader, and no record is written for nothing
    assert found.leader_epoch == 7 + (found.leader != case.before.leader)
    assert (record is None) == (case.after == case.before)
    again = replace(found, isr=found.isr)
    assert next_change(TOPIC, found, again, replace(case.rules, unclean_shutdown=())) is None, "decided once for all"


def test_an_unclean_leader_without_its_directory_names_the_one_it_has() -> None:
    before = part(-1, "", known="1")
    case = Case("", before, "", "1", before, election=UNCLEAN, lost="1")
    record = next_change(TOPIC, before, before, case.rules)
    assert record is not None
    after = changed_partition(before, record)
    assert (after.leader, after.isr, after.leader_recovery_state) == (1, (1,), 1)
    assert after.directories == (UUID(int=2001), UUID(int=1002), UUID(int=1003))


# ---- reassignment -----------------------------------------------------------------------------------------------------

MOVES = [
    ("not all of the new ones are in sync", part(1, "1", replicas="341", adding="34", removing="1"), "13", None),
    (
        "they are: the old ones go, and another leads",
        part(1, "1", replicas="341", adding="34", removing="1"), "134", part(3, "34", replicas="34"),
    ),
    (
        "the leader stays",
        part(1, "12", replicas="132", adding="3", removing="2"), "123", part(1, "13", replicas="13"),
    ),
    ("none are taken away", part(1, "12", replicas="123", adding="3"), "123", part(1, "123")),
    ("none are added", part(1, "123", replicas="123", removing="3"), "12", part(1, "12", replicas="12")),
]  # fmt: skip


@pytest.mark.parametrize(("what", "before", "isr", "after"), MOVES, ids=[move[0].replace(" ", "-") for move in MOVES])
def test_each_move(what: str, before: PartitionImage, isr: str, after: PartitionImage | None) -> None:
    case = Case(what, before, isr, "1234", before, min_isr=1)
    record = next_change(TOPIC, before, replace(before, isr=ids(isr)), case.rules)
    assert record is not None
    found = changed_partition(before, record)
    if after is None:
        assert (found.replicas, found.adding_replicas, found.isr) == (before.replicas, before.adding_replicas, ids(isr))
        assert found.leader_epoch == 7
        return
    directories = {number: UUID(int=1000 + number) for number in before.replicas}
    assert (found.replicas, found.isr, found.leader) == (after.replicas, after.isr, after.leader)
    assert (found.adding_replicas, found.removing_replicas) == ((), ())
    assert found.directories == tuple(directories[number] for number in found.replicas)
    # whoever is no replica any more must not go on with the epoch it knows
    assert found.leader_epoch == 7 + (set(before.replicas) != set(found.replicas) or found.leader != before.leader)
