"""A short chaos run: three brokers, client processes and 10.5 seconds, of which the last 5.5 have injected faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.run import Options, Run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SECONDS = 10.5
SEED = 32
BROKERS = 3


async def test_short_run_has_no_violation(tmp_path: Path) -> None:
    options = Options(SECONDS, SEED, BROKERS)
    outcome = await Run(options, tmp_path, print).run()
    assert outcome.findings.violations == []
    assert outcome.overloaded or outcome.findings.delays == []
    counters = outcome.findings.counters
    assert sum(count for name, count in counters.items() if name.startswith("hostile: ")) > 0
    figures = outcome.figures
    assert sum(figures.faults.values()) > 0
    # A run without acknowledged operations would have no violation either.
    assert figures.records_acknowledged > 0
    assert figures.records_read > 0
    assert figures.offsets_listed > 0
    assert figures.transactions_committed > 0
    assert figures.transactions_aborted > 0
    for group in outcome.findings.groups.values():
        assert group.rebalances > 0, group
        assert group.inputs > 0, group
