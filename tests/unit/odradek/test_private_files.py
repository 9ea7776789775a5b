"""Files and directories of a node are accessible to its user only."""

from __future__ import annotations

import random
import stat
from typing import TYPE_CHECKING

import pytest
import structlog

from odradek.local.directory import ClusterDirectory, ClusterState
from odradek.local.plan import Plan
from odradek.private_files import make_private_directory, restrict
from odradek.storage.data_directory.directory import DataDirectory
from odradek.storage.disk.os_disk import OsDisk

if TYPE_CHECKING:
    from pathlib import Path


def modes(root: Path) -> set[str]:
    """Return the modes of a directory and its content, as `d700` for directories and `-600` for files."""
    found = [root, *root.rglob("*")]
    return {("d" if path.is_dir() else "-") + f"{stat.S_IMODE(path.stat().st_mode):o}" for path in found}


def test_private_directory_may_exist_and_its_parents_get_the_default_mode(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    for name in (path, f"{path}/", f"{path}/c/"):
        make_private_directory(name)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((path / "c").stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o700 == 0o700


def test_private_directory_at_the_path_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_private_directory(tmp_path / "file")


async def test_disk_creates_files_and_directories_for_its_user_only(tmp_path: Path) -> None:
    disk = OsDisk()
    root = tmp_path / "data"
    disk.make_directory(f"{root}/t-0")
    root.chmod(0o700)
    disk.open(f"{root}/t-0/log", create=True).close()
    disk.replace_file_now(f"{root}/checkpoint", b"1")
    disk.lock_directory(str(root)).release()
    assert modes(root) == {"d700", "-600"}
    disk.close()


def test_claim_restricts_an_existing_data_directory_with_one_log_line(tmp_path: Path) -> None:
    root = tmp_path / "data"
    disk = OsDisk()
    directory = DataDirectory(disk, str(root))
    directory.claim(node_id=1, rng=random.Random(1))
    directory.release()
    (root / "t-0").mkdir()
    (root / "t-0" / "log").write_text("records")
    entries = [root, *root.rglob("*")]
    for path in entries:
        path.chmod(0o755 if path.is_dir() else 0o644)
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            directory = DataDirectory(disk, str(root))
            directory.claim(node_id=1, rng=random.Random(1))
            directory.release()
    assert modes(root) == {"d700", "-600"}
    assert [(log["event"], log["entries"]) for log in logs] == [("permissions of other users removed", len(entries))]
    disk.close()


def test_restriction_follows_no_symbolic_link_in_the_directory(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("shared")
    outside.chmod(0o644)
    root = tmp_path / "data"
    root.mkdir(mode=0o755)
    root.chmod(0o755)
    (root / "link").symlink_to(outside)
    assert restrict(str(root)) == 1
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_content_of_a_directory_that_is_restricted_alone_is_restricted(tmp_path: Path) -> None:
    root = tmp_path / "data"
    (root / "t-0").mkdir(parents=True)
    for path in (root / "meta.properties", root / "t-0" / "log"):
        path.write_text("records")
        path.chmod(0o644)
    (root / "t-0").chmod(0o755)
    root.chmod(0o700)
    assert restrict(str(root)) == 3
    assert modes(root) == {"d700", "-600"}


def test_local_cluster_directory_is_for_its_user_only(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path / "cluster")
    plan = Plan("AAAAAAAAAAAAAAAAAAAAAQ", "127.0.0.1", {1: 9092})
    with directory.exclusive_start():
        directory.write_config(plan, 1)
        directory.write_state(ClusterState(plan))
    directory.change_state(lambda state: state)
    assert modes(tmp_path / "cluster") == {"d700", "-600"}
    (tmp_path / "cluster").chmod(0o755)
    directory.config(1).chmod(0o644)
    with directory.exclusive_start():
        assert modes(tmp_path / "cluster") == {"d700", "-600"}


def test_other_files_beside_a_local_cluster_keep_their_permissions(tmp_path: Path) -> None:
    directory = ClusterDirectory(tmp_path)
    tmp_path.chmod(0o755)
    other = tmp_path / "notes"
    other.write_text("shared")
    other.chmod(0o644)
    directory.data(1).mkdir(mode=0o755)
    with directory.exclusive_start():
        pass
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, other, directory.data(1))] == [0o755, 0o644, 0o700]


def test_new_data_directory_with_other_files_keeps_its_permissions(tmp_path: Path) -> None:
    other = tmp_path / "notes"
    other.write_text("shared")
    other.chmod(0o644)
    tmp_path.chmod(0o755)
    disk = OsDisk()
    directory = DataDirectory(disk, str(tmp_path))
    directory.claim(node_id=1, rng=random.Random(1))
    directory.release()
    disk.close()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, other)] == [0o755, 0o644]
