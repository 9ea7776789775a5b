"""Lock a data directory, verify that it belongs to this node and cluster, and read how the previous run ended."""

from __future__ import annotations

import errno
import uuid
from typing import TYPE_CHECKING

import structlog

from odradek.broker_interface import META_PROPERTIES
from odradek.protocol.primitives import ZERO_UUID
from odradek.storage.disk.port import LOCK_FILE
from odradek.storage.files import checkpoint, names
from odradek.storage.files.checkpoint import CorruptCheckpoint, MetaProperties

if TYPE_CHECKING:
    import random

    from odradek.storage.disk.port import Disk, Lock

_logger = structlog.get_logger(__name__)


class UnusableDirectory(OSError):
    """The data directory belongs to another node or cluster, has a damaged `meta.properties`, or needs a cluster id."""


class DataDirectory:
    """Data directory of a node. `claim` sets the attributes."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.cluster_id = ""
        self.directory_id = ZERO_UUID
        self.clean_start = False
        """True if the previous shutdown was clean."""
        self.previous_broker_epoch = -1
        """Broker epoch in the clean-shutdown marker; -1 if the previous shutdown was unclean."""
        self._disk = disk
        self._lock: Lock | None = None

    @property
    def claimed(self) -> bool:
        """True while this process holds the lock of the directory."""
        return self._lock is not None

    def path_of(self, name: str) -> str:
        """Return the path of the entry `name` of the directory."""
        return f"{self.path}/{name}"

    def claim(
        self, *, node_id: int, rng: random.Random, cluster_id: str | None = None, may_create_cluster: bool = True
    ) -> None:
        """Create the directory if it is absent, lock it, verify its owner, and remove the clean-shutdown marker.

        The call blocks. A new directory gets `cluster_id`, or the id of a new cluster if `cluster_id` is None and
        `may_create_cluster`. The removal of the marker is durable when this function returns.

        Raises:
            DirectoryLocked: Another process uses the directory.
            UnusableDirectory: See the class.
            OSError: A disk operation fails.
        """
        self._disk.make_directory(self.path)
        self._lock = self._disk.lock_directory(self.path)
        meta = self._read_meta(node_id, cluster_id)
        if meta is not None or self._disk.list(self.path) == [LOCK_FILE]:
            self._restrict_access()
        if meta is None:
            if cluster_id is None and not may_create_cluster:
                raise UnusableDirectory(
                    errno.EINVAL,
                    "is new, and odradek.cluster.id is not set: set the same cluster id on all nodes of the cluster",
                    self.path,
                )
            name = cluster_id or checkpoint.encode_uuid(_random_uuid(rng))
            meta = MetaProperties(name, node_id, _random_uuid(rng))
        self.cluster_id, self.directory_id = meta.cluster_id, meta.directory_id
        marker = self.path_of(checkpoint.CLEAN_SHUTDOWN)
        if self._disk.exists(marker):
            self.clean_start = True
            self.previous_broker_epoch = checkpoint.decode_clean_shutdown(self._disk.read_file(marker))
            self._disk.remove(marker)
        # This call also syncs the directory, and with it the removal of the marker.
        self._disk.replace_file_now(self.path_of(META_PROPERTIES), checkpoint.encode_meta_properties(meta))

    def _restrict_access(self) -> None:
        """Remove the permissions of other users. The directory is that of a node, or empty."""
        restricted = self._disk.restrict_access(self.path)
        if restricted:
            _logger.warning("permissions of other users removed", directory=self.path, entries=restricted)

    def _read_meta(self, node_id: int, cluster_id: str | None) -> MetaProperties | None:
        path = self.path_of(META_PROPERTIES)
        if not self._disk.exists(path):
            return None
        try:
            meta = checkpoint.decode_meta_properties(self._disk.read_file(path))
        except CorruptCheckpoint as error:
            raise UnusableDirectory(errno.EINVAL, f"damaged: {error}", path) from error
        if meta.node_id != node_id:
            raise UnusableDirectory(errno.EINVAL, f"belongs to node {meta.node_id}, this is node {node_id}", path)
        if cluster_id is not None and meta.cluster_id != cluster_id:
            raise UnusableDirectory(errno.EINVAL, f"belongs to cluster {meta.cluster_id}, not {cluster_id}", path)
        return meta

    def note_loss(self, reason: str) -> None:
        """Let this run and the next ones count as runs after an unclean shutdown: a log has lost records.

        The call blocks. It is durable when this function returns, so the caller can truncate the log afterwards. Raise
        OSError if a disk operation fails.
        """
        _logger.error(
            "log has lost records",
            reason=reason,
            remedy="unless the machine has failed, check the disk; another replica replaces the lost records",
        )
        self.previous_broker_epoch = -1
        self._disk.remove(self.path_of(names.BOOT_MARKER))
        self._disk.sync_directory_now(self.path)

    def mark_clean_shutdown(self, broker_epoch: int) -> None:
        """Write the clean-shutdown marker. The call blocks. Raise OSError if a disk operation fails."""
        marker = checkpoint.encode_clean_shutdown(broker_epoch)
        self._disk.replace_file_now(self.path_of(checkpoint.CLEAN_SHUTDOWN), marker)

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _random_uuid(rng: random.Random) -> uuid.UUID:
    return uuid.UUID(int=rng.getrandbits(128), version=4)
