"""The failure detector as part of a node: who is watched, and what a verdict does.

A verdict changes nothing by itself. If the active controller is here, it is asked to fence exactly the registration that the
verdict is about, through the log; if the node leads the metadata log, agreement is told to look for another leader.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from odradek.broker.quorum.peers import AddressOf, Channel, Peers
from odradek.broker.quorum.suspected_leaders import SuspectedLeaders
from odradek.cluster.membership.core import MembershipCore
from odradek.cluster.membership.driver import MembershipDriver
from odradek.cluster.membership.members import UNREGISTERED, Change, Counters, MembershipConfig, MemberSpec, MemberView
from odradek.cluster.membership.messages import UNKNOWN_INCARNATION, Codec
from odradek.cluster.membership.transitions import Event, State
from odradek.cluster.metadata.image import MetadataImage
from odradek.protocol.errors import Refusal
from odradek.protocol.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.broker.config.addresses import Voter
    from odradek.broker.config.properties import Config
    from odradek.broker.process.env import Env
    from odradek.cluster.controller.service import ControllerService
    from odradek.cluster.membership.driver import Traffic
    from odradek.cluster.metadata.cache import MetadataCache
    from odradek.cluster.metadata.delta import MetadataDelta
    from odradek.cluster.raft.driver import RaftDriver
    from odradek.runtime.tasks import Tasks

KNOCK_VERSION: Final = 0
"""Of ApiVersions: the smallest request that every node answers, whatever state it is in."""
LIFE_BITS: Final = 64
_logger = structlog.get_logger("broker.membership")


class CannotWatchError(OSError):
    """The port for datagrams cannot be had; the message is the one line a person gets to read."""


def life_of(incarnation_id: "UUID") -> int:
    """What a datagram carries of a process's own id."""
    return incarnation_id.int & (1 << LIFE_BITS) - 1


class Membership:
    """All calls belong on the event loop."""

    def __init__(
        self,
        config: "Config",
        env: "Env",
        cluster_id: str,
        incarnation_id: "UUID",
        *,
        voters: "tuple[Voter, ...]",
        address_of: AddressOf,
        metadata: "MetadataCache",
        peers: Peers,
        raft: "RaftDriver",
        controller: "ControllerService",
        suspected_leaders: SuspectedLeaders,
        tasks: "Tasks",
    ) -> None:
        self._node_id = config.node_id
        self._voters = voters
        self._address_by_channel = address_of
        self._metadata = metadata
        self._peers = peers
        self._suspected_leaders = suspected_leaders
        self._raft = raft
        self._controller = controller
        self._tasks = tasks
        self._port = config.odradek_membership_port
        self._knock_timeout_ms = config.odradek_membership_suspicion_timeout_ms
        self._core = MembershipCore(
            config.node_id,
            life_of(incarnation_id),
            rng=env.rng,
            last_contact_ms=peers.heard_ms,
            now_ms=env.clock.monotonic_ms(),
            config=MembershipConfig(
                probe_interval_ms=config.odradek_membership_probe_interval_ms,
                probe_timeout_ms=config.odradek_membership_probe_timeout_ms,
                suspicion_timeout_ms=config.odradek_membership_suspicion_timeout_ms,
            ),
        )
        self._driver = MembershipDriver(
            self._core,
            Codec(cluster_id),
            address_of=self._address_of,
            probe_by_tcp=self._knock,
            on_change=self._on_change,
            clock=env.clock,
            tasks=tasks,
        )

    async def start(self, host: str, port: int) -> Callable[[], None]:
        """Watch the others, with datagrams beside the listener at `host`:`port`; returns the end. Raises CannotWatchError."""
        host, port = host or "0.0.0.0", self._port or port  # noqa: S104  as the listener does
        try:
            await self._driver.start(host, port)
        except OSError as error:
            raise CannotWatchError(
                error.errno,
                f"node {self._node_id} cannot take the UDP port {host}:{port} for failure detection: {error.strerror};"
                " end what uses it, or set odradek.membership.port on every node",
            ) from error
        self._metadata.subscribe_from_start(self._on_metadata)
        self._peers.on_lost(self._on_lost)
        self._controller.on_active(self._act_on_standing)
        return self._driver.close

    # -- what others may see

    def view(self) -> list[MemberView]:
        """The other nodes as this one sees them, in order of their id."""
        return self._driver.view()

    @property
    def counters(self) -> Counters:
        return self._core.counters

    @property
    def traffic(self) -> "Traffic":
        return self._driver.traffic

    # -- who is watched

    def _on_metadata(self, delta: "MetadataDelta", image: MetadataImage) -> None:
        self._driver.set_members(self._specs(image))

    def _specs(self, image: MetadataImage) -> list[MemberSpec]:
        """Registered brokers, and voters that are not among them."""
        specs = {voter.node_id: MemberSpec(voter.node_id, UNREGISTERED, UNKNOWN_INCARNATION) for voter in self._voters}
        for broker in image.brokers.values():
            specs[broker.broker_id] = MemberSpec(broker.broker_id, broker.epoch, life_of(broker.incarnation_id))
        return list(specs.values())

    def _address_of(self, node_id: int) -> tuple[str, int] | None:
        address = self._address_by_channel(node_id, Channel.PROBE)
        return (address[0], self._port or address[1]) if address is not None else None

    # -- evidence by TCP

    def _on_lost(self, node_id: int, refused: bool) -> None:
        self._driver.lost(node_id, refused=refused)
        self._raft.suspect(node_id)

    async def _knock(self, node_id: int) -> None:
        """An answer shows in `heard_ms`, a refusal comes by `_on_lost`."""
        try:
            await self._peers.request(
                node_id, Channel.PROBE, ApiVersionsRequest(), KNOCK_VERSION, timeout_ms=self._knock_timeout_ms
            )
        except OSError as error:
            _logger.debug("a knock was not answered", member=node_id, reason=str(error))

    # -- verdicts

    def _on_change(self, change: Change) -> None:
        self._suspected_leaders.recheck()
        if not change.is_failure_declaration:
            return
        if change.event is not Event.REPLACED:  # then the node is there, and only its former registration is not
            self._raft.suspect(change.node_id)
        if self._controller.is_active:
            self._fence(change.node_id, change.broker_epoch)

    def _act_on_standing(self) -> None:
        """The controller has just become active here: what others would have fenced before is still to be done."""
        for member in self._driver.view():
            if member.state is State.DEAD:
                self._fence(member.node_id, member.broker_epoch)

    def _fence(self, node_id: int, broker_epoch: int) -> None:
        if broker_epoch != UNREGISTERED:
            self._tasks.spawn(self._ask_to_fence(node_id, broker_epoch), f"fence {node_id}")

    async def _ask_to_fence(self, node_id: int, broker_epoch: int) -> None:
        try:
            await self._controller.fence_broker(node_id, broker_epoch)
        except Refusal as refusal:  # it has registered anew, or another controller decides by now
            _logger.info("a broker is not fenced", member=node_id, broker_epoch=broker_epoch, reason=refusal.error.name)
