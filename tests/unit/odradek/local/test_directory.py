"""Data directory of a local cluster: its state file, and exclusive starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.local.directory import ClusterDirectory, ClusterState, DirectoryUnusable, StateFileDamaged, Supervisor
from odradek.local.plan import Plan
from odradek.local.processes import BrokerFailed, ProcessId

PLAN = Plan(
    "q7cB0kFhTx2nUoWcD4vJ8g",
    "127.0.0.1",
    {1: 9092, 2: 9093, 3: 9094},
    ["num.partitions=6"],
    {1: 10092},
    {1: 11092, 2: 11093, 3: 11094},
)
ENDED = ProcessId(2**22, 1)


def own_process() -> ProcessId:
    identity = ProcessId.of(os.getpid())
    assert identity is not None
    return identity


def test_a_written_state_is_read_unchanged(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path / "new")
    assert directory.read_state() is None
    state = ClusterState(PLAN, {1: own_process(), 2: ENDED}, [1, 2], Supervisor(ENDED.pid, ENDED.started_ticks, 7))
    directory.write_state(state)
    assert directory.read_state() == state
    assert state.alive() == {1: own_process()}
    assert state.running_supervisor() is None


def test_a_change_applies_to_the_state_in_the_file(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.write_state(ClusterState(PLAN))
    directory.change_state(lambda state: state.with_running({2: ENDED}))
    directory.change_state(lambda state: state.with_running({1: own_process()}).with_formed([2, 1]))
    state = directory.change_state(lambda state: state.without_running([2]))
    assert (state.running, state.formed) == ({1: own_process()}, [1, 2])


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"plan": {}, "supervisor": null}', '{"brokers": []}'])
def test_a_damaged_state_names_the_file_and_the_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(StateFileDamaged, match=r"cluster\.json is damaged .* remove it"):
        ClusterDirectory(tmp_path).read_state()


def test_cluster_id_is_read_from_the_data_of_a_broker(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    assert directory.cluster_id_of_data() is None
    directory.data(3).mkdir()
    (directory.data(3) / "meta.properties").write_text("#\nversion=1\ncluster.id=abc\nnode.id=3\n")
    assert (directory.brokers_with_data(), directory.cluster_id_of_data()) == ([3], "abc")


@pytest.mark.parametrize("suffix", ["", "deeper"])
def test_a_file_in_place_of_the_directory_is_refused_with_the_remedy(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "file").touch()
    directory = ClusterDirectory(tmp_path / "file" / suffix)
    with pytest.raises(DirectoryUnusable, match=r"/file is a file; name another with --dir"):
        directory.read_state()
    with (
        pytest.raises(DirectoryUnusable, match=r"/file is a file; name another with --dir") as refused,
        directory.exclusive_start(),
    ):
        pytest.fail("the start was not refused")
    assert refused.value.exit_code == 2


def test_directory_that_cannot_be_made_is_refused_with_the_reason() -> None:
    directory = ClusterDirectory(Path("/proc/self/no-directory"))
    with (
        pytest.raises(DirectoryUnusable, match=r"No such file or directory; name another with --dir"),
        directory.exclusive_start(),
    ):
        pytest.fail("the start was not refused")


def test_failed_start_removes_the_directory_that_it_made(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path / "new" / "deeper")
    with pytest.raises(BrokerFailed), directory.exclusive_start():
        directory.write_state(ClusterState(PLAN))
        raise BrokerFailed("the port is in use")
    assert list(tmp_path.iterdir()) == []


def test_directory_stays_if_it_existed_the_start_succeeded_or_the_error_names_its_log(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path / "new")
    with pytest.raises(BrokerFailed), directory.exclusive_start():
        raise BrokerFailed(f"not ready; see {directory.log(1)}")
    assert directory.path.exists()
    with pytest.raises(BrokerFailed), directory.exclusive_start():
        raise BrokerFailed("the port is in use")
    assert directory.path.exists()
    directory = ClusterDirectory(tmp_path / "another")
    with directory.exclusive_start():
        directory.write_state(ClusterState(PLAN))
    assert directory.read_state() == ClusterState(PLAN)


def test_concurrent_start_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    directory, second = ClusterDirectory(tmp_path / "new"), ClusterDirectory(tmp_path / "new")
    with directory.exclusive_start():
        with pytest.raises(BrokerFailed, match="another command is starting"), second.exclusive_start():
            pytest.fail("the start was not refused")
        assert directory.path.exists()


def test_cluster_secret_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    with pytest.raises(BrokerFailed, match=r"cluster\.secret is missing; restore it, or stop all brokers"):
        directory.require_secret(may_create=False)
    directory.require_secret(may_create=True)
    path = tmp_path / "cluster.secret"
    made = path.read_bytes()
    assert len(made.strip()) == 44
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    directory.require_secret(may_create=False)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == made
    other = ClusterDirectory(tmp_path / "other")
    other.path.mkdir()
    other.require_secret(may_create=True)
    assert (other.path / "cluster.secret").read_bytes() != made
