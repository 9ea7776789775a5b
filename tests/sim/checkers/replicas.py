"""I10: replicas of one partition hold the same bytes up to their committed offset.

The checks need no simulation: batches can come from the files of any node (`checkers.batches.read_batches`).
"""

from collections.abc import Iterator, Mapping, Sequence

from tests.sim.checkers.batches import Batch


def check_replicas(
    what: str, logs: Mapping[int, Sequence[Batch]], committed: Mapping[int, int], *, whole: Sequence[int] = ()
) -> Iterator[str]:
    """Yield findings about replicas that differ in committed batches. `logs` and `committed` are by node id.

    `committed[node]` is a lower bound of the committed offsets that the node holds, at least its high watermark.
    Batches below it are compared. For nodes in `whole`, all batches are compared, and their logs must end at the same
    offset.

    Log start offsets may differ: only offsets that both replicas hold are compared. A committed offset behind the start
    of a log that is missing there is a finding, too.
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
                    f"I10 {what}: offset {batch.base_offset} differs: node {other[0]} has {_describe(other[1])}, "
                    f"node {node} has {_describe(batch)}"
                )
                break
        if end_of(batches) < end:
            yield f"I10 {what}: everything below {end} is committed on node {node}, its log ends at {end_of(batches)}"
    ends = {node: end_of(logs[node]) for node in whole if node in logs}
    if len(set(ends.values())) > 1:
        yield f"I10 {what}: replicas have different log end offsets after the faults: {ends}"
    yield from _check_coverage(what, logs, committed)


def _check_coverage(what: str, logs: Mapping[int, Sequence[Batch]], committed: Mapping[int, int]) -> Iterator[str]:
    """Yield findings about overlapping batches. A comparison by base offset alone would miss them."""
    for node, batches in logs.items():
        expected = batches[0].base_offset if batches else 0
        for batch in batches:
            if batch.base_offset >= committed.get(node, 0):
                break
            if batch.base_offset < expected:
                yield f"I10 {what}: node {node} holds offset {batch.base_offset} twice"
            expected = batch.last_offset + 1


def read_watermarks(text: str) -> dict[tuple[str, int], int]:
    """Parse the contents of a `replication-offset-checkpoint` file."""
    watermarks = {}
    for line in text.splitlines()[2:]:
        topic, index, offset = line.split(" ")
        watermarks[topic, int(index)] = int(offset)
    return watermarks


def end_of(batches: Sequence[Batch]) -> int:
    return batches[-1].last_offset + 1 if batches else 0


def _describe(batch: Batch) -> str:
    return f"offsets {batch.base_offset}..{batch.last_offset} of epoch {batch.leader_epoch}, checksum {batch.crc:08x}"
