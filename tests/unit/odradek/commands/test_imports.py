"""Modules that the start of a command imports: they are most of its CPU time."""

from __future__ import annotations

import subprocess
import sys

from typer.testing import CliRunner

from odradek.commands.application import COMMANDS, app, load
from tests.support.ports import free_port

MODULES_MAX = 350
"""Maximum modules of `odradek topics list`, of all packages."""
NOT_IMPORTED = (
    "odradek.local.directory",
    "odradek.local.launch",
    "rich.live",
    "rich.markdown",
    "pydantic",
    "urllib.request",
)
NOT_IMPORTED_BY_STATUS = ("odradek.local.launch", "rich.live", "pydantic", "http.client", "urllib.request")
SCRIPT = """
import sys
from odradek.commands.application import app
try:
    app(["topics", "list", "--bootstrap", "127.0.0.1:{port}"])
except SystemExit:
    pass

print("odradek.client.admin.topics" in sys.modules, len(sys.modules))
print([name for name in {names} if name in sys.modules])
print(sorted(name for name in sys.modules if name.startswith("odradek.commands.")))

for words in (["status", "--once", "--every", "0.5"], ["topics", "create", "name", "--partitions", "3"]):
    try:
        app([*words, "--bootstrap", "127.0.0.1:{port}"])
    except SystemExit:
        pass
print([name for name in {names_later} if name in sys.modules])
"""
USED_NAMES = (
    "application",
    "completion",
    "late_types",
    "options",
    "outputs",
    "profiles",
    "requests",
    "rows",
    "target",
    "topics",
)
USED = [f"odradek.commands.{name}" for name in USED_NAMES]


def test_a_command_imports_its_own_modules_only() -> None:
    script = SCRIPT.format(port=free_port(), names=NOT_IMPORTED, names_later=NOT_IMPORTED_BY_STATUS)
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    connected, unwanted, commands, unwanted_later = finished.stdout.splitlines()
    word, count = connected.split()
    assert word == "True"
    assert int(count) <= MODULES_MAX
    assert unwanted == "[]"
    assert commands == str(USED)
    assert unwanted_later == "[]"


def test_each_command_is_found_by_its_name_and_a_wrong_name_has_a_suggestion() -> None:
    assert {name: load(name).name for name in COMMANDS} == {name: name for name in COMMANDS}
    printed = CliRunner().invoke(app, ["topic", "list"])
    assert printed.exit_code == 2
    assert "'topics'" in printed.stderr
