"""``up``, ``down``, ``status``, ``broker``: a cluster of processes on this machine."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek.admin import FAILED, ask, errors, print_json, show
from odradek.cluster import BROKERS_MAX
from odradek.commands.options import DIRECTORY_DEFAULT, Directory, Json
from odradek.directory import DEFAULT_HOST, DEFAULT_PORT, BrokerEntry, ClusterDirectory, ClusterState
from odradek.processes import STOP_TIMEOUT_S, BrokerCommand, BrokerFailed, BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = 2
PARTITION_COLUMNS = ("topic", "partition", "leader", "isr", "log_start", "last_stable_offset", "high_watermark")
TRANSACTION_COLUMNS = ("transactional_id", "state", "producer_id", "producer_epoch", "open_for_ms", "partitions")


def up(
    brokers: Annotated[int, typer.Option(help="How many brokers.", min=1)] = 1,
    directory: Directory = DIRECTORY_DEFAULT,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = DEFAULT_HOST,
    port: Annotated[int, typer.Option(help="Port of the first broker; 0 takes a free one.", min=0)] = DEFAULT_PORT,
    detach: Annotated[bool, typer.Option("--detach", help="Return when it is ready; it runs on.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A configuration property, by Kafka's name.", metavar="NAME=VALUE")
    ] = None,
) -> None:
    """Start a local cluster and print [bold]ready host:port[/bold] once a transaction could commit.

    Without --detach it runs until Ctrl-C, which stops it cleanly. A directory is reused by the next start.

    Examples:

      odradek up

      odradek up --dir /var/tmp/kafka --port 19092 --detach

      odradek up --set num.partitions=6 --set log.flush.interval.messages=1
    """
    if brokers > BROKERS_MAX:
        errors.print(f"--brokers {brokers}: at most {BROKERS_MAX} can be started", markup=False)
        raise typer.Exit(USAGE)
    cluster = ClusterDirectory(directory)
    _refuse_if_running(cluster)
    processes: dict[int, BrokerProcess] = {}
    try:
        _start(cluster, processes, brokers, host, port, detached=detach, settings=settings or [])
    except (BrokerFailed, OSError) as failed:
        errors.print(str(failed), markup=False)
        for process in processes.values():
            process.stop()
        raise typer.Exit(failed.exit_code if isinstance(failed, BrokerFailed) else FAILED) from failed
    ready = "ready " + ",".join(process.endpoint for process in processes.values())
    if detach:
        print(ready, flush=True)
        for process in processes.values():
            process.release()
        return
    interrupted = _listen_for_interrupts()  # before anybody can know that there is something to interrupt
    print(ready, flush=True)
    raise typer.Exit(_run_until(interrupted, list(processes.values())))


def _refuse_if_running(cluster: ClusterDirectory) -> None:
    try:
        state = cluster.read_state()
    except (ValueError, OSError) as unreadable:
        errors.print(str(unreadable), markup=False)
        raise typer.Exit(FAILED) from unreadable
    if state is not None and (running := state.running()):
        pids = ", ".join(str(broker.pid) for broker in running)
        errors.print(
            f"{cluster.path} is in use by a running cluster (pid {pids}); stop it with: odradek down --dir {cluster.path}",
            markup=False,
        )
        raise typer.Exit(FAILED)


def _start(
    cluster: ClusterDirectory,
    processes: dict[int, BrokerProcess],
    brokers: int,
    host: str,
    port: int,
    *,
    detached: bool,
    settings: Sequence[str],
) -> None:
    for node_id in range(1, brokers + 1):
        config = cluster.write_config(node_id, host, port + node_id - 1 if port else 0)
        command = BrokerCommand(config, cluster.log(node_id), detached=detached, settings=tuple(settings))
        processes[node_id] = BrokerProcess(command)
    entries = []
    for node_id, process in processes.items():
        endpoint = process.wait_ready()
        entries.append(BrokerEntry(node_id, endpoint, process.identity.pid, process.identity.started_ticks))
    cluster.write_state(ClusterState(entries, list(settings)))


def _listen_for_interrupts() -> int:
    """From now on Ctrl-C and SIGTERM only make the returned descriptor readable."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    return reader


def _run_until(interrupted: int, processes: list[BrokerProcess]) -> int:
    """Wait for an interrupt, or for the end of a broker. Returns the exit code."""
    descriptors = {os.pidfd_open(process.identity.pid): process for process in processes}
    ready, _, _ = select.select([interrupted, *descriptors], [], [])
    died = [descriptors[descriptor] for descriptor in ready if descriptor in descriptors]
    for process in died:
        errors.print(f"broker {process.endpoint} ended by itself; see {process.command.log}", markup=False)
    code = max(process.stop() for process in processes)
    return FAILED if died else code


def down(directory: Directory = DIRECTORY_DEFAULT) -> None:
    """Stop a local cluster cleanly.

    Example:

      odradek down --dir /var/tmp/kafka
    """
    state = _state(directory)
    running = state.running()
    for broker in running:
        broker.identity.signal(signal.SIGCONT)
        broker.identity.signal(signal.SIGTERM)
    for broker in running:
        if not broker.identity.wait_gone(STOP_TIMEOUT_S):
            errors.print(f"broker {broker.node_id} did not stop within {STOP_TIMEOUT_S:.0f} s: killed", markup=False)
            broker.identity.signal(signal.SIGKILL)
    print(f"stopped {len(running)} of {len(state.brokers)} brokers")


def _state(directory: Path) -> ClusterState:
    cluster = ClusterDirectory(directory)
    try:
        state = cluster.read_state()
    except (ValueError, OSError) as unreadable:
        errors.print(str(unreadable), markup=False)
        raise typer.Exit(FAILED) from unreadable
    if state is None:
        errors.print(f"no cluster was ever started in {cluster.path}; start one with: odradek up --dir {directory}")
        raise typer.Exit(FAILED)
    return state


def status(directory: Directory = DIRECTORY_DEFAULT, as_json: Json = False) -> None:
    """Show the brokers of a local cluster, their partitions and open transactions.

    Example:

      odradek status --dir /var/tmp/kafka --json
    """
    state = _state(directory)
    brokers = [
        {
            "node_id": broker.node_id,
            "endpoint": broker.endpoint,
            "pid": broker.pid,
            "running": broker.identity.alive(),
            "log": str(ClusterDirectory(directory).log(broker.node_id)),
        }
        for broker in state.brokers
    ]
    alive = state.running()
    answer = ask("status", "--bootstrap", alive[0].endpoint) if alive else {"partitions": [], "transactions": []}
    if as_json:
        print_json({"brokers": brokers, **answer})
    else:
        show(brokers, {n: n for n in ("node_id", "endpoint", "pid", "running", "log")}, as_json=False, empty="")
        print()
        show(answer["partitions"], {n: n for n in PARTITION_COLUMNS}, as_json=False, empty="no partitions")
        print()
        show(answer["transactions"], {n: n for n in TRANSACTION_COLUMNS}, as_json=False, empty="no open transactions")
    if not alive:
        raise typer.Exit(FAILED)


def broker(
    config: Annotated[
        Path | None, typer.Option(help="Kafka-style .properties file.", exists=True, dir_okay=False)
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A property that overrides the file.", metavar="NAME=VALUE")
    ] = None,
) -> None:
    """Run one broker in the foreground, for containers and real hosts.

    Properties come from the file, then from the environment (ODRADEK_LOG_DIRS=/data), then from --set.

    Examples:

      odradek broker --config server.properties --set log.dirs=/data

      ODRADEK_LOG_DIRS=/data ODRADEK_LISTENERS=PLAINTEXT://:9092 odradek broker
    """
    argv = [sys.executable, "-P", "-m", "broker"]
    if config is not None:
        argv += ["--config", str(config)]
    for setting in settings or []:
        argv += ["--set", setting]
    os.execv(sys.executable, argv)
