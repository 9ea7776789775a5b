"""I10: what several replicas hold of one partition is one log, byte for byte, as far as it is committed.

Needs no simulation: give it batches read from the files of each node (`checkers.batches.read_batches`).
"""

from collections.abc import Iterator, Mapping, Sequence

from tests.sim.checkers.batches import Batch


def check_replicas(
    what: str, logs: Mapping[int, Sequence[Batch]], committed: Mapping[int, int], *, whole: Sequence[int] = ()
) -> Iterator[str]:
    """`logs` by node; of each, what lies below `committed[node]` (as far as it is known to have held what is committed: its high watermark at least) is compared; of those in `whole` everything is.

    A log may begin later than another: only offsets that both hold can differ. An offset below the watermark that lies behind the start of the log and is not
    there is a finding, too.
    """
    reference: dict[int, tuple[int, Batch]] = {}
    for node, batches in logs.items():
        end = end_of(batches) if node in whole else committed.get(node, 0)
        for batch in batches:
            if batch.last_offset >= end:
                break
            other = reference.setdefault(batch.base_offset, (node, batch))
            if other[1].identity != batch.identity or other[1].last_offset != batch.last_offset:
                yield (
                    f"I10 {what}: offset {batch.base_offset} differs: node {other[0]} has {_describe(other[1])}, node {node} has {_describe(batch)}"
                )
                break
        if end_of(batches) < end:
            yield f"I10 {what}: everything below {end} is committed on node {node}, its log ends at {end_of(batches)}"
    ends = {node: end_of(logs[node]) for node in whole if node in logs}
    if len(set(ends.values())) > 1:
        yield f"I10 {what}: replicas at rest end at {ends}"
    yield from _check_coverage(what, logs, committed)


def _check_coverage(what: str, logs: Mapping[int, Sequence[Batch]], committed: Mapping[int, int]) -> Iterator[str]:
    """Batches that overlap without being the same would pass a look-up by their first offset."""
    for node, batches in logs.items():
        expected = batches[0].base_offset if batches else 0
        for batch in batches:
            if batch.base_offset >= committed.get(node, 0):
                break
            if batch.base_offset < expected:
                yield f"I10 {what}: node {node} holds offset {batch.base_offset} twice"
            expected = batch.last_offset + 1


def read_watermarks(text: str) -> dict[tuple[str, int], int]:
    """The contents of a `replication-offset-checkpoint` file."""
    found = {}
    for line in text.splitlines()[2:]:
        topic, index, offset = line.split(" ")
        found[topic, int(index)] = int(offset)
    return found


def end_of(batches: Sequence[Batch]) -> int:
    return batches[-1].last_offset + 1 if batches else 0


def _describe(batch: Batch) -> str:
    return f"offsets {batch.base_offset}..{batch.last_offset} of epoch {batch.leader_epoch}, checksum {batch.crc:08x}"
