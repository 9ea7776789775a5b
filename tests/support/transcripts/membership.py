"""Commands of the golden transcripts of the failure detector.

    * nodes N [M]              N registered nodes, and voters N+1..M that have not registered.
    * run MS                   Advance the time.
    * watch / quiet            Show each datagram from now on / only state changes.
    * crash N / kill N         Stop the process of N without / with resets of its connections.
    * stop N / continue N      SIGSTOP, SIGCONT.
    * restart N / register N   Start a new, unregistered process of N / register it.
    * partition A->B [udp]     Drop all data from A to B; udp: TCP still works.
    * heal                     End all partitions.
    * send-tcp A->B MS FOR     A sends to B by TCP every MS milliseconds, for FOR milliseconds.
    * lost A->B                A sees a connection to B end.
    * late N MS                Delay the next timer of node N.
    * status [N]               Show the states that all nodes (or N) hold, with the time of the last change.

A state change has these fields: time, observer, node, states, cause, and milliseconds without contact.

See harness.py for the format of a transcript, and for how to update one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cluster.membership.messages import Ack, GossipEntry, Message, Ping, PingRequest
from tests.support.membership_rig import Rig
from tests.support.transcripts.harness import Interpreter

if TYPE_CHECKING:
    from odradek.cluster.membership.members import Change


class MembershipInterpreter(Interpreter):
    """Execute commands on the failure detectors of a cluster in virtual time."""

    empty_output = ("ok",)

    def __init__(self) -> None:
        self.rig = Rig(on_change=self._on_change, sent=self._sent)
        self.lines: list[str] = []
        self.watching = False

    def collect(self, result: None) -> list[str]:
        output, self.lines = self.lines, []
        return output

    def do_nodes(self, count: str, all_nodes: str = "") -> None:
        for node_id in range(1, int(count) + 1):
            self.rig.start(node_id)
        for node_id in range(int(count) + 1, int(all_nodes or count) + 1):
            self.rig.start(node_id, register=False)

    def do_run(self, ms: str) -> None:
        self.rig.run(int(ms))

    def do_watch(self) -> None:
        self.watching = True

    def do_quiet(self) -> None:
        self.watching = False

    def do_crash(self, node: str) -> None:
        self.rig.crash(int(node), resets=False)

    def do_kill(self, node: str) -> None:
        self.rig.crash(int(node), resets=True)

    def do_stop(self, node: str) -> None:
        self.rig.stop(int(node))

    def do_continue(self, node: str) -> None:
        self.rig.resume(int(node))

    def do_restart(self, node: str) -> None:
        self.rig.start(int(node), register=False)

    def do_register(self, node: str) -> None:
        self.rig.register(int(node))

    def do_partition(self, way: str, kind: str = "") -> None:
        a, b = way.split("->")
        self.rig.partition(int(a), int(b), tcp=kind != "udp")

    def do_heal(self) -> None:
        self.rig.heal()

    def do_send_tcp(self, way: str, every_ms: str, for_ms: str) -> None:
        a, b = (int(part) for part in way.split("->"))
        for ms in range(0, int(for_ms), int(every_ms)):
            self.rig.at(ms, lambda: self.rig.send_by_tcp(a, b))

    def do_lost(self, way: str) -> None:
        a, b = (int(part) for part in way.split("->"))
        self.rig.nodes[a].core.lost(b, self.rig.now_ms)
        self.rig._work(a)

    def do_late(self, node: str, ms: str) -> None:
        self.rig.nodes[int(node)].late_ms = int(ms)

    def do_status(self, node: str = "") -> None:
        for node_id in [int(node)] if node else self.rig.running_nodes():
            seen = [
                f"{member.node_id} {member.state.value} ({member.broker_epoch},{member.counter})"
                f" since {member.since_ms}"
                for member in self.rig.nodes[node_id].core.view()
            ]
            self.lines.append(f"{node_id}: {', '.join(seen)}")

    def _on_change(self, node_id: int, change: Change) -> None:
        about = f"{change.node_id} ({change.broker_epoch},{change.counter})"
        self.lines.append(
            f"{self.rig.now_ms} {node_id}: {about} {change.before.value} -> {change.state.value}: {change.event.value}"
            + (f", {change.silent_ms} ms" if change.silent_ms else "")
        )

    def _sent(self, message: Message, fate: str) -> None:
        if self.watching:
            self.lines.append(f"{self.rig.now_ms} {fate + ' ' if fate else ''}{describe(message)}")


def describe(message: Message) -> str:
    text = f"{message.source}->{message.target} "
    if isinstance(message, Ping):
        text += "ping"
    elif isinstance(message, PingRequest):
        text += f"ping-req {message.subject}"
    elif isinstance(message, Ack):
        text += "ack" if message.subject == message.source else f"ack of {message.subject}"
    if message.counter:
        text += f" counter={message.counter}"
    return text + "".join(f" [{entry_text(entry)}]" for entry in message.gossip)


def entry_text(entry: GossipEntry) -> str:
    return f"{entry.node_id} {entry.state.value} {entry.counter}"
