"""Prove the transactions of a cluster from its own logs (docs/audit.md).

The audit reads `__transaction_state` and all data partitions, of a running cluster or from the log directories of a
stopped one, and judges each decision of a transaction by its markers:

```python
from odradek.pipeline.audit import RunningCluster, audit

result = audit(spark, RunningCluster("127.0.0.1:9092"), out=Path("audit"))
for line in result.lines():
    print(line)
assert result.ok
```

`python -m odradek.pipeline.audit` is the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.pipeline.audit.result import AuditResult
from odradek.pipeline.audit.retention import keep_transitions
from odradek.pipeline.audit.segments import LogDirectories, LogDirectoryUnusable
from odradek.pipeline.audit.wire import RunningCluster

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from odradek.pipeline.audit.sources import Source

__all__ = ["AuditResult", "LogDirectories", "LogDirectoryUnusable", "RunningCluster", "audit", "keep_transitions"]


def audit(spark: SparkSession, source: Source, *, out: Path | None = None) -> AuditResult:
    """Judge all decisions in the logs of a cluster.

    Args:
        spark: Session. Its executors need `odradek`, and access to the logs.
        source: `RunningCluster`, or `LogDirectories` of a stopped or copied cluster.
        out: Directory for the tables and the report; it replaces former ones. None writes neither.

    Raises:
        LogDirectoryUnusable: A log directory cannot be read, or has no partitions.
        ClientError: The running cluster does not respond, or refuses.
    """
    from odradek.pipeline.audit.job import run  # pyspark takes seconds to import

    return run(spark, source, out)
