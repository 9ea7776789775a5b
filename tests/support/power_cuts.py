"""All states of one log on a simulated medium after a power cut."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import product

from odradek.simulation.environment.medium import Inode, Medium, apply_operation
from odradek.storage.files.names import LOG_SUFFIX

LOSABLE_MAX = 8
"""Un-synced operations on log files: each is kept or dropped, and all combinations are tried."""


def survivors(medium: Medium, directory: str) -> Iterator[Medium]:
    """Every medium that may be found after it: any subset of what was done to log files, any prefix of what was done to
    names.

    Of the other files everything is kept: recovery of a segment that has no recovery start makes them again, or they
    have a checksum of their own.
    """
    for names_kept in range(len(medium.directory(directory).pending) + 1):
        losable = sum(len(inode.unsynced) for inode in _log_files(_copy(medium, directory, names_kept), directory))
        assert losable <= LOSABLE_MAX, losable
        for fates in product((True, False), repeat=losable):
            survivor = _copy(medium, directory, names_kept)
            lose(survivor, directory, fates)
            yield survivor


def lose(medium: Medium, directory: str, kept: Sequence[bool]) -> None:
    """Power is lost: of the operations on log files, in the order of their names, those stay that are `kept`."""
    fates = iter(kept)
    logs = _log_files(medium, directory)
    for entry in medium.directory(directory).live.values():
        assert isinstance(entry, Inode)
        for operation in entry.unsynced:
            if not any(entry is each for each in logs):
                apply_operation(entry.durable, operation)
    for inode in logs:
        for operation in inode.unsynced:
            if next(fates):
                apply_operation(inode.durable, operation)
    for entry in medium.directory(directory).live.values():
        assert isinstance(entry, Inode)
        entry.live = bytearray(entry.durable)
        entry.unsynced.clear()


def _copy(medium: Medium, directory: str, names_kept: int) -> Medium:
    copied = deepcopy(medium)
    held = copied.directory(directory)
    held.make_durable(names_kept)
    held.live = dict(held.durable)
    held.pending.clear()
    return copied


def _log_files(medium: Medium, directory: str) -> list[Inode]:
    live = sorted(medium.directory(directory).live.items())
    return [entry for name, entry in live if isinstance(entry, Inode) and name.endswith(LOG_SUFFIX)]
