"""Local clusters of three brokers: start, failures, lost disks, and restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from odradek import BrokerFailed, LocalCluster
from odradek.local.directory import ClusterDirectory
from odradek.local.launch import metrics_port
from odradek.local.processes import ProcessId
from tests.support import earlier_cluster
from tests.support.command_line import ODRADEK, TIMEOUT_S, odradek, without_progress
from tests.support.local_clusters import (
    await_ended,
    commit,
    detached,
    kill,
    pid,
    read,
    status,
)
from tests.support.ports import free_port, one_taken

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.interop

BROKERS = 3


def test_up_starts_three_brokers_and_reuses_data_and_ports(tmp_path: Path) -> None:
    with detached(tmp_path) as bootstrap:
        assert len(bootstrap.split(",")) == BROKERS
        commit(bootstrap, "greetings", b"hello")
        values = status(tmp_path)
        assert [row["state"] for row in values["brokers"]] == ["running"] * BROKERS
        assert values["controller_id"] in {1, 2, 3}
        [row] = [row for row in values["partitions"] if row["topic"] == "greetings"]
        assert sorted(row["replicas"]) == sorted(row["isr"]) == [1, 2, 3]
        assert row["last_stable_offset"] == row["high_watermark"] == row["log_end_offset"] == 2
        assert {row["topic"] for row in values["partitions"]} == {"greetings", "__transaction_state"}
        stopped = odradek("down", "--dir", str(tmp_path))
        lines = stopped.stdout.splitlines()
        assert lines[:-1] == [f"broker {node_id} stopped" for node_id in range(1, BROKERS + 1)]
        assert lines[-1] == f"stopped {BROKERS} of {BROKERS} brokers"
        for node_id in (1, 2, 3):
            assert (tmp_path / f"broker-{node_id}" / ".kafka_cleanshutdown").exists()
    with detached(tmp_path) as bootstrap_after_restart:
        assert bootstrap_after_restart == bootstrap, "a restart must keep the ports"
        assert read(bootstrap_after_restart, "greetings", 1) == [b"hello"]
        commit(bootstrap_after_restart, "greetings", b"again")


@pytest.mark.parametrize("command", [pytest.param("up", marks=pytest.mark.full), "start"])
def test_killed_broker_is_reported_and_restarted_while_the_others_serve(tmp_path: Path, command: str) -> None:
    with detached(tmp_path) as bootstrap:
        commit(bootstrap, "t", b"1")
        kill(tmp_path, 2)
        commit(bootstrap, "t", b"2")
        values = status(tmp_path)
        assert [row["state"] for row in values["brokers"]] == ["running", "failed", "running"]
        assert odradek("status", "--dir", str(tmp_path)).stderr == (
            f"start the missing brokers: odradek start 2 --dir {tmp_path}\n"
        )
        restarted = odradek(command, "--dir", str(tmp_path))
        assert restarted.returncode == 0, restarted.stderr
        assert restarted.stdout.startswith("ready ")
        assert [row["state"] for row in status(tmp_path)["brokers"]] == ["running"] * BROKERS
        commit(bootstrap, "t", b"3")
        assert read(bootstrap, "t", 3) == [b"1", b"2", b"3"]


def test_lost_majority_is_reported_until_its_brokers_are_started(tmp_path: Path) -> None:
    with detached(tmp_path) as bootstrap:
        commit(bootstrap, "t", b"1")
        await_ended(tmp_path)
        kill(tmp_path, 1)
        kill(tmp_path, 3)
        with ThreadPoolExecutor() as pool:  # both commands wait at the same time for the failed brokers
            as_text, as_json = pool.submit(odradek, "status", "--dir", str(tmp_path)), pool.submit(status, tmp_path)
            result, values = as_text.result(), as_json.result()
        assert result.returncode == 1
        assert "majority lost: 1 of 3 voters run, 2 are needed" in result.stderr
        assert f"odradek start 1 3 --dir {tmp_path}" in result.stderr
        assert "no open transactions" not in result.stdout, "a broker that failed may coordinate an open transaction"
        assert "open transactions: unknown, no response from broker 1, 3" in result.stdout
        assert (values["transactions"], values["unreachable"]) == (None, [1, 3])
        assert "t-0" in values["under_replicated"], (
            "the ISR in the metadata cannot change without a majority, so the failed brokers must be considered"
        )
        for verb in ("list", "blocking"):
            partial = odradek("txns", verb, "--bootstrap", bootstrap)
            assert partial.returncode == 1, "the output is partial"
            silent = [line.partition(" (")[0] for line in partial.stderr.splitlines()]
            assert silent == ["broker 1 did not respond", "broker 3 did not respond"]
            assert partial.stdout
            assert "no transactional ids" not in partial.stdout
            assert "no partition is held back" not in partial.stdout
        kill(tmp_path, 2)
        alone = odradek("start", "2", "--dir", str(tmp_path))
        assert alone.returncode == 1
        assert alone.stderr.startswith("majority lost: only 1 of 3 voters would run, 2 are needed")
        restarted = odradek("start", "--dir", str(tmp_path))
        assert restarted.returncode == 0, restarted.stderr
        commit(bootstrap, "t", b"2")
        assert read(bootstrap, "t", 2) == [b"1", b"2"]


def test_broker_with_a_lost_disk_starts_only_with_empty_and_replicates_again(tmp_path: Path) -> None:
    with detached(tmp_path) as bootstrap:
        commit(bootstrap, "t", b"1")
        (tmp_path / "broker-2").rename(tmp_path / "lost")
        unchanged = odradek("restart", "2", "--dir", str(tmp_path))
        assert unchanged.returncode == 1
        assert "broker 2: the disk is lost" in unchanged.stderr
        assert status(tmp_path)["unreachable"] == [], "a broker that could not start again is not stopped"
        kill(tmp_path, 2)
        refused = odradek("start", "2", "--dir", str(tmp_path))
        assert refused.returncode == 1
        for word in ("broker 2", str(tmp_path / "broker-2"), "--empty"):
            assert word in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
        accepted = odradek("start", "2", "--dir", str(tmp_path), "--empty")
        assert accepted.returncode == 0, accepted.stderr
        rolled = odradek("restart", "1", "3", "--dir", str(tmp_path))
        assert rolled.returncode == 0, rolled.stderr
        assert read(bootstrap, "t", 1) == [b"1"]
        commit(bootstrap, "t", b"2")


def test_lost_disks_of_a_majority_of_voters_are_refused(tmp_path: Path) -> None:
    with detached(tmp_path) as bootstrap:
        commit(bootstrap, "t", b"1")
    for node_id in (1, 2):
        (tmp_path / f"broker-{node_id}").rename(tmp_path / f"lost-{node_id}")
    refused = odradek("up", "--dir", str(tmp_path), "--detach", "--empty")
    assert refused.returncode == 1
    assert "broker 1, 2: the disk is lost" in refused.stderr
    assert "only 1 of 3 voters have the metadata log, 2 are needed" in refused.stderr


def test_number_of_brokers_of_a_directory_cannot_change(tmp_path: Path) -> None:
    with detached(tmp_path, "--brokers", "1"):
        pass
    refused = odradek("up", "--dir", str(tmp_path), "--brokers", "3", "--detach")
    assert refused.returncode == 1
    assert f"{tmp_path} holds a cluster of 1 broker, not 3; start it with --brokers 1" in refused.stderr
    with detached(tmp_path):
        assert len(status(tmp_path)["brokers"]) == 1


@pytest.mark.parametrize("brokers", ["0", "10"])
def test_number_of_brokers_out_of_range_is_refused(tmp_path: Path, brokers: str) -> None:
    refused = odradek("up", "--dir", str(tmp_path), "--brokers", brokers)
    assert refused.returncode == 2
    assert "between 1 and 9" in refused.stderr


def test_error_of_a_port_in_use_names_the_broker(tmp_path: Path) -> None:
    with one_taken(BROKERS, 1) as [first, port, _]:
        failed = odradek("up", "--dir", str(tmp_path), "--port", str(first), "--detach")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith(f"broker 2: cannot listen on 127.0.0.1:{port}")
    state = ClusterDirectory(tmp_path).read_state()
    assert state is not None
    assert state.running == {}, "the other brokers are stopped"


def test_data_of_another_cluster_is_refused(tmp_path: Path) -> None:
    with detached(tmp_path / "one", "--brokers", "1"):
        pass
    with detached(tmp_path / "three"):
        kill(tmp_path / "three", 2)
        (tmp_path / "three" / "broker-2").rename(tmp_path / "away")
        (tmp_path / "one" / "broker-1").rename(tmp_path / "three" / "broker-2")
        refused = odradek("start", "2", "--dir", str(tmp_path / "three"))
        assert refused.returncode == 1
        assert "belongs to" in refused.stderr
        assert str(tmp_path / "three" / "broker-2") in refused.stderr


def test_voters_that_differ_from_the_metadata_log_are_refused(tmp_path: Path) -> None:
    with detached(tmp_path):
        kill(tmp_path, 3)
        config = ClusterDirectory(tmp_path).config(3)
        state = ClusterDirectory(tmp_path).read_state()
        assert state is not None
        second = state.plan.voter_address(2)
        config.write_text(config.read_text().replace(f",2@{second}", ""))
        refused = odradek("broker", "--config", str(config))
        assert refused.returncode == 1
        reason = refused.stderr.splitlines()[-1]
        assert str(tmp_path / "broker-3") in reason
        assert "the voters [1, 2, 3], but [1, 3] are configured: set controller.quorum.voters" in reason


def test_node_id_of_a_running_broker_is_refused(tmp_path: Path) -> None:
    session = ("--set", "broker.session.timeout.ms=1500", "--set", "broker.heartbeat.interval.ms=300")
    with detached(tmp_path, *session) as bootstrap:
        duplicate = 1 if status(tmp_path)["controller_id"] != 1 else 2
        config = str(ClusterDirectory(tmp_path).config(duplicate))
        settings = (
            f"log.dirs={tmp_path / 'other'}",
            "listeners=PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
            "odradek.metrics.listener=127.0.0.1:0",
        )
        options = [word for setting in settings for word in ("--set", setting)]
        refused = odradek("broker", "--config", config, *options, *session)
        assert refused.returncode == 1
        address = bootstrap.split(",")[duplicate - 1]
        assert refused.stderr.splitlines()[-1].endswith(
            f"node.id {duplicate} is in use by a running broker at {address}; every node needs an id of its own"
        )
        assert [row["state"] for row in status(tmp_path)["brokers"]] == ["running"] * BROKERS
        commit(bootstrap, "t", b"1")


def test_brokers_of_other_commands_end_with_up_in_the_foreground(tmp_path: Path) -> None:
    command = [str(ODRADEK), "up", "--dir", str(tmp_path), "--port", "0"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    assert running.stderr is not None
    assert running.stdout.readline().startswith("ready ")
    kill(tmp_path, 2)
    output = without_progress(running.stderr)
    assert any(line.startswith("broker 2 ended unexpectedly (SIGKILL)") for line in output)
    assert next(output) == f"start the missing brokers: odradek start 2 --dir {tmp_path}\n"
    assert odradek("start", "2", "--dir", str(tmp_path)).returncode == 0
    assert odradek("restart", "--rolling", "--dir", str(tmp_path)).returncode == 0
    brokers = [ProcessId.of(pid(tmp_path, node_id)) for node_id in (1, 2, 3)]
    running.kill()
    _, remaining_output = running.communicate()
    assert remaining_output == "", "stops by other commands are not reported"
    for broker in brokers:
        assert broker is not None
        assert broker.wait_ended(TIMEOUT_S), "all brokers end when it is killed"


def test_ctrl_c_stops_all_brokers_with_a_controlled_shutdown(tmp_path: Path) -> None:
    command = [str(ODRADEK), "up", "--dir", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        running.stdout.readline()
        kill(tmp_path, 3)
        assert odradek("start", "3", "--dir", str(tmp_path)).returncode == 0
        running.send_signal(signal.SIGINT)
        assert running.wait(TIMEOUT_S) == 1, "a broker had failed"
    for node_id in (1, 2, 3):
        assert (tmp_path / f"broker-{node_id}" / ".kafka_cleanshutdown").exists()


def test_local_cluster_commits_without_any_one_broker(tmp_path: Path) -> None:
    racks = {node_id: f"rack-{node_id}" for node_id in (1, 2, 3)}
    settings = {node_id: {"broker.rack": rack} for node_id, rack in racks.items()}
    with LocalCluster(brokers=3, directory=tmp_path, broker_settings=settings) as cluster:
        bootstrap = cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        nodes = admin.describe_cluster().result(30).nodes
        assert {node.id: node.rack for node in nodes} == racks
        commit(bootstrap, "t", b"0")
        for node_id in cluster.node_ids:
            cluster.kill(node_id)
            commit(bootstrap, "t", b"%d" % node_id)
            cluster.start(node_id)
        cluster.pause(1)
        commit(bootstrap, "t", b"4")
        cluster.resume(1)
        cluster.restart(2)
        assert cluster.bootstrap == bootstrap
        assert read(bootstrap, "t", 5) == [b"0", b"1", b"2", b"3", b"4"]
    with LocalCluster(brokers=3, directory=tmp_path) as cluster:
        assert cluster.bootstrap == bootstrap
        assert read(bootstrap, "t", 5) == [b"0", b"1", b"2", b"3", b"4"]


def test_local_cluster_refuses_an_invalid_number_of_brokers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="between 1 and 9"):
        LocalCluster(brokers=10)
    with LocalCluster(brokers=1, directory=tmp_path):
        pass
    with pytest.raises(BrokerFailed, match="holds a cluster of 1 broker, not 3"):
        LocalCluster(brokers=3, directory=tmp_path).start()


def test_local_cluster_refuses_a_directory_whose_brokers_run(tmp_path: Path) -> None:
    with LocalCluster(brokers=1, directory=tmp_path) as cluster:
        before = cluster.directory.read_state()
        for attempt in range(2):
            with pytest.raises(BrokerFailed, match=rf"broker 1 \(pid {cluster.pid(1)}\) runs.*odradek down"):
                LocalCluster(brokers=1, directory=tmp_path).start(1 if attempt else None)
        assert cluster.directory.read_state() == before
        commit(cluster.bootstrap, "t", b"0")


def test_local_cluster_that_was_closed_leaves_the_brokers_of_another_one_alone(tmp_path: Path) -> None:
    first = LocalCluster(brokers=1, directory=tmp_path)
    first.start()
    first.close()
    with LocalCluster(brokers=1, directory=tmp_path) as second:
        before = second.directory.read_state()
        with pytest.raises(BrokerFailed, match=rf"broker 1 \(pid {second.pid(1)}\) runs.*odradek down"):
            first.start()
        first.close()
        assert second.directory.read_state() == before
        commit(second.bootstrap, "t", b"0")


@contextmanager
def detached_again(directory: Path) -> Iterator[str]:
    """Start the brokers of a directory with the ports and settings in it, and stop them."""
    started = odradek("up", "--detach", "--dir", str(directory))
    try:
        assert started.returncode == 0, started.stderr
        yield started.stdout.removeprefix("ready ").strip()
    finally:
        odradek("down", "--dir", str(directory))


def of_earlier_version(directory: Path, ports: list[int]) -> None:
    """Unpack the stored directory of a version with one listener per broker, with these client ports."""
    earlier_cluster.unpack(directory)
    state = directory / "cluster.json"
    values = json.loads(state.read_text())
    assert not {"inter_broker", "has_secret"} & values["plan"].keys()
    values["plan"]["ports"] = {str(node_id): port for node_id, port in enumerate(ports, 1)}
    values["plan"]["metrics"] = {str(node_id): metrics_port(port) for node_id, port in enumerate(ports, 1)}
    state.write_text(json.dumps(values))


@pytest.mark.full
def test_up_separates_the_listeners_of_an_earlier_directory_and_keeps_ports_and_data(tmp_path: Path) -> None:
    first = free_port()
    ports = [first, first + 1, first + 2]
    of_earlier_version(tmp_path, ports)
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
    for value in (b"c", b"d"):
        started = odradek("up", "--detach", "--dir", str(tmp_path))
        try:
            assert started.stdout == f"ready {bootstrap}\n", started.stderr
            commit(bootstrap, earlier_cluster.TOPIC, value)
            state = ClusterDirectory(tmp_path).read_state()
            assert state is not None
            assert sorted(state.plan.inter_broker) == [1, 2, 3]
            for node_id in (1, 2, 3):
                log = ClusterDirectory(tmp_path).log(node_id).read_text()
                assert f"INTERNAL://127.0.0.1:{state.plan.inter_broker[node_id]}" in log
                assert "listener serves clients and brokers" not in log
                assert "brokers do not authenticate to each other" not in log
            assert (tmp_path / "cluster.secret").stat().st_mode & 0o777 == 0o600
            assert [path for path in (tmp_path, *tmp_path.rglob("*")) if path.stat().st_mode & 0o077] == []
        finally:
            odradek("down", "--dir", str(tmp_path))
    with detached_again(tmp_path):
        earlier_cluster.verify(bootstrap, b"c", b"d")


@pytest.mark.full
def test_rolling_restart_keeps_the_single_listener_of_an_earlier_version(tmp_path: Path) -> None:
    settings = ("--set", "inter.broker.listener.name=PLAINTEXT", "--set", "odradek.inter.broker.authentication=none")
    with detached(tmp_path, *settings) as bootstrap:
        commit(bootstrap, "kept", b"a")
        # Remove what the earlier version does not write to the state file.
        state_file = tmp_path / "cluster.json"
        values = json.loads(state_file.read_text())
        assert values["plan"].pop("inter_broker") == {}
        assert values["plan"].pop("has_secret") is False
        values["plan"]["settings"] = []
        state_file.write_text(json.dumps(values))
        restarted = odradek("restart", "--rolling", "--dir", str(tmp_path))
        assert restarted.returncode == 0, restarted.stderr
        assert ClusterDirectory(tmp_path).log(1).read_text().count("listener serves clients and brokers") == 2
        commit(bootstrap, "kept", b"b")
        odradek("down", "--dir", str(tmp_path))
        with detached_again(tmp_path) as same:
            assert same == bootstrap
            state = ClusterDirectory(tmp_path).read_state()
            assert state is not None
            assert sorted(state.plan.inter_broker) == [1, 2, 3]
            assert read(bootstrap, "kept", 2) == [b"a", b"b"]


def test_broker_with_another_cluster_secret_does_not_join_and_names_the_secret(tmp_path: Path) -> None:
    with detached(tmp_path) as bootstrap:
        commit(bootstrap, "t", b"1")
        kill(tmp_path, 3)
        other = tmp_path / "other.secret"
        other.write_text("z" * 44)
        config = ClusterDirectory(tmp_path).config(3)
        process = subprocess.Popen(
            [str(ODRADEK), "broker", "--config", str(config), "--set", f"cluster.secret.file={other}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            failure = next(line for line in process.stderr if "authentication to a node failed" in line)
            assert "cluster.secret.file" in failure
        finally:
            process.kill()
            process.communicate()
        assert odradek("start", "3", "--dir", str(tmp_path)).returncode == 0
        commit(bootstrap, "t", b"2")


def test_earlier_format_of_the_state_file_is_read(tmp_path: Path) -> None:
    with detached(tmp_path, "--brokers", "1") as bootstrap:
        commit(bootstrap, "t", b"1")
        state = ClusterDirectory(tmp_path).read_state()
    assert state is not None
    entry = {"node_id": 1, "endpoint": bootstrap, "pid": 2**22, "started_ticks": 1}
    (tmp_path / "cluster.json").write_text(json.dumps({"brokers": [entry], "settings": []}))
    with detached(tmp_path) as bootstrap_after_restart:
        assert bootstrap_after_restart == bootstrap
        adopted = ClusterDirectory(tmp_path).read_state()
        assert adopted is not None
        assert adopted.plan.cluster_id == state.plan.cluster_id
        assert read(bootstrap_after_restart, "t", 1) == [b"1"]


def test_stopping_broker_shows_its_completed_steps_as_its_process_name() -> None:
    """The process name of a process that has ended can be read until its parent has waited for it."""
    with LocalCluster() as cluster:
        broker = ProcessId(cluster.pid(1), 0)
        assert broker.stop_steps() == 0
        os.kill(broker.pid, signal.SIGTERM)
        os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)
        assert broker.stop_steps() > 0
