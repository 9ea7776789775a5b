"""Was the last life of this node ended with its process, or with its machine? (decision 0061)

A process that is killed loses nothing: what it had written is in the page cache. A machine that goes down loses what was not
flushed. So a node leaves behind under which boot of its machine it ran, and as which broker epoch it was registered; a node
that comes back under the same boot still holds all that it has acknowledged, as after a clean stop.
"""

import json
from typing import Final

from odradek.storage.disk.port import Disk

FILE_NAME: Final = "odradek-life"
UNKNOWN_EPOCH: Final = -1


class Life:
    """The file of one data directory."""

    def __init__(self, disk: Disk, log_dir: str, boot_id: str) -> None:
        """`boot_id` is another one whenever the machine may have lost what was written and not flushed."""
        self._disk = disk
        self._path = f"{log_dir}/{FILE_NAME}"
        self._boot_id = boot_id
        self._doubtful = False
        self.begun = False

    def last_broker_epoch(self) -> int:
        """The broker epoch of the last life, if nothing can have been lost since; otherwise UNKNOWN_EPOCH."""
        try:
            if not self._disk.exists(self._path):
                return UNKNOWN_EPOCH
            left = json.loads(bytes(self._disk.read_file(self._path)))
            return int(left["brokerEpoch"]) if left["bootId"] == self._boot_id else UNKNOWN_EPOCH
        except (OSError, ValueError, KeyError, TypeError):
            return UNKNOWN_EPOCH  # what cannot be read vouches for nothing

    def begin(self, broker_epoch: int) -> None:
        """This life is registered as `broker_epoch`, and holds all that its registration says. Raises OSError."""
        if self._doubtful:
            return
        self.begun = True
        left = {"version": 0, "bootId": self._boot_id, "brokerEpoch": broker_epoch}
        self._disk.write_atomic(self._path, json.dumps(left).encode())

    def forget(self) -> None:
        """The disk has refused something: what is read back later may not be what was written. Raises OSError."""
        self._doubtful = True
        self._disk.remove(self._path)
