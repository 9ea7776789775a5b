"""The C extensions of a client do not change a trace, and a process with a random hash seed is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
DIGESTS: Final = """
import sys
sys.path.insert(0, ".")
from odradek.simulation import Faults, run
from tests.simulation.apps import copy
for seed in (3, 4):
    result = run(copy.Copy, seed=seed, topics=copy.TOPICS, faults=Faults(seconds=10))
    print(seed, result.digest, result.virtual_seconds, len(result.events), *result.faults)
"""


def in_process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_random_hash_seed_is_refused_with_the_remedy() -> None:
    run = in_process(DIGESTS)
    assert run.returncode == 1
    assert "UnsuitableProcess: Set PYTHONHASHSEED=0 before Python starts." in run.stderr


@pytest.mark.full
def test_extensions_of_aiokafka_do_not_change_the_trace() -> None:
    with_extensions = "import aiokafka.util\nassert not aiokafka.util.NO_EXTENSIONS\n"
    runs = [
        in_process(code + DIGESTS, PYTHONHASHSEED="0", AIOKAFKA_NO_EXTENSIONS=variable)
        for code, variable in (("", "1"), ("", ""), (with_extensions, ""))
    ]
    assert all(run.returncode == 0 for run in runs), [run.stderr for run in runs]
    assert len({run.stdout for run in runs}) == 1


def test_import_of_the_package_imports_no_client() -> None:
    run = in_process("import odradek.simulation, sys; assert 'aiokafka' not in sys.modules, 'aiokafka is imported'")
    assert run.returncode == 0, run.stderr
