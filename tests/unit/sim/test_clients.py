"""What simulated clients know of who leads, of a topic, and of how far they have read."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from tests.sim.evidence.inspector import Inspector
from tests.sim.history import SYNC, History
from tests.sim.options.run_options import generate_options
from tests.sim.workloads.client import Client, NoLeaderKnown
from tests.sim.workloads.copiers import SKIPPED_MAX, Copier
from tests.sim.workloads.membership import CALM_SESSIONS, ClassicMember, Membership

PLACE = ("ledger", 0)


class Asking(Client):
    """Its questions are answered from a list of (leader, epoch)."""

    def __init__(self, *answers: tuple[int, int]) -> None:
        world = SimpleNamespace(rng=Random(1), options=SimpleNamespace(brokers=3))
        super().__init__(cast("Any", world), "client")
        self.answers = list(answers)

    async def _call_random_node(self, request: Any, version: int) -> MetadataResponse:
        leader, epoch = self.answers.pop(0)
        partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
        return MetadataResponse(topics=[MetadataResponseTopic(name="ledger", partitions=[partition])])


def test_a_client_that_knows_a_newer_leader_takes_no_notice_of_an_older_one() -> None:
    client = Asking((2, 5), (4, 4), (-1, 5), (3, 5), (4, 6))

    async def ask() -> int:
        client._leaders.clear()
        return await client.leader_of(PLACE)

    assert asyncio.run(ask()) == 2
    for _ in range(2):
        with pytest.raises(NoLeaderKnown):
            asyncio.run(ask())
    assert [asyncio.run(ask()) for _ in range(2)] == [3, 4]


def test_the_id_of_a_topic_is_asked_for_until_a_node_knows_the_topic() -> None:
    known = MetadataResponseTopic(name="ledger", topic_id=UUID(int=7))
    answers = [MetadataResponseTopic(name="ledger", error_code=3), known]

    class Learning(Inspector):
        async def send_with_retries(self, request: Any, version: int, node: int | None = None) -> MetadataResponse:
            return MetadataResponse(topics=[answers.pop(0)])

    world = SimpleNamespace(rng=Random(1), options=SimpleNamespace(brokers=3))
    assert asyncio.run(Learning(cast("Any", world), "inspector").topic_id("ledger")) == UUID(int=7)


def test_a_copier_commits_that_it_has_passed_over_what_no_reader_sees() -> None:
    turns = SimpleNamespace(positions={PLACE: 40}, reader=SimpleNamespace(positions={PLACE: 40}))
    committed: list[Any] = []

    class Passing(Copier):
        def __init__(self) -> None:
            self.turns = cast("Any", turns)
            self.rng = cast("Any", SimpleNamespace(random=lambda: 0.0))
            self._skipped = {}

        async def _transact(self, inputs: Any, ends: Any) -> None:
            committed.append((inputs, ends))

    async def read(place: Any) -> list[Any]:
        turns.reader.positions[place] += SKIPPED_MAX
        return []

    turns.read = read
    copier = Passing()
    asyncio.run(copier._copy())
    assert committed == []
    asyncio.run(copier._copy())
    assert committed == [([], {PLACE: 40 + 2 * SKIPPED_MAX})]


@pytest.mark.parametrize("led", [(True, True), (True, False), (False, True), (False, False)])
def test_a_member_notes_whether_it_has_asked_the_coordinator_and_whether_that_is_what_answered(
    led: tuple[bool, bool],
) -> None:
    says = iter(led)
    groups = SimpleNamespace(leads=lambda _group, _node: next(says))
    history = History()

    async def nothing(*_: object) -> int:
        return 1

    client = SimpleNamespace(
        world=SimpleNamespace(
            options=SimpleNamespace(groups=generate_options(0, groups=True).groups),
            monitor=SimpleNamespace(groups=groups),
        ),
        invoke=lambda kind, **details: history.invoke(kind, "member", 0.0, **details),
        group_coordinator_of=nothing,
        call=nothing,
    )
    member = Membership(cast("Any", client), "g", "m", None)
    operation, _ = asyncio.run(member._send(SYNC, cast("Any", None), 3))
    assert (operation.coordinated_at_request, operation.coordinated) == (led[0], all(led))


@pytest.mark.parametrize("calm", [False, True])
def test_a_member_that_is_to_come_to_its_end_does_not_lose_its_session_over_a_transaction(*, calm: bool) -> None:
    """A copier is heard of between two transactions only; with sessions shorter than those, its group rebalances for ever."""
    asked: list[Any] = []

    async def nowhere(*_: object) -> int:
        return 1

    async def refuse(request: Any, *_: object) -> None:
        asked.append(request)
        raise ConnectionRefusedError

    options = generate_options(0, groups=True).groups
    assert options is not None
    client = SimpleNamespace(
        rng=Random(1),
        world=SimpleNamespace(
            options=SimpleNamespace(groups=options),
            monitor=SimpleNamespace(groups=SimpleNamespace(leads=lambda *_: True, calm=calm)),
        ),
        invoke=lambda kind, **details: History().invoke(kind, "member", 0.0, **details),
        settle_lost=lambda operation, _: operation,
        group_coordinator_of=nowhere,
        call=refuse,
    )
    assert not asyncio.run(ClassicMember(cast("Any", client), "g", "", None).join())
    longer = CALM_SESSIONS if calm else 1
    (request,) = asked
    assert request.session_timeout_ms == longer * options.session_timeout_ms
    assert request.rebalance_timeout_ms == longer * options.rebalance_timeout_ms
