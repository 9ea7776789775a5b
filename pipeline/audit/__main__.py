"""Prove from the logs of a cluster that each transaction ended as decided, in all its partitions.

Examples:
- Read the log directories of all brokers of a stopped cluster, or copies of them:
    python -m odradek.pipeline.audit --log-dirs data/1 data/2 data/3
- Write tables in Parquet:
    python -m odradek.pipeline.audit --log-dirs data/1 --out audit
- Use a Spark cluster, with the logs and --out on storage that its workers share:
    python -m odradek.pipeline.audit --log-dirs /shared/data/1 --master spark://host:7077

The exit code is 0 if no violation is found and at least one decision is proven, 1 otherwise, and 2 for invalid usage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = 2
"""Exit code for invalid usage, as of argparse."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    # Imported here because Spark takes seconds, which --help would spend, too.
    from odradek.pipeline.audit import LogDirectories, LogDirectoryUnusable, audit
    from odradek.pipeline.spark.session import start_session, stop_session

    source = LogDirectories(options.log_dirs)
    try:
        source.partitions()  # before the session, which takes seconds to start
    except LogDirectoryUnusable as error:
        print(error, file=sys.stderr)
        return USAGE
    with tempfile.TemporaryDirectory(prefix="odradek-audit-") as scratch:
        spark = start_session("odradek audit", options.master, console=Path(scratch) / "spark.log")
        try:
            result = audit(spark, source, out=options.out)
        finally:
            stop_session(spark)
    for line in result.lines():
        print(line)
    return 0 if result.ok else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m odradek.pipeline.audit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--log-dirs", nargs="+", type=Path, metavar="DIR", required=True, help="log directories (log.dirs) of brokers"
    )
    parser.add_argument("--master", default="local[2]", help="Spark master (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory for the tables (default: none are written)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
