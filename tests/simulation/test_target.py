"""Names of simulations on the command line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import odradek
from odradek.simulation.errors import UnknownTarget
from odradek.simulation.target import additional_paths, command_of, load, target_of
from tests.simulation.apps import counters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.simulation import Sim

SOURCE = """
import odradek

@odradek.simulated(brokers=1)
async def test_orders(sim):
    "An application."
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder `tests` of a project, the current folder, whose sys.path pytest has changed."""
    tests = tmp_path / "project" / "orders_tests"
    tests.mkdir(parents=True)
    (tests / "test_of_orders.py").write_text(SOURCE)
    monkeypatch.chdir(tests.parent)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tests
    for name in [name for name in sys.modules if "orders" in name]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.mark.parametrize(
    ("package", "root", "module"),
    [(False, "orders_tests", "test_of_orders"), (True, ".", "orders_tests.test_of_orders")],
)
def test_test_file_is_named_by_its_path(project: Path, package: bool, root: str, module: str) -> None:
    if package:
        (project / "__init__.py").touch()
    sys.path.insert(0, str((project.parent / root).resolve()))
    importlib.invalidate_caches()
    test = importlib.import_module(module).test_orders
    assert test.__doc__ == "An application."
    target = target_of(test)
    assert target == "orders_tests/test_of_orders.py:test_orders"
    del sys.modules[module]
    assert load(target).brokers == 1


def test_module_in_a_folder_without_init_is_named_by_its_module() -> None:
    assert target_of(counters.correct) == "tests.simulation.apps.counters:correct"
    assert load(target_of(counters.correct)).brokers == 1


def test_function_in_a_function_is_refused() -> None:
    @odradek.simulated()
    async def test_orders(sim: Sim) -> None:
        raise AssertionError(sim)

    with pytest.raises(UnknownTarget, match=r"test_orders is not at the top of a module. Move it there"):
        target_of(test_orders)


def test_command_has_the_paths_that_a_new_process_lacks(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = project.parent / "sources"
    sources.mkdir()
    before = additional_paths()
    sys.path.insert(0, str(sources))
    assert additional_paths() == [str(sources), *before]
    monkeypatch.setenv("PYTHONPATH", f"{sources}:{project}:{Path.cwd()}")
    command = command_of("orders_tests/test_of_orders.py:test_orders", ["--seed", "7"])
    assert command == (
        "PYTHONPATH=sources python -m odradek.simulation orders_tests/test_of_orders.py:test_orders --seed 7"
    )
