"""Failed reads of whole files, which a broker reads when it starts. Only runs of some tests have them."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.faults.fault import ROLES, Fault, in_order

if TYPE_CHECKING:
    from tests.sim.options.run_options import Options

READ_AFTER_KILL: Final = "read_error_after_kill"
READ_AFTER_STOP: Final = "read_error_after_stop"
READ_KINDS: Final = (READ_AFTER_KILL, READ_AFTER_STOP)
"""The node is killed or stopped. During its next start, the first read of a file fails."""
READ_FILES: Final = (
    "meta.properties", "quorum-state", ".checkpoint", "-offset-checkpoint", "leader-epoch-checkpoint",
    "partition.metadata", ".snapshot", ".index", ".timeindex", ".txnindex", ".kafka_cleanshutdown", "odradek.",
)  # fmt: skip
"""A part of the names of the files of each kind. `Fault.number` is a position in this tuple."""
FAULTS_MIN, FAULTS_MAX = 2, 4


def generate_read_errors(options: "Options", files: Sequence[str]) -> None:
    """Add failed reads of `files`, which are entries of READ_FILES."""
    rng = Random(options.seed * 86_028_157 + 41)
    last = max((fault.operations for fault in options.faults), default=200)
    faults = [
        Fault(
            rng.choice(READ_KINDS),
            rng.randrange(20, max(21, last)),
            rng.randrange(400),
            seconds=0.1 + rng.random(),
            target=rng.choice(ROLES),
            number=READ_FILES.index(rng.choice(files)),
        )
        for _ in range(rng.randint(FAULTS_MIN, FAULTS_MAX))
    ]
    options.faults = in_order([*options.faults, *faults])
