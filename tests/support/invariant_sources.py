"""Find the code that checks each invariant, and the test that breaks it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.invariants.table import INVARIANTS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
PRODUCT: Final = ("broker", "client", "cluster", "coordinator", "protocol", "runtime", "storage")
TESTS: Final = ("tests",)
GENERATED: Final = ("protocol/messages/", "protocol/records/")
CLASS: Final = re.compile(r"^class (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Check:
    """A statement that raises the violation of an invariant."""

    path: str
    function: str
    """Class and function."""
    constant: str
    expensive: bool
    """The check depends on `CHECKS.expensive`."""


@dataclass(frozen=True, slots=True)
class BreakingTest:
    """A test with the decorator `breaks`."""

    path: str
    function: str
    constant: str


def checks() -> list[Check]:
    """Return all checks of invariants in the product."""
    return [check for path, tree in _trees(PRODUCT, "odradek.invariants") for check in _checks_in(path, tree)]


def breaking_tests() -> list[BreakingTest]:
    """Return the tests that break an invariant."""
    return [test for path, tree in _trees(TESTS, "@breaks(") for test in _tests_in(path, tree)]


def subjects() -> frozenset[str]:
    """Return the names of all classes of the product."""
    return frozenset(name for _, text in _files(PRODUCT) for name in CLASS.findall(text))


def _files(folders: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            name = str(file.relative_to(ROOT))
            if not name.startswith(GENERATED):
                yield name, file.read_text()


def _trees(folders: tuple[str, ...], mark: str) -> Iterator[tuple[str, ast.Module]]:
    """Parse the files that contain `mark`: a parse takes milliseconds."""
    for name, text in _files(folders):
        if mark in text:
            yield name, ast.parse(text)


def _checks_in(path: str, tree: ast.Module) -> Iterator[Check]:
    def visit(node: ast.AST, function: tuple[str, ...], *, expensive: bool) -> Iterator[Check]:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            function = (*function, node.name)
        if isinstance(node, ast.If) and any(
            isinstance(part, ast.Attribute) and part.attr == "expensive" for part in ast.walk(node.test)
        ):
            expensive = True
        if isinstance(node, ast.Raise):
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and part.id in INVARIANTS:
                    yield Check(path, ".".join(function), part.id, expensive)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, function, expensive=expensive)

    return visit(tree, (), expensive=False)


def _tests_in(path: str, tree: ast.Module) -> Iterator[BreakingTest]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in node.decorator_list:
            if (
                isinstance(decorator, ast.Call)
                and isinstance(decorator.func, ast.Name)
                and decorator.func.id == "breaks"
            ):
                (argument,) = decorator.args
                assert isinstance(argument, ast.Name), ast.unparse(decorator)
                yield BreakingTest(path, node.name, argument.id)
