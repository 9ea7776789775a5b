"""The demo as a user starts it: a process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.local.processes import has_ended
from odradek.pipeline.cluster.demo_cluster import DemoCluster
from odradek.pipeline.demo.__main__ import main, parse
from odradek.pipeline.demo.main_job import LOGS, clear, missing_faults
from odradek.pipeline.faults.broker_kills import BrokerOutage, longest_gap
from odradek.pipeline.faults.relay import HeldCommit
from odradek.pipeline.flights.plan import BrokerKill, Kill, KillKind, Target
from odradek.pipeline.producer.supervisor import Campaign, ProducerKill
from odradek.protocol.messages.end_txn import EndTxnRequest

SECONDS_MAX = 240.0
GONE_SECONDS_MAX = 60.0
"""A guard against what never ends: a leash allows 20 s, and then kills; Spark allows its hooks 30 s."""
KILLED = re.compile(r"killed\W.*(run|broker) \d")
"""The first word of a kill; the bars of the screen, which are shown when it ends, speak of kills too."""
LAST_WORDS_MAX = 3_000
CLEAN_UP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def demo(out: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "odradek.pipeline.demo", "--out", str(out), *options]
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


def opened(pids: list[int]) -> dict[int, int]:
    """Their descriptors, by process id; a process that has ended meanwhile has none."""
    found: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            found[pid] = os.pidfd_open(pid)
    return found


def command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return (Path("/proc") / str(pid) / "cmdline").read_text().replace("\0", " ")
    return "(gone)"


def last_words(out: Path) -> str:
    """The ends of the logs of a run."""
    logs = [out / name for name in LOGS if (out / name).exists()]
    return "".join(f"\n{log.name}: {log.read_text(errors='replace')[-LAST_WORDS_MAX:]}" for log in logs)


@pytest.mark.spark
def test_a_short_run_passes_and_leaves_its_results(bootstrap: str, tmp_path: Path) -> None:
    with demo(tmp_path, "--bootstrap", bootstrap, "--rows", "3000", "--seed", "11") as run:
        output, _ = run.communicate(timeout=SECONDS_MAX)
    assert run.returncode == 0, f"{output}{last_words(tmp_path)}"
    verdict = json.loads((tmp_path / "result.json").read_text())
    assert verdict["passed"]
    assert (verdict["expected"], verdict["seen"]) == (3000, 3000)
    for count in ("lost", "duplicated", "aborted", "altered", "wrong_groups", "wrong_hours", "lost_commits"):
        assert verdict[count] == 0, count
    assert len(verdict["kills"]) == 5
    assert sum(kill["in_window"] for kill in verdict["kills"]) >= 1
    assert verdict["producer_runs"] == 6
    assert verdict["aborted_rows_in_log"] > 0
    assert "PASSED" in output
    assert "seed 11" in output
    assert (tmp_path / "flights.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.spark
def test_brokers_die_under_load_and_the_run_passes(tmp_path: Path) -> None:
    with demo(tmp_path, "--rows", "4000", "--seed", "12") as run:
        output, _ = run.communicate(timeout=SECONDS_MAX)
    assert run.returncode == 0, f"{output}{last_words(tmp_path)}"
    verdict = json.loads((tmp_path / "result.json").read_text())
    assert verdict["passed"]
    assert [kill["target"] for kill in verdict["broker_kills"]] == ["leader", "coordinator"]
    assert all(0 < kill["gap_seconds"] <= verdict["longest_gap_seconds"] for kill in verdict["broker_kills"])
    assert output.count("runs and is in sync") == 2
    assert "longest time without a commit in the run" in output


@pytest.mark.spark
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_an_interrupted_run(tmp_path: Path, sign: signal.Signals) -> None:
    """The producer, the JVM, and the broker that the demo started for itself: all end, even with a demo that was killed."""
    with demo(tmp_path, "--rows", "20000", "--seed", "1") as run:
        assert run.stdout is not None
        said = []
        for line in iter(run.stdout.readline, ""):
            said.append(line)
            if KILLED.search(line):
                break
        else:
            pytest.fail(
                f"ended with {run.wait()} before it could be interrupted: {''.join(said)}{last_words(tmp_path)}"
            )
        children = opened(descendants(run.pid))
        assert len(children) >= 4, f"producer, JVM, broker and its leash: {children} {''.join(said)}"
        run.send_signal(sign)
        rest = run.stdout.read()
        code = run.wait(SECONDS_MAX)
    try:
        if sign in CLEAN_UP_SIGNALS:
            assert code == 130, rest
            assert "interrupted" in rest
            assert "Traceback" not in rest
        for child, descriptor in children.items():
            gone = has_ended(descriptor, GONE_SECONDS_MAX)
            assert gone, f"process {child} still runs: {command(child)} {rest}{last_words(tmp_path)}"
    finally:
        for descriptor in children.values():
            os.close(descriptor)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rows", "0"], "--rows must be between 1 and 336776"),
        (["--rows", "400000"], "--rows must be between"),
        (["--seed", "x"], "invalid int value: 'x'"),
    ],
)
def test_a_bad_option_is_refused_with_exit_code_2(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parse(options)
    assert refused.value.code == 2
    assert message in capsys.readouterr().err


def test_help_shows_examples_without_starting_anything() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "odradek.pipeline.demo", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "python -m odradek.pipeline.demo --bootstrap localhost:9092" in done.stdout
    for option in ("--master", "--rows", "--out", "--seed"):
        assert option in done.stdout
    assert "pyspark" not in done.stderr


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"(?s)the brokers did not start.*{port}"):
            DemoCluster(tmp_path / "broker", tmp_path / "console", port, brokers=1)


def test_too_few_rows_for_the_kills_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["--rows", "50", "--bootstrap", "127.0.0.1:1", "--out", str(tmp_path)]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "50 rows make 2 transactions, the minimum is 60" in capsys.readouterr().out


def test_a_demo_clears_its_own_results_only(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for name in ("rows/part.parquet", "result.json", "mine.txt"):
        (tmp_path / name).write_text("old")
    clear(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_run_that_was_not_hard_enough_does_not_pass() -> None:
    assert missing_faults(Campaign(), 0) == [
        "only 0 of 5 kills were carried out",
        "no kill is proven to lie between EndTxn and its response",
        "the log contains no row of an aborted transaction",
    ]
    kill = Kill(1, KillKind.WINDOW, 1, 0.001)
    caught = HeldCommit(EndTxnRequest("id", 1, 0, committed=True), sent_at=1.0, killed_at=1.001)
    proven = ProducerKill(kill, 1, 1.001, "committing", "1.1.1.commit", caught)
    assert missing_faults(Campaign(kills=[proven] * 5), 1) == []
    for doubtful in (
        replace(proven, last_event="committed"),
        replace(proven, held_commit=None),
        replace(proven, held_commit=replace(caught, killed_at=None)),
    ):
        assert not doubtful.in_window
        assert len(missing_faults(Campaign(kills=[doubtful] * 5), 1)) == 1
    leader = BrokerOutage(BrokerKill(Target.LEADER, 20, 0.01, 3), 2, 5.0, 9.0)
    coordinator = BrokerOutage(BrokerKill(Target.COORDINATOR, 40, 0.01, 3), 1, 15.0, 19.0)
    campaign = Campaign(kills=[proven] * 5, commits=[(4.0, 1), (16.0, 1)], broker_outages=[leader])
    assert missing_faults(campaign, 1) == ["only 1 of 2 brokers were killed"]
    campaign.broker_outages = [leader, coordinator]
    assert missing_faults(campaign, 1) == []
    campaign.commits = [(4.0, 1), (14.0, 1)]
    assert missing_faults(campaign, 1) == ["the coordinator was killed when nothing was left to commit"]


def test_the_gap_of_a_death_is_the_longest_wait_for_a_commit_until_the_broker_is_back() -> None:
    commits = [(float(at), 1) for at in (1, 2, 3, 7, 8, 20)]
    assert longest_gap(commits) == 12
    assert longest_gap(commits[:1]) == longest_gap([]) == 0
    for at, back_at, gap in ((3.5, 7.5, 4.0), (3.5, 6.0, 4.0), (7.1, 7.2, 1.0), (7.5, 9.0, 12.0), (21.0, 22.0, 0.0)):
        assert BrokerOutage(BrokerKill(Target.LEADER, 1, 0.0, 0), 1, at, back_at).gap(commits) == gap
