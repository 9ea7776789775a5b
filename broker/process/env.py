"""Everything that enters a node from outside, besides the event loop and its configuration.

Production builds one in `__main__`; the simulator builds its own over a simulated disk, clock and a seeded generator.
"""

import random
from dataclasses import dataclass
from uuid import UUID

from odradek.runtime.clock import Clock
from odradek.storage.disk.port import Disk


@dataclass(frozen=True)
class Env:
    disk: Disk
    clock: Clock
    rng: random.Random
    """All randomness and all ids of a node come from here."""
    boot_id: str
    """Another one whenever the machine may have lost what was written and not flushed (see `odradek.broker.quorum.boot_marker`)."""

    def new_uuid(self) -> UUID:
        """A random id (RFC 4122, version 4) that is none of those reserved by Kafka, which have small values."""
        return UUID(int=self.rng.getrandbits(128), version=4)
