"""Determine whether the previous run of this node ended by process failure or by machine failure (decision 0061).

A killed process loses no written bytes: they are in the page cache. A machine failure loses all bytes that were not
flushed. A node therefore records the boot id of its machine and its broker epoch. A node that starts again in the same
boot still holds all records that it acknowledged, as after a clean shutdown.
"""

import json

from odradek.protocol.special_values import UNKNOWN_BROKER_EPOCH
from odradek.storage.disk.port import Disk
from odradek.storage.files import names


class BootMarker:
    """The file with the boot id and the broker epoch in one data directory."""

    def __init__(self, disk: Disk, log_dir: str, boot_id: str) -> None:
        """`boot_id` changes whenever the machine may have lost written bytes that were not flushed."""
        self._disk = disk
        self._path = f"{log_dir}/{names.BOOT_MARKER}"
        self._boot_id = boot_id
        self._removed = False
        self.recorded = False

    def previous_broker_epoch(self) -> int:
        """Return the broker epoch of the previous run if it cannot have lost records, or UNKNOWN_BROKER_EPOCH."""
        try:
            if not self._disk.exists(self._path):
                return UNKNOWN_BROKER_EPOCH
            marker = json.loads(bytes(self._disk.read_file(self._path)))
            return int(marker["brokerEpoch"]) if marker["bootId"] == self._boot_id else UNKNOWN_BROKER_EPOCH
        except (OSError, ValueError, KeyError, TypeError):
            return UNKNOWN_BROKER_EPOCH  # an unreadable file is no evidence

    def record(self, broker_epoch: int) -> None:
        """Record that this run has `broker_epoch` and holds all records that its registration claims. Raise OSError.

        No effect after `remove`.
        """
        if self._removed:
            return
        self.recorded = True
        marker = {"version": 0, "bootId": self._boot_id, "brokerEpoch": broker_epoch}
        self._disk.replace_file_now(self._path, json.dumps(marker).encode())

    def remove(self) -> None:
        """Remove the marker for the rest of this run. Raise OSError.

        Call it when a disk operation failed: bytes that were written may be lost.
        """
        self._removed = True
        self._disk.remove(self._path)
