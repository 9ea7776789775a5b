"""From what a person asks for, and what lies in the directory, to running brokers."""

from __future__ import annotations

import base64
import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek import supported_platform
from odradek.local.directory import DEFAULT_HOST, DEFAULT_PORT
from odradek.local.plan import BROKERS_MAX, Plan
from odradek.local.ports import PORT_MAX, HeldPorts
from odradek.local.processes import USAGE, BrokerCommand, BrokerFailed, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from odradek.local.directory import ClusterDirectory, ClusterState
    from odradek.local.processes import ProcessId

BROKERS_DEFAULT = 3
ANY_PORT = 0
METRICS_APART = 1_000
NODE_ID = "node.id"
ONLY_ID = "1"
"""Of a broker that is alone."""
ENVIRONMENT_PREFIX = "ODRADEK_"
OWN = ("log.dirs", "listeners", "advertised.listeners")
"""What brokers of one machine cannot share; one that is alone may be given it."""


@dataclass(frozen=True)
class Wanted:
    """What was asked for; None leaves it to the directory, or to the defaults."""

    brokers: int | None = None
    host: str | None = None
    port: int | None = None
    settings: tuple[str, ...] = ()


def require_supported_platform() -> None:
    """Raise BrokerFailed if brokers cannot run on this operating system."""
    refusal = supported_platform.refusal()
    if refusal:
        raise BrokerFailed(refusal, USAGE)


def make_plan(directory: ClusterDirectory, state: ClusterState | None, wanted: Wanted) -> tuple[Plan, HeldPorts]:
    """What to start, with nothing of it running yet; new ports are held until the caller closes them.

    Raises:
        BrokerFailed: it cannot be had, in one line.
        OSError: there are no free ports.
    """
    count = _count(directory, state, wanted.brokers)
    _refuse_own(wanted.settings, count)
    known = state.plan if state is not None and len(state.plan.ports) == count else None
    host = wanted.host or (known.host if known else DEFAULT_HOST)
    held = HeldPorts(host, 2 * count if wanted.port == ANY_PORT and known is None else 0)
    if known is not None and wanted.port in {None, ANY_PORT, known.ports[known.node_ids[0]]}:
        ports = known.ports
    else:
        first = DEFAULT_PORT if wanted.port is None else wanted.port
        if first + count - 1 > PORT_MAX:
            raise BrokerFailed(f"--port {first}: {count} brokers need the ports up to {first + count - 1}", USAGE)
        numbers = held.ports[:count] or range(first, first + count)
        ports = dict(zip(range(1, count + 1), numbers, strict=True))
    cluster_id = (state.plan.cluster_id if state else "") or directory.cluster_id_of_data() or new_cluster_id()
    if known is not None and known.metrics and ports == known.ports:
        metrics = known.metrics
    else:
        spare = held.ports[count:] or [metrics_port(port) for port in ports.values()]
        metrics = dict(zip(ports, spare, strict=True))
    return Plan(cluster_id, host, ports, list(wanted.settings), metrics), held


def metrics_port(port: int) -> int:
    """Beside the port of a broker, where no other broker of the cluster can be."""
    return port + METRICS_APART if port + METRICS_APART <= PORT_MAX else port - METRICS_APART


def _refuse_own(settings: Sequence[str], count: int) -> None:
    """What is set holds for all brokers, which could not live with one id, directory or address. Raises BrokerFailed."""
    said = [
        (f"--set {name.strip()}", name.strip(), value) for name, _, value in (each.partition("=") for each in settings)
    ]
    for name in (NODE_ID, *OWN):
        variable = ENVIRONMENT_PREFIX + name.replace(".", "_").upper()
        if variable in os.environ:  # the brokers inherit it, and it counts for more than their files
            said.append((f"{variable} in the environment", name, os.environ[variable]))
    for place, name, value in said:
        if (name in OWN and count > 1) or (name == NODE_ID and (count > 1 or value.strip() != ONLY_ID)):
            raise BrokerFailed(f"{place}: each broker has its own, by --dir, --host and --port", USAGE)


def _count(directory: ClusterDirectory, state: ClusterState | None, wanted: int | None) -> int:
    """How many brokers: fixed by the first of them that has been ready."""
    there = len(state.plan.ports) if state and state.formed else max(directory.brokers_with_data(), default=0)
    count = wanted if wanted is not None else there or BROKERS_DEFAULT
    if not 1 <= count <= BROKERS_MAX:
        raise BrokerFailed(f"--brokers {count}: between 1 and {BROKERS_MAX} can be started", USAGE)
    if state is not None and state.formed and count != there:
        raise BrokerFailed(
            f"{directory.path} holds a cluster of {there} {'broker' if there == 1 else 'brokers'}, not {count}; "
            f"start it with --brokers {there}, or choose another --dir"
        )
    return count


def new_cluster_id() -> str:
    """16 random bytes in base64url, as Kafka makes them: without padding, and never with a leading dash."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made


def launch(
    directory: ClusterDirectory,
    state: ClusterState,
    node_ids: Sequence[int],
    lifeline: int | None,
    *,
    profile: bool = False,
) -> list[BrokerProcess]:
    """Start these brokers and write down that they run. Raises OSError when one cannot be made; then none runs."""
    processes: list[BrokerProcess] = []
    try:
        for node_id in node_ids:
            config = directory.write_config(state.plan, node_id)
            command = BrokerCommand(
                node_id,
                config,
                directory.log(node_id),
                tuple(state.plan.settings),
                lifeline,
                directory.profile(node_id) if profile else None,
            )
            processes.append(BrokerProcess(command))
        identities = {process.node_id: process.identity for process in processes}
        directory.change_state(lambda current: current.started(identities))
    except BaseException:
        for process in processes:
            process.kill()
        raise
    return processes


def refuse_lost_disks(
    directory: ClusterDirectory, state: ClusterState, node_ids: Sequence[int], *, empty: bool
) -> None:
    """A broker that has been ready comes back empty only when that was asked for, and never a majority of the voters at once.

    Raises:
        BrokerFailed: which brokers have lost their disks, and what to do.
    """
    moved = any(setting.startswith("log.dirs=") for setting in state.plan.settings)
    lost = [node_id for node_id in node_ids if node_id in state.formed and not directory.has_data(node_id)]
    if moved or not lost:
        return
    names = f"broker {', '.join(map(str, lost))}"
    where = ", ".join(str(directory.data(node_id)) for node_id in lost)
    text = f"{names}: the disk is lost, {where} is empty or gone; bring the data back"
    voters = [node_id for node_id in state.plan.voters if directory.has_data(node_id)]
    if len(voters) < state.plan.majority:
        raise BrokerFailed(
            f"{text}: only {len(voters)} of {len(state.plan.voters)} voters know what was agreed, {state.plan.majority} must"
        )
    if not empty:
        raise BrokerFailed(f"{text}, or let the other brokers fill an empty one: say --empty")


def forget(directory: ClusterDirectory, node_ids: Collection[int]) -> dict[int, ProcessId]:
    """They are not meant to run any more. Returns those that still do."""
    found: dict[int, ProcessId] = {}

    def change(state: ClusterState) -> ClusterState:
        found.update({node_id: identity for node_id, identity in state.alive().items() if node_id in node_ids})
        return state.without(node_ids)

    directory.change_state(change)
    return found


def forget_all(directory: ClusterDirectory) -> dict[int, ProcessId]:
    """Likewise, whatever there is."""
    return forget(directory, range(1, BROKERS_MAX + 1))
