"""The inputs of a node: disk, clock, randomness and boot id. The event loop and the configuration are separate.

`__main__` makes an `Env` of the operating system. The simulator makes one of a simulated disk, a simulated clock and a
random generator with a seed.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from odradek.broker.process.open_files import unlimited_connections
from odradek.runtime.clock import Clock
from odradek.storage.disk.port import Disk


@dataclass(frozen=True)
class Env:
    """Inputs of one node."""

    disk: Disk
    clock: Clock
    rng: random.Random
    """Source of all random numbers and ids of the node."""
    boot_id: str
    """Id of the boot of the machine. It changes when written but unflushed bytes may be lost.

    See `odradek.broker.quorum.boot_marker`.
    """
    connections_max: Callable[[], int] = unlimited_connections
    """Returns the number of connections that the limit of open files permits now."""

    def new_uuid(self) -> UUID:
        """Return a random UUID (RFC 4122, version 4). Kafka's reserved UUIDs are not of version 4."""
        return UUID(int=self.rng.getrandbits(128), version=4)
