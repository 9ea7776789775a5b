"""The commands of README.md, in the order of the page."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import ODRADEK, TIMEOUT_S

pytestmark = pytest.mark.interop

README = Path(__file__).parents[2] / "README.md"
COMMAND = re.compile(r"^    \.venv/bin/odradek (.*?)(?: +#.*)?$", re.MULTILINE)
FOREGROUND = "up"
"""The command that runs until Ctrl-C, on the default ports: tests/interop/test_command_line.py has one for it."""


@pytest.mark.full
def test_commands_of_the_readme_succeed_in_their_order(tmp_path: Path) -> None:
    commands = COMMAND.findall(README.read_text().partition("## Run it")[2].partition("\n## ")[0])
    assert commands[0] == FOREGROUND
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config"), "NO_COLOR": "1"}
    for name in ("ODRADEK_BOOTSTRAP", "ODRADEK_DIR", "ODRADEK_CLIENT_CONFIG"):
        environment.pop(name, None)
    done = []
    try:
        for command in commands[1:]:
            words = [{"DIR": str(tmp_path / "cluster"), "19092": "0"}.get(word, word) for word in command.split()]
            finished = subprocess.run(
                [str(ODRADEK), *words], env=environment, cwd=tmp_path, capture_output=True, text=True,
                timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
            assert finished.returncode == 0, (command, finished.stdout, finished.stderr)
            done.append(words[0])
    finally:
        if done and done[-1] != "down":
            subprocess.run([str(ODRADEK), "down", "--dir", str(tmp_path / "cluster")], check=False)
    assert {"up", "use", "status", "topics", "groups", "txns", "producers", "restart", "down"} <= set(done)
