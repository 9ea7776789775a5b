"""The segment archive: logs are restored after compaction, and records that compaction may not remove are reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.segment_archive import SegmentArchive, expand
from tests.sim.checkers.batches import Batch, read_batches
from tests.sim.workloads.encode import encode_batch

if TYPE_CHECKING:
    from pathlib import Path

PARTITION = ("__transaction_state", 0)


def record(offset: int, key: bytes = b"key", *, epoch: int = 0) -> bytes:
    return encode_batch([(key, b"%d" % offset)], timestamp=1, base_offset=offset, leader_epoch=epoch)


class Node:
    def __init__(self, directory: Path) -> None:
        self.data = directory / "broker-1" / "__transaction_state-0"
        self.data.mkdir(parents=True)
        self.archive = SegmentArchive(directory / "archive", {1: directory / "broker-1"}, (PARTITION[0],))

    def write(self, base: int, *batches: bytes) -> None:
        (self.data / f"{base:020}.log").write_bytes(b"".join(batches))
        self.archive.link_new_segments()

    def compact(self, base: int, *batches: bytes) -> None:
        """Replace the file of a segment by a new file, as compaction does."""
        cleaned = self.data / "new"
        cleaned.write_bytes(b"".join(batches))
        cleaned.rename(self.data / f"{base:020}.log")

    def expand(self) -> tuple[list[int], list[str]]:
        self.archive.link_new_segments()
        log: list[Batch] = []
        for path in sorted(self.data.glob("*.log")):
            log += read_batches(path.read_bytes())
        logs, findings = expand("t-0", self.archive.batches_of(PARTITION), {1: log})
        return [batch.base_offset for batch in logs[1]], findings


def test_compacted_log_is_restored_from_the_archive(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(0, record(0), record(1), record(2))
    node.write(3, record(3))
    node.compact(0, record(2))
    assert node.expand() == ([0, 1, 2, 3], [])
    assert node.archive.cleaned_segments == 1


def test_removal_of_the_newest_value_of_a_key_is_reported(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(0, record(0), record(1, b"other"), record(2))
    node.write(3, record(3))
    node.compact(0, record(2))
    assert node.expand() == (
        [0, 1, 2, 3],
        ["I10 t-0 on node 1: offset 1: the newest value of key b'other' is missing"],
    )


def test_gap_without_archived_batches_is_reported(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(0, record(0), record(2))
    assert node.expand() == ([0, 2], ["I10 t-0 on node 1: offsets 1 to 1 are missing in the log and in the archive"])


def test_truncated_batch_is_not_restored_in_place_of_the_committed_one(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(0, record(0))
    node.write(1, record(1, b"truncated"))
    node.compact(1, record(1, epoch=2), record(2, epoch=2))
    node.archive.link_new_segments()
    node.write(3, record(3, epoch=2))
    node.compact(1, record(2, epoch=2))
    offsets, findings = node.expand()
    assert (offsets, findings) == ([0, 1, 2, 3], [])


def test_modified_batch_is_reported(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(0, record(0), record(1))
    node.compact(0, encode_batch([(b"key", b"forged")], timestamp=1, leader_epoch=0), record(1))
    node.write(2, record(2))
    assert "not a part of the original batch" in node.expand()[1][0]
