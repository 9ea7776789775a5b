"""The demo as a process, its options, and its rules for missing faults."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.local.processes import has_ended
from odradek.pipeline.cluster.demo_cluster import DemoCluster
from odradek.pipeline.demo.__main__ import main, parse
from odradek.pipeline.demo.copies import DRIVER_KILLS, STEPS, copy_runs
from odradek.pipeline.demo.main_job import LOGS, clear
from odradek.pipeline.demo.report import missing_faults
from odradek.pipeline.demo.screen import batch_outcome
from odradek.pipeline.eos.plan import End, Fault
from odradek.pipeline.eos.record import Record
from odradek.pipeline.faults.broker_kills import BrokerOutage, longest_gap
from odradek.pipeline.faults.relay import HeldCommit
from odradek.pipeline.flights.plan import BrokerKill, Kill, KillKind, Target
from odradek.pipeline.producer.supervisor import Campaign, ProducerKill
from odradek.protocol.messages.end_txn import EndTxnRequest

SECONDS_MAX = 420.0
"""Maximum seconds of a short demo. It starts five JVMs, which takes minutes on a machine under load."""
END_SECONDS_MAX = 60.0
"""Maximum seconds for the end of a process: `OwnedProcess` kills after 20 s, Spark after 30 s."""
KILLED = re.compile(r"killed\W.*(run|broker) \d")
"""A line that reports a kill. The progress bars contain the word, too, but no number after it."""
SECRET_MARK = b"ScramLoginModule"
"""Text that is beside each password."""
LEAK_INTERVAL_SECONDS = 1.0
LOG_TAIL_CHARACTERS = 3_000
CLEAN_UP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def demo(out: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "odradek.pipeline.demo", "--out", str(out), *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def descendants(pid: int) -> list[int]:
    """Return the process ids of all descendants of a process."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    family = [pid]
    for member in family:
        family += parents.get(member, [])
    return family[1:]


def open_pidfds(pids: list[int]) -> dict[int, int]:
    """Return pidfds by process id, without processes that have ended."""
    descriptors: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptors[pid] = os.pidfd_open(pid)
    return descriptors


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(pid) / "cmdline").read_text().replace("\0", " ")
    return "(ended)"


def log_tails(out: Path) -> str:
    """Return the ends of the logs of a run."""
    logs = [out / name for name in LOGS if (out / name).exists()]
    return "".join(f"\n{log.name}: {log.read_text(errors='replace')[-LOG_TAIL_CHARACTERS:]}" for log in logs)


class LeakWatch:
    """Looks for credentials in command lines and environments of this process's descendants, in a thread."""

    def __init__(self) -> None:
        self.processes = 0
        self.leaks: set[str] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> LeakWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(LEAK_INTERVAL_SECONDS):
            found = descendants(os.getpid())
            self.processes = max(self.processes, len(found))
            for pid in found:
                for name in ("cmdline", "environ"):
                    with contextlib.suppress(OSError):
                        if SECRET_MARK in (Path("/proc") / str(pid) / name).read_bytes():
                            self.leaks.add(f"{name} of {command_line(pid)[:200]}")


def run_demo(out: Path, rows: int, seed: int, *options: str) -> tuple[dict[str, Any], str]:
    """Run the demo, check what each run must have reached, and return its results and its output as one line.

    The demo breaks lines at 80 columns, where they depend on the length of numbers and paths.
    """
    with demo(out, "--rows", str(rows), "--seed", str(seed), *options) as run:
        output, _ = run.communicate(timeout=SECONDS_MAX)
    assert run.returncode == 0, f"{output}{log_tails(out)}"
    result = json.loads((out / "result.json").read_text())
    assert result["passed"]
    assert (result["expected"], result["seen"]) == (rows, rows)
    for count in ("lost", "duplicated", "aborted", "altered", "wrong_groups", "wrong_hours", "lost_commits"):
        assert result[count] == 0, count
    assert len(result["kills"]) == 5
    copies = result["copies"]
    assert (copies["rows"]["expected"], copies["rows"]["seen"], copies["mixed"]) == (rows, rows, 0)
    assert copies["driver_kills"] == 3
    assert copies["faults"] == {"Python workers killed": 1}
    assert sum(kill["in_window"] for kill in result["kills"]) >= 1
    assert result["producer_runs"] == 6
    assert result["aborted_rows_in_log"] > 0
    assert "PASSED" in output
    paths = ("plot ", "results in ", "report: ")
    assert [line for line in output.splitlines() if len(line) > 80 and not line.startswith(paths)] == []
    assert f"seed {seed}" in output
    assert (out / "flights.png").read_bytes().startswith(b"\x89PNG")
    assert "Envoy Air" in (out / "flights.svg").read_text()
    return result, " ".join(output.split())


@pytest.mark.full
@pytest.mark.spark
def test_run_against_an_existing_cluster_passes(bootstrap: str, tmp_path: Path) -> None:
    result, output = run_demo(tmp_path, 3000, 11, "--bootstrap", bootstrap)
    assert result["broker_kills"] == []
    assert result["audits"] == []
    assert "The logs are not audited" in output


@pytest.mark.full
@pytest.mark.spark
def test_run_with_broker_kills_under_load_passes(tmp_path: Path) -> None:
    result, output = run_demo(tmp_path, 4000, 12)
    assert [kill["target"] for kill in result["broker_kills"]] == ["leader", "coordinator"]
    assert all(0 < kill["gap_seconds"] <= result["longest_gap_seconds"] for kill in result["broker_kills"])
    assert output.count("runs and is in sync") == 2
    assert [(audit["ok"], audit["violations"]) for audit in result["audits"]] == [(True, [])]
    assert result["audits"][0]["proven"] > 0
    assert "longest time without a commit in the run" in output
    assert "The logs are not audited" not in output


@pytest.mark.full
@pytest.mark.spark
def test_secured_run_passes_and_shows_no_secret(tmp_path: Path) -> None:
    with LeakWatch() as watch:
        result, output = run_demo(tmp_path, 4000, 13, "--secure")
    assert result["security"]["connections"] == "SASL_SSL with SCRAM-SHA-256"
    assert [user.partition("-")[0] for user in result["security"]["users"]] == ["admin", "producer", "spark", "auditor"]
    assert [(audit["ok"], audit["violations"]) for audit in result["audits"]] == [(True, [])]
    assert "security SASL_SSL with SCRAM-SHA-256, users admin, producer-13-" in output
    assert watch.processes > 5
    assert watch.leaks == set()
    password = json.loads((tmp_path / "cluster" / "cluster.users").read_text())["admin"]
    secrets = (password.encode(), SECRET_MARK)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and any(map(path.read_bytes().count, secrets))]
    assert {path.parent.name for path in written} == {"cluster"}, written
    assert [path for path in written if path.stat().st_mode & 0o077] == []


@pytest.mark.spark
@pytest.mark.parametrize("sign", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGKILL])
def test_all_processes_end_after_an_interrupted_or_killed_run(tmp_path: Path, sign: signal.Signals) -> None:
    with demo(tmp_path, "--rows", "20000", "--seed", "1") as run:
        assert run.stdout is not None
        lines = []
        for line in iter(run.stdout.readline, ""):
            lines.append(line)
            if KILLED.search(line):
                break
        else:
            pytest.fail(
                f"ended with {run.wait()} before it could be interrupted: {''.join(lines)}{log_tails(tmp_path)}"
            )
        children = open_pidfds(descendants(run.pid))
        assert len(children) >= 4, f"expected producer, JVM, broker and its watcher: {children} {''.join(lines)}"
        run.send_signal(sign)
        rest = run.stdout.read()
        code = run.wait(SECONDS_MAX)
    try:
        if sign in CLEAN_UP_SIGNALS:
            assert code == 130, rest
            assert "interrupted" in rest
            assert "Traceback" not in rest
        for child, descriptor in children.items():
            ended = has_ended(descriptor, END_SECONDS_MAX)
            assert ended, f"process {child} still runs: {command_line(child)} {rest}{log_tails(tmp_path)}"
    finally:
        for descriptor in children.values():
            os.close(descriptor)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rows", "0"], "--rows must be between 1 and 336776"),
        (["--rows", "400000"], "--rows must be between"),
        (["--seed", "x"], "invalid int value: 'x'"),
        (["--command-config", "x"], "--command-config is for --bootstrap"),
        (["--secure", "--bootstrap", "a:1"], "needs --command-config"),
    ],
)
def test_invalid_option_is_refused_with_exit_code_2(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parse(options)
    assert refused.value.code == 2
    assert message in capsys.readouterr().err


def test_help_shows_examples_without_importing_spark() -> None:
    completed = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "odradek.pipeline.demo", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "python -m odradek.pipeline.demo --bootstrap localhost:9092" in completed.stdout
    for option in ("--master", "--rows", "--out", "--seed", "--secure", "--command-config"):
        assert option in completed.stdout
    assert "pyspark" not in completed.stderr


def test_error_of_a_broker_that_cannot_start_has_its_reason(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"(?s)the brokers did not start.*{port}"):
            DemoCluster(tmp_path / "broker", tmp_path / "console", port, brokers=1)


def test_fewer_transactions_than_the_kills_need_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["--rows", "50", "--bootstrap", "127.0.0.1:1", "--out", str(tmp_path)]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "50 rows make 2 transactions, the minimum is 60" in capsys.readouterr().out


def test_clear_removes_only_files_of_the_demo(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for name in ("rows/part.parquet", "result.json", "mine.txt"):
        (tmp_path / name).write_text("old")
    clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_missing_faults_of_a_run_are_reported() -> None:
    assert missing_faults(Campaign(), Record(), 0) == [
        "only 0 of 5 kills were carried out",
        "no kill is proven to lie between EndTxn and its response",
        "the log contains no row of an aborted transaction",
        "only 0 of 3 drivers were killed",
        "no Python worker was killed",
    ]
    copies = Record()
    copies.faults[Fault.WORKERS] = 1
    for run in (*copy_runs(1), copy_runs(1)[-1]):
        copies.ended(run, 1.0)
    kill = Kill(1, KillKind.WINDOW, 1, 0.001)
    held = HeldCommit(EndTxnRequest("id", 1, 0, committed=True), sent_at=1.0, killed_at=1.001)
    proven = ProducerKill(kill, 1, 1.001, "committing", "1.1.1.commit", held)
    assert missing_faults(Campaign(kills=[proven] * 5), copies, 1) == []
    for unproven in (
        replace(proven, last_event="committed"),
        replace(proven, held_commit=None),
        replace(proven, held_commit=replace(held, killed_at=None)),
    ):
        assert not unproven.in_window
        assert len(missing_faults(Campaign(kills=[unproven] * 5), copies, 1)) == 1
    leader = BrokerOutage(BrokerKill(Target.LEADER, 20, 0.01, 3), 2, 5.0, 9.0)
    coordinator = BrokerOutage(BrokerKill(Target.COORDINATOR, 40, 0.01, 3), 1, 15.0, 19.0)
    campaign = Campaign(kills=[proven] * 5, commits=[(4.0, 1), (16.0, 1)], broker_outages=[leader])
    assert missing_faults(campaign, copies, 1) == ["only 1 of 2 brokers were killed"]
    campaign.broker_outages = [leader, coordinator]
    assert missing_faults(campaign, copies, 1) == []
    campaign.commits = [(4.0, 1), (14.0, 1)]
    assert missing_faults(campaign, copies, 1) == ["the coordinator was killed when nothing was left to commit"]


def test_outcome_of_the_last_batch_of_a_killed_driver_is_shown() -> None:
    assert batch_outcome(None, 1, {}) == ("", "no batch had begun")
    assert batch_outcome(3, 1, {3: 1}) == ("3", "visible")
    assert batch_outcome(3, 1, {3: 2}) == ("3", "aborted, then written by the next run")


@given(seed=st.integers(0, 2**31 - 1))
def test_driver_of_the_copies_is_killed_before_and_after_a_commit(seed: int) -> None:
    runs = copy_runs(seed)
    assert len(runs) == DRIVER_KILLS - 1
    assert [run.end for run in runs] == [End.STEP, End.STEP]
    assert [run.fault for run in runs] == [Fault.WORKERS, None]
    before, after = (run.end_at.step for run in runs if run.end_at is not None)
    assert before in STEPS[1:-1]
    assert after == "COMMITTED"


def test_gap_of_an_outage_is_the_longest_time_without_a_commit_until_in_sync() -> None:
    commits = [(float(time), 1) for time in (1, 2, 3, 7, 8, 20)]
    assert longest_gap(commits) == 12
    assert longest_gap(commits[:1]) == longest_gap([]) == 0
    for killed_at, in_sync_at, gap in (
        (3.5, 7.5, 4.0),
        (3.5, 6.0, 4.0),
        (7.1, 7.2, 1.0),
        (7.5, 9.0, 12.0),
        (21.0, 22.0, 0.0),
    ):
        assert BrokerOutage(BrokerKill(Target.LEADER, 1, 0.0, 0), 1, killed_at, in_sync_at).gap(commits) == gap
