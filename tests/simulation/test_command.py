"""The command line and the decorator: campaigns in child processes, reports that replay, and the hash seed."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from odradek.simulation.__main__ import FAILED, IMPOSSIBLE, PASSED, main
from tests.simulation.apps import counters

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).resolve().parents[2]
COUNTERS: Final = "tests.simulation.apps.counters"
COPY: Final = "tests.simulation.apps.copy:correct"
ESCAPE: Final = "The application uses a thread (tests/simulation/apps/counters.py, line "
END_SECONDS_MAX: Final = 120.0
"""Longest wait for the start or the end of a process on a busy machine."""
needs_hash_seed = pytest.mark.skipif(os.environ.get("PYTHONHASHSEED") != "0", reason="needs PYTHONHASHSEED=0")


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@needs_hash_seed
def test_decorated_test_fails_with_a_smaller_failure_that_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(pytest.fail.Exception) as failed:
        patch.setenv("PYTHONHASHSEED", "7")
        counters.repeats_a_step()
    report = str(failed.value)
    assert report.startswith("seed 2 failed")
    assert re.search(r"reduced to 1 of \d faults", report)
    assert re.search(r"^  fault: .* crash application 1", report, re.MULTILINE)
    assert "application-1  crashes" in report
    finding = re.findall(r"^  (finding: .*)$", report, re.MULTILINE)[0]
    # Spark adds its folder to sys.path of the process, and the replay then has it in PYTHONPATH.
    replay = re.findall(r"^replay: (?:PYTHONPATH=\S+ )?python -m odradek.simulation (.*)$", report, re.MULTILINE)[0]
    trace = re.findall(r"^reduced to .* (trace \w+)", report, re.MULTILINE)[0]
    # In this process, other tests have run the module, and its checker would find that.
    command = [sys.executable, "-m", "odradek.simulation", *shlex.split(replay)]
    replayed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert replayed.returncode == FAILED, replayed.stderr
    assert finding in replayed.stdout
    assert trace in replayed.stdout


def test_decorated_test_passes_if_all_seeds_pass() -> None:
    """A checker compares module state, too: it does not pass from one seed to the next."""
    counters.correct()


def test_equal_seeds_give_equal_output_for_all_hash_seeds() -> None:
    # The unused variable moves the stack and the heap, so that addresses differ.
    runs = [
        subprocess.run(
            [sys.executable, "-m", "odradek.simulation", COPY, "--seed", "3", "--records", "9"],
            env={**os.environ, "PYTHONHASHSEED": str(size), "UNUSED": "x" * size},
            capture_output=True,
            text=True,
            check=False,
        )
        for size in (1, 3000)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert "trace " in runs[0].stdout, runs[0].stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("counters", "--seed", "1"), "'counters' has no colon. Use MODULE:FUNCTION"),
        (("absent.py:test", "--seed", "1"), "The file absent.py does not exist."),
        (("absent.module:test", "--seed", "1"), "There is no module absent.module. Run the command in its folder"),
        ((f"{COUNTERS}:absent", "--seed", "1"), "has no 'absent'. Name a function"),
        ((f"{COUNTERS}:correct", "--seed", "2", "--faults", "99"), "Seed 2 has no fault 99. Use numbers from 1 to"),
        ((f"{COUNTERS}:escapes", "--seed", "2"), ESCAPE),
        pytest.param((f"{COUNTERS}:escapes", "--seeds", "2..3"), ESCAPE, marks=pytest.mark.full),
        pytest.param((f"{COUNTERS}:escapes", "--seeds", "2..3"), "The run of seed 2 failed:\n", marks=pytest.mark.full),
    ],
)
@needs_hash_seed
def test_impossible_run_is_an_error_with_the_remedy(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == IMPOSSIBLE
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seeds", "5..3"), "5..3 contains no seed"),
        (("--seed", "-1"), "-1 is below 0"),
        (("--seed", "1", "--records", "-1"), "-1 is below 0"),
        (("--seed", "1", "--until", "0"), "0 is not above 0"),
        (("--seed", "1", "--duration", "-2"), "-2 is not above 0"),
    ],
    ids=" ".join,
)
def test_number_out_of_range_is_refused_with_its_option(
    arguments: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f"{COUNTERS}:correct", *arguments])
    assert ended.value.code == IMPOSSIBLE
    assert f"argument {arguments[-2]}: {message}" in capsys.readouterr().err


def test_progress_of_a_reduction_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "odradek.simulation", f"{COUNTERS}:repeats_a_step", "--seeds", "2..3"]
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == FAILED
    first, *later = failed.stderr.splitlines()
    assert first == "seed 2 failed; it is repeated and reduced in at most 40 runs"
    assert later
    for line in later:
        assert re.fullmatch(r"seed 2: run \d+ of at most 40, \d+ faults, \d+\.\d virtual seconds", line)
        assert len(line) <= 80


@needs_hash_seed
def test_passing_seed_ends_with_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"{COUNTERS}:correct", "--seed", "2", "--events", "1"]) == PASSED
    assert capsys.readouterr().out.startswith("seed 2 passed")


def test_killed_test_leaves_no_run(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    code = f"from {COUNTERS} import loops; loops()"
    test = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "LOOPING": str(file)})
    try:
        wait_until(file.exists)
    finally:
        test.kill()
        test.wait()
    run = int(file.read_text())
    try:
        wait_until(lambda: not is_running(run))
    finally:
        with suppress(ProcessLookupError):
            os.kill(run, signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Return True if the process exists and has not ended. A container may have no process that reaps it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + END_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
