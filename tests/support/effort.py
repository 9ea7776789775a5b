"""Number of examples of randomized tests: `pytest --full` (make test-all) tries FULL_FACTOR times as many as `make
test`.
"""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

FULL_FACTOR = 8
_factor = 1


def raise_effort() -> None:
    """Try FULL_FACTOR times as much. The plugin tests.support.selection calls this before tests are collected."""
    global _factor  # noqa: PLW0603  one effort per process
    _factor = FULL_FACTOR


def effort(count: int) -> int:
    """Return how many examples or seeds a test tries that tries `count` in `make test`."""
    return count * _factor


def run_machine(machine: type[RuleBasedStateMachine], *, examples: int, steps: int) -> None:
    """Run sequences of operations on a state machine: `examples` in `make test`, each of at most `steps` operations."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=effort(examples),
            stateful_step_count=steps,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
