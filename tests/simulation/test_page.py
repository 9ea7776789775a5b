"""The example of docs/simulation.md finds its bug."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from odradek.simulation.__main__ import FAILED

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "simulation.md"
EXAMPLES: Final = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_examples_of_the_page_compile() -> None:
    assert len(EXAMPLES) == 2
    for example in EXAMPLES:
        compile(example, str(PAGE), "exec")
    assert len(EXAMPLES[0].splitlines()) <= 30, "the first bug takes at most 30 lines"


@pytest.mark.full
def test_first_example_finds_its_bug_and_reduces_it(tmp_path: Path) -> None:
    (tmp_path / "test_invoices.py").write_text(EXAMPLES[0])
    target = "test_invoices.py:test_each_order_has_one_invoice"
    found = subprocess.run(
        [sys.executable, "-m", "odradek.simulation", target, "--seeds", "0..200", "--first"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": "random"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == FAILED, found.stderr
    assert re.search(r"finding: input b'order \d+' of orders is 2 times in invoices", found.stdout)
    assert f"replay: python -m odradek.simulation {target} --seed " in found.stdout
