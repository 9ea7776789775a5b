"""Logs of coordinators that are compacted while they are watched: what was in them is known at the end, and what is missing without a right is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.segment_archive import Originals, expand
from tests.sim.checkers.batches import Batch, read_batches
from tests.sim.workloads.encode import encode_batch

if TYPE_CHECKING:
    from pathlib import Path

PLACE = ("__transaction_state", 0)


def record(offset: int, key: bytes = b"key", *, epoch: int = 0) -> bytes:
    return encode_batch([(key, b"%d" % offset)], timestamp=1, base_offset=offset, leader_epoch=epoch)


class Node:
    def __init__(self, directory: Path) -> None:
        self.data = directory / "broker-1" / "__transaction_state-0"
        self.data.mkdir(parents=True)
        self.originals = Originals(directory / "originals", {1: directory / "broker-1"}, (PLACE[0],))

    def write(self, base: int, *batches: bytes) -> None:
        (self.data / f"{base:020}.log").write_bytes(b"".join(batches))
        self.originals.look()

    def swap(self, base: int, *batches: bytes) -> None:
        """Compaction puts another file in the place of a segment."""
        cleaned = self.data / "new"
        cleaned.write_bytes(b"".join(batches))
        cleaned.rename(self.data / f"{base:020}.log")

    def judge(self) -> tuple[list[int], list[str]]:
        self.originals.look()
        log: list[Batch] = []
        for path in sorted(self.data.glob("*.log")):
            log += read_batches(path.read_bytes())
        logs, findings = expand("t-0", self.originals.of(PLACE), {1: log})
        return [batch.base_offset for batch in logs[1]], findings


def test_a_compacted_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(0, record(0), record(1), record(2))
    node.write(3, record(3))
    node.swap(0, record(2))
    assert node.judge() == ([0, 1, 2, 3], [])
    assert node.originals.cleaned_segments == 1


def test_a_newest_value_that_is_gone_is_found(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(0, record(0), record(1, b"other"), record(2))
    node.write(3, record(3))
    node.swap(0, record(2))
    assert node.judge() == (
        [0, 1, 2, 3],
        ["I10 t-0 on node 1: offset 1: the newest value of key b'other' is missing"],
    )


def test_a_gap_of_which_nobody_has_seen_what_was_there_is_found(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(0, record(0), record(2))
    assert node.judge() == ([0, 2], ["I10 t-0 on node 1: offsets 1 to 1 are gone, and nobody has seen them"])


def test_what_was_cut_is_not_taken_for_what_was_committed_in_its_place(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(0, record(0))
    node.write(1, record(1, b"cut"))
    node.swap(1, record(1, epoch=2), record(2, epoch=2))
    node.originals.look()
    node.write(3, record(3, epoch=2))
    node.swap(1, record(2, epoch=2))
    places, findings = node.judge()
    assert (places, findings) == ([0, 1, 2, 3], [])


def test_a_batch_that_was_changed_is_found(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(0, record(0), record(1))
    node.swap(0, encode_batch([(b"key", b"forged")], timestamp=1, leader_epoch=0), record(1))
    node.write(2, record(2))
    assert "no part of what was written" in node.judge()[1][0]
