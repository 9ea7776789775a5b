"""All checkers, in the order in which their findings explain one another."""

from collections.abc import Callable, Iterator
from typing import Final

from tests.sim.checkers import groups, simple_consumers
from tests.sim.checkers.acls import check_acls
from tests.sim.checkers.coordination import check_coordinator_log, check_grammar, check_markers, check_timeouts
from tests.sim.checkers.evidence import Evidence
from tests.sim.checkers.hostile import check_hostile
from tests.sim.checkers.isolation import check_isolation
from tests.sim.checkers.records import (
    check_acknowledged,
    check_order,
    check_reads,
    check_watermarks,
    check_written_once,
)
from tests.sim.checkers.recovery import check_producer_state, check_transaction_state
from tests.sim.checkers.replicas import check_replicas
from tests.sim.checkers.table import check_table
from tests.sim.checkers.tokens import check_tokens
from tests.sim.checkers.transactions import check_atomicity, check_decisions, check_fencing


def check_agreement(evidence: Evidence) -> Iterator[str]:
    """I10: the replicas of replicas partition agree."""
    for replicas in evidence.replicas:
        yield from check_replicas(replicas.what, replicas.logs, replicas.committed)


CHECKERS: Final[tuple[Callable[[Evidence], Iterator[str]], ...]] = (
    check_acknowledged,
    check_written_once,
    check_order,
    check_reads,
    check_table,
    check_watermarks,
    check_atomicity,
    check_decisions,
    check_fencing,
    check_grammar,
    check_coordinator_log,
    check_markers,
    check_timeouts,
    check_producer_state,
    check_transaction_state,
    check_agreement,
    check_hostile,
    check_acls,
    check_isolation,
    check_tokens,
    *groups.CHECKERS,
    *simple_consumers.CHECKERS,
)
LOSSY_RUN_CHECKERS: Final = (check_producer_state, check_transaction_state, check_hostile)
"""Checkers that apply even after power cuts without flushing: the state of a broker matches its files, and no broker
carries out a forged request.
"""
FINDINGS_MAX: Final = 20


def run_checkers(evidence: Evidence) -> list[str]:
    """Return the findings of all checkers, at most FINDINGS_MAX per checker."""
    findings: list[str] = []
    for checker in LOSSY_RUN_CHECKERS if evidence.lossy else CHECKERS:
        for count, finding in enumerate(checker(evidence), 1):
            findings.append(finding)
            if count == FINDINGS_MAX:
                findings.append(f"... and more by {checker.__name__}")
                break
    return findings
