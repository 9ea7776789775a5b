"""Results of `make bench` and `make growth` as JSON files, which name time, commit and machine of the measurement."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.failover import Timeline
from benchmarks.measure import Round
from odradek.source_commit import source_commit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.report import Results

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "bench"
"""Directory for the results of both commands."""
BENCH, GROWTH = OUT / "bench.json", OUT / "growth.json"
RECORDED = ROOT / "benchmarks" / "recorded"
"""Directory of the results that the documentation shows."""


@dataclass(frozen=True)
class About:
    """Origin of a measurement."""

    at: str
    commit: str
    machine: str

    def describe(self) -> str:
        return f"measured {self.at}, commit {self.commit}, {self.machine}"


@dataclass(frozen=True)
class Bench:
    """Results of one run of `make bench`, by part of the run."""

    about: About
    parts: dict[str, Results]


@dataclass(frozen=True)
class GrowthRun:
    """Figures of one system with one number of partitions."""

    system: str
    partitions: int
    figures: dict[str, float]

    @property
    def title(self) -> str:
        return f"{self.system} {self.partitions:,}"


@dataclass(frozen=True)
class Growth:
    """Results of one run of `make growth`."""

    about: About
    runs: list[GrowthRun] = field(default_factory=list)


def about_now() -> About:
    """Return the origin of a measurement that is made now."""
    machine = f"{os.cpu_count()} processors ({platform.machine()}), {platform.system()} {platform.release()}"
    return About(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", source_commit(), machine)


def write_bench(path: Path, bench: Bench) -> None:
    parts = {part: {name: [_as_json(one) for one in rounds] for name, rounds in results.items()}
             for part, results in bench.parts.items()}  # fmt: skip
    _write(path, {"about": asdict(bench.about), "parts": parts})


def read_bench(path: Path) -> Bench:
    content = json.loads(path.read_text(encoding="utf-8"))
    parts = {part: {name: [_round(one) for one in rounds] for name, rounds in results.items()}
             for part, results in content["parts"].items()}  # fmt: skip
    return Bench(About(**content["about"]), parts)


def write_growth(path: Path, growth: Growth) -> None:
    _write(path, asdict(growth))


def read_growth(path: Path) -> Growth:
    content = json.loads(path.read_text(encoding="utf-8"))
    return Growth(About(**content["about"]), [GrowthRun(**run) for run in content["runs"]])


def _as_json(one: Round) -> dict[str, object]:
    """Return all figures of a round. Acknowledgments are milliseconds: the first time, then the differences."""
    milliseconds = {
        what: [round(at * 1000) for at in timeline.acknowledged] for what, timeline in one.timelines.items()
    }
    differences = {
        what: times[:1] + [later - earlier for earlier, later in pairwise(times)]
        for what, times in milliseconds.items()
    }
    return {"figures": one.figures, "cpu": one.cpu, "acknowledged": differences, "warm_up_runs": one.warm_up_runs}


def _round(content: Mapping[str, Any]) -> Round:
    timelines = {
        what: Timeline([at / 1000 for at in accumulate(differences)])
        for what, differences in content["acknowledged"].items()
    }
    return Round(content["figures"], content["cpu"], timelines, content.get("warm_up_runs", 0))


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
