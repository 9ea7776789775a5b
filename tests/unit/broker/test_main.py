"""The broker process: output, exit codes, imports and limits."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.source_commit import source_commit
from odradek.version import __version__

STARTS_WITHIN_S = 30


NO_SECRET = (
    "cluster.secret.file: not set, but the cluster has other nodes. Make one file for all nodes with: openssl rand "
    "-base64 32. Or set odradek.inter.broker.authentication=none"
)
MISSING_SECRET = (
    "cluster.secret.file: /no/such/file: No such file or directory; make it with: openssl rand -base64 32, and copy it "
    "to all nodes"
)
SINGLE_LISTENER = ("--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "inter.broker.listener.name=PLAINTEXT")

NO_INTER_BROKER_LISTENER = (
    "inter.broker.listener.name: not set; name a listener that clients cannot reach, or the only listener to serve "
    "clients and brokers on it"
)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "odradek.broker", *arguments]


def run_broker(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=STARTS_WITHIN_S,
        env={**os.environ, **(environment or {})},
        check=False,
    )


def start_broker(path: Path, *arguments: str) -> tuple["subprocess.Popen[str]", str]:
    """Start a broker. Return its process and its ready line."""
    process = subprocess.Popen(
        command("--set", f"log.dirs={path}", *SINGLE_LISTENER, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline()


def request_stop(process: "subprocess.Popen[str]", method: str) -> None:
    """End the standard input of a broker, or send it the signal that `method` names."""
    if method == "stdin":
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    else:
        process.send_signal(getattr(signal, method))


@pytest.mark.parametrize(
    ("arguments", "environment", "line"),
    [
        (["--set", "num.partitions=0"], {}, "num.partitions: 0 is below the smallest allowed value, 1 (--set)"),
        (["--set", "nonsense=1"], {}, "nonsense: no such property (--set)"),
        ([], {}, "log.dirs: not set; set it to the data directory"),
        (["--config", "/no/such/file"], {}, "/no/such/file: No such file or directory"),
        (
            ["--set", "log.dirs=/data"],
            {},
            NO_INTER_BROKER_LISTENER,
        ),
        (
            ["--set", "log.dirs=/data", *SINGLE_LISTENER, "--set", "controller.quorum.voters=1@a:1,2@b:1"],
            {},
            NO_SECRET,
        ),
        (
            ["--set", "log.dirs=/data", *SINGLE_LISTENER, "--set", "cluster.secret.file=/no/such/file"],
            {},
            MISSING_SECRET,
        ),
        ([], {"ODRADEK_NODE_ID": "x"}, "node.id: 'x' is not an integer of 32 bits (environment ODRADEK_NODE_ID)"),
    ],
)
def test_invalid_configuration_is_reported_with_exit_code_2(
    arguments: list[str], environment: dict[str, str], line: str
) -> None:
    completed = run_broker(*arguments, environment=environment)
    assert (completed.returncode, completed.stdout, completed.stderr.splitlines()[0]) == (2, "", line)


@pytest.mark.parametrize("stop_method", ["SIGTERM", "SIGINT", "stdin"])
def test_broker_prints_ready_stops_cleanly_and_logs_to_standard_error(tmp_path: Path, stop_method: str) -> None:
    process, ready = start_broker(tmp_path, "--stop-with-stdin", "--set", "odradek.log.format=json")
    try:
        assert ready.startswith("ready 127.0.0.1:")
        second = run_broker("--set", f"log.dirs={tmp_path}", *SINGLE_LISTENER)
        assert second.returncode == 1
        assert second.stderr.splitlines()[-1] == f"{tmp_path}: the directory is in use by another process"
        request_stop(process, stop_method)
        out, err = process.communicate(timeout=STARTS_WITHIN_S)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, "")
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    listening = next(line for line in err.splitlines() if '"event": "listening"' in line)
    assert str(tmp_path) in listening
    assert '"node": 1' in listening
    starting = json.loads(err.splitlines()[0])
    assert starting["event"] == "broker starting"
    assert (starting["version"], starting["commit"]) == (__version__, source_commit())


@pytest.mark.parametrize("stop_method", ["SIGTERM", "stdin"])
def test_broker_stops_while_it_waits_for_the_controllers(tmp_path: Path, stop_method: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(STARTS_WITHIN_S)
        settings = {
            "log.dirs": str(tmp_path),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "inter.broker.listener.name": "PLAINTEXT",
            "process.roles": "broker",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}",
        }
        assignments = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        process = subprocess.Popen(
            command("--stop-with-stdin", *assignments), stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            with silent.accept()[0]:
                request_stop(process, stop_method)
                _, err = process.communicate(timeout=STARTS_WITHIN_S)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == 0
    assert "broker stopped before it was ready" in err


def test_broker_imports_no_package_of_the_command_line_or_of_clients() -> None:
    heavy = {"rich", "pygments", "typer", "click", "numpy", "confluent_kafka"}
    program = (
        f"import odradek.broker.__main__, sys; loaded = {{name.partition('.')[0] for name in sys.modules}};"
        "own = [name for name in sys.modules if name.startswith(('odradek.local', 'odradek.commands'))];"
        f"print(sorted({heavy!r} & loaded), own)"
    )
    completed = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=STARTS_WITHIN_S, check=True
    )
    assert completed.stdout == "[] []\n"


@pytest.mark.parametrize("single", [True, False])
def test_warning_is_logged_if_clients_and_brokers_share_the_only_listener(tmp_path: Path, *, single: bool) -> None:
    listeners = "listeners=PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0", "inter.broker.listener.name=INTERNAL"
    options = () if single else tuple(word for setting in listeners for word in ("--set", setting))
    process, ready = start_broker(tmp_path, "--stop-with-stdin", *options)
    assert ready.startswith("ready ")
    _, log = process.communicate(timeout=STARTS_WITHIN_S)
    warnings = [line for line in log.splitlines() if "listener serves clients and brokers" in line]
    assert len(warnings) == int(single)
    assert all("listener=PLAINTEXT" in line for line in warnings)


def test_broker_raises_its_limit_of_open_files_to_the_hard_limit(tmp_path: Path) -> None:
    program = (
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096));"
        "os.execv(sys.executable, sys.argv[1:])"
    )
    arguments = command("--set", f"log.dirs={tmp_path}", *SINGLE_LISTENER)
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        limits = Path(f"/proc/{process.pid}/limits").read_text(encoding="utf-8")
        [line] = [line for line in limits.splitlines() if line.startswith("Max open files")]
        assert line.split()[3:5] == ["4096", "4096"]
    finally:
        process.kill()
        process.communicate()
