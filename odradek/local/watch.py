"""What a foreground ``up`` does between its ready line and its end: it watches the brokers, whoever has started them."""

from __future__ import annotations

import os
import selectors
import signal
from typing import TYPE_CHECKING

from odradek.local.directory import LOOK_AGAIN
from odradek.local.launch import forget_all
from odradek.local.output import FAILED, errors
from odradek.local.startup import stop_identities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.local.directory import ClusterDirectory, ClusterState
    from odradek.local.processes import BrokerProcess, ProcessId

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALS_READ_MAX = 64


class Watch:
    """From its making on, signals only make it look: nothing can interrupt between two steps."""

    def __init__(self, directory: ClusterDirectory, processes: Sequence[BrokerProcess]) -> None:
        self._directory = directory
        self._children = {process.identity: process for process in processes}
        self._selector = selectors.DefaultSelector()
        self._watched: dict[ProcessId, int] = {}
        self._gone: dict[ProcessId, None] = {}
        self._signals, writer = os.pipe()
        for descriptor in (self._signals, writer):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(writer)
        for number in (*STOP_SIGNALS, LOOK_AGAIN):
            signal.signal(number, lambda *_: None)
        self._selector.register(self._signals, selectors.EVENT_READ)

    def run(self) -> int:
        """Until it is interrupted, or no broker is left. Returns the exit code of ``up``."""
        died = False
        while True:
            died |= self._look()
            if not self._watched:
                return FAILED if died else self._exit_code()
            for key, _ in self._selector.select():
                if key.fd == self._signals:
                    if any(number in STOP_SIGNALS for number in os.read(self._signals, SIGNALS_READ_MAX)):
                        return max(self._stop(), FAILED if died else 0)
                else:
                    died |= self._ended(*key.data)

    def _look(self) -> bool:
        """Watch whatever runs now. True when a broker was gone before it could be watched."""
        state = self._directory.read_state()
        assert state is not None
        died = False
        for node_id, identity in state.running.items():
            if identity in self._watched or identity in self._gone:
                continue
            descriptor = identity.descriptor()
            if descriptor is None:
                died |= self._say_ended(node_id, identity)
            else:
                self._watched[identity] = descriptor
                self._selector.register(descriptor, selectors.EVENT_READ, (node_id, identity))
        return died

    def _ended(self, node_id: int, identity: ProcessId) -> bool:
        """A broker is gone. True when nobody had asked it to be."""
        descriptor = self._watched.pop(identity)
        self._selector.unregister(descriptor)
        os.close(descriptor)
        return self._say_ended(node_id, identity)

    def _say_ended(self, node_id: int, identity: ProcessId) -> bool:
        self._gone[identity] = None
        child = self._children.get(identity)
        code = None if child is None else child.join()
        state = self._directory.read_state()
        if state is None or state.running.get(node_id) != identity:
            return False
        how = "" if code is None else f" ({signal.Signals(-code).name})" if code < 0 else f" with exit code {code}"
        errors.print(f"broker {node_id} ended by itself{how}; see {self._directory.log(node_id)}", markup=False)
        if state.alive():
            errors.print(outlook(self._directory, state), markup=False)
        return True

    def _stop(self) -> int:
        stop_identities(forget_all(self._directory))
        return self._exit_code()

    def _exit_code(self) -> int:
        return max((child.join() for child in self._children.values()), default=0)


def outlook(directory: ClusterDirectory, state: ClusterState) -> str:
    """What the brokers that are left can do, and how the others come back."""
    missing = [node_id for node_id in state.plan.node_ids if node_id not in state.alive()]
    names = " ".join(str(node_id) for node_id in missing)
    text = f"bring back what is missing: odradek start {names} --dir {directory.path}"
    voters = [node_id for node_id in state.plan.voters if node_id in state.alive()]
    if len(voters) >= state.plan.majority:
        return text
    return (
        f"majority lost: {len(voters)} of {len(state.plan.voters)} voters run, {state.plan.majority} are needed; until then "
        f"no leader is elected and no transaction commits; {text}"
    )
