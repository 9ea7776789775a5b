"""Short form of `make fuzz`: the corpus, known failures and some mutations of each target; and planted defects."""

from __future__ import annotations

import gc
import struct
import subprocess
import sys
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from odradek.protocol import codec
from odradek.protocol.compilation import decoder
from tests.fuzz import planted
from tests.fuzz.coverage import edges, selected
from tests.fuzz.folders import CORPUS, REGRESSIONS, inputs
from tests.fuzz.minimize import minimized
from tests.fuzz.target import Target
from tests.fuzz.targets.table import TARGETS
from tests.fuzz.verdict import run_once, verify
from tests.support.effort import effort
from tests.support.jars import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fuzz.verdict import Finding

SEED = 4
CORPORA_BYTES_MAX = 300_000
MUTATIONS = 400
MEASURED_INTERVAL = 20
"""Inputs per input with measured memory and work."""
ENGINE_RUNS = 60_000


def search(
    target: Target, executions: int, *, measured_interval: int = MEASURED_INTERVAL
) -> tuple[Finding, bytes] | None:
    """Run mutations of the seeds and the corpus of a target. Return the first finding and its input."""
    rng = Random(SEED)
    bases = [*target.seeds(), *inputs(CORPUS / target.name).values()]
    for number in range(executions):
        data = target.mutate(rng.choice(bases), rng)[: target.bytes_max]
        finding = run_once(target, data)[0] if number % measured_interval else verify(target, data)
        if finding is not None:
            return finding, data
    return None


def failures(target: Target, found_inputs: dict[str, bytes]) -> dict[str, Finding]:
    found = {name: verify(target, data) for name, data in found_inputs.items()}
    return {name: finding for name, finding in found.items() if finding is not None}


@pytest.mark.parametrize("name", TARGETS)
def test_corpus_and_known_failures_lead_to_success_or_typed_errors(name: str) -> None:
    assert not failures(TARGETS[name], inputs(REGRESSIONS / name) | inputs(CORPUS / name))


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_accepted(name: str) -> None:
    """A rejected seed tests only the first check of a decoder."""
    target = TARGETS[name]
    strict = Target(name, target.run, target.seeds)
    assert not [(run_once(strict, seed)[0], seed) for seed in target.seeds() if run_once(strict, seed)[0] is not None]


@pytest.mark.parametrize("name", TARGETS)
def test_mutations_lead_to_success_or_typed_errors(name: str) -> None:
    assert search(TARGETS[name], effort(MUTATIONS)) is None


def test_corpus_is_small() -> None:
    files = [path for folder in (CORPUS, REGRESSIONS) for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < CORPORA_BYTES_MAX
    assert {path.parent.name for path in files} <= set(TARGETS)


def test_selected_corpus_has_the_smallest_input_for_each_path() -> None:
    target = TARGETS["datagrams"]
    deeper = [seed[:1] + b"\x07" + seed[2:] for seed in target.seeds()]  # an unknown kind, which no seed has
    smallest = min(deeper, key=len)
    assert selected(target, [*deeper, *target.seeds()]) == [smallest]


def test_garbage_is_not_collected_while_the_path_of_an_input_is_noted() -> None:
    """Otherwise the path contains finalizers of objects that earlier tests have left."""
    collects: list[bool] = []

    def run(data: bytes) -> int:
        collects.append(gc.isenabled())
        return 0

    edges(replace(TARGETS["datagrams"], run=run), b"")
    assert (collects, gc.isenabled()) == ([False], True)


# ---- planted defects ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [("allocates", "memory"), ("hangs", "steps")])
def test_planted_resource_defect_is_found_and_minimized(name: str, kind: str) -> None:
    target = planted.TARGETS[name]
    result = search(target, 2_000, measured_interval=1)
    assert result is not None
    finding, data = result
    assert finding.kind == kind
    smallest = minimized(target, data)
    assert len(smallest) <= len(data)
    again = verify(target, smallest)
    assert again is not None
    assert again.key == finding.key


def test_engine_finds_a_defect_that_only_coverage_leads_to(tmp_path: Path) -> None:
    assert search(planted.TARGETS["behind-a-magic"], 1_000) is None
    command = [
        sys.executable, "-m", "tests.fuzz.engine", "behind-a-magic", "--table", "tests.fuzz.planted",
        "--scratch", str(tmp_path / "scratch"), "--failures", str(tmp_path / "failures"),
        "--runs", str(ENGINE_RUNS), "--seed", "1",
    ]  # fmt: skip
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = inputs(tmp_path / "failures")
    assert len(found) == 1, ended.stderr[-2_000:]
    finding, _ = run_once(planted.TARGETS["behind-a-magic"], next(iter(found.values())))
    assert finding is not None
    assert finding.kind == "IndexError"


@pytest.fixture
def fresh_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile decoders again, and drop them after the test."""
    monkeypatch.setattr(codec, "_decoders", {})
    monkeypatch.setattr(codec, "_sliced_decoders", {})


@pytest.mark.usefixtures("fresh_decoders")
def test_sliced_decoder_without_charges_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    charge = decoder._Decoder._charge

    def charge_unsliced(self: decoder._Decoder, expression: str) -> None:
        charge(self, "0" if self.sliced else expression)

    monkeypatch.setattr(decoder._Decoder, "_charge", charge_unsliced)
    result = search(TARGETS["messages"], 100)
    assert result is not None
    assert result[0].kind == "AssertionError"


def test_untyped_decode_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "DECODE_ERRORS", (struct.error, ValueError))
    result = search(TARGETS["messages"], 2_000)
    assert result is not None
    assert result[0].kind == "IndexError"
