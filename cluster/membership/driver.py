"""Run a membership core on UDP: receive and send its datagrams, and set its timers.

asyncio-dgram reads and writes the datagrams. Its queue of received datagrams has no limit, so it is emptied in every
turn of the event loop. Datagrams beyond DATAGRAMS_PER_TURN are dropped unread.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Queue, QueueFull, TimerHandle, get_running_loop
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import asyncio_dgram
import structlog

from odradek.cluster.membership.addresses import AddressBook
from odradek.cluster.membership.messages import Ping, Rejected
from odradek.cluster.membership.transitions import State
from odradek.cluster.membership.wall_clocks import WallClocks
from odradek.runtime.repeated_tasks import report

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from odradek.cluster.membership.addresses import HostPort
    from odradek.cluster.membership.admission import Admission
    from odradek.cluster.membership.core import MembershipCore
    from odradek.cluster.membership.members import Change, MemberSpec, MemberView
    from odradek.cluster.membership.messages import Codec, Message
    from odradek.runtime.clock import Clock
    from odradek.runtime.tasks import Tasks

DATAGRAMS_PER_TURN: Final = 128
"""Maximum datagrams per turn of the event loop. 100 nodes send fewer in one probe interval."""
OUTGOING_MAX: Final = 512
"""Maximum datagrams in the send queue. Further ones are dropped, as the network may drop them."""
_LOGGED: Final = (Rejected.SIZE, Rejected.VERSION, Rejected.FOREIGN, Rejected.CONTENT, Rejected.ADDRESS)
_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class Traffic:
    """Datagrams since the start of the process.

    `received`: admitted ones. `dropped`: received ones that were not, by reason. `overflow`: beyond DATAGRAMS_PER_TURN
    or OUTGOING_MAX.
    """

    received: int = 0
    sent: int = 0
    dropped: Counter[Rejected] = field(default_factory=Counter)
    overflow: int = 0
    unroutable: int = 0
    errors: int = 0

    @property
    def rejected(self) -> int:
        """Number of received datagrams that were not admitted."""
        return self.dropped.total()


class MembershipDriver:
    """The failure detector of one node on its UDP port. All calls belong on the event loop."""

    def __init__(
        self,
        core: MembershipCore,
        codec: Codec,
        admission: Admission,
        *,
        address_of: Callable[[int], HostPort | None],
        probe_by_tcp: Callable[[int], Awaitable[None]],
        on_change: Callable[[Change], None],
        on_clock: Callable[[int, int], None] = lambda _node_id, _sent_ms: None,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        """Do not open the port yet.

        `probe_by_tcp(node id)` sends a request by TCP, and returns after the response, a refusal or a time-out.
        `on_clock(node id, wall clock)` receives the send time of each datagram of a member.
        """
        self._core = core
        self._codec = codec
        self._admission = admission
        self._address_of = address_of
        self._probe_by_tcp = probe_by_tcp
        self._on_change = on_change
        self._on_clock = on_clock
        self._clock = clock
        self._tasks = tasks
        self.traffic = Traffic()
        self._logged: set[Rejected] = set()
        """The reasons for dropped datagrams that were logged."""
        self._stream: Any = None
        self._book: AddressBook
        self._loop: AbstractEventLoop
        self._outgoing: Queue[tuple[Message, Any]] = Queue(OUTGOING_MAX)
        """Messages to send, each with its address; None: the address of its target in the metadata."""
        self._taken = 0
        self._wall_clocks = WallClocks()
        self._timer: TimerHandle | None = None
        self._armed_ms: int | None = None

    # ---- start and stop ---------------------------------------------------------------------------------------------

    async def start(self, host: str, port: int) -> None:
        """Open the UDP port and start to probe. Raise OSError if the port is not available."""
        self._loop = get_running_loop()
        stream = self._stream = await asyncio_dgram.bind((host, port))
        self._book = AddressBook(self._address_of, sockname=stream.sockname, clock=self._clock, tasks=self._tasks)
        self._tasks.spawn(self._receive(stream), "membership-receive")
        self._tasks.spawn(self._send(stream), "membership-send")
        self._work()

    def close(self) -> None:
        """Stop all traffic. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def set_members(self, specs: Iterable[MemberSpec]) -> None:
        specs = tuple(specs)
        self._admission.set_members(specs)
        self._core.set_members(specs, self._clock.monotonic_ms())
        self._work()

    def lost(self, node_id: int, *, refused: bool) -> None:
        """Note that the node has closed, reset or refused a TCP connection."""
        self._core.lost(node_id, self._clock.monotonic_ms(), refused=refused)
        self._work()

    def view(self) -> list[MemberView]:
        """Return the other nodes as this node sees them, in the order of their ids."""
        return self._core.view()

    # ---- work -------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        if self._stream is None:
            return
        while (ready := self._core.take_ready()) is not None:
            for message in ready.messages:
                self._enqueue(message, None)
            for node_id in ready.tcp_probes:
                self._tasks.spawn(self._run_tcp_probe(node_id), f"TCP probe of {node_id}")
            for change in ready.changes:
                self._publish(change)
        self._arm()

    def _enqueue(self, message: Message, address: Any) -> None:
        try:
            self._outgoing.put_nowait((message, address))
        except QueueFull:
            self.traffic.overflow += 1

    def _publish(self, change: Change) -> None:
        fields = {
            "member": change.node_id,
            "broker_epoch": change.broker_epoch,
            "evidence": change.event.value,
            "silent_ms": change.silent_ms,
        }
        if change.state is not State.ALIVE:
            self._book.refresh(change.node_id)
        if change.is_failure_declaration:
            _logger.info("node failure declared", **fields)
        elif change.before is State.FAILED:
            _logger.info("failed node returned", **fields)
        else:
            _logger.debug("member state changed", state=change.state.value, **fields)
        self._on_change(change)

    async def _run_tcp_probe(self, node_id: int) -> None:
        await self._probe_by_tcp(node_id)
        self._core.tcp_probe_ended(node_id)

    def _arm(self) -> None:
        deadline_ms = self._core.next_deadline_ms
        if self._timer is not None:
            if self._armed_ms == deadline_ms:
                return
            self._timer.cancel()
            self._timer = None
        self._armed_ms = deadline_ms
        if deadline_ms is not None:
            delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
            self._timer = self._loop.call_later(delay_ms / 1_000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._core.tick(self._clock.monotonic_ms())
        self._work()

    # ---- datagrams --------------------------------------------------------------------------------------------------

    async def _receive(self, stream: Any) -> None:
        while True:
            try:
                data, source = await stream.recv()
            except asyncio_dgram.TransportClosed:
                return
            except OSError:  # an ICMP error for an unknown earlier datagram
                self.traffic.errors += 1
                continue
            if self._taken >= DATAGRAMS_PER_TURN:
                self.traffic.overflow += 1
                continue
            if self._taken == 0:
                self._loop.call_soon(self._new_turn)
            self._taken += 1
            try:
                self._take(data, source)
            except Exception as error:  # noqa: BLE001  it is reported, and other datagrams are received
                report(error, self._tasks.spawn, "membership-receive")

    def _new_turn(self) -> None:
        self._taken = 0

    def _take(self, data: bytes, source: Any) -> None:
        datagram = self._codec.decode(data)
        if isinstance(datagram, Rejected):
            self._drop(datagram, source)
            return
        message, now_ms = datagram.message, self._clock.monotonic_ms()
        from_registered = self._book.is_source(message.source, source)
        admitted = self._admission.admit(datagram, source, now_ms, from_registered=from_registered)
        if admitted.challenge:
            self._enqueue(self._core.challenge(message.source), source)
        if admitted.rejected is not None:
            if admitted.rejected is Rejected.ADDRESS and self._book.route(message.source) is None:
                self.traffic.dropped[Rejected.ADDRESS] += 1  # the name of the sender is not resolved yet
                return
            self._drop(admitted.rejected, source)
            if admitted.rejected is Rejected.ADDRESS:
                self._book.refresh(message.source)
            return
        self.traffic.received += 1
        self._book.received_from(message.source, source)
        if not admitted.acknowledge_only:
            self._compare_clocks(message.source, datagram.sent_ms)
            self._core.step(message, now_ms)
        elif isinstance(message, Ping):
            self._core.acknowledge(message, now_ms)
        self._work()

    def _drop(self, reason: Rejected, source: Any) -> None:
        """Count a datagram, and log the first one of each reason that shows a wrong configuration."""
        self.traffic.dropped[reason] += 1
        if reason in _LOGGED and reason not in self._logged:
            self._logged.add(reason)
            _logger.warning("datagram dropped", source=f"{source[0]}:{source[1]}", reason=reason.value)

    def _compare_clocks(self, node_id: int, sent_ms: int) -> None:
        if self._address_of(node_id) is None:
            return
        self._on_clock(node_id, sent_ms)
        ahead_ms = self._wall_clocks.received(node_id, sent_ms=sent_ms, now_ms=self._clock.wall_ms())
        if ahead_ms is None:
            return
        if ahead_ms == 0:
            _logger.info("clock difference resolved", member=node_id)
            return
        _logger.warning(
            "clock difference detected",
            member=node_id,
            ahead_ms=ahead_ms,
            remedy=f"set this host's clock and that of node {node_id} by one time service (NTP): "
            "time-outs of transactions go by the clock of the broker that leads the partition",
        )

    async def _send(self, stream: Any) -> None:
        while True:
            message, address = await self._outgoing.get()
            if address is None:
                address = self._book.route(message.target)
            if address is None:
                self.traffic.unroutable += 1
                continue
            try:
                self._forget_errors(stream)
                self._admission.sent(message, address)
                data = self._codec.encode(message, self._clock.wall_ms(), self._admission.next_number())
                await stream.send(data, address)
            except asyncio_dgram.TransportClosed:
                return
            except OSError:
                self.traffic.errors += 1
            except Exception as error:  # noqa: BLE001  it is reported, and other datagrams are sent
                report(error, self._tasks.spawn, "membership-send")
            else:
                self.traffic.sent += 1

    def _forget_errors(self, stream: Any) -> None:
        """Clear the errors of earlier datagrams, which asyncio-dgram would raise for the next one, to another node."""
        while True:
            try:
                if stream.exception is None:
                    return
            except OSError:
                self.traffic.errors += 1
