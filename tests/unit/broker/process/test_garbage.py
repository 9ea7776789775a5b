"""Garbage collection of a broker: short pauses, and a bound on the memory of unreachable cycles."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from odradek.broker.process import garbage
from odradek.broker.process.garbage import COLLECT_AFTER_OBJECTS, COLLECT_MIDDLE_AFTER, MIDDLE, GarbageCollection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


OLDEST = 2


class Node:
    """Object that a test can put into a cycle."""

    def __init__(self) -> None:
        self.other: Node | None = None


@contextmanager
def collecting() -> Iterator[GarbageCollection]:
    """Begin the garbage collection of a broker in this process, and end it with the block."""
    thresholds, collection = gc.get_threshold(), GarbageCollection()
    collection.begin()
    try:
        yield collection
    finally:
        collection.end()
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # as tests/conftest.py does after the collection of the tests


def cycle() -> weakref.ref[Node]:
    """Return a reference to an object of an unreachable cycle."""
    first, second = Node(), Node()
    first.other, second.other = second, first
    return weakref.ref(first)


IMPORTS = """
import gc, runpy, sys
late = []

def count(phase, info):
    if any(name.startswith("odradek.broker.") for name in sys.modules):
        late.append(phase)

gc.callbacks.append(count)
sys.argv = ["odradek.broker", "--help"]
try:
    runpy.run_module("odradek.broker", run_name="__main__")
except SystemExit:
    gc.callbacks.clear()
    sys.exit(f"{len(late)} collections")
"""
"""Program that imports all modules of a node as a process does. It counts the collections after the first module."""


def test_a_process_imports_its_modules_without_collections() -> None:
    finished = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert "--config FILE" in finished.stdout
    assert finished.stderr == "0 collections\n"


def test_the_start_of_a_node_enables_collections() -> None:
    gc.disable()
    try:
        with collecting():
            assert gc.isenabled()
    finally:
        gc.enable()


def test_no_collection_examines_all_objects_while_objects_that_stay_are_created() -> None:
    generations: set[int] = set()
    with collecting():
        gc.callbacks.append(lambda _phase, info: generations.add(info["generation"]))
        try:
            stay = [[number] for number in range(100 * COLLECT_AFTER_OBJECTS)]
        finally:
            gc.callbacks.pop()
        assert len(gc.get_objects()) < (COLLECT_MIDDLE_AFTER + 2) * COLLECT_AFTER_OBJECTS  # the others are frozen
    assert MIDDLE in generations
    assert OLDEST not in generations
    assert len(stay) == 100 * COLLECT_AFTER_OBJECTS


def test_young_cycles_are_collected_and_frozen_objects_are_freed_by_their_reference_count() -> None:
    with collecting():
        kept = Node()
        gc.collect(MIDDLE)
        unreachable, freed = cycle(), weakref.ref(kept)
        gc.collect(MIDDLE)
        assert unreachable() is None
        assert freed() is kept
        del kept
        assert freed() is None


@pytest.mark.parametrize("grown", [0, 1])
def test_frozen_cycles_are_collected_when_the_memory_has_doubled(monkeypatch: pytest.MonkeyPatch, grown: int) -> None:
    with collecting() as collection:
        first, second = Node(), Node()
        first.other, second.other = second, first
        unreachable = weakref.ref(first)
        gc.collect(MIDDLE)
        del first, second
        gc.collect()
        assert unreachable() is not None
        assert not collection.collect_if_doubled()
        assert unreachable() is not None
        memory = list(garbage._memory())
        memory[grown] *= 3
        monkeypatch.setattr(garbage, "_memory", lambda: tuple(memory))
        assert collection.collect_if_doubled()
        assert unreachable() is None
        assert not collection.collect_if_doubled()


def test_end_freezes_no_further_objects() -> None:
    def count(_phase: str, _info: Mapping[str, int]) -> None:
        pass

    with collecting():
        pass
    frozen = gc.get_freeze_count()
    gc.callbacks.append(count)
    try:
        gc.collect(MIDDLE)
    finally:
        gc.callbacks.remove(count)
    assert gc.get_freeze_count() <= frozen
