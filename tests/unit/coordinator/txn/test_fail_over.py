"""Fail-over of the coordinator at each step of a transaction."""

from pathlib import Path

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.txn_state import TxnState
from tests.support.fail_over import World, two_transactions
from tests.support.txn_rig import ID

STEPS = 10
"""Steps of two transactions in `World`. test_number_of_steps_is_current compares the number with a run."""
COMPLETE_HISTORY = ["data", "COMMIT", "data", "ABORT"]


@pytest.mark.parametrize("level", [0, 2])
async def test_number_of_steps_is_current(tmp_path: Path, level: int) -> None:
    world = World(tmp_path, lose_at=None, keeps=True, zombie=False, level=level)
    await two_transactions(world)
    assert world.steps == STEPS
    assert [world.history(index) for index in (0, 1)] == [COMPLETE_HISTORY, COMPLETE_HISTORY]


@pytest.mark.parametrize("zombie", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("lose_at", range(STEPS))
async def test_transaction_is_atomic_after_a_fail_over_at_any_step(
    tmp_path: Path, lose_at: int, level: int, keeps: bool, zombie: bool
) -> None:
    world = World(tmp_path, lose_at=lose_at, keeps=keeps, zombie=zombie, level=level)
    await two_transactions(world)
    assert world.lost
    assert [world.history(index) for index in (0, 1)] == [COMPLETE_HISTORY, COMPLETE_HISTORY]
    assert [world.stable(index) for index in (0, 1)] == [True, True]
    described = await world.coordinator.describe(ID)
    assert described.transaction.state is TxnState.COMPLETE_ABORT
    # Markers that the old coordinator sent before its failure arrive now. They change nothing.
    world.deliver_late()
    assert set(world.late_errors) <= {ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
    assert [world.history(index) for index in (0, 1)] == [COMPLETE_HISTORY, COMPLETE_HISTORY]
    assert world.failures == []
