"""``up`` and ``start``: brokers of this machine, all of them or those that are missing."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from odradek.commands.options import DIRECTORY_DEFAULT, Directory
from odradek.local.directory import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    ClusterDirectory,
    ClusterState,
    Damaged,
    Supervisor,
    Unusable,
)
from odradek.local.launch import (
    BROKERS_DEFAULT,
    Wanted,
    forget,
    launch,
    make_plan,
    refuse_lost_disks,
    require_supported_platform,
)
from odradek.local.output import FAILED, errors
from odradek.local.plan import BROKERS_MAX, Plan
from odradek.local.processes import BrokerFailed, BrokerProcess, Lifeline, ProcessId
from odradek.local.progress import StartProgress
from odradek.local.readiness import await_serving
from odradek.local.startup import abandon, wait_ready

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NodeIds = Annotated[list[int] | None, typer.Argument(help="Node ids.", metavar="[NODE]...")]

Empty = Annotated[
    bool,
    typer.Option("--empty", help="Brokers that have lost their disks start with empty ones; the others fill them."),
]
Brokers = Annotated[
    int | None,
    typer.Option(
        help=f"How many brokers, up to {BROKERS_MAX}.", show_default=f"those of the directory, or {BROKERS_DEFAULT}"
    ),
]
Host = Annotated[
    str | None, typer.Option(help="Address to listen on.", show_default=f"that of the directory, or {DEFAULT_HOST}")
]
Port = Annotated[
    int | None,
    typer.Option(
        help="Port of the first broker, the others follow; 0 takes free ones.",
        show_default=f"those of the directory, or {DEFAULT_PORT}",
        min=0,
    ),
]


def up(
    brokers: Brokers = None,
    directory: Directory = DIRECTORY_DEFAULT,
    host: Host = None,
    port: Port = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when it is ready; it runs on.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A configuration property, by Kafka's name.", metavar="NAME=VALUE")
    ] = None,
    empty: Empty = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Each broker writes a flame graph into the directory when it stops: broker-N.profile.svg.",
        ),
    ] = False,
) -> None:
    """Start a local cluster and print [bold]ready host:port,...[/bold] once a transaction could commit.

    Without --detach it runs until Ctrl-C, which stops it cleanly. A directory is reused by the next start; where some of its
    brokers still run, the missing ones join them.

    Examples:

      odradek up

      odradek up --dir /var/tmp/kafka --port 19092 --detach

      odradek up --brokers 1 --set num.partitions=6 --set log.flush.interval.messages=1
    """
    cluster = ClusterDirectory(directory)
    wanted = Wanted(brokers, host, port, tuple(settings or ()))
    with reasons():
        require_supported_platform()
    with reasons(), cluster.starting():
        state = cluster.read_state()
        if state is not None and state.alive():
            refuse_other(cluster, state, wanted)
            missing = [node_id for node_id in state.plan.node_ids if node_id not in state.alive()]
            refuse_lost_disks(cluster, state, missing, empty=empty)
            add(cluster, state, missing, profile=profile)
            print(f"ready {state.plan.bootstrap}", flush=True)
            return
        lifeline = None if detach else Lifeline()
        plan, held = make_plan(cluster, state, wanted)
        with held:
            state = ClusterState(
                plan, {}, state.formed if state else [], None if lifeline is None else myself(lifeline)
            )
            refuse_lost_disks(cluster, state, plan.node_ids, empty=empty)
            cluster.write_state(state)
            pipe = None if lifeline is None else lifeline.reader
            processes = bring_up(cluster, state, plan.node_ids, pipe, profile=profile)
    if lifeline is None:
        for process in processes:
            process.release()
        print(f"ready {plan.bootstrap}", flush=True)
        return
    hold(cluster, plan, processes)


def hold(cluster: ClusterDirectory, plan: Plan, processes: Sequence[BrokerProcess]) -> NoReturn:
    """Stay until Ctrl-C or until no broker is left. Raises typer.Exit."""
    from odradek.local.watch import Watch

    watch = Watch(cluster, processes)  # before anybody can know that there is something to interrupt
    print(f"ready {plan.bootstrap}", flush=True)
    raise typer.Exit(watch.run())


def start(nodes: NodeIds = None, directory: Directory = DIRECTORY_DEFAULT, empty: Empty = False) -> None:
    """Start brokers of a local cluster that do not run: those named, or all that are missing.

    They run on by themselves, unless an [bold]odradek up[/bold] holds the others: then they end with it.

    Examples:

      odradek start --dir /var/tmp/kafka

      odradek start 2 --dir /var/tmp/kafka
    """
    cluster = ClusterDirectory(directory)
    with reasons():
        state = state_of(cluster)
        missing = [node_id for node_id in state.plan.node_ids if node_id not in state.alive()]
        if unknown := [node_id for node_id in nodes or () if node_id not in state.plan.node_ids]:
            raise BrokerFailed(f"{cluster.path} has no broker {unknown[0]}; it has {state.plan.node_ids}")
        if running := [node_id for node_id in nodes or () if node_id not in missing]:
            raise BrokerFailed(f"broker {running[0]} runs already (pid {state.running[running[0]].pid})")
        started = nodes or missing
        if not started:
            raise BrokerFailed(f"all brokers of {cluster.path} run already")
        refuse_lost_disks(cluster, state, started, empty=empty)
        refuse_minority(cluster, state, started)
        add(cluster, state, started)
    print("ready " + ",".join(state.plan.endpoint(node_id) for node_id in started), flush=True)


def refuse_minority(cluster: ClusterDirectory, state: ClusterState, started: Sequence[int]) -> None:
    """Too few voters can only wait for more. Raises BrokerFailed."""
    plan = state.plan
    voters = [node_id for node_id in plan.voters if node_id in started or node_id in state.alive()]
    if len(voters) < plan.majority:
        raise BrokerFailed(
            f"majority lost: only {len(voters)} of {len(plan.voters)} voters would run, {plan.majority} are needed; "
            f"start what is missing together: odradek start --dir {cluster.path}"
        )


def add(cluster: ClusterDirectory, state: ClusterState, node_ids: Sequence[int], *, profile: bool = False) -> None:
    """Start these beside the others, and let them end with whoever the others end with."""
    supervisor = state.living_supervisor()
    lifeline = None if supervisor is None else os.open(supervisor.pipe, os.O_RDONLY)
    try:
        processes = bring_up(cluster, state, node_ids, lifeline, profile=profile)
    finally:
        if lifeline is not None:
            os.close(lifeline)
    for process in processes:
        process.release()
    if supervisor is not None:
        supervisor.look_again()


def bring_up(
    cluster: ClusterDirectory, state: ClusterState, node_ids: Sequence[int], lifeline: int | None, *, profile: bool
) -> list[BrokerProcess]:
    """Start brokers and wait until all of them are ready; what was started here ends when that fails."""
    processes = launch(cluster, state, node_ids, lifeline, profile=profile)
    try:
        with StartProgress() as progress:
            wait_ready(processes, report=progress)
            if state.formed and len(node_ids) == len(state.plan.ports):
                # What was led before has to find its leaders again, and these their replicas.
                await_serving(state.plan.bootstrap, len(node_ids))
    except BaseException:
        forget(cluster, node_ids)
        abandon(processes)
        raise
    cluster.change_state(lambda current: current.ready(node_ids))
    return processes


def refuse_other(cluster: ClusterDirectory, state: ClusterState, wanted: Wanted) -> None:
    """What runs keeps its addresses and settings. Raises BrokerFailed."""
    plan, alive = state.plan, state.alive()
    if len(alive) == len(plan.ports):
        pids = ", ".join(str(identity.pid) for identity in alive.values())
        what = f"is in use by a running cluster (pid {pids})"
    elif wanted.brokers not in {None, len(plan.ports)}:
        what = f"holds a running cluster of {len(plan.ports)} brokers, not {wanted.brokers}"
    elif wanted.host not in {None, plan.host} or wanted.port not in {None, 0, plan.ports[plan.node_ids[0]]}:
        what = f"holds a running cluster with other addresses ({plan.bootstrap})"
    elif wanted.settings and list(wanted.settings) != plan.settings:
        what = "holds a running cluster with other settings"
    else:
        return
    raise BrokerFailed(f"{cluster.path} {what}; stop it with: odradek down --dir {cluster.path}")


def state_of(cluster: ClusterDirectory) -> ClusterState:
    """The state of a directory where something was started before. Raises BrokerFailed."""
    state = cluster.read_state()
    if state is None:
        raise BrokerFailed(
            f"no cluster was ever started in {cluster.path}; start one with: odradek up --dir {cluster.path}"
        )
    return state


def myself(lifeline: Lifeline) -> Supervisor:
    identity = ProcessId.of(os.getpid())
    assert identity is not None
    return Supervisor(identity.pid, identity.started_ticks, lifeline.reader)


@contextmanager
def reasons() -> Iterator[None]:
    """What cannot be done is one line and an exit code."""
    try:
        yield
    except (BrokerFailed, Damaged, OSError) as failed:
        errors.print(str(failed), markup=False)
        code = failed.exit_code if isinstance(failed, BrokerFailed | Unusable) else FAILED
        raise typer.Exit(code) from failed
