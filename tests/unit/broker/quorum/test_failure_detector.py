"""What a verdict does: composition of the failure detector with the controller, with agreement and with TCP."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from odradek.broker.config.addresses import Voter
from odradek.broker.node import CannotStartError
from odradek.broker.process.clock import SystemClock
from odradek.broker.quorum.failure_detector import CannotBindError, FailureDetector, short_incarnation
from odradek.broker.quorum.peers import NEVER_MS, Channel
from odradek.cluster.membership.members import UNREGISTERED, Change
from odradek.cluster.membership.transitions import Event, State
from odradek.cluster.metadata.image import EMPTY_IMAGE, BrokerImage, Endpoint, MetadataImage
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.tasks import Tasks
from tests.support.broker_context import config
from tests.support.several_nodes import Nodes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from odradek.broker.node import Node

VOTERS = (Voter(1, "127.0.0.1", 9), Voter(2, "127.0.0.1", 9), Voter(3, "127.0.0.1", 9))


def broker(broker_id: int, epoch: int) -> BrokerImage:
    incarnation = UUID(int=broker_id << 64 | epoch)
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9)
    return BrokerImage(broker_id, epoch, incarnation, (endpoint,), {}, None, False, False, ())


def verdict(node_id: int, epoch: int, event: Event = Event.SUSPICION_TIMEOUT) -> Change:
    return Change(node_id, epoch, 0, State.SUSPECT, State.FAILED, event, 900)


class Parts:
    """The rest of a node, as far as membership sees it; writes down what is asked of it."""

    def __init__(self, *brokers: BrokerImage, active: bool = True) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.lost: list[Callable[[int, bool], None]] = []
        self.standing: list[Callable[[], None]] = []
        self.is_active = active
        self.refusal: Refusal | None = None
        self.errors: list[tuple[str, BaseException]] = []
        self.tasks = Tasks(lambda name, error: self.errors.append((name, error)))
        image = MetadataImage(0, 0, {each.broker_id: each for each in brokers}) if brokers else EMPTY_IMAGE
        self.metadata = SimpleNamespace(image=image, subscribe_from_start=lambda hear: hear(None, image))
        peers = SimpleNamespace(last_contact_ms=lambda _: NEVER_MS, on_lost=self.lost.append, request=self.request)
        others: Any = {
            "metadata": self.metadata,
            "peers": peers,
            "suspected_leaders": SimpleNamespace(recheck=lambda: None),
            "raft": SimpleNamespace(suspect=lambda node_id: self.asked.append(("suspect", node_id))),
            "controller": self,
            "tasks": self.tasks,
        }
        env: Any = SimpleNamespace(rng=Random(1), clock=SystemClock())
        self.membership = FailureDetector(
            config("node.id=1"),
            env,
            "c",
            UUID(int=7),
            voters=VOTERS,
            address_of=lambda _, __: ("127.0.0.1", 9),
            **others,
        )

    def on_active(self, callback: Callable[[], None]) -> None:
        self.standing.append(callback)

    async def fence_broker(self, broker_id: int, broker_epoch: int) -> None:
        self.asked.append(("fence", broker_id, broker_epoch))
        if self.refusal is not None:
            raise self.refusal

    def request(self, node_id: int, channel: Channel, request: Any, version: int, *, timeout_ms: int) -> Any:
        self.asked.append(("knock", node_id, channel))
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_exception(ConnectionRefusedError())
        return answer

    async def settled(self) -> list[tuple[Any, ...]]:
        while len(self.tasks) > self.always:
            await asyncio.sleep(0)
        assert self.errors == []
        return self.asked

    always = 0
    end: Callable[[], None]

    async def __aenter__(self) -> Parts:
        self.end = await self.membership.start("127.0.0.1", 0)
        self.always = len(self.tasks)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()
        await self.tasks.cancel_all()
        await asyncio.sleep(0)


async def test_a_verdict_fences_exactly_the_registration_that_it_is_about() -> None:
    async with Parts(broker(2, 17)) as parts:
        parts.membership._on_change(verdict(2, 17))
        assert await parts.settled() == [("suspect", 2), ("fence", 2, 17)]


async def test_where_the_controller_is_not_active_nobody_is_fenced() -> None:
    async with Parts(broker(2, 17), active=False) as parts:
        parts.membership._on_change(verdict(2, 17))
        assert await parts.settled() == [("suspect", 2)]


async def test_what_is_not_registered_is_not_fenced() -> None:
    async with Parts() as parts:
        parts.membership._on_change(verdict(2, UNREGISTERED))
        assert await parts.settled() == [("suspect", 2)]


async def test_a_suspicion_does_nothing() -> None:
    async with Parts(broker(2, 17)) as parts:
        parts.membership._on_change(Change(2, 17, 0, State.ALIVE, State.SUSPECT, Event.NO_ACK, 300))
        parts.membership._on_change(Change(2, 17, 1, State.SUSPECT, State.ALIVE, Event.REFUTED, 300))
        assert await parts.settled() == []


async def test_a_node_that_has_only_restarted_may_lead_the_metadata_log() -> None:
    async with Parts(broker(2, 17)) as parts:
        parts.membership._on_change(verdict(2, 17, Event.REPLACED))
        assert await parts.settled() == [("fence", 2, 17)]


async def test_a_registration_that_is_there_no_more_is_no_error() -> None:
    async with Parts(broker(2, 17)) as parts:
        parts.refusal = Refusal(ErrorCode.STALE_BROKER_EPOCH)
        parts.membership._on_change(verdict(2, 17))
        assert await parts.settled() == [("suspect", 2), ("fence", 2, 17)]


async def test_a_new_controller_acts_on_verdicts_that_stand() -> None:
    async with Parts(broker(2, 17), broker(3, 18)) as parts:
        member = parts.membership._core._members[2]
        member.state = State.FAILED
        for callback in parts.standing:
            callback()
        assert await parts.settled() == [("fence", 2, 17)]


async def test_a_lost_connection_reaches_agreement_and_the_detector() -> None:
    async with Parts(broker(2, 17)) as parts:
        for callback in parts.lost:
            callback(2, False)
        assert await parts.settled() == [("suspect", 2), ("knock", 2, Channel.PROBE)]
        assert {each.node_id: each.state for each in parts.membership.view()} == {2: State.SUSPECT, 3: State.ALIVE}


async def test_brokers_and_voters_are_watched() -> None:
    async with Parts(broker(2, 17), broker(5, 20)) as parts:
        seen = [(each.node_id, each.broker_epoch) for each in parts.membership.view()]
        assert seen == [(2, 17), (3, UNREGISTERED), (5, 20)]


def test_a_life_is_never_mistaken_for_none() -> None:
    """A random UUID (version 4) has set bits in its lower half."""
    assert short_incarnation(UUID(int=0, version=4)) != 0


async def test_a_taken_port_names_node_and_remedy() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        parts = Parts()
        with pytest.raises(
            CannotBindError, match=rf"node 1 cannot bind the UDP port 127.0.0.1:{port} .*membership\.port"
        ):
            await parts.membership.start("127.0.0.1", port)


async def test_a_node_does_not_start_without_its_port(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", nodes.port(1)))
        with pytest.raises(CannotStartError, match="node 1 cannot bind the UDP port"):
            await nodes.start()
    await nodes.stop()


def fenced(node: Node, broker_id: int) -> bool:
    found = node.metadata.image.brokers.get(broker_id)
    return found is not None and found.fenced


async def test_a_killed_broker_is_fenced_though_its_session_would_last(tmp_path: Path) -> None:
    """A session of ten minutes: nothing but a verdict of the failure detector can have fenced it."""
    nodes = Nodes(tmp_path, 3, broker_session_timeout_ms=600_000)
    settings = {
        "node.id": 3,
        "listeners": f"PLAINTEXT://127.0.0.1:{nodes.port(3)}",
        "log.dirs": tmp_path / "node-3",
        "controller.quorum.voters": nodes.voters,
        "odradek.cluster.id": "kVp1Jq8tQ4mB2cW7xYz0Ag",
        **nodes.settings,
    }
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "odradek.broker", *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        await nodes.start([1, 2])
        changed = asyncio.Event()
        node = nodes.nodes[1]
        node.metadata.subscribe(lambda _, __: changed.set())

        async def until(condition: Callable[[], bool]) -> None:
            while not condition():
                changed.clear()
                await changed.wait()

        await until(lambda: 3 in node.metadata.image.brokers and not fenced(node, 3))
        process.kill()
        await until(lambda: fenced(node, 3))
        assert {each.node_id for each in node.failure_detector.view() if each.state is State.FAILED} <= {3}
        assert not fenced(node, 2)
    finally:
        process.kill()
        process.wait()
        await nodes.stop()
