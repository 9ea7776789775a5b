"""Damage to the checkpoint of a streaming query, between two runs of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def delete_last_commit(checkpoint: Path) -> int:
    """Delete the last entry of the commit log, as if the driver had been killed before it wrote it. Return its batch.

    Raise RuntimeError if a later batch has begun: Spark would then not repeat the batch of the deleted entry.
    """
    commits, offsets = (_batches(checkpoint / name) for name in ("commits", "offsets"))
    if not commits or max(offsets, default=-1) != max(commits):
        raise RuntimeError(f"{checkpoint}: the last batch {max(offsets, default=-1)} is not complete")
    batch = max(commits)
    (checkpoint / "commits" / str(batch)).unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)
    return batch


def _batches(directory: Path) -> list[int]:
    return [int(entry.name) for entry in directory.iterdir() if entry.name.isdigit()]
