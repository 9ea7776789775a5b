"""Failures of disk operations on every kind of file, and full disks, from a generator of their own."""

from errno import EIO, EMFILE, ENOSPC, errorcode
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Final

from odradek.simulation.environment.disk import DiskFault
from tests.sim.faults.fault import ROLES, Fault, in_order

if TYPE_CHECKING:
    from tests.sim.options.run_options import Options

DISK_OPERATION: Final = "disk_operation"
DISK_FULL: Final = "disk_full"
DISK_KINDS: Final = frozenset({DISK_OPERATION, DISK_FULL})
FAULTS_MAX: Final = 3
PROBABILITY: Final = 0.15
"""Part of the runs whose disks fail."""
FULL_PROBABILITY: Final = 0.25
"""Part of the faults that are a full disk."""
LOGS: Final = ("/__cluster_metadata-0/", "/__transaction_state-", "/__consumer_offsets-", "/ledger-")
"""A part of the paths of the files of each kind of log, which is also in the path of its directory."""
REPLACED: Final = (
    "-offset-checkpoint", "leader-epoch-checkpoint", "quorum-state", "meta.properties", "odradek.",
    ".kafka_cleanshutdown",
)  # fmt: skip
"""A part of the names of files that are replaced as a whole: checkpoints, and files of the node."""
WRITTEN: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint", ".cleaned")
"""A part of the names of files that are written under a name of their own, and renamed later."""
CREATE_ERRORS: Final = (
    ("write", EIO), ("write", ENOSPC), ("sync", EIO), ("sync", ENOSPC), ("open", EIO), ("open", EMFILE),
)  # fmt: skip
"""Operations that create a file, each with an errno."""
FILE_ERRORS: Final = (*CREATE_ERRORS, ("rename", EIO))
DIRECTORY_ERRORS: Final = (("sync_directory", EIO), ("sync_directory", EMFILE))
DISK_ERRORS: Final = tuple(
    (operation, match, errno)
    for match, (operation, errno) in (
        *product(LOGS + REPLACED, FILE_ERRORS + DIRECTORY_ERRORS),
        *product(WRITTEN, FILE_ERRORS),
        *product(("partition.metadata",), CREATE_ERRORS),  # never renamed
        (".swap", ("rename", EIO)),  # files of compaction that are complete under another name
        *product(("",), DIRECTORY_ERRORS),  # any directory
    )
)
"""Each kind of operation on each kind of file: (operation, match, errno), as in `DiskFault`.

The next operation on a path that contains `match` fails with `errno`. `Fault.number` of a DISK_OPERATION fault is a
position in this tuple.
"""
FILE_KINDS: Final = tuple(dict.fromkeys(match for _, match, _ in DISK_ERRORS if match))
"""A part of the paths of each kind of file and directory."""
REFUSED_BY_FULL_DISK: Final = "append refused by a full disk"
DELAYED_BY_SHARED_THREADS: Final = "operation delayed by slow shared threads"
DELAYED_BY_METADATA_THREAD: Final = "operation delayed by a slow thread of the metadata log"


def error_event(operation: str, errno: int) -> str:
    """Return the name of the counter of a failed operation."""
    return f"failed disk operation: {operation} {errorcode[errno]}"


def file_event(match: str) -> str:
    """Return the name of the counter of a failed operation on a kind of file."""
    return f"failed disk operation on {match.strip('/')}"


ERROR_EVENTS: Final = tuple(dict.fromkeys(error_event(operation, errno) for operation, _, errno in DISK_ERRORS))
FILE_EVENTS: Final = tuple(map(file_event, FILE_KINDS))


def generate_disk_faults(options: "Options", *, wanted: bool | None = None) -> None:
    """Add failures of disks to part of the runs; to all of them if `wanted`.

    A machine whose flush has failed starts again without the data of its page cache. With one broker, that is permitted
    only if all acknowledged data is flushed.
    """
    chosen = Random(options.seed * 49_979_687 + 19).random() < PROBABILITY if wanted is None else wanted
    if not chosen:
        return
    rng = Random(options.seed * 49_979_687 + 17)
    may_lose_cache = options.brokers > 1 or options.flush
    last = max((fault.operations for fault in options.faults), default=200)
    faults = [
        _disk_fault(rng, operations=rng.randrange(20, max(21, last)), may_lose_cache=may_lose_cache)
        for _ in range(rng.randint(1, FAULTS_MAX))
    ]
    options.faults = in_order([*options.faults, *faults])


def _disk_fault(rng: Random, *, operations: int, may_lose_cache: bool) -> Fault:
    full = rng.random() < FULL_PROBABILITY
    numbers = [
        number for number, error in enumerate(DISK_ERRORS) if may_lose_cache or not DiskFault(*error).loses_cache
    ]
    return Fault(
        DISK_FULL if full else DISK_OPERATION,
        operations,
        rng.randrange(400),
        seconds=0.1 + rng.random() * (3.0 if full else 1.0),
        target=rng.choice(ROLES),
        number=rng.choice(numbers),
    )
