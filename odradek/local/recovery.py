"""Read the progress of the log recovery of a starting broker from its metrics."""

from __future__ import annotations

import re
from typing import NamedTuple

TIMEOUT_S = 0.5
"""Maximum seconds for the metrics of one broker. `odradek status` reads them only for brokers that are not active."""
METRICS_BYTES_MAX = 4 * 1024 * 1024
"""Maximum bytes of metrics that are read. A broker that recovers its logs has a few kilobytes."""
_REMAINING = re.compile(r"^kafka_log_logmanager_remaininglogstorecover\{.*\} ([0-9.]+)", re.MULTILINE)
_FOUND = re.compile(r"^odradek_log_manager_logs_found\{.*\} ([0-9.]+)", re.MULTILINE)


class Recovery(NamedTuple):
    """Logs that a starting broker has recovered, and the number of its logs."""

    recovered: int
    logs: int

    def __str__(self) -> str:
        return f"recovering {self.recovered} of {self.logs} logs"


def recovery_of(metrics_url: str | None) -> Recovery | None:
    """Return the progress of the recovery; None if the broker has no metrics, or has opened all its logs."""
    if metrics_url is None:
        return None
    # An import at the top of the module takes 20 ms of each `odradek status`.
    from urllib.error import URLError
    from urllib.request import urlopen

    try:
        with urlopen(metrics_url, timeout=TIMEOUT_S) as response:  # noqa: S310  the URL is from the plan of the cluster
            text = response.read(METRICS_BYTES_MAX).decode()
    except (URLError, OSError, UnicodeDecodeError):
        return None
    return parse(text)


def parse(text: str) -> Recovery | None:
    """Return the progress in metrics of the Prometheus text format; None if no log remains to be opened."""
    remaining, found = _REMAINING.search(text), _FOUND.search(text)
    if remaining is None or found is None or float(remaining[1]) == 0:
        return None
    return Recovery(int(float(found[1]) - float(remaining[1])), int(float(found[1])))
