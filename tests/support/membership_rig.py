"""Membership cores on an in-memory network of processes, hosts, UDP and TCP, in virtual time.

Datagrams are encoded and decoded. `rng` decides on delay, loss and duplication, so that a run depends only on its seed.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from odradek.cluster.membership.admission import Admission
from odradek.cluster.membership.core import MembershipCore
from odradek.cluster.membership.members import UNREGISTERED, Change, MembershipConfig, MemberSpec
from odradek.cluster.membership.messages import DATAGRAM_BYTES_MAX, UNKNOWN_INCARNATION, Codec, Datagram, Ping

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.cluster.membership.messages import Message
    from odradek.cluster.membership.transitions import State

EVENTS_MAX = 3_000_000


@dataclass
class DatagramFaults:
    """Delay of a datagram in milliseconds, and probabilities of its loss and duplication."""

    delay_ms: tuple[int, int] = (1, 1)
    loss: float = 0.0
    duplication: float = 0.0


@dataclass
class Node:
    core: MembershipCore
    admission: Admission
    incarnation: int
    epoch: int
    running: bool = True
    stopped: bool = False
    unread: list[bytes] = field(default_factory=list)
    tick_at: int | None = None
    late_ms: int = 0


@dataclass
class Rig:
    """A cluster of membership cores.

    `on_change(node id, change)` receives each state change. `sent(message, fate)` receives each datagram.
    """

    seed: int = 0
    config: MembershipConfig = field(default_factory=MembershipConfig)
    datagram_faults: DatagramFaults = field(default_factory=DatagramFaults)
    on_change: Callable[[int, Change], None] = lambda _, __: None
    sent: Callable[[Message, str], None] = lambda _, __: None

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.replies_to_tcp_probes = True
        self.now_ms = 0
        self.codec = Codec("a cluster")
        self.nodes: dict[int, Node] = {}
        self.specs: dict[int, MemberSpec] = {}
        self.udp_partitions: dict[tuple[int, int], None] = {}
        self.tcp_partitions: dict[tuple[int, int], None] = {}
        self.last_contacts: dict[tuple[int, int], int] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._incarnation = 100
        self._epoch = 10
        self._seen: dict[tuple[int, int, int], int] = {}

    # ---- processes --------------------------------------------------------------------------------------------------

    def start(self, node_id: int, *, register: bool = True) -> None:
        """Start a new process of the node. Without `register`, its previous registration, if any, stays."""
        self._incarnation += 1
        incarnation = self._incarnation

        def last_contact_ms(other: int) -> int:
            return self.last_contacts.get((node_id, other), -(10**9))

        core = MembershipCore(
            node_id,
            incarnation,
            rng=Random(self.rng.randrange(2**32)),
            last_contact_ms=last_contact_ms,
            now_ms=self.now_ms,
            config=self.config,
        )
        admission = Admission(
            node_id,
            Random(self.rng.randrange(2**32)),
            challenge_pause_ms=self.config.probe_timeout_ms,
            verifies_addresses=False,
        )
        self.nodes[node_id] = Node(core, admission, incarnation, UNREGISTERED)
        if register:
            self.register(node_id)
        else:
            self.specs.setdefault(node_id, MemberSpec(node_id, UNREGISTERED, UNKNOWN_INCARNATION))
            self._publish()

    def register(self, node_id: int) -> None:
        node = self.nodes[node_id]
        self._epoch += 1
        node.epoch = self._epoch
        self.specs[node_id] = MemberSpec(node_id, node.epoch, node.incarnation)
        self._publish()

    def _publish(self) -> None:
        for node_id in sorted(self.nodes):
            node = self.nodes[node_id]
            if node.running:
                node.admission.set_members(self.specs.values())
                node.core.set_members(self.specs.values(), self.now_ms)
                self._work(node_id)

    def crash(self, node_id: int, *, resets: bool) -> None:
        """Stop the process. With `resets`, the other nodes see their connections to it end."""
        node = self.nodes[node_id]
        node.running = False
        for other in sorted(self.nodes):
            if resets and self._alive(other) and (node_id, other) not in self.tcp_partitions:
                self.nodes[other].core.lost(node_id, self.now_ms)
                self._work(other)

    def stop(self, node_id: int) -> None:
        self.nodes[node_id].stopped = True

    def resume(self, node_id: int) -> None:
        """Resume a process (SIGCONT). Its timers fire before it reads queued datagrams."""
        node = self.nodes[node_id]
        node.stopped = False
        if node.tick_at is not None and node.tick_at <= self.now_ms:
            self._tick(node_id, node, node.tick_at)
        unread, node.unread = node.unread, []
        for data in unread:
            self._later(1, self._reader(node_id, node, data))

    def _alive(self, node_id: int) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and node.running and not node.stopped

    # ---- the network ------------------------------------------------------------------------------------------------

    def partition(self, a: int, b: int, *, tcp: bool = True) -> None:
        """Drop all datagrams, and with `tcp` all TCP data, from `a` to `b`."""
        self.udp_partitions[a, b] = None
        if tcp:
            self.tcp_partitions[a, b] = None

    def heal(self) -> None:
        self.udp_partitions.clear()
        self.tcp_partitions.clear()

    def send_by_tcp(self, a: int, b: int) -> None:
        """Send data from `a` to `b` by TCP."""
        both_ways = (a, b) not in self.tcp_partitions and (b, a) not in self.tcp_partitions
        if self._alive(a) and self._alive(b) and both_ways:
            self.last_contacts[b, a] = self.now_ms

    def _send(self, message: Message) -> None:
        admission = self.nodes[message.source].admission
        admission.sent(message, None)
        number = admission.next_number()
        data = self.codec.encode(message, self.now_ms, number)
        assert len(data) <= DATAGRAM_BYTES_MAX
        pair = (message.source, message.target)
        if pair in self.udp_partitions or self.rng.random() < self.datagram_faults.loss:
            self.sent(message, "lost")
            return
        self.sent(message, "")
        for _ in range(2 if self.rng.random() < self.datagram_faults.duplication else 1):
            low, high = self.datagram_faults.delay_ms
            self._later(low + self.rng.randrange(high - low + 1), lambda: self._arrive(message.target, data))

    def _arrive(self, target: int, data: bytes) -> None:
        node = self.nodes.get(target)
        if node is None or not node.running:
            return
        if node.stopped:
            node.unread.append(data)
        else:
            self._reader(target, node, data)()

    def _reader(self, target: int, node: Node, data: bytes) -> Callable[[], None]:
        def read() -> None:
            datagram = self.codec.decode(data)
            assert isinstance(datagram, Datagram)
            if self.nodes[target] is node and self._alive(target):
                self._admit(node, datagram)
                self._work(target)

        return read

    def _admit(self, node: Node, datagram: Datagram) -> None:
        message = datagram.message
        admitted = node.admission.admit(datagram, None, self.now_ms, from_registered=True)
        if admitted.challenge:
            self._send(node.core.challenge(message.source))
        if admitted.rejected is not None:
            self.sent(message, admitted.rejected.value)
        elif not admitted.acknowledge_only:
            node.core.step(message, self.now_ms)
        elif isinstance(message, Ping):
            node.core.acknowledge(message, self.now_ms)

    def _tcp_probe(self, source: int, target: int) -> None:
        """Probe a node by TCP: the node responds, its host refuses the connection, or the probe times out."""
        prober = self.nodes[source]

        def end() -> None:
            if self.nodes[source] is not prober or not prober.running:
                return
            prober.core.tcp_probe_ended(target)

        def outcome() -> None:
            if self.nodes[source] is not prober or not prober.running:
                return
            if prober.stopped:
                self._later(self.config.probe_interval_ms, outcome)
                return
            process = self.nodes.get(target)
            if (source, target) in self.tcp_partitions or (target, source) in self.tcp_partitions:
                self._later(self.config.suspicion_timeout_ms, end)
            elif self.replies_to_tcp_probes and (process is None or not process.running):
                prober.core.lost(target, self.now_ms, refused=True)
                end()
                self._work(source)
            elif process is None or process.stopped or not self.replies_to_tcp_probes:
                self._later(self.config.suspicion_timeout_ms, end)
            else:
                self.last_contacts[source, target] = self.now_ms
                end()

        self._later(2, outcome)

    # ---- time -------------------------------------------------------------------------------------------------------

    def run(self, ms: int) -> None:
        until_ms = self.now_ms + ms
        for _ in range(EVENTS_MAX):
            if not self._events or self._events[0][0] > until_ms:
                self.now_ms = until_ms
                return
            self.now_ms, _, action = heapq.heappop(self._events)
            action()
        raise AssertionError(f"more than {EVENTS_MAX} events")

    def _later(self, ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + ms, self._count, action))

    def at(self, ms: int, action: Callable[[], None]) -> None:
        """Call `action` in `ms` milliseconds."""
        self._later(ms, action)

    def _work(self, node_id: int) -> None:
        node = self.nodes[node_id]
        while (ready := node.core.take_ready()) is not None:
            for message in ready.messages:
                self._send(message)
            for target in ready.tcp_probes:
                self._tcp_probe(node_id, target)
            for change in ready.changes:
                self.on_change(node_id, change)
        deadline_ms = node.core.next_deadline_ms
        if deadline_ms is not None and node.tick_at != deadline_ms:
            node.tick_at = deadline_ms
            late_ms, node.late_ms = node.late_ms, 0
            delay_ms = max(deadline_ms - self.now_ms, 0) + late_ms
            self._later(delay_ms, lambda: self._tick(node_id, node, deadline_ms))

    def _tick(self, node_id: int, node: Node, due_ms: int) -> None:
        if self.nodes[node_id] is node and node.tick_at == due_ms and self._alive(node_id):
            node.tick_at = None
            node.core.tick(self.now_ms)
            self._work(node_id)

    # ---- state ------------------------------------------------------------------------------------------------------

    def states(self, node_id: int) -> dict[int, State]:
        return {member.node_id: member.state for member in self.nodes[node_id].core.view()}

    def running_nodes(self) -> list[int]:
        return [node_id for node_id in sorted(self.nodes) if self._alive(node_id)]
