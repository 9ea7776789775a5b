"""What a broker asks of a controller elsewhere: how long it waits, and what it makes of silence."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.config.addresses import Voter
from odradek.broker.config.controller import controller_response_timeout_ms, lifecycle_config
from odradek.broker.quorum.controller_client import ControllerClient
from odradek.broker.quorum.peers import NEVER_MS, Channel
from odradek.broker.quorum.voters import RECENT_MS, without_quorum
from odradek.cluster.controller.messages.brokers import BrokerHeartbeat, ControllerRegistration
from odradek.protocol.errors import ErrorCode, Refusal
from tests.support import broker_context
from tests.support.raft_memory import registration

CONFIG = broker_context.config()
Call = Callable[[ControllerClient], Awaitable[Any]]
CALLS: dict[str, tuple[Channel, Call]] = {
    "register_broker": (Channel.HEARTBEAT, lambda client: client.register_broker(registration(1))),
    "register_controller": (
        Channel.HEARTBEAT,
        lambda client: client.register_controller(ControllerRegistration(1, UUID(int=7), (), {})),
    ),
    "heartbeat": (Channel.HEARTBEAT, lambda client: client.heartbeat(BrokerHeartbeat(1, 1, 1))),
    "alter_partition": (Channel.ISR, lambda client: client.alter_partition(1, 1, [])),
    "allocate_producer_ids": (Channel.ISR, lambda client: client.allocate_producer_ids(1, 1)),
}


class SilentController:
    """The peers of a broker whose controller, node 2, says nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Channel, int]] = []

    def request(self, node: int, channel: Channel, *_: object, timeout_ms: int) -> "asyncio.Future[Any]":
        self.asked.append((node, channel, timeout_ms))
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_exception(TimeoutError("node 2 did not answer in time"))
        return answer


@pytest.mark.parametrize("name", CALLS)
async def test_a_silent_controller_is_given_up_before_a_session_is_over(name: str) -> None:
    """Or the next try goes into the same connection, which may be dead, until the session is over."""
    peers = SilentController()
    client = ControllerClient(
        SimpleNamespace(is_active=False),  # type: ignore[arg-type]  # what is needed of it
        lambda: 2,
        peers,  # type: ignore[arg-type]  # likewise
        None,  # type: ignore[arg-type]  # nothing is forwarded
        request_timeout_ms=CONFIG.request_timeout_ms,
        response_timeout_ms=controller_response_timeout_ms(CONFIG),
    )
    channel, call = CALLS[name]
    with pytest.raises(Refusal) as refused:
        await call(client)
    assert refused.value.error is ErrorCode.REQUEST_TIMED_OUT, "it may have been done"
    assert peers.asked == [(2, channel, controller_response_timeout_ms(CONFIG))]


def test_two_tries_fit_into_the_time_that_a_life_cycle_waits() -> None:
    assert (
        2 * controller_response_timeout_ms(CONFIG)
        <= lifecycle_config(CONFIG).request_timeout_ms
        < CONFIG.request_timeout_ms
    )


@pytest.mark.parametrize(
    ("refused", "heard", "without"),
    [
        ({}, {}, False),
        ({2: 9_000}, {}, False),
        ({2: 9_000, 3: 9_000}, {}, True),
        ({2: 9_000, 3: 9_000}, {3: 9_001}, False),
        ({2: 9_000, 3: 9_000}, {3: 8_999}, True),
        ({2: 9_000, 3: 10_000 - RECENT_MS}, {}, False),
    ],
)
def test_controllers_whose_hosts_refuse_cannot_elect(
    refused: dict[int, int], heard: dict[int, int], without: bool
) -> None:
    peers: Any = SimpleNamespace(
        last_refusal_ms=lambda node: refused.get(node, NEVER_MS), last_contact_ms=lambda node: heard.get(node, NEVER_MS)
    )
    clock: Any = SimpleNamespace(monotonic_ms=lambda: 10_000)
    assert without_quorum([Voter(node, "h", 9) for node in (1, 2, 3)], peers, clock) is without
