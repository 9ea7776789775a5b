"""Reduce an input with a finding to fewer bytes with the same finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.verdict import MEMORY, STEPS, run_once, verify

if TYPE_CHECKING:
    from tests.fuzz.target import Target
    from tests.fuzz.verdict import Finding

ATTEMPTS_MAX = 2_000
"""Maximum executions to minimize one input."""


def minimized(target: Target, data: bytes) -> bytes:
    """Return the smallest input with the same finding that the removal of parts yields."""
    finding = verify(target, data)
    if finding is None:
        return data
    size, attempts = len(data) // 2, 0
    while size:
        at = 0
        while at < len(data) and attempts < ATTEMPTS_MAX:
            attempts += 1
            shorter = data[:at] + data[at + size :]
            if _has(target, shorter, finding):
                data = shorter
            else:
                at += size
        size //= 2
    return data


def _has(target: Target, data: bytes, finding: Finding) -> bool:
    found = verify(target, data) if finding.kind in {MEMORY, STEPS} else run_once(target, data)[0]
    return found is not None and found.key == finding.key
