"""Simulated clients: leaders, topic ids, read positions and group membership."""

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


class ScriptedClient(Client):
    """Client whose Metadata responses come from a list of (leader, leader epoch)."""

    def __init__(self, *responses: tuple[int, int]) -> None:
        world = SimpleNamespace(rng=Random(1), options=SimpleNamespace(brokers=3))
        super().__init__(cast("Any", world), "client")
        self.responses = list(responses)

    async def _call_random_node(self, request: Any, version: int) -> MetadataResponse:
        leader, epoch = self.responses.pop(0)
        partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
        return MetadataResponse(topics=[MetadataResponseTopic(name="ledger", partitions=[partition])])


def test_client_ignores_leader_with_older_epoch() -> None:
    client = ScriptedClient((2, 5), (4, 4), (-1, 5), (3, 5), (4, 6))

    async def look_up_leader() -> int:
        client._leaders.clear()
        return await client.leader_of(PLACE)

    assert asyncio.run(look_up_leader()) == 2
    for _ in range(2):
        with pytest.raises(NoLeaderKnown):
            asyncio.run(look_up_leader())
    assert [asyncio.run(look_up_leader()) for _ in range(2)] == [3, 4]


def test_topic_id_is_requested_until_a_node_knows_the_topic() -> None:
    known = MetadataResponseTopic(name="ledger", topic_id=UUID(int=7))
    responses = [MetadataResponseTopic(name="ledger", error_code=3), known]

    class ScriptedInspector(Inspector):
        async def send_with_retries(self, request: Any, version: int, node: int | None = None) -> MetadataResponse:
            return MetadataResponse(topics=[responses.pop(0)])

    world = SimpleNamespace(rng=Random(1), options=SimpleNamespace(brokers=3))
    assert asyncio.run(ScriptedInspector(cast("Any", world), "inspector").topic_id("ledger")) == UUID(int=7)


def test_copier_commits_position_after_skipping_invisible_offsets() -> None:
    turns = SimpleNamespace(positions={PLACE: 40}, reader=SimpleNamespace(positions={PLACE: 40}))
    committed: list[Any] = []

    class SkippingCopier(Copier):
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
    copier = SkippingCopier()
    asyncio.run(copier._copy())
    assert committed == []
    asyncio.run(copier._copy())
    assert committed == [([], {PLACE: 40 + 2 * SKIPPED_MAX})]


@pytest.mark.parametrize("led", [(True, True), (True, False), (False, True), (False, False)])
def test_operation_records_if_node_coordinated_at_request_and_response(
    led: tuple[bool, bool],
) -> None:
    leads = iter(led)
    groups = SimpleNamespace(leads=lambda _group, _node: next(leads))
    history = History()

    async def return_node(*_: object) -> int:
        return 1

    client = SimpleNamespace(
        world=SimpleNamespace(
            options=SimpleNamespace(groups=generate_options(0, groups=True).groups),
            monitor=SimpleNamespace(groups=groups),
        ),
        invoke=lambda kind, **details: history.invoke(kind, "member", 0.0, **details),
        group_coordinator_of=return_node,
        call=return_node,
    )
    member = Membership(cast("Any", client), "g", "m", None)
    operation, _ = asyncio.run(member._send(SYNC, cast("Any", None), 3))
    assert (operation.coordinated_at_request, operation.coordinated) == (led[0], all(led))


@pytest.mark.parametrize("calm", [False, True])
def test_classic_member_uses_longer_timeouts_after_the_faults(*, calm: bool) -> None:
    """A copier sends heartbeats between transactions only.

    With sessions shorter than transactions, its group would rebalance endlessly.
    """
    requests: list[Any] = []

    async def return_node(*_: object) -> int:
        return 1

    async def refuse(request: Any, *_: object) -> None:
        requests.append(request)
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
        group_coordinator_of=return_node,
        call=refuse,
    )
    assert not asyncio.run(ClassicMember(cast("Any", client), "g", "", None).join())
    factor = CALM_SESSIONS if calm else 1
    (request,) = requests
    assert request.session_timeout_ms == factor * options.session_timeout_ms
    assert request.rebalance_timeout_ms == factor * options.rebalance_timeout_ms
