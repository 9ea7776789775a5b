"""I12: the metadata logs of all nodes are one log, each of its terms has one leader, and each leadership of a partition an epoch of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.checkers.metadata_log import MetadataModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.sim.checkers.batches import Batch


def check_agreement(logs: Mapping[int, Sequence[Batch]]) -> Iterator[str]:
    """`logs` of the metadata by node, read from the files; any of them may begin later, or end in what was never committed."""
    yield from _check_matching(logs)
    yield from _check_terms(logs)
    longest = max(logs.values(), key=lambda batches: batches[-1].last_offset if batches else -1, default=())
    yield from _check_leaderships(longest)


def _check_matching(logs: Mapping[int, Sequence[Batch]]) -> Iterator[str]:
    """Log matching: two logs that agree on the term at one offset agree on everything below it."""
    nodes = list(logs)
    for number, one in enumerate(nodes):
        mine = {batch.base_offset: batch for batch in logs[one]}
        for other in nodes[number + 1 :]:
            shared = [(mine[batch.base_offset], batch) for batch in logs[other] if batch.base_offset in mine]
            same_term = [index for index, (a, b) in enumerate(shared) if a.leader_epoch == b.leader_epoch]
            for a, b in shared[: same_term[-1] + 1 if same_term else 0]:
                if a.identity != b.identity:
                    yield (
                        f"I12 the metadata logs of {one} and {other} differ at offset {a.base_offset} (terms {a.leader_epoch} and "
                        f"{b.leader_epoch}) but agree behind it"
                    )
                    break


def _check_terms(logs: Mapping[int, Sequence[Batch]]) -> Iterator[str]:
    leaders: dict[int, tuple[int, int]] = {}
    for node, batches in logs.items():
        model = MetadataModel()
        for batch in batches:
            if batch.is_control:
                model.apply(batch)
        for term, leader in model.terms.items():
            first = leaders.setdefault(term, (leader, node))
            if first[0] != leader:
                yield f"I12 two leaders of term {term}: {first[0]} in the log of node {first[1]}, {leader} in that of {node}"


def _check_leaderships(batches: Sequence[Batch]) -> Iterator[str]:
    model = MetadataModel()
    term = -1
    for batch in batches:
        if batch.leader_epoch < term:
            yield f"I12 term {batch.leader_epoch} at offset {batch.base_offset} of the metadata log comes after term {term}"
        term = batch.leader_epoch
        for change in model.apply(batch):
            before, after = change.before, change.after
            if before is None or after is None:
                continue
            if after.leader_epoch < before.leader_epoch:
                yield f"I12 leader epoch of {change.place} goes back from {before.leader_epoch} to {after.leader_epoch}"
            if after.leader not in {before.leader, -1} and after.leader_epoch == before.leader_epoch:
                yield f"I12 {change.place} has two leaders of epoch {after.leader_epoch}: {before.leader} and {after.leader}"
            if after.leader >= 0 and after.leader not in after.isr:
                yield f"I12 {change.place} is led by {after.leader}, which is not in sync ({after.isr})"
