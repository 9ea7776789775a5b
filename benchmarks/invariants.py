"""python -m benchmarks.invariants: measure the cost of the always-on invariants on append, fetch and commit.

Two child processes run the same operations. The first one runs the product unchanged. The second one removes each
statement that checks an invariant when it imports the product. The parent process lets them run in alternating rounds.

- CPU time: the fastest round of each child, per operation, and the median of the ratios of paired rounds.
- Bytecodes: the number of executed Python instructions per operation. It is the same in each run.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from time import process_time_ns
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, FrameType, ModuleType

OPERATIONS: Final = ("append", "fetch", "commit")
PER_ROUND: Final = 200
"""Operations of each kind per round: a few milliseconds, so that many rounds are free of interruptions."""
COUNTED: Final = 20
"""Operations of each kind whose bytecodes are counted."""


class _WithoutChecks(ast.NodeTransformer):
    """Remove the statements `if ...: raise INVARIANT.violated(...)`."""

    removed = 0

    def visit_If(self, node: ast.If) -> ast.AST | None:
        self.generic_visit(node)
        match node:
            case ast.If(body=[ast.Raise(exc=ast.Call(func=ast.Attribute(attr="violated" | "_violated")))], orelse=[]):
                type(self).removed += 1
                return ast.copy_location(ast.Pass(), node)
        return node


class _Loader(SourceFileLoader):
    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]  # typeshed has no _optimize
        tree = ast.fix_missing_locations(_WithoutChecks().visit(ast.parse(data, path)))
        code: CodeType = compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)
        return code

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source. Cached bytecode has the checks."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("odradek."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


async def _operations(folder: str, rounds: int) -> dict[str, Callable[[], object]]:
    """Return one function per kind of operation. Each call runs the operation once."""
    # The finder of the second child process must be installed before these imports.
    from odradek.storage.disk.os_disk import OsDisk
    from odradek.storage.producers.entry import Origin
    from tests.support.cells import Rig
    from tests.support.logs import NOW_MS, open_log, produced

    log = open_log(OsDisk(), folder)
    rig = await Rig().loaded()
    batches = iter([produced(1, sequence, 10) for sequence in range(0, 10 * (rounds + 3) * PER_ROUND, 10)])

    def append_batch() -> None:
        log.append_as_leader(next(batches), leader_epoch=0, origin=Origin.CLIENT, now_ms=NOW_MS, monotonic_ms=NOW_MS)
        log.update_high_watermark(log.log_end_offset)

    def fetch() -> object:
        return log.read(1_000, max_bytes=4_000)

    def commit() -> object:
        return rig.put("key", 1)

    for _ in range(PER_ROUND):
        append_batch()
    return {"append": append_batch, "fetch": fetch, "commit": commit}


def _count_bytecodes(operation: Callable[[], object]) -> float:
    """Return the number of executed Python instructions per operation."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    operation()
    sys.settrace(trace)
    for _ in range(COUNTED):
        operation()
    sys.settrace(None)
    return count / COUNTED


async def _child(rounds: int) -> None:
    """Run one round for each line of standard input. Write the nanoseconds per operation as a line of JSON."""
    with tempfile.TemporaryDirectory() as folder:
        operations = await _operations(folder, rounds)
        bytecodes = {name: _count_bytecodes(operation) for name, operation in operations.items()}
        print(json.dumps({"bytecodes": bytecodes, "removed": _WithoutChecks.removed}), flush=True)
        while sys.stdin.readline().strip():
            round_ns = {}
            for name, operation in operations.items():
                began_ns = process_time_ns()
                for _ in range(PER_ROUND):
                    operation()
                round_ns[name] = (process_time_ns() - began_ns) / PER_ROUND
            print(json.dumps(round_ns), flush=True)


class _Child:
    """A child process with or without the checks."""

    def __init__(self, mode: str, rounds: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.invariants", "--child", mode, "--rounds", str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[1],
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
        header = self._read()
        self.bytecodes: dict[str, float] = header["bytecodes"]
        self.removed: int = header["removed"]
        self.rounds: dict[str, list[float]] = {name: [] for name in OPERATIONS}

    def run_round(self) -> None:
        self._write("round\n")
        for name, nanoseconds in self._read().items():
            self.rounds[name].append(nanoseconds)

    def stop(self) -> None:
        self._write("\n")
        self._process.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        reply: dict[str, Any] = json.loads(self._process.stdout.readline())
        return reply


def main() -> int:
    """Print the table of costs. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.invariants", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="rounds per child process (default 100)")
    parser.add_argument("--child", choices=("checked", "unchecked"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        if options.child == "unchecked":
            sys.meta_path.insert(0, _Finder())
        asyncio.run(_child(options.rounds))
        return 0
    checked, unchecked = _Child("checked", options.rounds), _Child("unchecked", options.rounds)
    for _ in range(options.rounds):
        unchecked.run_round()
        checked.run_round()
    columns = ("operation", "us without", "us with", "fastest", "paired", "bytecodes without", "with", "more")
    table = Table(*columns)
    for name in OPERATIONS:
        without_ns, with_ns = min(unchecked.rounds[name]), min(checked.rounds[name])
        pairs = zip(checked.rounds[name], unchecked.rounds[name], strict=True)
        paired = statistics.median(after / before - 1 for after, before in pairs)
        table.add_row(
            name,
            f"{without_ns / 1_000:.2f}",
            f"{with_ns / 1_000:.2f}",
            f"{with_ns / without_ns - 1:+.1%}",
            f"{paired:+.1%}",
            f"{unchecked.bytecodes[name]:.0f}",
            f"{checked.bytecodes[name]:.0f}",
            f"{checked.bytecodes[name] / unchecked.bytecodes[name] - 1:+.1%}",
        )
    for child in (checked, unchecked):
        child.stop()
    Console(width=110).print(f"The second process removed {unchecked.removed} checks.", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
