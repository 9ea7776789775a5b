from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from odradek.testing.run_directory import RunDirectory

SCRIPT = """
import sys
from pathlib import Path
from odradek.testing.run_directory import RunDirectory
directory = RunDirectory(Path(sys.argv[1]))
(directory.new_cluster()).mkdir()
print(directory.path, flush=True)
sys.stdin.read()
"""


def test_directory_of_a_killed_process_is_removed_and_of_a_running_one_is_kept(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    path = process.stdout.readline().strip()
    try:
        RunDirectory(tmp_path).close(keep_logs=False)
        assert Path(path, "cluster-1").is_dir()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    directory = RunDirectory(tmp_path)
    assert [entry.name for entry in tmp_path.glob("run-*")] == [directory.path.name]
    directory.close(keep_logs=False)
    assert list(tmp_path.glob("run-*")) == []


def test_logs_are_kept_until_the_next_run(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    cluster = directory.new_cluster()
    (cluster / "broker-1").mkdir(parents=True)
    (cluster / "broker-1.log").write_text("started")
    directory.close(keep_logs=True)
    assert [path.name for path in cluster.iterdir()] == ["broker-1.log"]
    RunDirectory(tmp_path).close(keep_logs=False)
    assert not cluster.exists()


def test_two_clusters_have_two_directories(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    assert directory.new_cluster() != directory.new_cluster()
    directory.close(keep_logs=False)
