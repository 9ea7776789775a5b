"""The demo as a user starts it: a process."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SECONDS_MAX = 240.0
GONE_SECONDS_MAX = 30.0
CLEAN_UP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def demo(bootstrap: str, out: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pipeline.demo", "--bootstrap", bootstrap, "--out", str(out), *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def descendants(pid: int) -> list[int]:
    """All processes below this one, by parent."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found[1:]


def test_a_short_run_passes_and_leaves_its_results(bootstrap: str, tmp_path: Path) -> None:
    with demo(bootstrap, tmp_path, "--rows", "3000", "--seed", "11") as run:
        output, _ = run.communicate(timeout=SECONDS_MAX)
    assert run.returncode == 0, output
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    assert verdict["passed"]
    assert (verdict["expected"], verdict["seen"]) == (3000, 3000)
    for count in ("lost", "duplicated", "aborted", "altered", "wrong_groups", "wrong_hours", "forgotten"):
        assert verdict[count] == 0, count
    assert len(verdict["kills"]) == 5
    assert sum(kill["in_window"] for kill in verdict["kills"]) >= 1
    assert verdict["producer_lives"] == 6
    assert verdict["aborted_rows_in_log"] > 0
    assert "PASSED" in output
    assert "seed 11" in output
    assert (tmp_path / "flights.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_an_interrupted_run(bootstrap: str, tmp_path: Path, sign: signal.Signals) -> None:
    with demo(bootstrap, tmp_path, "--rows", "20000", "--seed", "1") as run:
        assert run.stdout is not None
        lines = iter(run.stdout.readline, "")
        seen = next((line for line in lines if "killed" in line), None)
        assert seen is not None, "the run ended before it could be interrupted"
        children = {child: os.pidfd_open(child) for child in descendants(run.pid)}
        assert children
        run.send_signal(sign)
        rest = run.stdout.read()
        code = run.wait(SECONDS_MAX)
    try:
        if sign in CLEAN_UP_SIGNALS:
            assert code == 130, rest
            assert "interrupted" in rest
            assert "Traceback" not in rest
        for child, descriptor in children.items():
            assert select.select([descriptor], [], [], GONE_SECONDS_MAX)[0], f"process {child} still runs"
    finally:
        for descriptor in children.values():
            os.close(descriptor)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rows", "0"], r"--rows must lie between 1 and 336776"),
        (["--rows", "400000"], r"--rows must lie between"),
        (["--seed", "x"], r"invalid int value: 'x'"),
    ],
)
def test_a_bad_option_is_one_line_and_exit_code_2(options: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.demo", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 2
    assert re.search(message, done.stderr)


def test_help_shows_examples() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.demo", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS_MAX,
    )
    assert "python -m pipeline.demo --bootstrap localhost:9092" in done.stdout
    for option in ("--master", "--rows", "--out", "--seed"):
        assert option in done.stdout
