"""Invariant I12: the metadata logs of all nodes agree, each Raft epoch has one leader, and so has each leader epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.checkers.metadata_log import MetadataModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.sim.checkers.batches import Batch


def check_metadata_logs(logs: Mapping[int, Sequence[Batch]]) -> Iterator[str]:
    """Yield the violations in the metadata logs, given by node id.

    A log may begin at a later offset than another one, and may end with uncommitted batches.
    """
    yield from _check_matching(logs)
    yield from _check_raft_epochs(logs)
    longest = max(logs.values(), key=lambda batches: batches[-1].last_offset if batches else -1, default=())
    yield from _check_partition_leaders(longest)


def _check_matching(logs: Mapping[int, Sequence[Batch]]) -> Iterator[str]:
    """Check Raft's log matching property: two logs with the same epoch at an offset are equal below that offset."""
    nodes = list(logs)
    for number, node_a in enumerate(nodes):
        batches_a = {batch.base_offset: batch for batch in logs[node_a]}
        for node_b in nodes[number + 1 :]:
            shared = [(batches_a[batch.base_offset], batch) for batch in logs[node_b] if batch.base_offset in batches_a]
            same_epoch = [index for index, (a, b) in enumerate(shared) if a.leader_epoch == b.leader_epoch]
            for a, b in shared[: same_epoch[-1] + 1 if same_epoch else 0]:
                if a.identity != b.identity:
                    yield (
                        f"I12 the metadata logs of {node_a} and {node_b} differ at offset {a.base_offset} "
                        f"(epochs {a.leader_epoch} and {b.leader_epoch}) but have the same epoch at a higher offset"
                    )
                    break


def _check_raft_epochs(logs: Mapping[int, Sequence[Batch]]) -> Iterator[str]:
    leaders: dict[int, tuple[int, int]] = {}
    for node, batches in logs.items():
        model = MetadataModel()
        for batch in batches:
            if batch.is_control:
                model.apply(batch)
        for epoch, leader in model.terms.items():
            first = leaders.setdefault(epoch, (leader, node))
            if first[0] != leader:
                yield (
                    f"I12 two leaders of Raft epoch {epoch}: "
                    f"{first[0]} in the log of node {first[1]}, {leader} in the log of node {node}"
                )


def _check_partition_leaders(batches: Sequence[Batch]) -> Iterator[str]:
    model = MetadataModel()
    epoch = -1
    for batch in batches:
        if batch.leader_epoch < epoch:
            yield (
                f"I12 the Raft epoch decreases from {epoch} to {batch.leader_epoch} "
                f"at offset {batch.base_offset} of the metadata log"
            )
        epoch = batch.leader_epoch
        for change in model.apply(batch):
            before, after = change.before, change.after
            if before is None or after is None:
                continue
            if after.leader_epoch < before.leader_epoch:
                yield f"I12 leader epoch of {change.place} decreases from {before.leader_epoch} to {after.leader_epoch}"
            if after.leader not in {before.leader, -1} and after.leader_epoch == before.leader_epoch:
                yield (
                    f"I12 {change.place} has two leaders of leader epoch {after.leader_epoch}: "
                    f"{before.leader} and {after.leader}"
                )
            if after.leader >= 0 and after.leader not in after.isr:
                yield f"I12 leader {after.leader} of {change.place} is not in the ISR {after.isr}"
