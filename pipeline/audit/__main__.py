"""Prove from the logs of a cluster that each transaction ended as decided, in all its partitions.

Examples:
- Read a running cluster, and write tables in Parquet and an HTML report:
    python -m odradek.pipeline.audit --bootstrap 127.0.0.1:9092 --out audit
- Read the log directories of all brokers of a stopped cluster, or copies made while it was stopped:
    python -m odradek.pipeline.audit --log-dirs data/1 data/2 data/3
- Use a Spark cluster, with log directories and --out on storage that its workers share:
    python -m odradek.pipeline.audit --bootstrap host:9092 --out /shared/audit --master spark://host:7077

The exit code is 0 if no violation is found and at least one decision is proven, 1 otherwise. It is 2 if the logs cannot
be read, or the tables cannot be written.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

UNREADABLE = 2
"""Exit code if the audit cannot be carried out, as that of argparse for invalid usage."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    # Imported here because Spark takes seconds, which --help would spend, too.
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from odradek.client import ClientError, Settings, read_security
    from odradek.pipeline.audit import LogDirectories, LogDirectoryUnusable, RunningCluster, audit
    from odradek.pipeline.spark.session import start_session, stop_session

    try:
        source = (
            LogDirectories(options.log_dirs)
            if options.log_dirs
            else RunningCluster(options.bootstrap, Settings(security=read_security(options.command_config, _warn)))
        )
        source.partitions()  # before the session, which takes seconds to start
    except (LogDirectoryUnusable, ClientError, OSError) as error:
        print(error, file=sys.stderr)
        return UNREADABLE
    with tempfile.TemporaryDirectory(prefix="odradek-audit-") as scratch:
        spark = start_session("odradek audit", options.master, console=Path(scratch) / "spark.log")
        try:
            result = audit(spark, source, out=options.out)
        except (LogDirectoryUnusable, ClientError, OSError, PySparkException, Py4JError) as error:
            print(f"The audit failed. Repair the cause, and repeat the audit: {_reason(error)}", file=sys.stderr)
            return UNREADABLE
        finally:
            stop_session(spark)
    for line in result.lines():
        print(line)
    return 0 if result.ok else 1


def _warn(text: str) -> None:
    print(text, file=sys.stderr)


def _reason(error: Exception) -> str:
    """Return the message of an error. Of an exception in a task, it is the last line before the frames of Spark."""
    text = str(error).split("\n\nJVM stacktrace:")[0].split("\n\tat ")[0].strip()
    return text.splitlines()[-1].removeprefix(": ") if text else type(error).__name__


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m odradek.pipeline.audit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    logs = parser.add_mutually_exclusive_group(required=True)
    logs.add_argument("--bootstrap", metavar="HOST:PORT", help="brokers of a running cluster")
    logs.add_argument(
        "--log-dirs", nargs="+", type=Path, metavar="DIR", help="log directories (log.dirs) of stopped brokers"
    )
    parser.add_argument(
        "--command-config", type=Path, metavar="FILE", help="client properties for --bootstrap, in Kafka's format"
    )
    parser.add_argument("--master", default="local[2]", help="Spark master (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory for tables and report (default: none)")
    options = parser.parse_args(arguments)
    if options.log_dirs and options.command_config:
        parser.error("--command-config is for --bootstrap: remove it")
    return options


if __name__ == "__main__":
    sys.exit(main())
