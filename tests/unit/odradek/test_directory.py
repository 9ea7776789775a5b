"""What is written down about a local cluster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from odradek.directory import ClusterDirectory, ClusterState, Damaged, Supervisor
from odradek.plan import Plan
from odradek.processes import ProcessId

if TYPE_CHECKING:
    from pathlib import Path

PLAN = Plan("q7cB0kFhTx2nUoWcD4vJ8g", "127.0.0.1", {1: 9092, 2: 9093, 3: 9094}, ["num.partitions=6"])
GONE = ProcessId(2**22, 1)


def myself() -> ProcessId:
    identity = ProcessId.of(os.getpid())
    assert identity is not None
    return identity


def test_what_is_written_is_read(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path / "new")
    assert directory.read_state() is None
    state = ClusterState(PLAN, {1: myself(), 2: GONE}, [1, 2], Supervisor(GONE.pid, GONE.started_ticks, 7))
    directory.write_state(state)
    assert directory.read_state() == state
    assert state.alive() == {1: myself()}
    assert state.living_supervisor() is None


def test_a_change_starts_from_what_others_have_written(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    directory.write_state(ClusterState(PLAN))
    directory.change_state(lambda state: state.started({2: GONE}))
    directory.change_state(lambda state: state.started({1: myself()}).ready([2, 1]))
    state = directory.change_state(lambda state: state.without([2]))
    assert (state.running, state.formed) == ({1: myself()}, [1, 2])


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"plan": {}, "supervisor": null}', '{"brokers": []}'])
def test_a_damaged_state_names_the_file_and_the_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(Damaged, match=r"cluster\.json is damaged .* remove it"):
        ClusterDirectory(tmp_path).read_state()


def test_the_cluster_id_is_found_with_the_data(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    assert directory.cluster_id_of_data() is None
    directory.data(3).mkdir()
    (directory.data(3) / "meta.properties").write_text("#\nversion=1\ncluster.id=abc\nnode.id=3\n")
    assert (directory.brokers_with_data(), directory.cluster_id_of_data()) == ([3], "abc")
