"""Bugs that lose records when a machine fails or its disk is damaged. Each replaces one function (see `planted`)."""

from collections.abc import Callable
from typing import Any, Final

from odradek.broker.replication.follower_fetcher import ReplicaFetcher
from odradek.storage.data_directory.checkpoints import Checkpoints
from tests.sim.options.cluster_options import FLUSH
from tests.sim.options.run_options import LOOSE
from tests.sim.planted.planted import Planted


def acknowledge_before_flush(_original: Callable[..., Any]) -> Callable[..., Any]:
    """A follower fetches from its log end, which acknowledges it, before the flush that flush.messages requires."""

    async def flush_due(self: ReplicaFetcher) -> None:
        """Flush nothing."""

    return flush_due


def raise_recovery_points(original: Callable[..., Any]) -> Callable[..., Any]:
    """The checkpoint of recovery points contains log end offsets: recovery does not read what was never flushed."""

    def init(self: Checkpoints, disk: Any, directory: Any, logs: Any) -> None:
        original(self, disk, directory, logs)
        self.recovery_points._current = lambda: {key: log.log_end_offset for key, log in logs.items()}

    return init


BUGS: Final = (
    Planted(
        "follower acknowledges before the flush",
        ReplicaFetcher,
        "_flush_due",
        acknowledge_before_flush,
        ("I12 .* durable on",),
        durability=FLUSH,
        brokers=3,
    ),
    Planted(
        "recovery point above the flushed records",
        Checkpoints,
        "__init__",
        raise_recovery_points,
        ("I16",),
        durability=LOOSE,
    ),
)
