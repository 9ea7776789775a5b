"""What is written down about a local cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.local.directory import ClusterDirectory, ClusterState, DirectoryUnusable, StateFileDamaged, Supervisor
from odradek.local.plan import Plan
from odradek.local.processes import BrokerFailed, ProcessId

PLAN = Plan("q7cB0kFhTx2nUoWcD4vJ8g", "127.0.0.1", {1: 9092, 2: 9093, 3: 9094}, ["num.partitions=6"])
GONE = ProcessId(2**22, 1)


def myself() -> ProcessId:
    identity = ProcessId.of(os.getpid())
    assert identity is not None
    return identity


def test_written_bytes_are_read(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path / "new")
    assert directory.read_state() is None
    state = ClusterState(PLAN, {1: myself(), 2: GONE}, [1, 2], Supervisor(GONE.pid, GONE.started_ticks, 7))
    directory.write_state(state)
    assert directory.read_state() == state
    assert state.alive() == {1: myself()}
    assert state.running_supervisor() is None


def test_a_change_starts_from_what_others_have_written(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.write_state(ClusterState(PLAN))
    directory.change_state(lambda state: state.with_running({2: GONE}))
    directory.change_state(lambda state: state.with_running({1: myself()}).with_formed([2, 1]))
    state = directory.change_state(lambda state: state.without_running([2]))
    assert (state.running, state.formed) == ({1: myself()}, [1, 2])


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"plan": {}, "supervisor": null}', '{"brokers": []}'])
def test_a_damaged_state_names_the_file_and_the_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(StateFileDamaged, match=r"cluster\.json is damaged .* remove it"):
        ClusterDirectory(tmp_path).read_state()


def test_the_cluster_id_is_found_with_the_data(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    assert directory.cluster_id_of_data() is None
    directory.data(3).mkdir()
    (directory.data(3) / "meta.properties").write_text("#\nversion=1\ncluster.id=abc\nnode.id=3\n")
    assert (directory.brokers_with_data(), directory.cluster_id_of_data()) == ([3], "abc")


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_is_no_directory_and_the_remedy_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    directory = ClusterDirectory(tmp_path / "file" / below)
    with pytest.raises(DirectoryUnusable, match=r"/file is a file; name another with --dir"):
        directory.read_state()
    with (
        pytest.raises(DirectoryUnusable, match=r"/file is a file; name another with --dir") as refused,
        directory.exclusive_start(),
    ):
        pytest.fail("it starts all the same")
    assert refused.value.exit_code == 2


def test_what_the_system_refuses_is_said_with_its_reason() -> None:
    directory = ClusterDirectory(Path("/proc/self/nothing-can-be-made-here"))
    with (
        pytest.raises(DirectoryUnusable, match=r"No such file or directory; name another with --dir"),
        directory.exclusive_start(),
    ):
        pytest.fail("it starts all the same")


def test_a_directory_that_was_made_for_a_start_goes_when_the_start_fails(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path / "new" / "deeper")
    with pytest.raises(BrokerFailed), directory.exclusive_start():
        directory.write_state(ClusterState(PLAN))
        raise BrokerFailed("the port is in use")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_stays_when_it_was_there_or_the_start_succeeds_or_the_reason_points_into_it(tmp_path: Path) -> None:
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


def test_two_starts_at_once_do_not_meet(tmp_path: Path) -> None:
    directory, other = ClusterDirectory(tmp_path / "new"), ClusterDirectory(tmp_path / "new")
    with directory.exclusive_start():
        with pytest.raises(BrokerFailed, match="another command is starting"), other.exclusive_start():
            pytest.fail("it starts all the same")
        assert directory.path.exists()
