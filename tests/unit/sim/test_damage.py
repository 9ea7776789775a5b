"""Damage of logs: which bytes are changed, and when the fault model permits it."""

from random import Random

from odradek.simulation.environment.medium import Directory, Inode, Medium
from tests.sim.checkers.batches import Batch, Unreadable, read_batches
from tests.sim.faults.damage import BASE_OFFSET, RECOVERY_POINTS, Damage, damage_log
from tests.sim.options.damage_options import DAMAGE
from tests.sim.options.run_options import generate_options
from tests.sim.workloads.encode import encode_batch
from tests.sim.world import TABLE

ROOT = "/data"
PLACE = ("ledger", 0)
SEEDS = 200


def batch(offset: int) -> bytes:
    return encode_batch([(b"key", b"value" * 5)], timestamp=1, base_offset=offset, leader_epoch=0)


FIRST, SECOND = batch(0) + batch(1), batch(2) + batch(3)


def written(topic: str, *, recovery_point: int = 0, torn: bytes = b"", extra: str = "") -> Medium:
    """Return a disk with one log of two segments."""
    medium = Medium()
    log = Directory(live={f"{0:020}.log": Inode(bytearray(FIRST)), f"{2:020}.log": Inode(bytearray(SECOND + torn))})
    if extra:
        log.live[extra] = Inode()
    points = Inode(bytearray(f"0\n1\n{topic} 0 {recovery_point}\n".encode()))
    medium.root.live["data"] = Directory(live={f"{topic}-0": log, RECOVERY_POINTS: points})
    return medium


def damages(topic: str, **log: int | bytes | str) -> list[tuple[Damage, Medium]]:
    found = []
    for seed in range(SEEDS):
        medium = written(topic, **log)  # type: ignore[arg-type]
        damaged = damage_log(medium, ROOT, [(topic, 0)], Random(seed))
        if damaged is not None:
            found.append((damaged, medium))
    return found


def survivors(medium: Medium, damaged: Damage) -> list[Batch]:
    found: list[Batch] = []
    content = medium.contents(damaged.path)
    try:
        for read in read_batches(content, check_crc=True):
            if found and read.base_offset != found[-1].last_offset + 1:
                break
            found.append(read)
    except Unreadable:
        pass
    return found


def test_damage_is_detectable_and_in_one_batch() -> None:
    for damaged, medium in damages(PLACE[0]):
        first = int(damaged.path.rpartition("/")[2].removesuffix(".log"))
        left = [each.base_offset for each in survivors(medium, damaged) if each.base_offset == damaged.offset]
        assert left == [] or damaged.position < 8, damaged  # a base offset is checked against the one before it
        assert first <= damaged.offset < first + 2


def test_every_recovered_segment_can_be_damaged_but_none_below_the_recovery_point() -> None:
    assert {damaged.offset for damaged, _ in damages(PLACE[0])} == {0, 1, 2, 3}
    assert {damaged.offset for damaged, _ in damages(PLACE[0], recovery_point=2)} == {2, 3}
    assert {damaged.offset for damaged, _ in damages(PLACE[0], recovery_point=3)} == {2, 3}


def test_unprotected_bytes_of_a_batch_are_not_damaged() -> None:
    in_batch = {damaged.position % len(batch(0)) for damaged, _ in damages(TABLE)}
    assert not in_batch & set(range(8)), "a compacted topic has gaps, so its base offsets are not checked"
    assert not in_batch & set(range(12, 16)), "leader epoch"
    assert in_batch & set(range(8, 12))
    assert {damaged.position % len(batch(0)) for damaged, _ in damages(PLACE[0])} & set(range(8))


def test_length_before_an_incomplete_batch_is_not_damaged() -> None:
    last = [damaged for damaged, _ in damages(PLACE[0], torn=batch(4)[:30]) if damaged.offset == 3]
    assert last
    assert not [damaged for damaged in last if 8 <= damaged.position - len(batch(2)) < 12]


def test_log_in_a_segment_swap_is_not_damaged() -> None:
    assert damages(TABLE, extra=f"{0:020}.log.swap") == []


def test_only_runs_with_several_brokers_have_damaged_logs() -> None:
    single = [generate_options(seed, brokers=1, damage=True) for seed in range(20)]
    assert not any(fault.kind == DAMAGE for options in single for fault in options.faults)
    several = [generate_options(seed, brokers=3) for seed in range(100)]
    assert 10 < sum(any(fault.kind == DAMAGE for fault in options.faults) for options in several) < 60
    without = generate_options(3, brokers=3, damage=False)
    with_damage = generate_options(3, brokers=3, damage=True)
    assert [fault for fault in with_damage.faults if fault.kind != DAMAGE] == without.faults


def test_segment_that_is_damaged_already_is_damaged_again_in_another_batch() -> None:
    """No recovery has read the segment between the two faults, so the damaged batch cannot be read."""
    others = 0
    for first, medium in damages(PLACE[0]):
        intact = read_batches(written(PLACE[0]).contents(first.path))
        start = next(each.position for each in intact if each.base_offset == first.offset)
        if first.position < start + BASE_OFFSET[1]:
            continue  # the checksum does not cover the base offset: the batch can be read
        for seed in range(SEEDS // 10):
            second = damage_log(medium, ROOT, [PLACE], Random(seed))
            others += second is not None
            assert second is None or (second.path, second.offset) != (first.path, first.offset)
    assert others
