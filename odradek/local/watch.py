"""Watch the brokers of a directory from an `odradek up` in the foreground, between its ready line and its end."""

from __future__ import annotations

import os
import selectors
import signal
from typing import TYPE_CHECKING

from odradek.local.directory import RELOAD_SIGNAL
from odradek.local.launch import mark_all_stopped
from odradek.local.output import FAILED, errors
from odradek.local.processes import STOP_TIMEOUT_S
from odradek.local.progress import print_failures, status_line
from odradek.local.stopping import stop_identities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.local.directory import ClusterDirectory, ClusterState
    from odradek.local.processes import BrokerProcess, ProcessId

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALS_READ_MAX = 64
"""Maximum signals per read of the wake-up pipe."""


class BrokerWatch:
    """Watch all brokers of a directory, including those that other commands start.

    From its construction on, a signal only writes its number to a pipe, which `run` reads. No signal can therefore
    interrupt this process between two steps.
    """

    def __init__(
        self,
        directory: ClusterDirectory,
        processes: Sequence[BrokerProcess],
        *,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        """After a stop signal, a broker is killed whose stop makes no progress for `stop_timeout_s` seconds."""
        self._directory = directory
        self._stop_timeout_s = stop_timeout_s
        self._children = {process.identity: process for process in processes}
        self._selector = selectors.DefaultSelector()
        self._watched: dict[ProcessId, int] = {}
        self._ended: dict[ProcessId, None] = {}
        self._signals, writer = os.pipe()
        for descriptor in (self._signals, writer):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(writer)
        for number in (*STOP_SIGNALS, RELOAD_SIGNAL):
            signal.signal(number, lambda *_: None)
        self._selector.register(self._signals, selectors.EVENT_READ)

    def run(self) -> int:
        """Watch until a stop signal arrives, or until no broker runs. Return the exit code of `odradek up`.

        After a stop signal, stop all brokers. The exit code is at least 1 if a broker ended that no command stopped, or
        if a broker still runs after SIGKILL.
        """
        failed = False
        while True:
            failed |= self._watch_new()
            if not self._watched:
                return FAILED if failed else self._exit_code()
            for key, _ in self._selector.select():
                if key.fd == self._signals:
                    if any(number in STOP_SIGNALS for number in os.read(self._signals, SIGNALS_READ_MAX)):
                        return max(self._stop(), FAILED if failed else 0)
                else:
                    failed |= self._on_end(*key.data)

    def _watch_new(self) -> bool:
        """Watch brokers that were started since the last call. Return True if one of them has failed already."""
        state = self._directory.read_state()
        assert state is not None
        failed = False
        for node_id, identity in state.running.items():
            if identity in self._watched or identity in self._ended:
                continue
            descriptor = identity.descriptor()
            if descriptor is None:
                failed |= self._report_end(node_id, identity)
            else:
                self._watched[identity] = descriptor
                self._selector.register(descriptor, selectors.EVENT_READ, (node_id, identity))
        return failed

    def _on_end(self, node_id: int, identity: ProcessId) -> bool:
        """Stop watching a broker that has ended. Return True if no command stopped it."""
        descriptor = self._watched.pop(identity)
        self._selector.unregister(descriptor)
        os.close(descriptor)
        return self._report_end(node_id, identity)

    def _report_end(self, node_id: int, identity: ProcessId) -> bool:
        """Print an error for a broker that ended and that no command stopped. Return False if a command stopped it."""
        self._ended[identity] = None
        child = self._children.get(identity)
        code = None if child is None else child.join()
        state = self._directory.read_state()
        if state is None or state.running.get(node_id) != identity:
            return False
        cause = "" if code is None else f" ({signal.Signals(-code).name})" if code < 0 else f" with exit code {code}"
        errors.print(f"broker {node_id} ended unexpectedly{cause}; see {self._directory.log(node_id)}", markup=False)
        if state.alive():
            errors.print(recovery_hint(self._directory, state), markup=False)
        return True

    def _stop(self) -> int:
        identities = mark_all_stopped(self._directory)
        with status_line("stopping all brokers"):
            outcomes = stop_identities(identities, self._stop_timeout_s)
        if not print_failures(identities, outcomes, self._stop_timeout_s):
            return FAILED
        return self._exit_code()

    def _exit_code(self) -> int:
        """Return the largest exit code of the brokers. A broker that ended by a signal counts as 0."""
        return max([0, *(child.join() for child in self._children.values())])


def recovery_hint(directory: ClusterDirectory, state: ClusterState) -> str:
    """Return a message with the command that starts the missing brokers, and with the effects of a lost majority."""
    missing = [node_id for node_id in state.plan.node_ids if node_id not in state.alive()]
    names = " ".join(str(node_id) for node_id in missing)
    text = f"start the missing brokers: odradek start {names} --dir {directory.path}"
    voters = [node_id for node_id in state.plan.voters if node_id in state.alive()]
    if len(voters) >= state.plan.majority:
        return text
    return (
        f"majority lost: {len(voters)} of {len(state.plan.voters)} voters run, {state.plan.majority} are needed; "
        f"until then no leader is elected and no transaction commits; {text}"
    )
