"""Start brokers of a local cluster: from options of the caller and the state of the directory to processes."""

from __future__ import annotations

import base64
import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek import supported_platform
from odradek.broker_interface import OTHER_NAMES, PORT_MAX, variable_name
from odradek.local.directory import DEFAULT_HOST, DEFAULT_PORT
from odradek.local.plan import (
    AUTHENTICATION_NAME,
    BROKERS_MAX,
    CLUSTER_SECRET_FILE,
    INTER_BROKER_LISTENER_NAME,
    LISTENERS,
    LOOPBACK,
    NO_AUTHENTICATION,
    Plan,
    sets,
    value_of,
)
from odradek.local.ports import ReservedPorts
from odradek.local.processes import USAGE, BrokerCommand, BrokerFailed, BrokerProcess
from odradek.local.security import refuse_change

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from odradek.local.directory import ClusterDirectory, ClusterState
    from odradek.local.processes import ProcessId
    from odradek.local.security import Security

BROKERS_DEFAULT = 3
ANY_PORT = 0
"""Value of `StartOptions.port` that selects free ports."""
METRICS_PORT_OFFSET = 1_000
"""Distance between the client port and the metrics port of a broker."""
INTER_BROKER_PORT_OFFSET = 2_000
"""Distance between the client port and the inter-broker port of a broker."""
NODE_ID = "node.id"
LOG_DIRS = "log.dirs"
SINGLE_NODE_ID = "1"
"""Node id of the broker of a cluster that has only one."""
FIXED_PROPERTIES = (NODE_ID, LOG_DIRS, "controller.quorum.voters", "odradek.cluster.id")
"""Properties that no option can set for one broker: the cluster needs its own values."""
PER_BROKER_PROPERTIES = (LOG_DIRS, LISTENERS, "advertised.listeners")
"""Properties whose values must differ between the brokers of one machine. A cluster of one broker may set them."""


@dataclass(frozen=True)
class StartOptions:
    """Options of a start. None selects the value of the last start in the directory, or the default."""

    brokers: int | None = None
    host: str | None = None
    port: int | None = None
    settings: tuple[str, ...] = ()
    security: Security | None = None
    broker_settings: tuple[tuple[int, str], ...] = ()
    """Node ids with properties of these brokers alone, as `name=value`."""


def require_supported_platform() -> None:
    """Raise BrokerFailed if brokers cannot run on this operating system."""
    refusal = supported_platform.refusal()
    if refusal:
        raise BrokerFailed(refusal, USAGE)


def make_plan(
    directory: ClusterDirectory, state: ClusterState | None, options: StartOptions
) -> tuple[Plan, ReservedPorts]:
    """Return the plan of a cluster without a running broker, and the reservation of its new ports.

    The caller must close the reservation when the brokers listen.

    Raises:
        BrokerFailed: The options are invalid, or do not match the data in the directory.
        OSError: Not enough ports are free.
    """
    count = _broker_count(directory, state, options.brokers)
    _refuse_per_broker_properties(options.settings, count)
    of_brokers = _broker_settings(options.broker_settings, count)
    security = _security(directory, state, options)
    last = state.plan if state is not None and len(state.plan.ports) == count else None
    host = options.host or (last.host if last else DEFAULT_HOST)
    reserved = ReservedPorts(host, 2 * count if options.port == ANY_PORT and last is None else 0)
    if last is not None and options.port in {None, ANY_PORT, last.ports[last.node_ids[0]]}:
        ports = last.ports
    else:
        first = DEFAULT_PORT if options.port is None else options.port
        if first + count - 1 > PORT_MAX:
            raise BrokerFailed(
                f"--port {first}: {count} brokers need the ports up to {first + count - 1}, the maximum is {PORT_MAX}; "
                "choose a smaller --port",
                USAGE,
            )
        numbers = reserved.ports[:count] or range(first, first + count)
        ports = dict(zip(range(1, count + 1), numbers, strict=True))
    cluster_id = (state.plan.cluster_id if state else "") or directory.cluster_id_of_data() or new_cluster_id()
    if last is not None and last.metrics and ports == last.ports:
        metrics = last.metrics
    else:
        metrics_ports = reserved.ports[count:] or [metrics_port(port) for port in ports.values()]
        metrics = dict(zip(ports, metrics_ports, strict=True))
    inter_broker = _inter_broker_ports(last, ports, options, reserved)
    authenticates = _value(options.settings, AUTHENTICATION_NAME) != NO_AUTHENTICATION
    has_secret = authenticates and not _is_set(options.settings, CLUSTER_SECRET_FILE)
    settings = list(options.settings)
    plan = Plan(cluster_id, host, ports, settings, metrics, inter_broker, has_secret, security, of_brokers)
    return plan, reserved


def by_broker(given: Iterable[tuple[int, str]]) -> dict[int, list[str]]:
    """Return settings of single brokers by node id."""
    settings: dict[int, list[str]] = {}
    for node_id, setting in given:
        settings.setdefault(node_id, []).append(setting)
    return settings


def _broker_settings(given: Sequence[tuple[int, str]], count: int) -> dict[int, list[str]]:
    """Return the properties of single brokers by node id. Raise BrokerFailed for another broker or property."""
    for node_id, setting in given:
        name = setting.partition("=")[0].strip()
        if not 1 <= node_id <= count:
            raise BrokerFailed(f"--broker {node_id}:{setting}: the node ids are 1 to {count}; correct it", USAGE)
        fixed = OTHER_NAMES.get(name, name)
        if fixed in FIXED_PROPERTIES:
            raise BrokerFailed(f"--broker {node_id}:{setting}: the cluster sets {fixed}; remove it", USAGE)
    return by_broker(given)


def _security(directory: ClusterDirectory, state: ClusterState | None, options: StartOptions) -> Security | None:
    """Return the security of the cluster. Once a broker of the cluster was ready, it cannot change.

    Raise BrokerFailed if it would change, or if a setting names the listeners.
    """
    last = None if state is None else state.plan.security
    if state is not None and state.formed:
        refuse_change(last, options.security, directory.path)
    security = options.security or last
    if security is not None and _value(options.settings, AUTHENTICATION_NAME) == NO_AUTHENTICATION:
        raise BrokerFailed(f"{AUTHENTICATION_NAME}={NO_AUTHENTICATION}: remove it, or use no security", USAGE)
    for name in (LISTENERS, INTER_BROKER_LISTENER_NAME):
        if security is not None and _is_set(options.settings, name):
            raise BrokerFailed(f"{name} cannot be set for a cluster with security {security.kind}; remove it", USAGE)
    return security


def _is_set(settings: Sequence[str], name: str) -> bool:
    """Return True if a setting or the environment sets the property `name`."""
    return sets(settings, name) or variable_name(name) in os.environ


def _value(settings: Sequence[str], name: str) -> str | None:
    """Return the value of a property in the settings or in the environment, or None."""
    value = value_of(settings, name)
    return os.environ.get(variable_name(name)) if value is None else value


def _inter_broker_ports(
    last: Plan | None, ports: dict[int, int], options: StartOptions, reserved: ReservedPorts
) -> dict[int, int]:
    """Return the inter-broker ports, or no ports if a setting names the listeners or the inter-broker listener.

    The directory of an earlier version has none. Its new ports must be free, because the operator did not choose them.
    """
    if _is_set(options.settings, LISTENERS) or _is_set(options.settings, INTER_BROKER_LISTENER_NAME):
        return {}
    if last is not None and last.inter_broker and ports == last.ports:
        return last.inter_broker
    numbers = [inter_broker_port(port) for port in ports.values()]
    any_port = options.port == ANY_PORT
    if any_port or (last is not None and options.port is None and not reserved.are_free(LOOPBACK, numbers)):
        numbers = reserved.add(LOOPBACK, len(ports))
    return dict(zip(ports, numbers, strict=True))


def metrics_port(port: int) -> int:
    """Return the metrics port for a client port.

    No other broker of the cluster uses it, since ports are consecutive.
    """
    return _at_distance(port, METRICS_PORT_OFFSET)


def inter_broker_port(port: int) -> int:
    """Return the inter-broker port for a client port. It differs from all client ports and metrics ports."""
    return _at_distance(port, INTER_BROKER_PORT_OFFSET)


def _at_distance(port: int, offset: int) -> int:
    return port + offset if port + offset <= PORT_MAX else port - offset


def _refuse_per_broker_properties(settings: Sequence[str], count: int) -> None:
    """Raise BrokerFailed if settings or environment give all brokers the same node id, data directory or address.

    Raise it also for other names of these properties, which would have no effect.
    """
    pairs = [setting.partition("=") for setting in settings]
    given = [(f"--set {name.strip()}", name.strip(), value) for name, _, value in pairs]
    for name in (NODE_ID, *PER_BROKER_PROPERTIES, *OTHER_NAMES):
        variable = variable_name(name)
        if variable in os.environ:  # the brokers inherit it, and it overrides their properties files
            given.append((f"{variable} in the environment", name, os.environ[variable]))
    for origin, name, value in given:
        if name in OTHER_NAMES:
            raise BrokerFailed(f"{origin}: without effect, because {OTHER_NAMES[name]} is set; remove it", USAGE)
        is_per_broker = name in PER_BROKER_PROPERTIES and count > 1
        is_other_node_id = name == NODE_ID and (count > 1 or value.strip() != SINGLE_NODE_ID)
        if is_per_broker or is_other_node_id:
            raise BrokerFailed(
                f"{origin}: each broker has its own {name}; remove it and use --dir, --host and --port", USAGE
            )


def _broker_count(directory: ClusterDirectory, state: ClusterState | None, requested: int | None) -> int:
    """Return the number of brokers. Once a broker of the cluster was ready, the number cannot change.

    Raise BrokerFailed if `requested` is out of range, or differs from the number of brokers of a formed cluster.
    """
    present = len(state.plan.ports) if state and state.formed else max(directory.brokers_with_data(), default=0)
    count = requested if requested is not None else present or BROKERS_DEFAULT
    if not 1 <= count <= BROKERS_MAX:
        raise BrokerFailed(f"--brokers {count}: the number must be between 1 and {BROKERS_MAX}", USAGE)
    if state is not None and state.formed and count != present:
        raise BrokerFailed(
            f"{directory.path} holds a cluster of {present} {'broker' if present == 1 else 'brokers'}, not {count}; "
            f"start it with --brokers {present}, or choose another --dir"
        )
    return count


def new_cluster_id() -> str:
    """Return 16 random bytes in base64url without padding and without a leading dash, as Kafka's Uuid.randomUuid."""
    while True:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not cluster_id.startswith("-"):
            return cluster_id


def launch(
    directory: ClusterDirectory,
    state: ClusterState,
    node_ids: Sequence[int],
    lifeline: int | None,
    *,
    profile: bool = False,
    test_hooks: Callable[[int], int | None] = lambda _: None,
) -> list[BrokerProcess]:
    """Start the processes of these brokers, and record them in the state file. They are not ready when this returns.

    Args:
        directory: Directory of the cluster.
        state: Its present state.
        node_ids: Brokers to start.
        lifeline: Reading end of a `Lifeline`; None starts brokers that do not terminate with this process.
        profile: Let each broker write a flame graph when it stops.
        test_hooks: Returns the descriptor of a socket for fault injection into a broker, or None.

    Raises:
        BrokerFailed: The cluster secret is missing while brokers run that use it, or the environment gives all brokers
            the same node id, data directory or address.
        OSError: A process could not be started. All processes of this call are killed then.
    """
    processes: list[BrokerProcess] = []
    settings = state.plan.settings
    # The environment can differ from that of the command that made the plan.
    _refuse_per_broker_properties(settings, len(state.plan.ports))
    if state.plan.security is not None:
        from odradek.local.secured import now, prepare  # cryptography takes a while to load

        prepare(directory.path, state.plan, node_ids, may_create=not state.formed, now=now())
    if state.plan.has_secret:
        directory.require_secret(may_create=not state.alive())
    elif not _is_set(settings, CLUSTER_SECRET_FILE) and not _is_set(settings, AUTHENTICATION_NAME):
        # Brokers run that an earlier version started, without a secret.
        settings = [*settings, f"{AUTHENTICATION_NAME}={NO_AUTHENTICATION}"]
    try:
        for node_id in node_ids:
            config = directory.write_config(state.plan, node_id)
            command = BrokerCommand(
                node_id,
                config,
                directory.log(node_id),
                (*settings, *state.plan.arguments_of(node_id)),
                lifeline,
                directory.profile(node_id) if profile else None,
                test_hooks(node_id),
            )
            processes.append(BrokerProcess(command))
        identities = {process.node_id: process.identity for process in processes}
        directory.change_state(lambda current: current.with_running(identities))
    except BaseException:
        for process in processes:
            process.kill()
        raise
    return processes


def refuse_running(directory: ClusterDirectory, state: ClusterState, own: Collection[ProcessId] = ()) -> None:
    """Raise BrokerFailed if brokers of the directory run that another process has started: those not in `own`."""
    for node_id, identity in state.alive().items():
        if identity in own:
            continue
        raise BrokerFailed(
            f"{directory.path} is in use: broker {node_id} (pid {identity.pid}) runs; choose another directory, or "
            f"stop its brokers with: odradek down --dir {directory.path}"
        )


def refuse_stopping(directory: ClusterDirectory, state: ClusterState, node_ids: Collection[int]) -> None:
    """Raise BrokerFailed if a previous process of these brokers was stopped by a command and has not ended yet."""
    for node_id, identity in state.alive_stopping().items():
        if node_id in node_ids:
            raise BrokerFailed(
                f"broker {node_id} (pid {identity.pid}) is stopping and has not ended; wait for its end, or end it "
                f"with: odradek down --dir {directory.path}"
            )


def refuse_lost_disks(
    directory: ClusterDirectory, state: ClusterState, node_ids: Sequence[int], *, empty: bool
) -> None:
    """Refuse to start or restart brokers that had data before and now have empty data directories.

    With `empty`, the operator permits the start. It is refused nevertheless if a majority of the voters has no data,
    because the metadata log would be lost.

    Raises:
        BrokerFailed: Brokers have lost their data. The message names them and what to do.
    """
    lost = [node_id for node_id in node_ids if node_id in state.formed and not directory.has_data(node_id)]
    if not lost or _is_set(state.plan.settings, LOG_DIRS):
        return
    names = f"broker {', '.join(map(str, lost))}"
    paths = ", ".join(str(directory.data(node_id)) for node_id in lost)
    text = f"{names}: the disk is lost, {paths} is empty or missing; restore the data"
    voters = [node_id for node_id in state.plan.voters if directory.has_data(node_id)]
    if len(voters) < state.plan.majority:
        raise BrokerFailed(
            f"{text}: only {len(voters)} of {len(state.plan.voters)} voters have the metadata log, "
            f"{state.plan.majority} are needed"
        )
    if not empty:
        raise BrokerFailed(
            f"{text}, or add --empty to up or start, which fills the directory from the other brokers; end the broker "
            "first if it runs"
        )


def mark_stopped(directory: ClusterDirectory, node_ids: Collection[int]) -> dict[int, ProcessId]:
    """Move brokers from the running to the stopping brokers of the state file.

    Return those whose processes still exist. An earlier command may have begun to stop some of them.
    """
    state = directory.change_state(lambda current: current.without_running(node_ids))
    return {node_id: identity for node_id, identity in state.alive_stopping().items() if node_id in node_ids}


def mark_own_stopped(directory: ClusterDirectory, own: Collection[ProcessId]) -> None:
    """Like `mark_stopped`, for the brokers with these processes. Another process may have started the same brokers."""

    def without_own(state: ClusterState) -> ClusterState:
        return state.without_running([node_id for node_id, identity in state.running.items() if identity in own])

    directory.change_state(without_own)


def mark_all_stopped(directory: ClusterDirectory) -> dict[int, ProcessId]:
    """Move all running brokers of the state file to the stopping brokers. Return those whose processes still exist."""
    return mark_stopped(directory, range(1, BROKERS_MAX + 1))
