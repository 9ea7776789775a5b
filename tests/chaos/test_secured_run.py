"""Secured chaos runs of some seconds: one without a fault of the brokers, and one whose brokers ignore ACLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.run import Options, Run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.full, pytest.mark.timeout(400)]

SECONDS = 20.0
SEED = 32


async def test_secured_run_changes_its_security_and_has_no_violation(tmp_path: Path) -> None:
    outcome = await Run(Options(SECONDS, SEED, secure=True), tmp_path, print).run()
    assert outcome.findings.violations == []
    assert outcome.overloaded or outcome.findings.delays == []
    counters = outcome.findings.counters
    for name in (
        "certificates replaced",
        "ACL removed and added",
        "brokers accept a new signing key",
        "operations denied to a user without ACLs",
    ):
        assert counters[f"security: {name}"] > 0, name
    assert counters["hostile: reading without rights"] > 0
    assert outcome.figures.transactions_committed > 0


async def test_brokers_that_ignore_acls_are_found(tmp_path: Path) -> None:
    outcome = await Run(Options(SECONDS, SEED, secure=True, planted=True), tmp_path, print).run()
    found = [line for line in outcome.findings.violations if "a user without ACLs learnt" in line]
    assert found, outcome.findings.violations
