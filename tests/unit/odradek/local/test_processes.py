"""Broker processes of a local cluster."""

import fcntl
import os
import resource
import select
import subprocess
import sys
from pathlib import Path

import pytest

from odradek import run_module
from odradek.local.processes import USAGE, BrokerCommand, BrokerFailed, BrokerProcess, has_ended
from odradek.local.startup import stop_after_failed_start, wait_ready

HIGH_DESCRIPTOR = 1_500


def test_end_of_a_process_is_detected_with_a_high_descriptor() -> None:
    """select() accepts descriptors below 1,024. A program that embeds a cluster can have more of them open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft <= HIGH_DESCRIPTOR:
        resource.setrlimit(resource.RLIMIT_NOFILE, (HIGH_DESCRIPTOR + 1, hard))
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    opened = os.pidfd_open(process.pid)
    descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD, HIGH_DESCRIPTOR)
    try:
        assert not has_ended(descriptor, 0)
        process.communicate(b"\n")
        assert has_ended(descriptor, 30)
    finally:
        os.close(descriptor)
        os.close(opened)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_reason_of_a_failed_start_has_all_faults_of_the_configuration(tmp_path: Path) -> None:
    config, log = tmp_path / "broker-1.properties", tmp_path / "broker-1.log"
    config.write_text(f"listeners=PLAINTEXT://127.0.0.1:0\ninter.broker.listener.name=PLAINTEXT\nlog.dirs={tmp_path}\n")
    log.write_text("a line of an earlier start\n")
    process = BrokerProcess(BrokerCommand(1, config, log, ("nonsense=1", "num.partitions=many")))
    with pytest.raises(BrokerFailed) as failed:
        wait_ready([process])
    stop_after_failed_start([process])
    assert failed.value.exit_code == USAGE
    assert str(failed.value).splitlines() == [
        "broker 1: nonsense: no such property (--set)",
        "broker 1: num.partitions: 'many' is not an integer of 32 bits (--set)",
    ]


def test_last_line_is_found_in_a_log_after_its_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerCommand, "argv", lambda _: [sys.executable, "-c", ""])
    log = tmp_path / "broker-1.log"
    log.write_text("a line of an earlier start\n" * 100)
    process = BrokerProcess(BrokerCommand(1, tmp_path / "broker-1.properties", log))
    process.join()
    assert process.last_log_line() == ""
    log.rename(tmp_path / "broker-1.log.1")
    log.write_text("the broker has rotated its log\n")
    assert process.last_log_line() == "the broker has rotated its log"


FORKED_PROCESS = """
import os, subprocess
from odradek.local.processes import Lifeline

lifeline = Lifeline()
subprocess.Popen(["cat"], stdin=lifeline.reader)
if os.fork() == 0:
    os.close(1)
    os.read(0, 1)
    os._exit(0)
print("forked", flush=True)
os.read(0, 1)
"""


def test_lifeline_ends_with_its_process_although_a_forked_child_runs() -> None:
    """`cat` stands for a broker: it ends with its standard input."""
    process = subprocess.Popen(
        [sys.executable, "-c", FORKED_PROCESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=run_module.environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"forked\n"
        process.kill()
        readable, _, _ = select.select([process.stdout], [], [], 30)
        assert readable, "cat still runs and keeps its standard output open"
        assert process.stdout.read() == b""
    finally:
        process.stdin.close()  # the forked child ends
        process.stdout.close()
        process.wait()
