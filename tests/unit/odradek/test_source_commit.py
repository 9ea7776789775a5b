"""Source commit of an installation: recorded by the build, read from git in a source tree, or unknown."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from odradek import source_commit
from odradek.source_commit import UNKNOWN, git_commit

if TYPE_CHECKING:
    from pathlib import Path

GIT = ("git", "-c", "user.name=test", "-c", "user.email=test@localhost")


def git(tree: Path, *arguments: str) -> str:
    return subprocess.run([*GIT, *arguments], cwd=tree, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    git(tmp_path, "tag", "v1")
    return tmp_path


def test_a_source_tree_has_the_commit_that_is_checked_out(tree: Path) -> None:
    assert git_commit(tree) == git(tree, "rev-parse", "--short=12", "HEAD")


def test_a_changed_tree_is_dirty(tree: Path) -> None:
    (tree / "file").write_text("two")
    assert git_commit(tree) == git(tree, "rev-parse", "--short=12", "HEAD") + "-dirty"


def test_git_variables_of_a_hook_are_ignored(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert git_commit(tree) != UNKNOWN


def test_a_folder_inside_the_repository_of_another_project_has_no_commit(tree: Path) -> None:
    inside = tree / "site-packages"
    inside.mkdir()
    assert git_commit(inside) == UNKNOWN


def test_without_git_the_commit_is_unknown(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tree))
    assert git_commit(tree) == UNKNOWN


def test_a_repository_without_commits_has_no_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    assert git_commit(tmp_path) == UNKNOWN


def test_the_commit_that_the_build_recorded_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = tmp_path / "COMMIT"
    record.write_text("0123456789ab\n")
    monkeypatch.setattr(source_commit, "RECORD", record)
    assert source_commit.source_commit() == "0123456789ab"
