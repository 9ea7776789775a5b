"""Failure detector of a node: the members that it watches, and the consequences of failure declarations.

A failure declaration has two consequences:

- If this node has the active controller, the controller fences the declared registration, through the metadata log. It
  fences no later registration of the same node.
- If the failed node leads the metadata log, the Raft core suspects its leader.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from odradek.broker.config.authentication import logs_in, serves_all_nodes
from odradek.broker.quorum.peers import AddressOf, Channel, Peers
from odradek.broker.quorum.suspected_leaders import SuspectedLeaders
from odradek.cluster.membership.admission import Admission
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
    from odradek.protocol.sasl.cluster_secret import ClusterSecret
    from odradek.runtime.tasks import Tasks

PROBE_VERSION: Final = 0
"""Version of the ApiVersions request of a TCP probe. A node responds to version 0 in every state."""
INCARNATION_BITS: Final = 64
"""Bits of the incarnation id in a datagram, enough to distinguish the incarnations of one node."""
_logger = structlog.get_logger(__name__)


class CannotBindError(OSError):
    """The UDP port of the failure detector is not available. The message is one line for the operator."""


def short_incarnation(incarnation_id: "UUID") -> int:
    """Return the low INCARNATION_BITS of an incarnation id, as datagrams contain them."""
    return incarnation_id.int & (1 << INCARNATION_BITS) - 1


def datagram_keys(config: "Config", secret: "ClusterSecret | None") -> tuple[bytes, ...]:
    """Return the key for sent datagrams, and a second one that is accepted in a phase of a rolling change.

    Datagrams are keyed with the secret when the node logs in. In the next phase, all nodes do so.
    """
    if secret is None:
        return (b"",)
    if not serves_all_nodes(config):
        return (secret.datagram_key,)
    return (secret.datagram_key, b"") if logs_in(config) else (b"", secret.datagram_key)


class FailureDetector:
    """The failure detector of a node, connected with its metadata, its controller and its Raft core.

    All calls belong on the event loop.
    """

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
        on_clock: Callable[[int, int], None],
        secret: "ClusterSecret | None" = None,
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
        self._probe_timeout_ms = config.odradek_membership_suspicion_timeout_ms
        self._core = MembershipCore(
            config.node_id,
            short_incarnation(incarnation_id),
            rng=env.rng,
            last_contact_ms=peers.last_contact_ms,
            now_ms=env.clock.monotonic_ms(),
            config=MembershipConfig(
                probe_interval_ms=config.odradek_membership_probe_interval_ms,
                probe_timeout_ms=config.odradek_membership_probe_timeout_ms,
                suspicion_timeout_ms=config.odradek_membership_suspicion_timeout_ms,
            ),
        )
        self._driver = MembershipDriver(
            self._core,
            Codec(cluster_id, *datagram_keys(config, secret)),
            Admission(
                config.node_id,
                env.rng,
                challenge_pause_ms=config.odradek_membership_probe_timeout_ms,
                verifies_addresses=secret is not None,
            ),
            address_of=self._address_of,
            probe_by_tcp=self._probe_by_tcp,
            on_change=self._on_change,
            on_clock=on_clock,
            clock=env.clock,
            tasks=tasks,
        )

    async def start(self, host: str, port: int) -> Callable[[], None]:
        """Watch the other nodes; return a function that ends it. Raise CannotBindError.

        The UDP socket is at `host`, the host of the listener for brokers. Its port is odradek.membership.port if that
        is set, or else `port`, the number of the listener's TCP port.
        """
        host, port = host or "0.0.0.0", self._port or port  # noqa: S104  the listener, too, is on all interfaces
        try:
            await self._driver.start(host, port)
        except OSError as error:
            raise CannotBindError(
                error.errno,
                f"node {self._node_id} cannot bind the UDP port {host}:{port} for failure detection: {error.strerror};"
                " stop the process that uses it, or set odradek.membership.port on every node",
            ) from error
        self._metadata.subscribe_from_start(self._on_metadata)
        self._peers.on_lost(self._on_lost)
        self._controller.on_active(self._fence_failed_members)
        return self._driver.close

    # ---- state for status and metrics -------------------------------------------------------------------------------

    def view(self) -> list[MemberView]:
        """Return the other nodes and their states, by ascending node id."""
        return self._driver.view()

    @property
    def counters(self) -> Counters:
        return self._core.counters

    @property
    def traffic(self) -> "Traffic":
        return self._driver.traffic

    # ---- members ----------------------------------------------------------------------------------------------------

    def _on_metadata(self, delta: "MetadataDelta", image: MetadataImage) -> None:
        self._driver.set_members(self._specs(image))

    def _specs(self, image: MetadataImage) -> list[MemberSpec]:
        """Return the members: the registered brokers, and the voters that are not registered."""
        specs = {voter.node_id: MemberSpec(voter.node_id, UNREGISTERED, UNKNOWN_INCARNATION) for voter in self._voters}
        for broker in image.brokers.values():
            specs[broker.broker_id] = MemberSpec(
                broker.broker_id, broker.epoch, short_incarnation(broker.incarnation_id)
            )
        return list(specs.values())

    def _address_of(self, node_id: int) -> tuple[str, int] | None:
        address = self._address_by_channel(node_id, Channel.PROBE)
        return (address[0], self._port or address[1]) if address is not None else None

    # ---- evidence from TCP connections ------------------------------------------------------------------------------

    def _on_lost(self, node_id: int, refused: bool) -> None:
        self._driver.lost(node_id, refused=refused)
        self._raft.suspect(node_id)

    async def _probe_by_tcp(self, node_id: int) -> None:
        """Send a TCP probe. A response updates `Peers.last_contact_ms`; a refused connection calls `_on_lost`."""
        try:
            await self._peers.request(
                node_id, Channel.PROBE, ApiVersionsRequest(), PROBE_VERSION, timeout_ms=self._probe_timeout_ms
            )
        except OSError as error:
            _logger.debug("TCP probe failed", member=node_id, reason=str(error))

    # ---- failure declarations ---------------------------------------------------------------------------------------

    def _on_change(self, change: Change) -> None:
        self._suspected_leaders.recheck()
        if not change.is_failure_declaration:
            return
        if change.event is not Event.REPLACED:  # a replaced registration: the node itself runs
            self._raft.suspect(change.node_id)
        if self._controller.is_active:
            self._fence(change.node_id, change.broker_epoch)

    def _fence_failed_members(self) -> None:
        """Fence the brokers whose failure was declared before the controller became active on this node."""
        for member in self._driver.view():
            if member.state is State.FAILED:
                self._fence(member.node_id, member.broker_epoch)

    def _fence(self, node_id: int, broker_epoch: int) -> None:
        if broker_epoch != UNREGISTERED:
            self._tasks.spawn(self._fence_registration(node_id, broker_epoch), f"fence {node_id}")

    async def _fence_registration(self, node_id: int, broker_epoch: int) -> None:
        try:
            await self._controller.fence_broker(node_id, broker_epoch)
        except Refusal as refusal:  # a new registration, or another active controller
            _logger.info(
                "failed broker not fenced", member=node_id, broker_epoch=broker_epoch, reason=refusal.error.name
            )
