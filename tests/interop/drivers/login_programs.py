"""Programs of other languages that log in by SASL_SSL, write one record in a transaction, and read it back."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.drivers import go

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NODE_SOURCE = Path(__file__).resolve().parents[1] / "node"
BUILD = Path(__file__).resolve().parents[3] / "build" / "interop"
TIMEOUT_S = 120.0
EXIT_REFUSED = 3


def franz_go() -> list[str]:
    """Return the command of the program with franz-go. Skip the test if Go or its modules are missing."""
    return [str(go.build("./login", BUILD / "franz-go-login"))]


def kafkajs() -> list[str]:
    """Return the command of the program with kafkajs. Skip the test if Node or the package is missing."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("NOT TESTED: kafkajs, because `node` and `npm` are not on PATH")
    folder = BUILD / "node"
    shutil.copytree(NODE_SOURCE, folder, dirs_exist_ok=True)
    fetched = subprocess.run(
        [npm, "ci", "--no-audit", "--no-fund"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if fetched.returncode:
        pytest.skip(f"NOT TESTED: kafkajs, because npm cannot fetch it: {fetched.stderr.strip()[-300:]}")
    return [node, str(folder / "login.js")]


PROGRAMS: dict[str, Callable[[], list[str]]] = {"franz-go": franz_go, "kafkajs": kafkajs}


def run(command: list[str], order: Mapping[str, str]) -> str:
    """Run a program, and return the value that it read. Raise PermissionError if the broker refused its login."""
    finished = subprocess.run(
        command, input=json.dumps(order), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if finished.returncode == EXIT_REFUSED:
        raise PermissionError(finished.stderr)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()
