"""Start three brokers, a transactional load and the console. Ctrl-C stops all of them.

Examples:
- python -m odradek.pipeline.console
- python -m odradek.pipeline.console --listen 127.0.0.1:9000
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from odradek import run_module
from odradek.pipeline.cluster.demo_cluster import DemoCluster
from odradek.pipeline.cluster.owned_process import OwnedProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS = 50_000
"""Flights of the load: about two months. The load repeats them."""
POLL_SECONDS = 1.0
"""Seconds between two checks that the processes run."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with ExitStack() as cleanup:
        try:
            return run(options, cleanup, ended)
        except RuntimeError as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1


def run(options: argparse.Namespace, cleanup: ExitStack, ended: threading.Event) -> int:
    """Start all processes, and wait until `ended` is set. Return 1 if a process ended before that.

    Raise RuntimeError if a process does not start.
    """
    from odradek.pipeline.flights.feed import write_feed
    from odradek.pipeline.flights.source import load_flights

    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(out / "cluster", ignore_errors=True)
    log = out / "console.log"
    log.unlink(missing_ok=True)
    write_feed(load_flights(ROWS), out)
    print("starting the brokers", flush=True)
    cluster = DemoCluster(out / "cluster", log)
    cleanup.callback(cluster.stop)
    bootstrap = cluster.access.bootstrap
    load = OwnedProcess(
        run_module.command("odradek.pipeline.console.load", bootstrap, str(out)), console=log, quiet=True
    )
    cleanup.callback(load.stop)
    metrics = [option for address in cluster.metrics() for option in ("--prometheus", address)]
    command = ["odradek", "console", "--dir", str(out / "cluster"), "--listen", options.listen, "--allow-actions"]
    console = OwnedProcess(run_module.command(*command, *metrics), console=log)
    cleanup.callback(console.stop)
    line = console.output.readline()
    if not line.startswith("console "):
        raise RuntimeError(f"the console did not start: {line}{log.read_text(encoding='utf-8')[-2000:]}")
    print(f"{line.strip()}\nbrokers {bootstrap}\nCtrl-C ends all of them", flush=True)
    while not ended.wait(POLL_SECONDS):
        for name, process in (("load", load), ("console", console)):
            if process.poll() is not None:
                raise RuntimeError(f"the {name} ended: {log.read_text(encoding='utf-8')[-2000:]}")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m odradek.pipeline.console",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:8080", metavar="HOST:PORT", help="address of the console (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/console"), help="directory of the cluster (default: %(default)s)"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
