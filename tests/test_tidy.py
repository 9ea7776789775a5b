"""Checks of repository rules: sizes of files and functions, banned calls, leftovers, text and commit messages.

The lists of exceptions may only shrink. A listed file or function that no longer exceeds its limit fails the test until
it is removed from the list. An addition requires a decision record.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sim.planted.bugs import PLANTED
from tests.support import prose

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

GENERATED = ("protocol/messages/", "protocol/records/")
SERVER_PACKAGES = ("protocol/", "storage/", "runtime/", "coordinator/", "cluster/", "broker/")

# Files that access the event loop, the disk, the clock or the random generator (seams). Other files take arguments.
SEAMS = (
    "storage/disk/os_disk.py",  # the disk
    "broker/process/clock.py",  # the clock
    "broker/__main__.py",  # the event loop, signals, the process
    "protocol/generate.py",  # development time only
    "protocol/generation/",  # development time only
)

BANNED_CALLS = {
    "time.time": "take now_ms as an argument, or a Clock",
    "time.time_ns": "take now_ms as an argument, or a Clock",
    "time.monotonic": "take now_ms as an argument, or a Clock",
    "time.monotonic_ns": "take now_ms as an argument, or a Clock",
    "time.perf_counter": "take now_ms as an argument, or a Clock",
    "time.sleep": "wait for the event",
    "datetime.now": "take now_ms as an argument, or a Clock",
    "datetime.datetime.now": "take now_ms as an argument, or a Clock",
    "open": "go through storage.disk.Disk",
    "os.open": "go through storage.disk.Disk",
    "os.urandom": "take the node's random.Random",
    "uuid.uuid4": "make it from the node's random.Random",
    "uuid4": "make it from the node's random.Random",
    "secrets.token_bytes": "take the node's random.Random",
    "asyncio.wait": "it returns in set order: use runtime.tasks",
    "asyncio.as_completed": "completion order is not reproducible: use runtime.tasks",
    "asyncio.TaskGroup": "it cancels in set order: use runtime.tasks",
    "asyncio.to_thread": "threads are used behind storage.disk only",
    "threading.Thread": "threads are used behind storage.disk only",
}
BANNED_MODULE_FUNCTIONS = {"random": "take the node's random.Random"}
ALLOWED_MODULE_FUNCTIONS = {"random.Random"}
PLANTED_COLUMNS = ["bug", "brokers", "failing seed", "checkers", "their first finding"]
FIRST_CHECKED_COMMIT = "f4ce67d"
"""Subjects of the commits after this one follow CONTRIBUTING.md."""
SUBJECT = re.compile(r"[a-z][a-z0-9 ,/._-]*: [a-z`_.].*")
SUBJECT_CHARACTERS_MAX = 72
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
RULED_COMMENT = re.compile(r"\s*#\s*[-=*#~]{2,}")
SECTION = re.compile(r" *# ---- [^-](.*[^-])? -+")
SECTION_COLUMNS = 119

# path -> lines, and path:function -> lines. These lists may only shrink.
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {}


def tracked_sources() -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = sorted(set(listing.stdout.split()))
    return [name for name in names if not name.startswith(GENERATED) and (ROOT / name).exists()]


SOURCES = tracked_sources()
TREES = {name: ast.parse((ROOT / name).read_text()) for name in SOURCES}


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def size(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def is_seam(name: str) -> bool:
    return name.startswith(SEAMS) or not name.startswith(SERVER_PACKAGES)


def banned_calls(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func)
        if called in BANNED_CALLS:
            yield node.lineno, called, BANNED_CALLS[called]
        module = called.split(".", 1)[0]
        if module in BANNED_MODULE_FUNCTIONS and "." in called and called not in ALLOWED_MODULE_FUNCTIONS:
            yield node.lineno, called, BANNED_MODULE_FUNCTIONS[module]


def set_iterations(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of loops over a set expression. The order of a set is not reproducible."""
    for node in ast.walk(tree):
        iterated = node.iter if isinstance(node, ast.For | ast.comprehension) else None
        if isinstance(iterated, ast.Set | ast.SetComp) or (
            isinstance(iterated, ast.Call) and dotted(iterated.func) in {"set", "frozenset"}
        ):
            yield iterated.lineno


def test_source_files_are_found() -> None:
    assert len(SOURCES) > 20


def test_files_are_short() -> None:
    sizes = {name: len((ROOT / name).read_text().splitlines()) for name in SOURCES}
    assert {name: lines for name, lines in sizes.items() if lines > FILE_LINES_MAX} == LONG_FILES


def test_functions_are_short() -> None:
    sizes = {
        f"{name}:{node.name}": size(node)
        for name, tree in TREES.items()
        for node in functions(tree)
        if size(node) > FUNCTION_LINES_MAX
    }
    assert sizes == LONG_FUNCTIONS


def test_only_seams_call_banned_functions() -> None:
    violations = [
        f"{name}:{line}: {called}: {instead}"
        for name, tree in TREES.items()
        if not is_seam(name)
        for line, called, instead in banned_calls(tree)
    ]
    assert violations == []


def test_server_code_does_not_iterate_over_sets() -> None:
    violations = [
        f"{name}:{line}"
        for name, tree in TREES.items()
        if name.startswith(SERVER_PACKAGES)
        for line in set_iterations(tree)
    ]
    assert violations == []


def test_source_has_no_leftovers() -> None:
    leftovers = [
        f"{name}:{number}: {line.strip()}"
        for name in SOURCES
        if name != "tests/test_tidy.py"
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if LEFTOVERS.search(line)
    ]
    assert leftovers == []


def test_section_comments_have_one_style() -> None:
    unlike = [
        f"{name}:{number}: {line.strip()}"
        for name in SOURCES
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if RULED_COMMENT.match(line) and not (len(line) == SECTION_COLUMNS and SECTION.fullmatch(line))
    ]
    assert unlike == []


def test_text_follows_the_glossary() -> None:
    assert [str(finding) for finding in prose.findings(prose.tracked(*prose.CHECKED))] == []


def test_spelling_is_american() -> None:
    """codespell finds known misspellings; pyproject.toml names its dictionaries and the exceptions."""
    patterns = ["*.py", "*.md", "*.txt", "*.toml", "*.yml", "*.java", "*.xml", "*.properties", "Makefile", "Dockerfile"]
    names = prose.tracked(*patterns, ".ci/run")
    command = [sys.executable, "-m", "codespell_lib", *names]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_commits_have_a_subject_with_an_area_and_a_body() -> None:
    command = ["git", "log", "--no-merges", "--format=%h%x01%s%x01%b%x02", f"{FIRST_CHECKED_COMMIT}..HEAD"]
    log = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if log.returncode != 0:
        pytest.skip(f"commit messages were not checked: this clone has no history back to {FIRST_CHECKED_COMMIT}")
    bad = []
    for entry in log.stdout.split("\x02"):
        if not entry.strip():
            continue
        commit, subject, body = entry.strip().split("\x01")
        if len(subject) > SUBJECT_CHARACTERS_MAX or not SUBJECT.fullmatch(subject) or not body.strip():
            bad.append(f"{commit} {subject}")
    assert bad == [], "imperative subject of at most 72 characters with an area prefix, and a body"


def test_table_of_planted_bugs_lists_all_planted_bugs() -> None:
    """Compare the titles only. tests/sim/test_campaign.py runs the bugs, and compares the seeds and findings."""
    rows = [line.strip("| ").split(" | ") for line in (ROOT / "docs" / "planted.md").read_text().splitlines()]
    listed = [(row[0], row[1]) for row in rows if len(row) == len(PLANTED_COLUMNS) and row != PLANTED_COLUMNS]
    assert listed == [(bug.title, str(bug.brokers)) for bug in PLANTED], "python -m tests.sim.planted.bugs --write"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time\ntime.time()", ["time.time"]),
        ("import random\nrandom.randint(0, 1)", ["random.randint"]),
        ("import random\nrandom.Random(7)", []),
        ("open('x')", ["open"]),
        ("import asyncio\nasyncio.wait([])", ["asyncio.wait"]),
        ("import asyncio\nasyncio.get_running_loop()", []),
    ],
)
def test_banned_calls_are_found(source: str, expected: list[str]) -> None:
    assert [called for _, called, _ in banned_calls(ast.parse(source))] == expected


def test_loops_over_sets_are_found() -> None:
    assert list(set_iterations(ast.parse("for x in {1, 2}: pass"))) == [1]
    assert list(set_iterations(ast.parse("for x in sorted({1, 2}): pass"))) == []
