"""Stacks that were sampled become folded lines and one HTML file; what is slow is wide."""

import signal
import sys
from html.parser import HTMLParser

import pytest

from odradek.broker.process import profiler
from odradek.broker.process.profiler import Profiler, boxes_of, flame_graph, folded_lines, tree_of

STACKS = {("main", "serve"): 6, ("main", "serve", "append<t>"): 3, ("main",): 1}


def test_folded_lines_are_what_other_tools_read() -> None:
    assert folded_lines(STACKS) == "main 1\nmain;serve 6\nmain;serve;append<t> 3\n"


def test_a_frame_is_as_wide_as_the_time_within_it() -> None:
    boxes = {node.name: (start, row, share) for node, start, row, share in boxes_of(tree_of(STACKS))}
    assert boxes == {"all": (0, 0, 1), "main": (0, 1, 1), "serve": (0, 2, 0.9), "append<t>": (0, 3, pytest.approx(0.3))}


def test_calls_lie_beside_each_other() -> None:
    boxes = [(node.name, start, share) for node, start, _, share in boxes_of(tree_of({("a",): 1, ("b",): 3}))]
    assert sorted(boxes) == [("a", 0.75, 0.25), ("all", 0, 1), ("b", 0, 0.75)]


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.titles: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.titles += [given["title"] or ""] if "title" in given else []
        self.sources += [value or "" for name, value in attrs if name in {"src", "href"}]


def test_the_file_needs_nothing_else_and_names_are_no_markup() -> None:
    tags = Tags()
    tags.feed(flame_graph(STACKS, "a <title>"))
    assert "append<t>: 3 samples, 30.0 %" in tags.titles
    assert tags.sources == []


def test_nothing_sampled_is_a_file_too() -> None:
    assert "0 samples" in flame_graph({}, "empty")


def test_the_timer_samples_what_runs() -> None:
    before = signal.getsignal(signal.SIGPROF)
    sampler = Profiler()
    sampler.start()
    try:
        while sum(sampler.samples.values()) < 3:
            sum(range(10_000))
    finally:
        sampler.stop()
        signal.signal(signal.SIGPROF, before)
    assert any("test_profiler.py" in name for names in sampler.folded() for name in names)


def test_different_stacks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "STACKS_MAX", 1)
    sampler = Profiler()

    def elsewhere() -> None:
        sampler.note(sys._getframe())

    sampler.note(sys._getframe())
    elsewhere()
    elsewhere()
    sampler.note(sys._getframe())
    assert len(sampler.samples) == 1
    assert sampler.folded()[profiler.ELSE,] == 2
