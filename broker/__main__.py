"""One node as a process: `python -m odradek.broker --config FILE [--set name=value ...]`.

When the node can commit transactions, it prints one line to standard output: `ready host:port[,host:port...]`, with the
addresses for clients. A controller alone prints it when it is registered, with its own address. Logs go to standard
error; if the start fails, the last line there is the reason. Exit code 2: invalid configuration. Exit
code 1: any other failure.
"""

import gc

if __name__ == "__main__":
    gc.disable()  # until `GarbageCollection.begin`: during imports, collections take an eighth of the time

# isort: split
import argparse
import asyncio
import os
import random
import resource
import signal
import socket
import sys
import time
from asyncio import CancelledError
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import uvloop

# This module imports structlog without rich, so it comes before every other import of structlog.
from odradek.broker.process import logging as log

# isort: split
import structlog

from odradek import supported_platform
from odradek.broker.config.addresses import (
    has_other_nodes,
    parse_listeners,
    shared_listener,
)
from odradek.broker.config.authentication import warning
from odradek.broker.config.bootstrap_scram import parse_bootstrap_scram
from odradek.broker.config.checks import CHECKS, CHECKS_OF_PROCESSES
from odradek.broker.config.node_identity import identity_warnings
from odradek.broker.config.properties import Config
from odradek.broker.config.property import ConfigError
from odradek.broker.config.roles import bootstrap_servers, finds_voters
from odradek.broker.config.sources import load, with_host_name
from odradek.broker.dispatch.dispatcher import Dispatcher
from odradek.broker.node import CannotStartError, Node
from odradek.broker.process.clock import SystemClock
from odradek.broker.process.env import Env
from odradek.broker.process.garbage import GarbageCollection
from odradek.broker.process.open_files import OpenFileLimit
from odradek.broker.process.profiler import FORMATS, profile_command, profiling
from odradek.broker.process.stop_progress import StopProgress
from odradek.broker.process.unexpected import log_unexpected
from odradek.broker.quorum.discovery import find_quorum
from odradek.broker.requests.listener import CLIENT
from odradek.broker_interface import META_PROPERTIES
from odradek.cluster.metadata.image import ScramKey
from odradek.protocol.sasl.cluster_secret import ClusterSecret, parse_secret
from odradek.protocol.sasl.scram import Credential
from odradek.runtime.tasks import Tasks
from odradek.source_commit import source_commit
from odradek.storage.disk.descriptors import RESERVED_DESCRIPTORS
from odradek.storage.disk.os_disk import OsDisk
from odradek.version import __version__

if TYPE_CHECKING:
    from odradek.broker.hooks.process import ProcessHooks

_logger = structlog.get_logger(__name__)

EXIT_CONFIGURATION: Final = 2
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""File of the Linux kernel with a random id of the current boot."""
PROCESS_NAME: Final = Path("/proc/self/comm")
"""File of the Linux kernel with the name of this process. `ps` and `top` show it."""
EXIT_FAILURE: Final = 1
STOPPED: Final = "broker stopped"
STOPPED_BEFORE_READY: Final = "broker stopped before it was ready"
REASONS: Final = "docs/configuration.md, Accepted without effect"
"""Where the reasons of properties without effect are."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    refusal = supported_platform.refusal()
    if refusal:
        print(refusal, file=sys.stderr)  # noqa: T201  for the operator
        return EXIT_CONFIGURATION
    try:
        config = _configuration(options)
        secret = _secret(config)
        bootstrap_scram = _bootstrap_scram(config)
        profiler = profile_command(Path(options.profile)) if options.profile else None
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201  for the operator
        return EXIT_CONFIGURATION
    log.configure(config, None if options.log_file is None else Path(options.log_file))
    open_files_max = _allow_open_files()
    hooks = _hooks(options.test_hooks)
    try:
        with (
            profiling(profiler) if profiler else nullcontext(),
            asyncio.Runner(loop_factory=uvloop.new_event_loop if hooks is None else hooks.new_event_loop) as runner,
        ):
            return runner.run(_run(config, secret, bootstrap_scram, options, open_files_max, hooks))
    except CannotStartError as error:
        print(error, file=sys.stderr)  # noqa: T201  for the operator
        return EXIT_FAILURE


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m odradek.broker", description="Run one node in the foreground.")
    parser.add_argument("--config", metavar="FILE", help="a .properties file with Kafka's property names")
    parser.add_argument(
        "--set", dest="assignments", metavar="NAME=VALUE", action="append", default=[], help="set one property"
    )
    parser.add_argument("--strict", action="store_true", help="refuse unknown names in the file")
    parser.add_argument("--stop-with-stdin", action="store_true", help="stop cleanly when standard input ends")
    parser.add_argument("--log-file", metavar="FILE", help="rotate this file, to which standard error goes")
    parser.add_argument(
        "--profile", metavar="FILE", help=f"write a profile to this file when it stops: {', '.join(FORMATS)}"
    )
    parser.add_argument(
        "--hold-unsynced",
        action="store_true",
        help="for tests: kill -9 loses unflushed bytes, as a power failure would",
    )
    parser.add_argument(
        "--test-hooks", metavar="N", type=int, help="for tests: inject faults that arrive on the inherited socket N"
    )
    return parser.parse_args(arguments)


def _configuration(options: argparse.Namespace) -> Config:
    text = ""
    if options.config is not None:
        try:
            text = Path(options.config).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = (
                error.strerror
                if isinstance(error, OSError)
                else "not UTF-8 text; convert it, for example with: iconv -f ISO-8859-1 -t UTF-8"
            )
            raise ConfigError(f"{options.config}: {reason}") from error
    config = load(
        properties=text,
        properties_name=options.config or "",
        environment=os.environ,
        assignments=options.assignments,
        strict=options.strict,
        checks=(*CHECKS, *CHECKS_OF_PROCESSES),
    )
    return with_host_name(config, socket.gethostname())


def _secret(config: Config) -> ClusterSecret | None:
    """Return the secret of the cluster, or None if there is none.

    Raise ConfigError if it cannot be read.
    """
    path = config.cluster_secret_file
    if not path:
        return None
    try:
        content = Path(path).read_bytes()
    except PermissionError as error:
        raise ConfigError(
            f"cluster.secret.file: {path}: {error.strerror}; the user of the broker (uid {os.geteuid()}) must be able "
            "to read it, for a container with: chmod 0444"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"cluster.secret.file: {path}: {error.strerror}; make it with: openssl rand -base64 32, and copy it to all "
            "nodes"
        ) from error
    try:
        return parse_secret(content, path, random.SystemRandom().getrandbits)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _bootstrap_scram(config: Config) -> dict[ScramKey, Credential]:
    """Return the first SCRAM credentials of a new cluster. Raise ConfigError if they cannot be read.

    The file may be absent if the data directory exists: the operator removes the file when the cluster is formed.
    """
    path = config.odradek_bootstrap_scram_file
    if not path or (not Path(path).exists() and Path(config.log_dirs, META_PROPERTIES).exists()):
        return {}
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"odradek.bootstrap.scram.file: {path}: {reason}") from None
    return parse_bootstrap_scram(text, random.SystemRandom().getrandbits)


async def _with_voters(config: Config, env: Env) -> Config:
    """Return the configuration. If it has no voters, add those and the cluster id that a bootstrap server has."""
    if not finds_voters(config):
        return config
    tasks = Tasks(log_unexpected)
    try:
        quorum = await find_quorum(config.node_id, bootstrap_servers(config), env.clock, tasks)
    finally:
        await tasks.cancel_all()
    if config.odradek_cluster_id not in {None, quorum.cluster_id}:
        raise CannotStartError(f"odradek.cluster.id: the controllers are of cluster {quorum.cluster_id}; correct it")
    return replace(config, controller_quorum_voters=quorum.voters, odradek_cluster_id=quorum.cluster_id)


def _log_start(config: Config, *, has_secret: bool) -> None:
    """Log the version, and what an operator should know about the configuration."""
    _logger.info("broker starting", version=__version__, commit=source_commit(), python=sys.version.split()[0])
    if config.without_effect:
        _logger.warning("properties without effect", names=", ".join(config.without_effect), reasons=REASONS)
    for message in config.unknown:
        _logger.warning("unknown property ignored", property=message)
    shared = shared_listener(parse_listeners(config))
    if shared is not None:
        _logger.warning("listener serves clients and brokers", listener=shared)
    unprotected = warning(config, has_secret=has_secret, has_other_nodes=has_other_nodes(config))
    for event, remedy in (*((unprotected,) if unprotected else ()), *identity_warnings(config)):
        _logger.warning(event, remedy=remedy)


async def _run(
    config: Config,
    secret: ClusterSecret | None,
    bootstrap_scram: dict[ScramKey, Credential],
    options: argparse.Namespace,
    open_files_max: int,
    hooks: "ProcessHooks | None",
) -> int:
    log.bind_node(config.node_id)
    garbage = GarbageCollection()
    garbage.begin()
    _log_start(config, has_secret=secret is not None)
    loop = asyncio.get_running_loop()
    end: asyncio.Future[str | None] = loop.create_future()
    starting: asyncio.Task[Any]

    def stop(reason: str | None = None) -> None:
        if not end.done():
            end.set_result(reason)
        # A start waits without a limit for a majority of the voters; a signal ends that wait.
        starting.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    disk = (OsDisk if hooks is None else hooks.disk)(
        hold_unsynced=options.hold_unsynced, reserved_descriptors=RESERVED_DESCRIPTORS, reserves_space=True
    )
    rng = random.SystemRandom()  # nonces must be unpredictable
    limit = OpenFileLimit(open_files_max, lambda: disk.open_files, backlog=config.socket_listen_backlog_size)
    env = Env(disk, SystemClock(), rng, _boot_id(rng, kept=not options.hold_unsynced), limit.connections_max)
    progress = StopProgress(_set_process_name, time.monotonic)
    starting = finding = loop.create_task(_with_voters(config, env))
    if options.stop_with_stdin:
        await loop.connect_read_pipe(lambda: _UntilEnd(stop), sys.stdin)
    with suppress(CancelledError):
        config = await finding
    if finding.cancelled():
        disk.close()
        return _log_end(end.result(), STOPPED_BEFORE_READY)
    node = Node(
        config,
        env,
        on_fatal=stop,
        on_stop_step=progress.step,
        make_dispatcher=Dispatcher if hooks is None else hooks.dispatcher,
        secret=secret,
        bootstrap_scram=bootstrap_scram,
    )
    if hooks is not None:
        await hooks.open()
    starting = loop.create_task(node.start())
    if end.done():  # a stop before this task
        starting.cancel()
    try:
        with suppress(CancelledError):
            await starting
        if starting.cancelled():
            return _log_end(end.result(), STOPPED_BEFORE_READY)
        garbage.watch()
        for_clients = [listener for listener in node.listeners if CLIENT in listener.roles] or node.listeners
        addresses = ",".join(f"{each.advertised_host}:{each.advertised_port}" for each in for_clients)
        print(f"ready {addresses}", flush=True)  # noqa: T201  the line that the caller waits for
        reason = await end
    finally:
        await node.stop()
        disk.close()
        garbage.end()
    return _log_end(reason)


def _log_end(reason: str | None, event: str = STOPPED) -> int:
    """Log a clean stop, or print the reason of a failure. Return the exit code."""
    if reason is None:
        _logger.info(event, version=__version__)
        return 0
    print(reason, file=sys.stderr)  # noqa: T201  for the operator
    return EXIT_FAILURE


def _hooks(descriptor: int | None) -> "ProcessHooks | None":
    """Return the hooks of a broker for tests. No other broker imports them."""
    if descriptor is None:
        return None
    from odradek.broker.hooks.process import ProcessHooks

    return ProcessHooks(descriptor)


def _boot_id(rng: random.Random, *, kept: bool) -> str:
    """Return the id of the current boot of the machine.

    Return a random id if the kernel does not provide one, or if not `kept`: kill -9 then simulates a power failure.
    """
    try:
        return BOOT_ID.read_text(encoding="ascii").strip() if kept else str(rng.getrandbits(128))
    except OSError:
        return str(rng.getrandbits(128))


def _set_process_name(name: str) -> None:
    with suppress(OSError):  # the stop then shows no progress
        PROCESS_NAME.write_text(name, encoding="ascii")


def _allow_open_files() -> int:
    """Raise the limit of open files to the maximum that the system allows, and return it.

    Each segment and each connection needs a file descriptor. Shells start processes with a much lower limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def _end_process(code: int) -> NoReturn:
    """End the process without the finalization of the interpreter, which frees all objects one by one.

    With 10,000 partitions, finalization takes seconds, and the next start of the broker has to wait for its end.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by the parent process
            with suppress(OSError, ValueError):
                stream.flush()
    os._exit(code)


class _UntilEnd(asyncio.Protocol):
    """Stop the node at the end of standard input: the process that started it has ended."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()


if __name__ == "__main__":
    _end_process(main())
