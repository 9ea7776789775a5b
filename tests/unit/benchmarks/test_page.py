"""Results of `make bench` and `make growth` as files, and the page that shows them."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from benchmarks.chart import median_timelines
from benchmarks.failover import Timeline
from benchmarks.growth_chart import TARGETS
from benchmarks.measure import COORDINATOR, LEADER, Round
from benchmarks.page import RECORDED_GROWTH, write_page
from benchmarks.pictures import PICTURES, draw_all
from benchmarks.recording import (
    About,
    Bench,
    Growth,
    GrowthRun,
    about_now,
    read_bench,
    read_growth,
    write_bench,
    write_growth,
)
from benchmarks.report import ONE, PARTS, THREE, lines, report, table_title
from benchmarks.systems import Kafka, Odradek
from odradek.source_commit import source_commit

if TYPE_CHECKING:
    from pathlib import Path

ABOUT = About("2026-01-02 03:04 UTC", "1234abcd", "2 processors")
HOSTILE = '<script src="https://third.example/x.js">alert(1)</script>'
THIRD_PARTY = re.compile(r"<[^>]*\b(?:src|href)=[\"']?(?:https?:)?//|@import|url\([\"']?(?!#)")
"""Reference to another file or host. Namespaces of SVG are not references."""


def one_round(scale: float, gap_s: float) -> Round:
    figures = {row.name: scale * number for number, row in enumerate(PARTS[THREE].rows, 1)}
    acknowledged = [number / 20 for number in range(-60, 0)] + [gap_s + number / 20 for number in range(80)]
    timelines = {what: Timeline([round(at, 3) for at in acknowledged]) for what in (LEADER, COORDINATOR)}
    return Round(figures, {"produce_mb_s": scale}, timelines)


def three_brokers() -> Bench:
    kafka = [one_round(2.0, gap_s) for gap_s in (9.0, 8.0, 12.0)]
    ours = [one_round(4.0, gap_s) for gap_s in (0.5, 0.6, 0.4)]
    return Bench(ABOUT, {THREE: {Kafka.name: kafka, Odradek.name: ours}})


def growth(about: About = ABOUT) -> Growth:
    figures = dict.fromkeys(TARGETS, 2.5) | {"create: s": 7.25}
    systems = (Odradek.name, Kafka.name)
    return Growth(about, [GrowthRun(name, size, figures) for name in systems for size in (1_000, 5_000)])


def cells(page: str) -> list[list[str]]:
    """Return the texts of the cells of each row of the page's tables."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    return [
        [unescape(re.sub("<.*?>", "", cell)) for cell in re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row)] for row in rows
    ]


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_bench(tmp_path / "bench.json", three_brokers())
    assert read_bench(tmp_path / "bench.json") == three_brokers()
    write_growth(tmp_path / "growth.json", growth())
    assert read_growth(tmp_path / "growth.json") == growth()


@pytest.fixture(scope="module")
def measured_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page of recorded results of both commands, with hostile texts."""
    folder = tmp_path_factory.mktemp("measured")
    write_bench(folder / "bench.json", replace(three_brokers(), about=replace(ABOUT, commit=HOSTILE)))
    hostile = growth()
    hostile.runs[0] = replace(hostile.runs[0], system=HOSTILE, figures={HOSTILE: 1.0} | hostile.runs[0].figures)
    write_growth(folder / "growth.json", hostile)
    bench = read_bench(folder / "bench.json")
    return write_page(folder / "new" / "report.html", bench, folder / "growth.json").read_text()


@pytest.fixture(scope="module")
def page_without_growth(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("absent")
    return write_page(folder / "report.html", three_brokers(), folder / "absent.json").read_text()


def test_page_of_recorded_results_has_every_row_and_all_curves(measured_page: str) -> None:
    shown = cells(measured_page)
    results = three_brokers().parts[THREE]
    for line in lines(PARTS[THREE].rows, results):
        assert [*line.cells(), line.result()] in shown
    assert ["create: s", *["7.25"] * 4, ""] in shown
    gaps = [timeline.gap_s for each in median_timelines(results).values() for timeline in each.values()]
    assert [measured_page.count(f"{gap:.1f} s without an acknowledgment") for gap in gaps] == [2, 2, 2, 2]
    assert all(measured_page.count(name) >= 2 for name in TARGETS)
    assert "medians of 3 alternating rounds" in measured_page
    assert ABOUT.describe() in measured_page, "the origin of the growth figures"
    assert "Recorded figures" not in measured_page
    identifiers = re.findall(r'\bid="(.*?)"', measured_page)
    assert len(set(identifiers)) == len(identifiers)


def test_page_contacts_no_other_host_and_escapes_all_texts(measured_page: str) -> None:
    assert "<script" not in measured_page
    assert measured_page.count("&lt;script src=") >= 4, (
        "the commit, a name of a system and a figure in table and legend"
    )
    assert THIRD_PARTY.search(measured_page) is None
    assert "@media (prefers-color-scheme: dark)" in measured_page


def test_page_names_the_origin_of_growth_figures_that_are_recorded(page_without_growth: str) -> None:
    recorded = read_growth(RECORDED_GROWTH)
    assert f"<b>Recorded figures, not of this machine today:</b> {recorded.about.describe()}" in page_without_growth
    assert recorded.runs


def test_origin_of_a_measurement_has_its_commit_and_time() -> None:
    about = about_now()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", about.at)
    assert about.commit == source_commit()


def test_missed_targets_are_reported_and_marked(page_without_growth: str) -> None:
    bench = three_brokers()
    missed = report(PARTS[THREE], bench.parts[THREE], Console(width=200, quiet=True))
    expected = [line.row.title.strip() for line in lines(PARTS[THREE].rows, bench.parts[THREE]) if not line.met]
    assert missed == [f"Three brokers: {title}" for title in expected]
    assert expected
    assert page_without_growth.count("<span class=violated>missed</span>") == len(expected)
    assert f"Targets missed: {len(expected)}." in page_without_growth


@pytest.mark.parametrize("gap_s", [0.4, 9.0])
def test_gap_has_its_begin_and_end(gap_s: float) -> None:
    assert one_round(1.0, gap_s).timelines[LEADER].gap == pytest.approx((-0.05, gap_s))


def test_pictures_of_the_documentation_show_the_recorded_figures(tmp_path: Path) -> None:
    for picture in draw_all(tmp_path):
        texts, shown = (re.findall(r">([^<>\n]+)</t", path.read_text()) for path in (picture, PICTURES / picture.name))
        assert texts == shown, "run python -m benchmarks.pictures"
        assert len(texts) > 10


def test_report_names_the_warm_up_also_after_it_was_read(tmp_path: Path) -> None:
    warm = replace(one_round(1.0, 0.4), warm_up_runs=3)
    write_bench(tmp_path / "bench.json", Bench(about_now(), {ONE: {Kafka.name: [warm], Odradek.name: [warm]}}))
    results = read_bench(tmp_path / "bench.json").parts[ONE]
    assert table_title(PARTS[ONE], results) == "One broker: one round, warm-up runs per workload: 3"
