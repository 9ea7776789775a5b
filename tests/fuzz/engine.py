"""Fuzz one target in this process with Atheris, which guides the inputs by the coverage of odradek's bytecode.

`tests.fuzz.campaign` starts this module as a process. libFuzzer, which Atheris contains, ends the process itself.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import atheris

with atheris.instrument_imports(include=["odradek"]):
    from odradek.protocol.compilation import emitting
    from tests.fuzz.folders import write
    from tests.fuzz.mutations import spliced
    from tests.fuzz.verdict import Finding, run_once, slow, verify_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from tests.fuzz.target import Target

MEASURED_INTERVAL = 64
"""Executions per execution with measured memory. The measurement makes an execution two to five times slower."""
SUSPICIOUS_CPU_S = 0.25
"""CPU time of one execution, in seconds, after which its executed lines are counted. A normal one needs below 0.01."""
RESIDENT_KIB_MAX = 16 * 1024
"""Growth of the largest resident memory in one execution, in KiB, after which its memory is measured."""
MEMORY_MIB_MAX = 2_048
"""Memory of the process, in MiB, at which libFuzzer ends it and keeps the input."""
HANG_S = 60
"""Duration of one execution, in seconds, at which libFuzzer ends the process and keeps the input.

It detects hangs in C code. The count of executed lines detects those in Python.
"""
INSTRUMENTED_CODECS_MAX = 100
"""Maximum instrumented decoders. The instrumentation of one takes about 0.06 s."""
GENERATED = 0.6
"""Share of inputs that the target mutates, because it knows their structure. libFuzzer mutates the rest."""


def instrument_codecs() -> None:
    """Instrument the first decoders that odradek compiles on first use. Later ones have the same structure."""
    remaining = INSTRUMENTED_CODECS_MAX

    def compiled(source: str, name: str, mode: str) -> CodeType:
        nonlocal remaining
        code: CodeType = compile(source, name, mode)
        if remaining and source.startswith("def run(b,") and "yield" not in source:
            remaining -= 1
            code = atheris.instrument_bytecode.patch_code(code, trace_dataflow=False)
        return code

    vars(emitting)["compile"] = compiled


class Engine:
    """Run inputs, and write each finding once, with its smallest input."""

    def __init__(self, target: Target, failures: Path) -> None:
        self._target = target
        self._failures = failures
        self._smallest: dict[str, int] = {}
        self._executions = 0
        self._resident_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def execute(self, data: bytes) -> None:
        """Run one input. Measure it if it is suspicious, or due."""
        self._executions += 1
        if self._executions % MEASURED_INTERVAL == 0:
            finding = verify_memory(self._target, data)
        else:
            finding, suspicious = self._watch(data)
            if suspicious:
                finding = finding or verify_memory(self._target, data)
                if finding is None and self._watch(data)[1]:  # the first run may have compiled decoders
                    finding = slow(self._target)
        if finding is not None:
            self._report(finding, data)

    def _watch(self, data: bytes) -> tuple[Finding | None, bool]:
        """Run one input. Return its finding, and True if its use of time or memory requires a measurement."""
        before_s = time.thread_time()
        finding, _ = run_once(self._target, data)
        resident_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        has_grown = resident_kib - self._resident_kib > RESIDENT_KIB_MAX
        self._resident_kib = resident_kib
        return finding, has_grown or time.thread_time() - before_s > SUSPICIOUS_CPU_S

    def _report(self, finding: Finding, data: bytes) -> None:
        if len(data) >= self._smallest.get(finding.key, len(data) + 1):
            return
        self._smallest[finding.key] = len(data)
        self._failures.mkdir(parents=True, exist_ok=True)
        (self._failures / finding.key).write_bytes(data)

    def mutate(self, data: bytes, bytes_max: int, seed: int) -> bytes:
        """Return the next input (libFuzzer's LLVMFuzzerCustomMutator)."""
        rng = Random(seed)
        if rng.random() < GENERATED:
            return self._target.mutate(data, rng)[:bytes_max]
        mutated: bytes = atheris.Mutate(data, bytes_max)
        return mutated

    def cross(self, first: bytes, second: bytes, bytes_max: int, seed: int) -> bytes:
        """Return the next input, made from two (libFuzzer's LLVMFuzzerCustomCrossOver)."""
        return spliced(first, second, Random(seed))[:bytes_max]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.engine", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--table", default="tests.fuzz.targets.table", help="module with the targets")
    parser.add_argument("--scratch", type=Path, required=True, help="folder of generated inputs")
    parser.add_argument("--failures", type=Path, required=True, help="folder of inputs with findings")
    parser.add_argument("--corpus", type=Path, nargs="*", default=[], help="folders of further inputs")
    parser.add_argument("--seconds", type=int, default=0, help="duration")
    parser.add_argument("--runs", type=int, default=-1, help="number of executions")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    instrument_codecs()
    with atheris.instrument_imports(include=["odradek", options.table]):
        target: Target = importlib.import_module(options.table).TARGETS[options.target]
    seeds = options.scratch.parent / f"{options.scratch.name}.seeds"
    write(seeds, target.seeds())
    options.scratch.mkdir(parents=True, exist_ok=True)
    options.failures.mkdir(parents=True, exist_ok=True)
    engine = Engine(target, options.failures)
    flags: dict[str, Any] = {
        "seed": options.seed % (2**31 - 1) + 1,  # 0 means a seed from the clock
        "max_total_time": options.seconds,
        "runs": options.runs,
        "max_len": target.bytes_max,
        "timeout": HANG_S,
        "rss_limit_mb": MEMORY_MIB_MAX,
        "artifact_prefix": f"{options.failures}/",
        "print_final_stats": 1,
        "report_slow_units": HANG_S,
        "len_control": 0,
    }
    setup(
        [sys.argv[0], *(f"-{name}={value}" for name, value in flags.items()),
         *map(str, (options.scratch, *options.corpus, seeds))],
        engine.execute,
        engine,
    )  # fmt: skip
    atheris.Fuzz()


def setup(arguments: list[str], execute: Callable[[bytes], None], engine: Engine) -> None:
    atheris.Setup(arguments, execute, custom_mutator=engine.mutate, custom_crossover=engine.cross)


if __name__ == "__main__":
    main()
