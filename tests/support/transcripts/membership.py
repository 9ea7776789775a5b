"""Commands of the golden transcripts of the failure detector.

    nodes N [M]              N registered nodes, and voters N+1..M that have not registered
    run MS                   time passes
    watch / quiet            show every datagram from now on / only changes of state
    crash N / kill N         the process of N is gone, and nobody had a connection to it / connections to it are reset
    stop N / continue N      SIGSTOP, SIGCONT
    restart N / register N   a new process of N, which the cluster has not heard of / it registers
    cut A->B [udp]           nothing from A reaches B any more; udp: TCP goes on
    heal                     everybody reaches everybody
    talk A->B MS FOR         A sends to B by TCP every MS milliseconds, FOR milliseconds long
    lost A->B                A sees a connection to B end
    late N MS                the next timer of node N is so late
    status [N]               what everybody (or N) holds of the others, and since when

Lines of changes: time, who, of whom, what from now on, why, and how long it had been silent.

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
        self.rig = Rig(told=self._told, sent=self._sent)
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

    def do_cut(self, way: str, kind: str = "") -> None:
        a, b = way.split("->")
        self.rig.cut(int(a), int(b), tcp=kind != "udp")

    def do_heal(self) -> None:
        self.rig.heal()

    def do_talk(self, way: str, every_ms: str, for_ms: str) -> None:
        a, b = (int(part) for part in way.split("->"))
        for ms in range(0, int(for_ms), int(every_ms)):
            self.rig.at(ms, lambda: self.rig.talk(a, b))

    def do_lost(self, way: str) -> None:
        a, b = (int(part) for part in way.split("->"))
        self.rig.nodes[a].core.lost(b, self.rig.now_ms)
        self.rig._work(a)

    def do_late(self, node: str, ms: str) -> None:
        self.rig.nodes[int(node)].late_ms = int(ms)

    def do_status(self, node: str = "") -> None:
        for node_id in [int(node)] if node else self.rig.living():
            seen = [
                f"{each.node_id} {each.state.value} ({each.broker_epoch},{each.counter}) since {each.since_ms}"
                for each in self.rig.nodes[node_id].core.view()
            ]
            self.lines.append(f"{node_id}: {', '.join(seen)}")

    def _told(self, node_id: int, change: Change) -> None:
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
    return text + "".join(f" [{told(entry)}]" for entry in message.gossip)


def told(entry: GossipEntry) -> str:
    return f"{entry.node_id} {entry.state.value} {entry.counter}"
