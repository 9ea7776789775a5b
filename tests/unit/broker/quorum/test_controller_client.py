"""ControllerClient: time limits of requests to a controller on another node. Voters: detection of a lost quorum."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.config.addresses import Voter
from odradek.broker.config.controller import controller_response_timeout_ms, lifecycle_config
from odradek.broker.quorum.controller_client import ControllerClient
from odradek.broker.quorum.peers import Channel
from odradek.broker.quorum.voters import RECENT_MS, without_quorum
from odradek.cluster.controller.messages.brokers import BrokerHeartbeat, ControllerRegistration
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.clock import NEVER_MS
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
    """Fake Peers of a broker whose controller, node 2, does not respond."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, Channel, int]] = []

    def request(self, node: int, channel: Channel, *_: object, timeout_ms: int) -> "asyncio.Future[Any]":
        self.requests.append((node, channel, timeout_ms))
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        response.set_exception(TimeoutError("node 2 did not respond in time"))
        return response


@pytest.mark.parametrize("name", CALLS)
async def test_request_to_a_silent_controller_times_out_within_the_session(name: str) -> None:
    """The time-out closes the connection. Otherwise the next attempts would use the failed connection, too."""
    peers = SilentController()
    client = ControllerClient(
        SimpleNamespace(is_active=False),  # type: ignore[arg-type]  # the attribute that is used
        lambda: 2,
        peers,  # type: ignore[arg-type]  # the method that is used
        None,  # type: ignore[arg-type]  # no request is forwarded
        request_timeout_ms=CONFIG.request_timeout_ms,
        response_timeout_ms=controller_response_timeout_ms(CONFIG),
    )
    channel, call = CALLS[name]
    with pytest.raises(Refusal) as refused:
        await call(client)
    assert refused.value.error is ErrorCode.REQUEST_TIMED_OUT, "the controller may have carried out the request"
    assert peers.requests == [(2, channel, controller_response_timeout_ms(CONFIG))]


def test_two_requests_time_out_within_the_time_limit_of_a_heartbeat() -> None:
    assert (
        2 * controller_response_timeout_ms(CONFIG)
        <= lifecycle_config(CONFIG).request_timeout_ms
        < CONFIG.request_timeout_ms
    )


@pytest.mark.parametrize(
    ("refusals_ms", "contacts_ms", "expected"),
    [
        ({}, {}, False),
        ({2: 9_000}, {}, False),
        ({2: 9_000, 3: 9_000}, {}, True),
        ({2: 9_000, 3: 9_000}, {3: 9_001}, False),
        ({2: 9_000, 3: 9_000}, {3: 8_999}, True),
        ({2: 9_000, 3: 10_000 - RECENT_MS}, {}, False),
    ],
)
def test_quorum_is_lost_if_the_hosts_of_a_majority_refuse_connections(
    refusals_ms: dict[int, int], contacts_ms: dict[int, int], expected: bool
) -> None:
    peers: Any = SimpleNamespace(
        last_refusal_ms=lambda node: refusals_ms.get(node, NEVER_MS),
        last_contact_ms=lambda node: contacts_ms.get(node, NEVER_MS),
    )
    clock: Any = SimpleNamespace(monotonic_ms=lambda: 10_000)
    assert without_quorum([Voter(node, "h", 9) for node in (1, 2, 3)], peers, clock) is expected
