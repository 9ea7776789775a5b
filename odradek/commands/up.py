"""`odradek up` and `odradek start`: start all brokers of a local cluster, or those that are down."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from odradek.commands.directories import NodeIds, exit_on_failure, require_brokers, require_state
from odradek.commands.options import Directory
from odradek.commands.target import DIRECTORY_DEFAULT
from odradek.local.directory import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    ClusterDirectory,
    ClusterState,
    Supervisor,
)
from odradek.local.launch import (
    BROKERS_DEFAULT,
    StartOptions,
    by_broker,
    launch,
    make_plan,
    mark_stopped,
    refuse_lost_disks,
    refuse_stopping,
    require_supported_platform,
)
from odradek.local.output import errors
from odradek.local.plan import BROKERS_MAX, Plan, values_of
from odradek.local.processes import USAGE, BrokerFailed, BrokerProcess, Lifeline, ProcessId
from odradek.local.progress import StartProgress
from odradek.local.readiness import complete_start
from odradek.local.security import ADMIN, Mode, Security
from odradek.local.startup import stop_after_failed_start, wait_ready
from odradek.plurals import counted
from odradek.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TWO_PHASE_COMMIT = "transaction.two.phase.commit.enable=true"
PORT_MAX = 65_535
Empty = Annotated[
    bool,
    typer.Option("--empty", help="Start brokers that have lost their data; the others replicate it to them."),
]
TwoPhaseCommit = Annotated[
    bool,
    typer.Option("--two-phase-commit", help="Let producers take part in a two-phase commit (KIP-939)."),
]
Secure = Annotated[
    bool, typer.Option("--secure", help="Use TLS and passwords (SASL_SSL), with the users admin and alice.")
]
Brokers = Annotated[
    int | None,
    typer.Option(
        help=f"Number of brokers, at most {BROKERS_MAX}.", show_default=f"as in the directory, or {BROKERS_DEFAULT}"
    ),
]
Host = Annotated[
    str | None, typer.Option(help="Address to listen on.", show_default=f"as in the directory, or {DEFAULT_HOST}")
]
Port = Annotated[
    int | None,
    typer.Option(
        help="Port of the first broker; the others have the next ports. 0: free ports.",
        show_default=f"as in the directory, or {DEFAULT_PORT}",
        min=0,
        max=PORT_MAX,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Set a property of all brokers, by Kafka's name.", metavar="NAME=VALUE"),
]
BrokerSettings = Annotated[
    list[str] | None,
    typer.Option("--broker", help="Set a property of one broker, such as 2:broker.rack=b.", metavar="N:NAME=VALUE"),
]


def up(
    brokers: Brokers = None,
    directory: Directory = DIRECTORY_DEFAULT,
    host: Host = None,
    port: Port = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Exit when the cluster is ready, and leave it running.")
    ] = False,
    settings: Settings = None,
    broker_settings: BrokerSettings = None,
    two_phase_commit: TwoPhaseCommit = False,
    secure: Secure = False,
    empty: Empty = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Let each broker write a flame graph when it stops: broker-N.profile.svg.",
        ),
    ] = False,
) -> None:
    """Start a local cluster. Print [bold]ready host:port,...[/bold] when transactions can commit.

    Without --detach, the cluster runs until Ctrl-C. The next start uses the data,
    ports and number of brokers in the directory again. If some of its brokers
    run, only the missing ones are started; with --detach, also if all run.

    Examples:

      odradek up

      odradek up --dir /var/tmp/kafka --port 19092 --detach

      odradek up --brokers 1 --set num.partitions=6

      odradek up --broker 1:broker.rack=a --broker 2:broker.rack=b

      odradek up --broker 1:listeners=LAN://192.0.2.7:9192
    """
    cluster = ClusterDirectory(directory)
    enabled = (TWO_PHASE_COMMIT,) if two_phase_commit else ()
    with exit_on_failure():
        security = Security(Mode.SASL_SSL) if secure else None
        of_brokers = tuple(map(broker_setting, broker_settings or ()))
        options = StartOptions(brokers, host, port, (*(settings or ()), *enabled), security, of_brokers)
        require_supported_platform()
    with exit_on_failure(), cluster.exclusive_start():
        state = cluster.read_state()
        if state is not None and state.alive():
            refuse_conflicting_options(cluster, state, options, may_run=detach)
            start_missing(cluster, state, empty=empty, profile=profile)
            return
        if state is not None:
            refuse_stopping(cluster, state, state.plan.node_ids)
        lifeline = None if detach else Lifeline()
        plan, reserved_ports = make_plan(cluster, state, options)
        with reserved_ports:
            state = ClusterState(
                plan, {}, state.formed if state else [], None if lifeline is None else supervisor_of(lifeline)
            )
            refuse_lost_disks(cluster, state, plan.node_ids, empty=empty)
            cluster.write_state(state)
            pipe = None if lifeline is None else lifeline.reader
            processes = launch_and_wait(cluster, state, plan.node_ids, pipe, profile=profile)
    if lifeline is None:
        for process in processes:
            process.release()
        print_ready(cluster, plan, ends="odradek down")
        return
    run_in_foreground(cluster, plan, processes)


def start_missing(cluster: ClusterDirectory, state: ClusterState, *, empty: bool, profile: bool) -> None:
    """Start the brokers of a running cluster that are down, if any, and print its addresses when they are ready."""
    missing = [node_id for node_id in state.plan.node_ids if node_id not in state.alive()]
    if missing:
        refuse_stopping(cluster, state, missing)
        refuse_lost_disks(cluster, state, missing, empty=empty)
        start_brokers(cluster, state, missing, profile=profile)
    print_ready(cluster, state.plan, ends="odradek down")


def run_in_foreground(cluster: ClusterDirectory, plan: Plan, processes: Sequence[BrokerProcess]) -> NoReturn:
    """Watch the brokers until Ctrl-C, or until no broker runs. Raise typer.Exit with the exit code."""
    from odradek.local.watch import BrokerWatch

    watch = BrokerWatch(cluster, processes)  # before the ready line: a caller may send a signal when it has read it
    print_ready(cluster, plan, ends="Ctrl-C")
    raise typer.Exit(watch.run())


def print_ready(cluster: ClusterDirectory, plan: Plan, *, ends: str) -> None:
    """Print the addresses of the cluster, and how to connect and to stop. `ends` is what stops it.

    Without security, standard output has the line `ready` only, for scripts. The rest is on standard error.
    """
    print(f"ready {plan.bootstrap}", flush=True)
    directory = min(str(cluster.path), os.path.relpath(cluster.path), key=len)
    stop = f"{ends} --dir {directory}" if " " in ends else ends
    lines = [
        f"{counted(len(plan.ports), 'broker')} of Odradek {__version__}, data and logs in {directory}; stop: {stop}",
        f"status: odradek status --dir {directory}; logs: odradek logs --follow --dir {directory}",
    ]
    if plan.security is None:
        lines += ["connect, for example:", *snippets(plan.bootstrap)]
    errors.print("\n".join(lines), markup=False)
    if plan.security is not None:
        print_security(cluster, plan, plan.security)


def snippets(bootstrap: str) -> list[str]:
    """Return lines that connect clients to a cluster without security."""
    return [
        f'  confluent-kafka  Producer({{"bootstrap.servers": "{bootstrap}"}})',
        f'  Java             properties.put("bootstrap.servers", "{bootstrap}");',
        f'  PySpark          .format("kafka").option("kafka.bootstrap.servers", "{bootstrap}")',
    ]


def print_security(cluster: ClusterDirectory, plan: Plan, security: Security) -> None:
    """Print how to connect to a cluster with security."""
    users = security.all_users
    user = users[-1] if users else None
    path = str(cluster.security_files.client(user))
    shown = min(path, os.path.relpath(path), key=len)
    owners = "each user has a file with client properties, such as" if users else "clients use the properties in"
    lines = [
        f"security {security.kind}: {owners}",
        f"  {shown}",
        "connect with it, for example:",
        f"  odradek topics list -b {plan.endpoint(plan.node_ids[0])} \\",
        f"    --command-config {shown}",
    ]
    if user not in {ADMIN, None}:
        lines.append(f"{user} may use topics, groups and transactional ids whose names begin with {user}-")
    if users:
        lines.append(f"{ADMIN} may do everything, for example change users and ACLs")
    print("\n".join(lines), flush=True)


def start(nodes: NodeIds = None, directory: Directory = DIRECTORY_DEFAULT, empty: Empty = False) -> None:
    """Start brokers of a local cluster that are down: the specified ones, or all.

    If an [bold]odradek up[/bold] runs in the foreground, the brokers stop when it
    stops. Otherwise they run until odradek down.

    Examples:

      odradek start --dir /var/tmp/kafka

      odradek start 2 --dir /var/tmp/kafka
    """
    cluster = ClusterDirectory(directory)
    with exit_on_failure():
        state = require_state(cluster)
        missing = [node_id for node_id in state.plan.node_ids if node_id not in state.alive()]
        require_brokers(cluster, state, nodes or ())
        if running := [node_id for node_id in nodes or () if node_id not in missing]:
            raise BrokerFailed(
                f"broker {running[0]} runs already (pid {state.running[running[0]].pid}); start brokers that are down"
            )
        started = nodes or missing
        if not started:
            raise BrokerFailed(f"all brokers of {cluster.path} run already; see odradek status --dir {cluster.path}")
        refuse_stopping(cluster, state, started)
        refuse_lost_disks(cluster, state, started, empty=empty)
        refuse_minority(cluster, state, started)
        start_brokers(cluster, state, started)
    print("ready " + ",".join(state.plan.endpoint(node_id) for node_id in started), flush=True)


def refuse_minority(cluster: ClusterDirectory, state: ClusterState, started: Sequence[int]) -> None:
    """Raise BrokerFailed if no majority of the voters would run: these brokers would not become ready."""
    plan = state.plan
    voters = [node_id for node_id in plan.voters if node_id in started or node_id in state.alive()]
    if len(voters) < plan.majority:
        raise BrokerFailed(
            f"majority lost: only {len(voters)} of {len(plan.voters)} voters would run, {plan.majority} are needed; "
            f"start all missing brokers together: odradek start --dir {cluster.path}"
        )


def start_brokers(
    cluster: ClusterDirectory, state: ClusterState, node_ids: Sequence[int], *, profile: bool = False
) -> None:
    """Start brokers of a running cluster, and wait until they are ready.

    They stop with its supervisor if it has one.
    """
    supervisor = state.running_supervisor()
    lifeline = None if supervisor is None else os.open(supervisor.pipe, os.O_RDONLY)
    try:
        processes = launch_and_wait(cluster, state, node_ids, lifeline, profile=profile)
    finally:
        if lifeline is not None:
            os.close(lifeline)
    for process in processes:
        process.release()
    if supervisor is not None:
        supervisor.notify()


def launch_and_wait(
    cluster: ClusterDirectory, state: ClusterState, node_ids: Sequence[int], lifeline: int | None, *, profile: bool
) -> list[BrokerProcess]:
    """Start brokers, and wait until all of them are ready. If one of them fails, stop all brokers of this call."""
    processes = launch(cluster, state, node_ids, lifeline, profile=profile)
    try:
        with StartProgress() as progress:
            wait_ready(processes, report=progress)
            complete_start(cluster, state, node_ids)
    except BaseException:
        mark_stopped(cluster, node_ids)
        stop_after_failed_start(processes)
        raise
    cluster.change_state(lambda current: current.with_formed(node_ids))
    return processes


def refuse_conflicting_options(
    cluster: ClusterDirectory, state: ClusterState, options: StartOptions, *, may_run: bool
) -> None:
    """Raise BrokerFailed if the options differ from those of the running brokers.

    Raise it also if all brokers run, unless `may_run`.
    """
    plan, alive = state.plan, state.alive()
    if len(alive) == len(plan.ports) and not may_run:
        pids = ", ".join(str(identity.pid) for identity in alive.values())
        conflict = f"is in use by a running cluster (pid {pids})"
    elif options.brokers not in {None, len(plan.ports)}:
        conflict = f"holds a running cluster of {len(plan.ports)} brokers, not {options.brokers}"
    elif options.host not in {None, plan.host} or options.port not in {None, 0, plan.ports[plan.node_ids[0]]}:
        conflict = f"holds a running cluster with other addresses ({plan.bootstrap})"
    elif options.security not in {None, plan.security}:
        conflict = "holds a running cluster with other security"
    elif options.settings and values_of(options.settings) != values_of(plan.settings):
        conflict = "holds a running cluster with other settings"
    elif options.broker_settings and values_by_broker(by_broker(options.broker_settings)) != values_by_broker(
        plan.broker_settings
    ):
        conflict = "holds a running cluster with other settings of single brokers"
    else:
        return
    raise BrokerFailed(f"{cluster.path} {conflict}; stop it with: odradek down --dir {cluster.path}")


def values_by_broker(settings: Mapping[int, Sequence[str]]) -> dict[int, dict[str, str]]:
    """Return the values of the properties of single brokers by node id and name."""
    return {node_id: values_of(own) for node_id, own in settings.items()}


def broker_setting(text: str) -> tuple[int, str]:
    """Return node id and setting of a value of --broker. Raise BrokerFailed."""
    number, separator, setting = text.partition(":")
    if not separator or not number.isdecimal() or "=" not in setting:
        raise BrokerFailed(f"--broker {text}: write it as N:name=value, for example 2:broker.rack=b", USAGE)
    return int(number), setting.strip()


def supervisor_of(lifeline: Lifeline) -> Supervisor:
    """Return this process as the supervisor of brokers with this lifeline."""
    identity = ProcessId.of(os.getpid())
    assert identity is not None
    return Supervisor(identity.pid, identity.started_ticks, lifeline.reader)
