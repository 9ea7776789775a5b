"""FailureDetector: its connections with the controller, with Raft and with TCP."""

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
from odradek.broker.quorum.peers import Channel
from odradek.cluster.membership.members import UNREGISTERED, Change
from odradek.cluster.membership.transitions import Event, State
from odradek.cluster.metadata.image import EMPTY_IMAGE, BrokerImage, Endpoint, MetadataImage
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.clock import NEVER_MS
from odradek.runtime.tasks import Tasks
from tests.support.broker_context import config
from tests.support.node_cluster import NodeCluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from odradek.broker.node import Node

VOTERS = (Voter(1, "127.0.0.1", 9), Voter(2, "127.0.0.1", 9), Voter(3, "127.0.0.1", 9))


def broker(broker_id: int, epoch: int) -> BrokerImage:
    incarnation = UUID(int=broker_id << 64 | epoch)
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9)
    return BrokerImage(broker_id, epoch, incarnation, (endpoint,), {}, None, False, False, ())


def failure_declaration(node_id: int, epoch: int, event: Event = Event.SUSPICION_TIMEOUT) -> Change:
    return Change(node_id, epoch, 0, State.SUSPECT, State.FAILED, event, 900)


class Rig:
    """A failure detector with fakes of the other parts of its node. `calls` records their calls."""

    def __init__(self, *brokers: BrokerImage, active: bool = True) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.lost: list[Callable[[int, bool], None]] = []
        self.on_active_callbacks: list[Callable[[], None]] = []
        self.is_active = active
        self.refusal: Refusal | None = None
        self.errors: list[tuple[str, BaseException]] = []
        self.tasks = Tasks(lambda name, error: self.errors.append((name, error)))
        image = (
            MetadataImage(0, 0, {registered.broker_id: registered for registered in brokers})
            if brokers
            else EMPTY_IMAGE
        )
        self.metadata = SimpleNamespace(image=image, subscribe_from_start=lambda subscriber: subscriber(None, image))
        peers = SimpleNamespace(
            last_contact_ms=lambda _: NEVER_MS, on_lost=self.lost.append, request=self.request, secret=None
        )
        fakes: Any = {
            "metadata": self.metadata,
            "peers": peers,
            "suspected_leaders": SimpleNamespace(recheck=lambda: None),
            "raft": SimpleNamespace(suspect=lambda node_id: self.calls.append(("suspect", node_id))),
            "controller": self,
            "tasks": self.tasks,
            "on_clock": lambda _node_id, _sent_ms: None,
        }
        env: Any = SimpleNamespace(rng=Random(1), clock=SystemClock())
        self.detector = FailureDetector(
            config("node.id=1"),
            env,
            "c",
            UUID(int=7),
            voters=VOTERS,
            address_of=lambda _, __: ("127.0.0.1", 9),
            **fakes,
        )

    def on_active(self, callback: Callable[[], None]) -> None:
        self.on_active_callbacks.append(callback)

    async def fence_broker(self, broker_id: int, broker_epoch: int) -> None:
        self.calls.append(("fence", broker_id, broker_epoch))
        if self.refusal is not None:
            raise self.refusal

    def request(self, node_id: int, channel: Channel, request: Any, version: int, *, timeout_ms: int) -> Any:
        self.calls.append(("probe", node_id, channel))
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        response.set_exception(ConnectionRefusedError())
        return response

    async def finished_calls(self) -> list[tuple[Any, ...]]:
        while len(self.tasks) > self.permanent_tasks:
            await asyncio.sleep(0)
        assert self.errors == []
        return self.calls

    permanent_tasks = 0
    end: Callable[[], None]

    async def __aenter__(self) -> Rig:
        self.end = await self.detector.start("127.0.0.1", 0)
        self.permanent_tasks = len(self.tasks)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()
        await self.tasks.cancel_all()
        await asyncio.sleep(0)


async def test_failure_declaration_fences_the_registration_with_its_broker_epoch() -> None:
    async with Rig(broker(2, 17)) as rig:
        rig.detector._on_change(failure_declaration(2, 17))
        assert await rig.finished_calls() == [("suspect", 2), ("fence", 2, 17)]


async def test_no_broker_is_fenced_without_the_active_controller() -> None:
    async with Rig(broker(2, 17), active=False) as rig:
        rig.detector._on_change(failure_declaration(2, 17))
        assert await rig.finished_calls() == [("suspect", 2)]


async def test_unregistered_voter_is_not_fenced() -> None:
    async with Rig() as rig:
        rig.detector._on_change(failure_declaration(2, UNREGISTERED))
        assert await rig.finished_calls() == [("suspect", 2)]


async def test_suspicion_and_refutation_have_no_effect() -> None:
    async with Rig(broker(2, 17)) as rig:
        rig.detector._on_change(Change(2, 17, 0, State.ALIVE, State.SUSPECT, Event.NO_ACK, 300))
        rig.detector._on_change(Change(2, 17, 1, State.SUSPECT, State.ALIVE, Event.REFUTED, 300))
        assert await rig.finished_calls() == []


async def test_replaced_registration_is_fenced_but_its_node_is_not_suspected() -> None:
    async with Rig(broker(2, 17)) as rig:
        rig.detector._on_change(failure_declaration(2, 17, Event.REPLACED))
        assert await rig.finished_calls() == [("fence", 2, 17)]


async def test_stale_broker_epoch_of_the_fenced_registration_is_no_error() -> None:
    async with Rig(broker(2, 17)) as rig:
        rig.refusal = Refusal(ErrorCode.STALE_BROKER_EPOCH)
        rig.detector._on_change(failure_declaration(2, 17))
        assert await rig.finished_calls() == [("suspect", 2), ("fence", 2, 17)]


async def test_new_active_controller_fences_members_that_failed_before() -> None:
    async with Rig(broker(2, 17), broker(3, 18)) as rig:
        member = rig.detector._core._members[2]
        member.state = State.FAILED
        for callback in rig.on_active_callbacks:
            callback()
        assert await rig.finished_calls() == [("fence", 2, 17)]


async def test_lost_connection_is_reported_to_raft_and_to_the_detector() -> None:
    async with Rig(broker(2, 17)) as rig:
        for callback in rig.lost:
            callback(2, False)
        assert await rig.finished_calls() == [("suspect", 2), ("probe", 2, Channel.PROBE)]
        assert {member.node_id: member.state for member in rig.detector.view()} == {2: State.SUSPECT, 3: State.ALIVE}


async def test_registered_brokers_and_voters_are_members() -> None:
    async with Rig(broker(2, 17), broker(5, 20)) as rig:
        members = [(member.node_id, member.broker_epoch) for member in rig.detector.view()]
        assert members == [(2, 17), (3, UNREGISTERED), (5, 20)]


def test_short_incarnation_is_never_unknown_incarnation() -> None:
    """A random UUID (version 4) has set bits in its lower half."""
    assert short_incarnation(UUID(int=0, version=4)) != 0


async def test_occupied_udp_port_raises_an_error_with_node_and_remedy() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as occupied:
        occupied.bind(("127.0.0.1", 0))
        port = occupied.getsockname()[1]
        rig = Rig()
        with pytest.raises(
            CannotBindError, match=rf"node 1 cannot bind the UDP port 127.0.0.1:{port} .*membership\.port"
        ):
            await rig.detector.start("127.0.0.1", port)


async def test_node_does_not_start_if_the_udp_port_is_occupied(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as occupied:
        occupied.bind(("127.0.0.1", nodes.port(1)))
        with pytest.raises(CannotStartError, match="node 1 cannot bind the UDP port"):
            await nodes.start()
    await nodes.stop()


def fenced(node: Node, broker_id: int) -> bool:
    registered = node.metadata.image.brokers.get(broker_id)
    return registered is not None and registered.fenced


async def test_killed_broker_is_fenced_before_its_session_times_out(tmp_path: Path) -> None:
    """The session time-out is ten minutes, so only a failure declaration can fence the broker."""
    nodes = NodeCluster(tmp_path, 3, broker_session_timeout_ms=600_000)
    settings = {
        "node.id": 3,
        "listeners": f"PLAINTEXT://127.0.0.1:{nodes.port(3)}",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": tmp_path / "node-3",
        "controller.quorum.voters": nodes.voters,
        "odradek.cluster.id": "kVp1Jq8tQ4mB2cW7xYz0Ag",
        "odradek.inter.broker.authentication": "none",
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
        assert {member.node_id for member in node.failure_detector.view() if member.state is State.FAILED} <= {3}
        assert not fenced(node, 2)
    finally:
        process.kill()
        process.wait()
        await nodes.stop()
