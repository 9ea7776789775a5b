"""Failures of disk operations on every kind of file, and full disks, from a generator of their own."""

from errno import EIO, EMFILE, ENOSPC
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.faults.fault import ROLES, Fault, in_order

if TYPE_CHECKING:
    from tests.sim.options.run_options import Options

DISK_OPERATION: Final = "disk_operation"
DISK_FULL: Final = "disk_full"
FAULTS_MAX: Final = 3
FULL_PROBABILITY: Final = 0.25
"""Part of the faults that are a full disk."""
FILES: Final = (
    "/__cluster_metadata-0/", "/__transaction_state-", "/__consumer_offsets-", "/ledger-", ".log", ".index",
    ".timeindex", ".txnindex", ".snapshot", ".swap", "-offset-checkpoint", "leader-epoch-checkpoint", ".checkpoint",
    "quorum-state", "partition.metadata", "meta.properties", "odradek.",
)  # fmt: skip
"""A part of the paths of each kind of file: logs and their files, checkpoints, snapshots, and files of the node."""
ERRORS: Final = (
    ("write", EIO), ("write", ENOSPC), ("sync", EIO), ("sync", ENOSPC), ("open", EIO), ("open", EMFILE),
    ("rename", EIO),
)  # fmt: skip
"""Operations, each with an errno."""
DISK_ERRORS: Final = tuple((operation, match, errno) for match, (operation, errno) in product(FILES, ERRORS))
"""The next operation on a path that contains `match` fails with `errno`, as in `DiskFault`.

`Fault.number` of a DISK_OPERATION fault is a position in this tuple.
"""


def generate_disk_faults(options: "Options") -> None:
    """Add failures of disks to a run.

    A machine whose flush has failed starts again without the data of its page cache. With one broker, that is permitted
    only if all acknowledged data is flushed.
    """
    rng = Random(options.seed * 49_979_687 + 17)
    sync_may_fail = options.brokers > 1 or options.flush
    last = max((fault.operations for fault in options.faults), default=200)
    faults = [
        _disk_fault(rng, operations=rng.randrange(20, max(21, last)), sync_may_fail=sync_may_fail)
        for _ in range(rng.randint(1, FAULTS_MAX))
    ]
    options.faults = in_order([*options.faults, *faults])


def _disk_fault(rng: Random, *, operations: int, sync_may_fail: bool) -> Fault:
    full = rng.random() < FULL_PROBABILITY
    numbers = [number for number, error in enumerate(DISK_ERRORS) if sync_may_fail or error[0] != "sync"]
    return Fault(
        DISK_FULL if full else DISK_OPERATION,
        operations,
        rng.randrange(400),
        seconds=0.1 + rng.random() * (3.0 if full else 1.0),
        target=rng.choice(ROLES),
        number=rng.choice(numbers),
    )
