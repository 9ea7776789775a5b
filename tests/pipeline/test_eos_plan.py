"""Plan of the exactly-once campaign: properties that hold for all seeds."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.cluster.access import Access
from odradek.pipeline.eos.driver import STOCK_STEPS, Task, decode
from odradek.pipeline.eos.plan import FAULTS, KILLS, End, Fault, Mode, Pause, Run, generate, more_runs
from odradek.pipeline.eos_campaign import parse, show, steps_of

SEEDS = st.integers(0, 2**31 - 1)
MODES = st.sampled_from(list(Mode))
PARTITIONS = 4


@given(seed=SEEDS, mode=MODES)
def test_each_step_has_two_kills_and_the_driver_twelve(seed: int, mode: Mode) -> None:
    plan = generate(seed, mode, steps_of(mode), PARTITIONS)
    kills = Counter(run.end_at.step for run in plan if run.end is End.STEP and run.end_at is not None)
    assert set(kills) == set(steps_of(mode))
    assert min(kills.values()) >= 2
    assert sum(run.end in KILLS for run in plan) >= 12
    assert [run.number for run in plan] == list(range(1, len(plan) + 1))


@given(seed=SEEDS, mode=MODES)
def test_each_kind_of_fault_and_end_is_planned(seed: int, mode: Mode) -> None:
    plan = generate(seed, mode, steps_of(mode), PARTITIONS)
    faults = Counter(run.fault for run in plan if run.fault is not None)
    ends = {run.end for run in plan}
    if mode is Mode.STOCK:
        assert ends == {End.STEP, End.RANDOM, End.COMMIT_LOG}
        assert set(faults) == {Fault.LEADER, Fault.PARTITIONS}
    else:
        assert ends == set(End)
        assert faults == Counter(FAULTS)


@given(seed=SEEDS)
def test_stock_sink_has_no_kill_of_python_workers_which_it_does_not_use(seed: int) -> None:
    steps = steps_of(Mode.STOCK)
    more = islice(more_runs(seed, Mode.STOCK, steps, PARTITIONS), 20)
    assert all(run.fault is not Fault.WORKERS for run in (*generate(seed, Mode.STOCK, steps, PARTITIONS), *more))


@given(seed=SEEDS, mode=MODES)
def test_a_run_completes_a_batch_before_its_first_pause(seed: int, mode: Mode) -> None:
    steps = steps_of(mode)
    plan = generate(seed, mode, steps, PARTITIONS)
    for run in (*plan, *islice(more_runs(seed, mode, steps, PARTITIONS), 20)):
        batches = [pause.batches for pause in run.pauses]
        assert min(batches, default=1) >= 1
        assert batches == sorted(set(batches))
        assert (run.fault is None) == (run.fault_at is None)
        assert (run.end is End.COMMIT_LOG) == (run.end_at is None)
        assert all(pause.step in steps for pause in run.pauses)
        assert 0 <= run.partition < PARTITIONS


@given(seed=SEEDS, mode=st.sampled_from([Mode.TXN, Mode.TWO_PHASE]))
def test_a_replaced_driver_has_a_request_left_that_is_fenced(seed: int, mode: Mode) -> None:
    for run in generate(seed, mode, steps_of(mode), PARTITIONS):
        if run.end is End.REPLACED:
            assert run.end_at is not None
            assert run.end_at.step not in {"OPENED", "ONE_COMPLETED", "COMMITTED"}


def test_plan_depends_on_the_seed_alone() -> None:
    assert generate(7, Mode.TXN, steps_of(Mode.TXN), 4) == generate(7, Mode.TXN, steps_of(Mode.TXN), 4)
    assert generate(7, Mode.TXN, steps_of(Mode.TXN), 4) != generate(8, Mode.TXN, steps_of(Mode.TXN), 4)


def test_stock_sink_has_its_own_steps() -> None:
    assert steps_of(Mode.STOCK) == STOCK_STEPS
    assert "COMMITTED" in steps_of(Mode.KAFKA)


def test_task_is_decoded_from_its_line() -> None:
    task = Task(
        3,
        Access("a:1", {"sasl.mechanism": "PLAIN"}),
        "in",
        "/c",
        60,
        "1 second",
        {"topic": "out"},
        stock=False,
        available_now=True,
        pauses=(Pause(1, "BEGUN"),),
    )
    assert decode(task.encode()) == task


def test_pauses_of_a_run_are_in_order() -> None:
    fault, end = Pause(1, "BEGUN"), Pause(3, "WRITTEN")
    assert Run(1, Fault.WORKERS, fault, End.STEP, end, 0.0).pauses == [fault, end]
    assert Run(1, None, None, End.COMMIT_LOG, None, 0.0).pauses == []


@pytest.mark.parametrize("mode", list(Mode))
def test_command_line_knows_each_mode(mode: Mode) -> None:
    assert parse(["--mode", mode]).mode == mode
    assert parse(["--mode", mode, "--seed", "0"]).seed == 0


def test_lines_have_at_most_80_columns_and_keep_their_table(capsys: pytest.CaptureFixture[str]) -> None:
    show(f"{'rows lost':<54} {0:>9}")
    show("run 3: " + "killed and restarted " * 6)
    table, *wrapped = capsys.readouterr().out.splitlines()
    assert table == "rows lost" + " " * 54 + "0"
    assert len(wrapped) == 2
    assert max(map(len, wrapped)) <= 80
