"""Command line: processes, exit codes, and errors of one line."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from odradek import BrokerFailed, BrokerNotRunning, LocalCluster, __version__
from odradek.local.directory import ClusterDirectory
from odradek.local.launch import BROKERS_DEFAULT
from odradek.local.processes import ProcessId
from tests.support.command_line import (
    ODRADEK,
    TIMEOUT_S,
    json_output,
    odradek,
    shorter_path,
    terminal,
    without_progress,
)
from tests.support.ports import one_taken

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(settings={"num.partitions": 2}) as running:
        yield running


def test_up_detach_starts_a_broker_and_down_stops_it(tmp_path: Path) -> None:
    started = odradek("up", "--brokers", "1", "--dir", str(tmp_path), "--port", "0", "--detach")
    assert started.returncode == 0, started.stderr
    word, endpoint = started.stdout.split()
    try:
        assert word == "ready"
        producer = Producer({"bootstrap.servers": endpoint, "transactional.id": "first"})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("greetings", b"hello")
        producer.commit_transaction(TIMEOUT_S)
        state = json_output("status", "--dir", str(tmp_path))
        assert [broker["running"] for broker in state["brokers"]] == [True]
        assert [row["high_watermark"] for row in state["partitions"] if row["topic"] == "greetings"] == [2]
        repeated = odradek("up", "--dir", str(tmp_path), "--port", "0")
        assert repeated.returncode == 1
        assert "odradek down" in repeated.stderr
        again = odradek("up", "--dir", str(tmp_path), "-d")
        assert (again.returncode, again.stdout) == (0, started.stdout)
        assert f"odradek down --dir {shorter_path(tmp_path)}" in again.stderr
        assert f'Producer({{"bootstrap.servers": "{endpoint}"}})' in again.stderr
        conflict = odradek("up", "--dir", str(tmp_path), "-d", "--brokers", "3")
        assert (conflict.returncode, conflict.stdout) == (1, "")
    finally:
        stopped = odradek("down", "--dir", str(tmp_path))
    assert stopped.stdout == "broker 1 stopped\nstopped 1 of 1 brokers\n"
    assert odradek("status", "--dir", str(tmp_path)).returncode == 1
    events = (tmp_path / "broker-1.log").read_text()
    assert events.index("broker starting") < events.index("broker stopped")
    assert f"version={__version__}" in events


def test_up_in_the_foreground_stops_the_broker_on_interrupt(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [str(ODRADEK), "up", "--dir", str(tmp_path), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=terminal(),
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready 127.0.0.1:")
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT_S) == 0
    process.stdout.close()
    assert (tmp_path / "broker-1" / ".kafka_cleanshutdown").exists()


def test_brokers_stopped_by_sigstop_shut_down_cleanly(tmp_path: Path) -> None:
    with LocalCluster(directory=tmp_path) as cluster:
        cluster.pause(1)
    assert (tmp_path / "broker-1" / ".kafka_cleanshutdown").exists()
    started = odradek("up", "--dir", str(tmp_path), "--detach")
    assert started.returncode == 0, started.stderr
    state = ClusterDirectory(tmp_path).read_state()
    assert state is not None
    state.running[1].signal(signal.SIGSTOP)
    stopped = odradek("down", "--dir", str(tmp_path))
    assert (stopped.returncode, stopped.stdout) == (0, "broker 1 stopped\nstopped 1 of 1 brokers\n")
    assert (tmp_path / "broker-1" / ".kafka_cleanshutdown").exists()


def test_brokers_of_local_cluster_end_when_its_process_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from odradek import LocalCluster\n"
        f"cluster = LocalCluster(directory={str(tmp_path)!r}); cluster.start()\n"
        "print(cluster.pid(1), flush=True); time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    broker = ProcessId.of(int(parent.stdout.readline()))
    assert broker is not None
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert broker.wait_ended(TIMEOUT_S)


def test_up_on_a_port_in_use_is_refused_with_one_line(tmp_path: Path) -> None:
    with one_taken(BROKERS_DEFAULT, 0) as ports:
        port = ports[0]
        finished = odradek("up", "--dir", str(tmp_path / "new"), "--port", str(port), "--detach")
    assert finished.returncode == 1
    assert str(port) in finished.stderr
    assert "in use" in finished.stderr
    assert list(tmp_path.iterdir()) == []
    assert len(list(without_progress(finished.stderr.splitlines()))) == 1


def test_commands_that_change_a_cluster_find_it_by_its_directory(cluster: LocalCluster) -> None:
    where = ("--dir", str(cluster.directory.path))
    changed = (
        ("topics", "create", "changes"), ("partitions", "add", "changes", "3"),
        ("produce", "changes", "v", "--partition", "0"),
        ("records", "delete", "changes:0", "--all"), ("quotas", "set", "request_percentage=50", "--user", "alice"),
        ("partitions", "elect", "changes"),
    )  # fmt: skip
    for words in changed:
        finished = odradek(*words, *where)
        assert finished.returncode == 0, (words, finished.stderr)
    assert [row["log_start_offset"] for row in json_output("topics", "describe", "changes", *where)] == [1, 0, 0]
    quota = {"entity": {"user": "alice"}, "quotas": {"request_percentage": 50}}
    assert json_output("quotas", "list", *where) == [quota]
    assert odradek("quotas", "remove", "request_percentage", "--user", "alice", *where).returncode == 0
    assert json_output("quotas", "list", *where) == []
    assert json_output("health", *where) == {"healthy": True, "problems": []}
    assert "transaction.version" in odradek("features", "list", *where).stdout
    assert "1 | " in odradek("logs", *where).stdout


def test_data_directory_in_use_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    data = cluster.directory.data(1)
    with pytest.raises(BrokerFailed) as failed:
        LocalCluster(directory=tmp_path, settings={"log.dirs": data}).start()
    assert str(data) in str(failed.value)
    assert "in use" in str(failed.value)


@pytest.mark.parametrize("setting", ["num.partitions=many", "no.such.property=1", "log.segment.bytes=-5", "nonsense"])
def test_broker_refuses_invalid_configuration_with_one_line_and_exit_code_2(tmp_path: Path, setting: str) -> None:
    config = tmp_path / "broker.properties"
    config.write_text(
        "node.id=1\ninter.broker.listener.name=PLAINTEXT\nlisteners=PLAINTEXT://127.0.0.1:0\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    finished = odradek("broker", "--config", str(config), "--set", setting)
    assert finished.returncode == 2
    assert setting.partition("=")[0] in finished.stderr
    assert len(finished.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("setting", ["num.partitions=many", "no.such.property=1", "nonsense"])
def test_up_prints_the_broker_error_of_an_invalid_configuration(tmp_path: Path, setting: str) -> None:
    finished = odradek("up", "--dir", str(tmp_path), "--port", "0", "--detach", "--set", setting)
    assert finished.returncode == 2
    [reason] = without_progress(finished.stderr.splitlines())
    assert setting.partition("=")[0] in reason


@pytest.mark.parametrize("command", [("up", "--port", "0", "--detach"), ("status",), ("down",)])
def test_file_as_directory_is_refused_with_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / ("a file with a name that is longer than a narrow terminal is wide, which must " + "not wrap it")
    file.touch()
    finished = odradek(*command, "--dir", str(file), columns=40)
    assert finished.returncode == 2
    assert f"{file} is a file; name another with --dir" in finished.stderr
    assert len(finished.stderr.strip().splitlines()) == 1


def test_options_before_a_subcommand_apply_to_it(cluster: LocalCluster) -> None:
    finished = odradek("txns", "--bootstrap", cluster.bootstrap, "--json", "list")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert isinstance(json.loads(finished.stdout), list)


def test_each_row_is_one_line_on_a_narrow_terminal(cluster: LocalCluster) -> None:
    assert odradek("topics", "create", "a-topic", "--bootstrap", cluster.bootstrap).returncode == 0
    finished = odradek("topics", "describe", "a-topic", "--bootstrap", cluster.bootstrap, columns=30)
    assert len(finished.stdout.splitlines()) == 1 + 2  # titles and partitions


def test_local_cluster_kills_pauses_and_restarts_a_broker(tmp_path: Path) -> None:
    with LocalCluster(directory=tmp_path) as running:
        port = running.bootstrap
        running.pause(1)
        running.resume(1)
        running.restart(1)
        running.kill(1)
        assert not running.is_running(1)
        with pytest.raises(BrokerNotRunning):
            running.pid(1)
        running.start(1)
        assert running.bootstrap == port


async def test_local_cluster_is_an_async_context_manager() -> None:
    async with LocalCluster() as running:
        assert running.is_running(1)
        pid = ProcessId.of(running.pid(1))
    assert pid is not None
    assert not pid.alive()


def test_topics_are_created_listed_described_and_deleted(cluster: LocalCluster) -> None:
    name = f"topic-{time.time_ns():x}"
    bootstrap_options = ("--bootstrap", cluster.bootstrap)
    sizes = ("--partitions", "3", "--replication-factor", "1")
    refused = odradek("topics", "create", name, "--replication-factor", "2", *bootstrap_options)
    assert (refused.returncode, "INVALID_REPLICATION_FACTOR" in refused.stderr) == (1, True)
    created = json_output("topics", "create", name, *sizes, "--config", "retention.ms=1000", *bootstrap_options)
    assert (created["partition_count"], created["replication_factor"]) == (3, 1)
    assert (name, 3, 1) in [
        (row["topic"], row["partition_count"], row["replication_factor"])
        for row in json_output("topics", "list", *bootstrap_options)
    ]
    assert [row["partition"] for row in json_output("topics", "describe", name, *bootstrap_options)] == [0, 1, 2]
    repeated = odradek("topics", "create", name, *bootstrap_options)
    assert (repeated.returncode, "TOPIC_ALREADY_EXISTS" in repeated.stderr) == (1, True)
    assert name in odradek("topics", "list", *bootstrap_options).stdout
    json_output("topics", "delete", name, *bootstrap_options)
    deleted = odradek("topics", "describe", name, *bootstrap_options)
    assert (deleted.returncode, deleted.stderr.startswith(f"topic {name} does not exist")) == (1, True)


def test_full_disk_and_closed_standard_input_are_errors_of_one_line(cluster: LocalCluster) -> None:
    bootstrap_options = f"--bootstrap {cluster.bootstrap}"
    for words in (f"topics list {bootstrap_options} --internal >/dev/full", f"produce t {bootstrap_options} <&-"):
        finished = subprocess.run(
            ["/bin/sh", "-c", f"{ODRADEK} {words}"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert (finished.returncode, len(finished.stderr.splitlines())) == (1, 1), finished.stderr


def test_error_without_a_broker_has_the_next_command() -> None:
    finished = odradek("topics", "list", "--bootstrap", "127.0.0.1:1")
    assert finished.returncode == 1
    assert "127.0.0.1:1" in finished.stderr
    assert "odradek up" in finished.stderr


def test_bootstrap_uses_the_first_address_that_responds(cluster: LocalCluster) -> None:
    finished = odradek("topics", "list", "--bootstrap", f"127.0.0.1:1,{cluster.bootstrap}")
    assert (finished.returncode, finished.stderr) == (0, "")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        # The commands wait at the same time until the first address does not respond.
        with ThreadPoolExecutor() as pool:
            second = pool.submit(odradek, "topics", "list", "--bootstrap", f"{address},{cluster.bootstrap}")
            none = pool.submit(odradek, "topics", "list", "--bootstrap", f"{address},127.0.0.1:1")
            assert (second.result().returncode, second.result().stderr) == (0, "")
            finished = none.result()
    assert finished.returncode == 1
    assert address in finished.stderr
    assert "127.0.0.1:1" in finished.stderr
    assert len(finished.stderr.strip().splitlines()) == 1


def open_transaction(cluster: LocalCluster, topic: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-id", "client.id": f"{topic}-client"}
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(TIMEOUT_S)
    return producer


def test_txns_blocking_shows_the_open_transaction_and_abort_ends_it(cluster: LocalCluster) -> None:
    topic = f"open-{time.time_ns():x}"
    bootstrap_options = ("--bootstrap", cluster.bootstrap)
    json_output("topics", "create", topic, "--partitions", "2", *bootstrap_options)
    producer = open_transaction(cluster, topic)
    [row] = json_output("txns", "blocking", "--topic", topic, *bootstrap_options)
    assert (row["topic"], row["partition"], row["condition"]) == (topic, 1, "open")
    assert (row["transactional_id"], row["client_id"]) == (f"{topic}-id", f"{topic}-client")
    assert row["transaction_state"] == "Ongoing"
    assert (row["last_stable_offset"], row["held_back"]) == (0, 1)
    assert row["since"] < row["times_out"]
    assert f"{topic}-id" in odradek("txns", *bootstrap_options).stdout
    described = json_output("txns", "describe", f"{topic}-id", *bootstrap_options)
    assert described["topic_partitions"] == [f"{topic}-1"]
    refused = odradek(
        "txns",
        "abort",
        *bootstrap_options,
        "--topic",
        topic,
        "--partition",
        "1",
        "--producer-id",
        str(row["producer_id"]),
    )
    assert (refused.returncode, f"odradek txns abort {topic}-id" in refused.stderr) == (1, True)
    assert "is aborted" in json_output("txns", "abort", f"{topic}-id", *bootstrap_options)["message"]
    assert json_output("txns", "blocking", "--topic", topic, *bootstrap_options) == []
    states = {
        row["transactional_id"]: row["transaction_state"] for row in json_output("txns", "list", *bootstrap_options)
    }
    assert states[f"{topic}-id"] in {"CompleteAbort", "Empty"}
    del producer


def test_producers_and_transactional_ids_are_counted_by_client_and_removed(cluster: LocalCluster) -> None:
    topic = f"flood-{time.time_ns():x}"
    options = ("--bootstrap", cluster.bootstrap)
    json_output("topics", "create", topic, "--partitions", "2", *options)
    producer = open_transaction(cluster, topic)
    producer.commit_transaction(TIMEOUT_S)
    [counted] = json_output("producers", "clients", topic, *options)
    assert (counted["partition"], counted["client_id"], counted["producers"]) == (1, f"{topic}-client", 1)
    [listed] = json_output("producers", "list", topic, *options)
    assert (listed["client_host"], listed["open_transaction"]) == ("127.0.0.1", False)
    refused = odradek("producers", "expire", topic, *options)
    assert (refused.returncode, "--client-id" in refused.stderr) == (2, True)
    kept = json_output("producers", "expire", topic, "--client-id", "another", *options)
    assert (kept["selected"], kept["removed"]) == (0, 0)
    removed = json_output("producers", "expire", topic, "--client-id", f"{topic}-client", *options)
    assert (removed["selected"], removed["removed"]) == (1, 1)
    assert json_output("producers", "list", topic, *options) == []
    counts = json_output("txns", "clients", *options)
    assert {row["transactional_ids"] for row in counts if row["client_id"] == f"{topic}-client"} == {1}
    assert odradek("txns", "expire", *options).returncode == 2
    missing = odradek("txns", "expire", "missing", *options)
    assert (missing.returncode, "does not exist" in missing.stderr) == (1, True)
    assert json_output("txns", "expire", f"{topic}-id", *options)["removed"] == 1
    assert f"{topic}-id" not in {row["transactional_id"] for row in json_output("txns", "list", *options)}


def test_dump_decodes_all_files_of_a_partition(cluster: LocalCluster) -> None:
    topic = f"dump-{time.time_ns():x}"
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"payload", key=b"k", partition=0)
    producer.flush(TIMEOUT_S)
    producer.abort_transaction(TIMEOUT_S)
    directory = cluster.directory.data(1) / f"{topic}-0"
    files = sorted(str(path) for path in directory.iterdir() if path.stat().st_size)
    dumped = json_output("dump", *files, "--records")
    by_name = {Path(file["file"]).suffix: file["entries"] for file in dumped}
    assert len(by_name[".log"]) >= 1
    assert "payload" in json.dumps(by_name[".log"]) or "cGF5bG9hZA" in json.dumps(by_name[".log"])
