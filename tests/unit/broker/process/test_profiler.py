"""py-spy samples the process that it is started from, and its failures are reported."""

import time
from pathlib import Path

import pytest

from odradek.broker.config.property import ConfigError
from odradek.broker.process.profiler import profile_command, profiling

WORK_S = 1.0


def spin() -> None:
    until = time.process_time() + WORK_S
    while time.process_time() < until:
        sum(range(1_000))


@pytest.mark.parametrize(("suffix", "mark"), [(".svg", "<svg"), (".json", "speedscope"), (".folded", ";spin (")])
def test_work_in_the_block_is_in_the_profile(tmp_path: Path, suffix: str, mark: str) -> None:
    path = tmp_path / f"broker.profile{suffix}"
    with profiling(profile_command(path)):
        spin()
    text = path.read_text(encoding="utf-8")
    assert mark in text
    assert "spin" in text


def test_an_error_in_the_block_passes_and_the_profile_is_written(tmp_path: Path) -> None:
    path = tmp_path / "broker.profile.svg"
    with pytest.raises(KeyError, match="reason"), profiling(profile_command(path)):
        spin()
        raise KeyError("reason")
    assert path.exists()


def test_a_failed_profile_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with profiling(profile_command(tmp_path / "missing" / "broker.profile.svg")):
        spin()
    assert "the profile was not written: " in capfd.readouterr().err


def test_an_unknown_suffix_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--profile broker.html: the name must end in .svg, .json, .folded"):
        profile_command(Path("broker.html"))


def test_without_py_spy_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"pip install 'odradek\[profile\]'"):
        profile_command(tmp_path / "broker.svg")
